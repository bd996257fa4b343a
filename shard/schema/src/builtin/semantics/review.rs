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
