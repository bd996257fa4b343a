//! Admission of the reference, the claims and the phase of APIBindings, in both versions.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use fairlead_schema::{FieldError, FieldPath};
use serde_json::Value;

use super::conversion_annotations::{ConvertedVersion, saved_list};
use super::field_order::json_in_order;
use super::{forbidden, listed};

/// The annotations of a v1alpha1 binding that save claims of v1alpha2.
const SAVED_CLAIMS: [&str; 3] = [
    "apis.v1alpha2.kcp.io/acceptable-permission-claims",
    "apis.v1alpha2.kcp.io/status-export-permission-claims",
    "apis.v1alpha2.kcp.io/status-applied-permission-claims",
];

/// The fields of a selector in the order of kcp's types.
const SELECTOR_ORDER: &[&str] = &["matchLabels", "matchExpressions", "matchAll"];

/// Refuses an invalid binding with 403 and all errors, as kcp does. A v1alpha1 binding is also validated in v1alpha2.
pub(super) fn validate(
    write: &AdmissionRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut errors: Vec<FieldError> = reference_error(object).into_iter().collect();
    if write.version != "v1alpha1" {
        errors.extend(claim_errors(object));
    }
    errors.extend(old.and_then(|old| phase_error(object, old)));
    if !errors.is_empty() {
        return Err(forbidden(write, listed(&errors)));
    }
    if write.version != "v1alpha1" || write.subresource.is_some() {
        return Ok(());
    }
    if let Some(error) = annotation_error(object) {
        return Err(forbidden(write, error));
    }
    let converted = ConvertedVersion::of(write, object)?;
    let errors = claim_errors(&converted.object);
    if !errors.is_empty() {
        return Err(forbidden(write, listed(&errors)));
    }
    converted.validate(write)
}

fn reference_error(binding: &Value) -> Option<FieldError> {
    let path = FieldPath::new("spec").child("reference").child("export");
    let export = &binding["spec"]["reference"]["export"];
    if export.is_null() {
        return Some(FieldError::required(path, ""));
    }
    let has_name = export["name"].as_str().is_some_and(|name| !name.is_empty());
    (!has_name).then(|| FieldError::required(path.child("name"), ""))
}

/// Each claim selects either all objects, or some by their labels.
fn claim_errors(binding: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec").child("permissionClaims");
    let mut errors = Vec::new();
    let claims = binding["spec"]["permissionClaims"].as_array().into_iter().flatten();
    for (index, claim) in claims.enumerate() {
        let selector = &claim["selector"];
        let path = path.index(index).child("selector");
        let has_labels = selector["matchLabels"].as_object().is_some_and(|labels| !labels.is_empty());
        let has_expressions = selector["matchExpressions"].as_array().is_some_and(|all| !all.is_empty());
        if selector["matchAll"] != true {
            if !has_labels && !has_expressions {
                let detail = "either one of matchAll, matchLabels, or matchExpressions must be set";
                errors.push(FieldError::required(path, detail));
            }
            continue;
        }
        for (field, is_set) in [("matchLabels", has_labels), ("matchExpressions", has_expressions)] {
            if is_set {
                let detail = format!("{field} cannot be used with matchAll");
                let quoted = json_in_order(selector, SELECTOR_ORDER, "");
                errors.push(FieldError::invalid_quoted(path.child(field), &quoted, &detail));
            }
        }
    }
    errors
}

fn phase_error(binding: &Value, old: &Value) -> Option<FieldError> {
    let phase = |binding: &Value| binding["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let before = phase(old);
    let path = FieldPath::new("status").child("phase");
    let detail = format!("cannot transition from \"{before}\" to \"\"");
    (!before.is_empty() && phase(binding).is_empty()).then(|| FieldError::forbidden(path, &detail))
}

fn annotation_error(binding: &Value) -> Option<FieldError> {
    let saved =
        SAVED_CLAIMS.iter().find_map(|key| saved_list(binding, key).filter(|list| list.items.is_none()))?;
    Some(saved.error("failed to decode overhanging permission claims"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_selects_all_objects_or_some() {
        let labels = json!({"matchLabels": {"test": "test"}});
        let expressions =
            json!({"matchExpressions": [{"key": "test", "operator": "In", "values": ["test"]}]});
        let with_all = |selector: &Value| {
            let mut selector = selector.clone();
            selector["matchAll"] = true.into();
            selector
        };
        let required = "spec.permissionClaims[0].selector: Required value: either one of matchAll, matchLabels, or matchExpressions must be set";
        let cases = [
            (json!({"matchAll": true}), vec![]),
            (labels.clone(), vec![]),
            (expressions.clone(), vec![]),
            (json!({}), vec![required]),
            (json!({"matchAll": false, "matchLabels": {}, "matchExpressions": []}), vec![required]),
            (
                with_all(&labels),
                vec![
                    "spec.permissionClaims[0].selector.matchLabels: Invalid value: {\"matchLabels\":{\"test\":\"test\"},\"matchAll\":true}: matchLabels cannot be used with matchAll",
                ],
            ),
            (
                with_all(&expressions),
                vec![
                    "spec.permissionClaims[0].selector.matchExpressions: Invalid value: {\"matchExpressions\":[{\"key\":\"test\",\"operator\":\"In\",\"values\":[\"test\"]}],\"matchAll\":true}: matchExpressions cannot be used with matchAll",
                ],
            ),
        ];
        for (selector, expected) in cases {
            let binding = json!({"spec": {"permissionClaims": [{"selector": selector}]}});
            let found: Vec<String> = claim_errors(&binding).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{selector}");
        }
        let mut both = with_all(&labels);
        both["matchExpressions"] = expressions["matchExpressions"].clone();
        assert_eq!(claim_errors(&json!({"spec": {"permissionClaims": [{"selector": both}]}})).len(), 2);
    }

    #[test]
    fn references_name_an_export() {
        let cases = [
            (json!({"export": {"name": "a"}}), None),
            (json!({}), Some("spec.reference.export: Required value")),
            (json!({"export": {"path": "root"}}), Some("spec.reference.export.name: Required value")),
            (json!({"export": {"name": ""}}), Some("spec.reference.export.name: Required value")),
        ];
        for (reference, expected) in cases {
            let found = reference_error(&json!({"spec": {"reference": reference}}));
            assert_eq!(found.map(|error| error.to_string()).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn a_phase_does_not_become_empty_again() {
        let refused = Some("status.phase: Forbidden: cannot transition from \"Bound\" to \"\"");
        for (before, after, expected) in [
            (json!({}), json!({}), None),
            (json!({}), json!({"phase": "Binding"}), None),
            (json!({"phase": "Binding"}), json!({"phase": "Bound"}), None),
            (json!({"phase": "Bound"}), json!({}), refused),
            (json!({"phase": "Bound"}), json!({"phase": ""}), refused),
        ] {
            let found = phase_error(&json!({"status": after}), &json!({"status": before}));
            assert_eq!(found.map(|error| error.to_string()).as_deref(), expected, "{before} {after}");
        }
    }

    #[test]
    fn saved_claims_of_v1alpha1_are_lists() {
        for (text, is_accepted) in [("[]", true), ("[{}]", true), ("{}", false), ("[1]", false), ("x", false)]
        {
            for key in SAVED_CLAIMS {
                let binding = json!({"metadata": {"annotations": {key: text}}});
                assert_eq!(annotation_error(&binding).is_none(), is_accepted, "{key} {text}");
            }
        }
    }
}
