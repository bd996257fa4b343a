//! Kinds with few rules: Lease, and kinds without rules.

use serde_json::Value;

use super::Semantics;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::texts;
    use super::*;

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
}
