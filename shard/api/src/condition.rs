//! Conditions in the style of Cluster API: a list with severities, `Ready` first.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::keys::condition_type::READY;

/// A condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// Severity; present only if `status` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Time of the last transition: RFC 3339 in whole seconds, UTC.
    pub last_transition_time: String,
    /// Cause, as one CamelCase word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details of the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The state is not known.
    #[default]
    Unknown,
}

/// Severity of a false condition, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Intervention is necessary.
    Error,
    /// The object works, but not as intended.
    Warning,
    /// The condition becomes true in time.
    Info,
}

impl Condition {
    /// A condition that is true.
    pub fn met(kind: &str) -> Self {
        Self { kind: kind.to_owned(), status: ConditionStatus::True, ..Self::default() }
    }

    /// A condition that is false, with its cause.
    pub fn unmet(kind: &str, severity: Severity, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            status: ConditionStatus::False,
            severity: Some(severity),
            reason: Some(reason.to_owned()),
            message: Some(message.into()).filter(|text| !text.is_empty()),
            ..Self::default()
        }
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self.status == other.status
            && self.severity == other.severity
            && self.reason == other.reason
            && self.message == other.message
    }
}

/// Puts `condition` into the list and returns whether anything changed. The transition time stays if status, severity, reason
/// and message are the same; otherwise it becomes `now`. The list is sorted: `Ready` first, then by type.
pub fn set_condition(conditions: &mut Vec<Condition>, condition: Condition, now: Timestamp) -> bool {
    let stamped = Condition { last_transition_time: format_time(now), ..condition };
    match conditions.iter_mut().find(|present| present.kind == stamped.kind) {
        Some(present) if present.is_equivalent(&stamped) => return false,
        Some(present) => *present = stamped,
        None => conditions.push(stamped),
    }
    conditions.sort_by(|a, b| (a.kind != READY, &a.kind).cmp(&(b.kind != READY, &b.kind)));
    true
}

/// Derives `Ready` from the conditions of the given types. The worst of them decides: false before true before unknown,
/// errors before warnings before information, and among equals the first in `of`. If none of them is present, nothing is set.
pub fn set_summary(conditions: &mut Vec<Condition>, of: &[&str], now: Timestamp) -> bool {
    let rank = |condition: &Condition| match (condition.status, condition.severity) {
        (ConditionStatus::False, severity) => severity.unwrap_or(Severity::Error) as u8,
        (ConditionStatus::True, _) => 3,
        (ConditionStatus::Unknown, _) => 4,
    };
    let Some(worst) =
        of.iter().filter_map(|kind| find_condition(conditions, kind)).min_by_key(|condition| rank(condition))
    else {
        return false;
    };
    let summary = Condition { kind: READY.to_owned(), ..worst.clone() };
    set_condition(conditions, summary, now)
}

/// The condition of that type.
pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of that type is present and true.
pub fn is_condition_true(conditions: &[Condition], kind: &str) -> bool {
    find_condition(conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// `status.conditions` of an object; entries that are not conditions are left out.
pub fn conditions_of(object: &Value) -> Vec<Condition> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect()
}

/// Replaces `status.conditions` of an object. Without conditions the field is removed.
pub fn write_conditions(object: &mut Value, conditions: &[Condition]) {
    let Value::Object(object) = object else { return };
    let status = object.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Value::Object(status) = status else { return };
    if conditions.is_empty() {
        status.remove("conditions");
    } else if let Ok(list) = serde_json::to_value(conditions) {
        status.insert("conditions".to_owned(), list);
    }
}

/// Formats a time as Kubernetes does: RFC 3339, whole seconds, UTC.
pub fn format_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn conditions_are_sorted_with_ready_first() {
        let mut conditions = Vec::new();
        for kind in ["WorkspaceScheduled", "Ready", "APIExportValid"] {
            assert!(set_condition(&mut conditions, Condition::met(kind), at(0)));
        }
        let kinds: Vec<&str> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "APIExportValid", "WorkspaceScheduled"]);
    }

    #[test]
    fn the_transition_time_changes_only_with_the_condition() {
        let mut conditions = Vec::new();
        let waiting = |message: &str| Condition::unmet("Ready", Severity::Info, "Waiting", message);
        set_condition(&mut conditions, waiting("for a"), at(1));
        assert!(!set_condition(&mut conditions, waiting("for a"), at(2)));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        assert!(set_condition(&mut conditions, waiting("for b"), at(3)));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:03Z");
    }

    #[test]
    fn the_summary_equals_the_worst_condition() {
        let info = || Condition::unmet("B", Severity::Info, "Slow", "takes time");
        let error = || Condition::unmet("C", Severity::Error, "Broken", "is broken");
        type Summary = Option<(ConditionStatus, Option<&'static str>)>;
        let cases: Vec<(Vec<Condition>, Summary)> = vec![
            (vec![], None),
            (vec![Condition::met("X")], None),
            (vec![Condition::met("A")], Some((ConditionStatus::True, None))),
            (vec![Condition::met("A"), info()], Some((ConditionStatus::False, Some("Slow")))),
            (vec![Condition::met("A"), info(), error()], Some((ConditionStatus::False, Some("Broken")))),
        ];
        for (mut conditions, expected) in cases {
            set_summary(&mut conditions, &["A", "B", "C"], at(0));
            let ready = find_condition(&conditions, "Ready")
                .map(|condition| (condition.status, condition.reason.as_deref()));
            assert_eq!(ready, expected, "{conditions:?}");
        }
    }

    #[test]
    fn conditions_have_the_json_of_kcp() {
        let list = json!([
            {"type": "Ready", "status": "False", "severity": "Info", "reason": "R", "message": "m",
             "lastTransitionTime": "2026-11-21T13:11:04Z"},
            {"type": "A", "status": "True", "lastTransitionTime": "2026-11-21T13:11:04Z"},
        ]);
        let mut object = json!({"status": {"phase": "Ready", "conditions": list}});
        let conditions = conditions_of(&object);
        assert!(is_condition_true(&conditions, "A"));
        assert!(!is_condition_true(&conditions, "Ready"));
        let before = object.clone();
        write_conditions(&mut object, &conditions);
        assert_eq!(object, before);
        write_conditions(&mut object, &[]);
        assert_eq!(object, json!({"status": {"phase": "Ready"}}));
    }
}
