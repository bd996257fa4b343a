//! `x-kubernetes-list-type`: sets and maps hold no element twice.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Additional, Dialect, Inner, ListType, NodeId};
use crate::field::{FieldError, FieldPath, Trail};

/// One error per repeated element. Linear in the size of the object: the content is the
/// client's choice, so the hash is keyed.
pub(super) fn validate(schema: &Inner, node: NodeId, value: &Value, base: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The lists of built-in types are checked by the rules of each type.
    if schema.dialect == Dialect::Structural {
        walk(schema, node, value, Trail::Start(base), &mut errors);
    }
    errors
}

/// An object that already had repetitions may keep them.
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
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let place = match (node.property(name), &node.additional) {
                    (Some(property), _) | (None, Additional::Schema(property)) => property,
                    _ => continue,
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
        if !seen.insert(identity(item)) {
            errors.push(FieldError::duplicate(Trail::Index(&trail, index).path(), item));
        }
    }
}

fn map(keys: &[Box<str>], items: &[Value], trail: Trail<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let Some(fields) = item.as_object() else { continue };
        let mut key_fields = Map::new();
        for key in keys {
            if let Some(value) = fields.get(&**key) {
                key_fields.insert(key.to_string(), value.clone());
            }
        }
        let key_fields = Value::Object(key_fields);
        if !seen.insert(identity(&key_fields)) {
            errors.push(FieldError::duplicate(Trail::Index(&trail, index).path(), &key_fields));
        }
    }
}

/// Text that is equal for equal values; `1` and `1.0` are the same value.
fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 2f64.powi(53) => {
                (float as i64).to_string()
            }
            _ => number.to_string(),
        },
        _ => value.to_string(),
    }
}
