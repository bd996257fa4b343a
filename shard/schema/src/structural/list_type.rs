//! `x-kubernetes-list-type`: validates that the items of sets and maps are unique.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Additional, Dialect, Inner, ListType, NodeId};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS, Trail, go_quote};

/// Reports one error per duplicate item. Linear in the size of the object. The hash is keyed, because the client
/// chooses the content.
pub(super) fn validate(schema: &Inner, node: NodeId, value: &Value, base: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The semantics of each built-in kind validate its lists.
    if schema.dialect == Dialect::Structural {
        walk(schema, node, value, Trail::Start(base), &mut errors);
    }
    errors
}

/// Accepts duplicates if the old object already had some.
pub(super) fn validate_update(
    schema: &Inner,
    value: &Value,
    old: &Value,
    base: &FieldPath,
) -> Vec<FieldError> {
    let errors = validate(schema, schema.root, value, base);
    if !errors.is_empty() && !validate(schema, schema.root, old, base).is_empty() {
        return Vec::new();
    }
    errors
}

fn walk(schema: &Inner, id: NodeId, value: &Value, trail: Trail<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let ((Some(place), _) | (None, Additional::Schema(place))) =
                    (node.property(name), &node.additional)
                else {
                    continue;
                };
                walk(schema, place.node, field, Trail::Child(&trail, name), errors);
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => set(items, trail, errors),
                ListType::Map { keys } => map(keys, items, trail, errors),
            }
            let Some(property) = &node.items else { return };
            for (index, item) in items.iter().enumerate() {
                walk(schema, property.node, item, Trail::Index(&trail, index), errors);
            }
        }
        _ => {}
    }
}

fn set(items: &[Value], trail: Trail<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        if !seen.insert(identity(item)) && errors.len() < MAX_FINDINGS {
            errors.push(FieldError::duplicate(Trail::Index(&trail, index).path(), item));
        }
    }
}

fn map(keys: &[Box<str>], items: &[Value], trail: Trail<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let Some(fields) = item.as_object() else { continue };
        let key_fields = key_of(keys, fields);
        if !seen.insert(identity(&key_fields)) && errors.len() < MAX_FINDINGS {
            errors.push(FieldError::duplicate(Trail::Index(&trail, index).path(), &key_fields));
        }
    }
}

/// The key fields of an item in a map list.
pub(super) fn key_of(keys: &[Box<str>], fields: &Map<String, Value>) -> Value {
    let present =
        keys.iter().filter_map(|key| fields.get(&**key).map(|value| (key.to_string(), value.clone())));
    Value::Object(present.collect())
}

/// A text that is equal for equal values; `1` and `1.0` are equal.
pub(super) fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 2f64.powi(53) => {
                (float as i64).to_string()
            }
            _ => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(identity).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            // Sorted here, because `serde_json` keeps insertion order if any crate enables that feature.
            let mut texts: Vec<String> = fields
                .iter()
                .map(|(name, field)| format!("{}:{}", go_quote(name), identity(field)))
                .collect();
            texts.sort_unstable();
            format!("{{{}}}", texts.join(","))
        }
        Value::String(text) => go_quote(text),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}
