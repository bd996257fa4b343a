//! Validates the schema of a CRD: it must be structural (KEP-2332), use only features of Kubernetes, and have valid
//! defaults.
//!
//! The checks are separate passes, as in Kubernetes, because each reports its errors although others have failed.

mod completeness;
mod declared_defaults;
mod keywords;
mod shape;

use serde_json::{Map, Value};

use super::{Inner, rules};
use crate::field::{FieldError, FieldPath};
use crate::structural::rules::Rules;

/// Validates the `openAPIV3Schema` of a CRD at `path` (`spec.versions[0].schema.openAPIV3Schema`). Paths and texts are
/// those of Kubernetes.
///
/// If the result is empty, [`Schema::compile`](super::Schema::compile) can fail only with its own errors (complex
/// patterns, malformed keywords); callers must call both.
pub fn check_structural(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let Some(fields) = schema.as_object() else {
        return vec![FieldError::required(path.clone(), "schemas are required")];
    };
    let mut errors = Vec::new();
    if is_true(fields, "nullable") {
        errors.push(FieldError::forbidden(path.child("nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = shape::unsupported_keyword(fields);
    if unsupported.is_none() {
        let findings = check_shape(fields, path);
        if findings.is_empty() {
            declared_defaults::check(schema, path, &mut errors);
        }
        errors.extend(findings);
    }
    keywords::check(fields, path, &mut errors);
    if let Some(detail) = unsupported.filter(|_| errors.is_empty()) {
        errors.push(FieldError::invalid_str(path.clone(), "", detail));
    }
    if !errors.is_empty() {
        // Rules are compiled for structural schemas only.
        errors.extend(rules::check_declarations(schema, path));
    }
    errors
}

/// The errors of defaults that break the schema's rules.
pub(super) fn check_defaults_by_rules(schema: &Inner, rules: &Rules, path: &FieldPath) -> Vec<FieldError> {
    declared_defaults::check_by_rules(schema, rules, path)
}

/// The errors of a schema that is not structural, in the order of their texts.
fn check_shape(fields: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    shape::check(fields, path, &mut errors);
    completeness::check(fields, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn object<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Map<String, Value>> {
    fields.get(name).and_then(Value::as_object)
}

fn array<'f>(fields: &'f Map<String, Value>, name: &str) -> &'f [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries<'f>(
    fields: &'f Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'f String, &'f Map<String, Value>)> {
    let entries = object(fields, name).into_iter().flatten();
    entries.filter_map(|(name, schema)| schema.as_object().map(|schema| (name, schema)))
}

fn text<'f>(fields: &'f Map<String, Value>, name: &str) -> &'f str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}

fn is_absent(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).is_none_or(Value::is_null)
}

/// Whether Go would omit the value, because it is a zero value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// The lists of alternatives of a schema, with their keywords.
fn junctors(fields: &Map<String, Value>) -> impl Iterator<Item = (&'static str, usize, &Map<String, Value>)> {
    ["allOf", "oneOf", "anyOf"].into_iter().flat_map(move |keyword| {
        let alternatives = array(fields, keyword).iter().enumerate();
        alternatives
            .filter_map(move |(index, schema)| schema.as_object().map(|schema| (keyword, index, schema)))
    })
}
