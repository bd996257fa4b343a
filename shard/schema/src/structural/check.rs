//! What a CRD's schema must look like to be structural.

use serde_json::Value;

use crate::field::{FieldError, FieldPath};

/// Stub.
pub fn check_structural(_schema: &Value, _path: &FieldPath) -> Vec<FieldError> {
    Vec::new()
}
