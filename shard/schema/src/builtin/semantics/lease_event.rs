//! Kinds with few rules: Lease, Event, and kinds without rules.

use serde_json::Value;

use super::{Semantics, text};
use crate::field::{FieldError, FieldPath};

/// Semantics of a kind that its schema describes completely.
#[derive(Debug)]
pub(crate) struct SchemaOnly;

impl Semantics for SchemaOnly {}

/// The kind Lease.
#[derive(Debug)]
pub(crate) struct Lease;

impl Semantics for Lease {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let path = FieldPath::new("spec");
        let mut errors = Vec::new();
        let number = |field: &str| spec.get(field).filter(|value| !value.is_null());
        if let Some(seconds) = number("leaseDurationSeconds").filter(|value| value.as_i64() <= Some(0)) {
            errors.push(FieldError::invalid(
                path.child("leaseDurationSeconds"),
                seconds,
                "must be greater than 0",
            ));
        }
        if let Some(transitions) = number("leaseTransitions").filter(|value| value.as_i64() < Some(0)) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(path.child("leaseTransitions"), transitions, detail));
        }
        errors
    }
}

/// The kind Event: it describes another object of the same namespace.
#[derive(Debug)]
pub(crate) struct Event;

impl Semantics for Event {
    /// Adds fields that Kubernetes always writes, even if the client did not set them.
    fn default(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.entry("eventTime").or_insert(Value::Null);
            for field in ["reportingComponent", "reportingInstance"] {
                fields.entry(field).or_insert_with(|| Value::from(""));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let namespace = text(&object["metadata"], "namespace");
        let involved = text(&object["involvedObject"], "namespace");
        // Events of cluster-scoped objects are in the namespace "default".
        let fits = if involved.is_empty() { namespace == "default" } else { involved == namespace };
        if fits {
            return Vec::new();
        }
        let path = FieldPath::new("involvedObject").child("namespace");
        vec![FieldError::invalid_str(path, involved, "does not match event.namespace")]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::texts;
    use super::*;

    #[test]
    fn events_always_have_reporting_fields() {
        let mut event = json!({"reportingInstance": "i"});
        Event.default(&mut event);
        let expected = json!({"eventTime": null, "reportingComponent": "", "reportingInstance": "i"});
        assert_eq!(event, expected);
    }

    #[test]
    fn lease_numbers_are_validated() {
        let lease = json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
        assert_eq!(
            texts(&Lease.validate(&lease)),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        assert!(
            Lease.validate(&json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}})).is_empty()
        );
    }

    #[test]
    fn events_are_in_the_namespace_of_their_object() {
        let event = |namespace: &str, involved: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}});
        assert!(Event.validate(&event("a", "a")).is_empty());
        assert!(Event.validate(&event("default", "")).is_empty());
        assert_eq!(
            texts(&Event.validate(&event("a", "b"))),
            ["involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"]
        );
    }
}
