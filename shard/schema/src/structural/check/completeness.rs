//! Completeness: fields of nested validations (`allOf`, `anyOf`, `oneOf`, `not`) are specified outside of them too.

use serde_json::{Map, Value};

use super::{entries, junctors, object};
use crate::field::{FieldError, FieldPath};

/// Compares the nested validations of the root. Those of its properties are not compared, as in Kubernetes.
pub(super) fn check(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    nested(fields, Some(fields), path, path, errors);
}

/// `core` is what the schema specifies at `core_path`, outside of nested validations.
fn nested(
    fields: &Map<String, Value>,
    core: Option<&Map<String, Value>>,
    core_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = object(fields, "not") {
        nested_node(not, core, core_path, &path.child("not"), errors);
    }
    for (keyword, index, schema) in junctors(fields) {
        nested_node(schema, core, core_path, &path.child(keyword).index(index), errors);
    }
}

fn nested_node(
    fields: &Map<String, Value>,
    core: Option<&Map<String, Value>>,
    core_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(core_fields) = core else {
        let detail = format!("because it is defined in {path}");
        errors.push(FieldError::required(core_path.clone(), &detail));
        return;
    };
    nested(fields, core, core_path, path, errors);
    if let Some(items) = object(fields, "items") {
        let core = object(core_fields, "items");
        nested_node(items, core, &core_path.child("items"), &path.child("items"), errors);
    }
    for (name, property) in entries(fields, "properties") {
        let core = object(core_fields, "properties").and_then(|properties| object(properties, name));
        let core_path = core_path.child("properties").key(name);
        nested_node(property, core, &core_path, &path.child("properties").key(name), errors);
    }
}
