//! The four access reviews. They are not stored.

use serde_json::Value;

use super::{Semantics, list, text};
use crate::field::{FieldError, FieldPath};

/// SubjectAccessReview, its local and self forms, and SelfSubjectRulesReview.
#[derive(Debug)]
pub(crate) struct AccessReview;

impl Semantics for AccessReview {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let kind = text(object, "kind");
        if kind == "SelfSubjectRulesReview" {
            return Vec::new();
        }
        let spec = &object["spec"];
        let path = FieldPath::new("spec");
        let mut errors = Vec::new();
        let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
        match (resource, other) {
            (Some(_), Some(_)) => {
                let detail = "cannot be specified in combination with resourceAttributes";
                errors.push(FieldError::invalid(
                    path.child("nonResourceAttributes"),
                    &spec["nonResourceAttributes"],
                    detail,
                ));
            }
            (None, None) => {
                let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                errors.push(FieldError::invalid(path.child("resourceAttributes"), &Value::Null, detail));
            }
            _ => {}
        }
        if let Some(resource) = resource {
            validate_selectors(resource, &path.child("resourceAttributes"), &mut errors);
        }
        if kind != "SelfSubjectAccessReview"
            && text(spec, "user").is_empty()
            && list(spec, "groups").is_empty()
        {
            let detail = "at least one of user or group must be specified";
            errors.push(FieldError::invalid_str(path.child("user"), "", detail));
        }
        if kind == "LocalSubjectAccessReview" {
            if other.is_some() {
                let detail = "disallowed on this kind of request";
                errors.push(FieldError::invalid(
                    path.child("nonResourceAttributes"),
                    &spec["nonResourceAttributes"],
                    detail,
                ));
            }
            let namespace = text(&object["metadata"], "namespace");
            let review_namespace = resource.map_or(namespace, |resource| text(resource, "namespace"));
            if review_namespace != namespace {
                let path = path.child("resourceAttributes").child("namespace");
                errors.push(FieldError::invalid_str(path, review_namespace, "must match metadata.namespace"));
            }
        }
        errors
    }
}

/// A selector is a text, or a list of requirements.
fn validate_selectors(attributes: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(field).filter(|selector| selector.is_object()) else { continue };
        let own = path.child(field);
        let (raw, requirements) = (text(selector, "rawSelector"), list(selector, "requirements"));
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                let detail = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid_str(own.child("rawSelector"), raw, detail));
            }
            (true, true) => {
                let detail =
                    format!("when {} is specified, requirements or rawSelector is required", own.as_str());
                errors.push(FieldError::required(own.child("requirements"), &detail));
            }
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            validate_requirement(requirement, &own.child("requirements").index(index), errors);
        }
    }
}

/// Unknown operators are accepted: an authorizer ignores their requirements.
fn validate_requirement(requirement: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let has_values = !list(requirement, "values").is_empty();
    match text(requirement, "operator") {
        "In" | "NotIn" if !has_values => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if has_values => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(path.child("values"), detail));
        }
        _ => {}
    }
    if text(requirement, "key").is_empty() {
        errors.push(FieldError::required(path.child("key"), "must be specified"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::texts;
    use super::*;

    #[test]
    fn reviews_need_one_kind_of_attributes_and_a_subject() {
        for (object, expected) in [
            (
                json!({"kind": "SubjectAccessReview", "spec": {}}),
                vec![
                    "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
                     resourceAttributes must be specified",
                    "spec.user: Invalid value: \"\": at least one of user or group must be specified",
                ],
            ),
            (json!({"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {}}}), vec![]),
            (json!({"kind": "SelfSubjectRulesReview", "spec": {}}), vec![]),
            (
                json!({"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
                    "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "In"}]},
                    "labelSelector": {},
                }}}),
                vec![
                    "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same \
                     time as requirements",
                    "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when \
                     `operator` is 'In' or 'NotIn'",
                    "spec.resourceAttributes.labelSelector.requirements: Required value: when \
                     spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
                ],
            ),
            (
                json!({"kind": "LocalSubjectAccessReview", "metadata": {"namespace": "a"},
                    "spec": {"user": "u", "resourceAttributes": {"namespace": "b"}}}),
                vec![
                    "spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace",
                ],
            ),
        ] {
            assert_eq!(texts(&AccessReview.validate(&object)), expected);
        }
    }
}
