//! The changes of a LogicalCluster's status that an initializer or terminator may make.

use std::collections::BTreeSet;

use fairlead_process::{Status, StatusCause};
use serde_json::Value;

use super::Controller;

/// Permits a controller to remove itself, and to change conditions, and nothing else. kcp also permits other fields of the
/// status, such as the phase, by which an initializer could skip all others.
pub(super) fn check_change(
    controller: &Controller,
    name: &str,
    old: &Value,
    new: &Value,
) -> Result<(), Status> {
    let own = controller.lifecycle.status_field();
    let (had, has) = (&old["status"][own], &new["status"][own]);
    if !is_removal(&controller.name, had, has) {
        return Err(invalid(controller, name, own, has));
    }
    let (before, after) = (old["status"].as_object(), new["status"].as_object());
    let fields: BTreeSet<&String> =
        before.into_iter().chain(after).flat_map(|status| status.keys()).collect();
    let changed = fields
        .into_iter()
        .filter(|field| **field != own && *field != "conditions")
        .find(|field| old["status"][field.as_str()] != new["status"][field.as_str()]);
    match changed {
        Some(field) => Err(invalid(controller, name, field, &new["status"][field.as_str()])),
        None => Ok(()),
    }
}

/// Whether a list is the same as before, without at most this one name.
fn is_removal(own: &str, had: &Value, has: &Value) -> bool {
    let names = |list: &Value| -> Vec<String> {
        let all = list.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (had, has) = (names(had), names(has));
    let without_own: Vec<String> = had.iter().filter(|name| **name != own).cloned().collect();
    has == had || has == without_own
}

/// kcp's error.
fn invalid(controller: &Controller, name: &str, field: &str, value: &Value) -> Status {
    let (lifecycle, own) = (controller.lifecycle, &*controller.name);
    let message =
        format!("Invalid value: {value}: only removing the {own:?} {} is supported", lifecycle.role());
    let cause = StatusCause::field("FieldValueInvalid", format!("status.{field}"), message);
    Status::invalid(lifecycle.error_group(), "LogicalCluster", name, vec![cause])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::super::Lifecycle;
    use super::*;

    #[test]
    fn a_controller_removes_itself_and_changes_conditions() {
        let controller = Controller { lifecycle: Lifecycle::Initializing, name: "c:a".into() };
        let old = json!({"phase": "Initializing", "initializers": ["c:a", "c:b"], "URL": "u"});
        for (new, permitted) in [
            (json!({"phase": "Initializing", "initializers": ["c:a", "c:b"], "URL": "u"}), true),
            (json!({"phase": "Initializing", "initializers": ["c:b"], "URL": "u"}), true),
            (json!({"phase": "Initializing", "initializers": ["c:b"], "URL": "u", "conditions": [{}]}), true),
            (json!({"phase": "Initializing", "initializers": ["c:a"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": ["wrong"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": ["c:a", "c:x"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": ["c:b", "c:a"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": ["c:a", "c:b", "c:c"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": [], "URL": "u"}), false),
            (json!({"phase": "Initializing", "URL": "u"}), false),
            (json!({"phase": "Ready", "initializers": ["c:a", "c:b"], "URL": "u"}), false),
            (json!({"phase": "Initializing", "initializers": ["c:b"]}), false),
            (
                json!({"phase": "Initializing", "initializers": ["c:b"], "URL": "u", "terminators": ["t"]}),
                false,
            ),
        ] {
            let changed =
                check_change(&controller, "cluster", &json!({"status": old}), &json!({"status": new}));
            assert_eq!(changed.is_ok(), permitted, "{new}");
        }
        let last = json!({"status": {"initializers": ["c:a"]}});
        assert!(check_change(&controller, "cluster", &last, &json!({"status": {}})).is_ok());
    }

    #[test]
    fn refusals_have_the_texts_of_kcp() {
        for (lifecycle, old, new, message) in [
            (
                Lifecycle::Initializing,
                json!({"initializers": ["root:goldtype"]}),
                json!({"initializers": ["root:goldtype", "root:other"]}),
                "LogicalCluster.tenancy.kcp.io \"cluster\" is invalid: status.initializers: Invalid value: \
                 [\"root:goldtype\",\"root:other\"]: only removing the \"root:goldtype\" initializer is supported",
            ),
            (
                Lifecycle::Terminating,
                json!({"terminators": ["root:goldtype"]}),
                json!({"terminators": ["wrong:wrong"]}),
                "LogicalCluster.core.kcp.io \"cluster\" is invalid: status.terminators: Invalid value: \
                 [\"wrong:wrong\"]: only removing the \"root:goldtype\" terminator is supported",
            ),
        ] {
            let controller = Controller { lifecycle, name: "root:goldtype".into() };
            let (old, new) = (json!({"status": old}), json!({"status": new}));
            let refusal = check_change(&controller, "cluster", &old, &new).unwrap_err();
            assert_eq!((refusal.code, refusal.message.as_str()), (422, message));
        }
    }
}
