//! `x-kubernetes-list-type`: validates that the items of sets and maps are unique.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::equality::identity;
use super::{Additional, Dialect, Inner, ListType, NodeId};
use crate::field::{FieldError, FieldPath, Location, MAX_FINDINGS};

/// Reports one error per duplicate item. Linear in the size of the object. The hash is keyed, because the client
/// chooses the content.
pub(super) fn validate(schema: &Inner, node: NodeId, value: &Value, base: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The semantics of each built-in kind validate its lists.
    if schema.dialect == Dialect::Structural {
        validate_node(schema, node, value, Location::Base(base), &mut errors);
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

fn validate_node(
    schema: &Inner,
    id: NodeId,
    value: &Value,
    location: Location<'_>,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                // Kubernetes writes entries of maps in another form than fields.
                let (property, location) = match (node.property(name), &node.additional) {
                    (Some(property), _) => (property, Location::Child(&location, name)),
                    (None, Additional::Schema(property)) => (property, Location::Key(&location, name)),
                    _ => continue,
                };
                validate_node(schema, property.node, field, location, errors);
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => check_set(items, location, errors),
                ListType::Map { keys } => check_map(keys, items, location, errors),
            }
            let Some(property) = &node.items else { return };
            for (index, item) in items.iter().enumerate() {
                validate_node(schema, property.node, item, Location::Index(&location, index), errors);
            }
        }
        _ => {}
    }
}

fn check_set(items: &[Value], location: Location<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Occurrences::default();
    for (index, item) in items.iter().enumerate() {
        if seen.is_second(identity_in_set(item)) && errors.len() < MAX_FINDINGS {
            errors.push(FieldError::duplicate(Location::Index(&location, index).path(), item));
        }
    }
}

/// The [`identity`] of an item of a set. As in Kubernetes, an item that is a float differs from an integer.
fn identity_in_set(item: &Value) -> String {
    match item {
        Value::Number(number) if number.is_f64() => format!("float {}", identity(item)),
        _ => identity(item),
    }
}

fn check_map(keys: &[Box<str>], items: &[Value], location: Location<'_>, errors: &mut Vec<FieldError>) {
    let not_object = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(index) = not_object {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(Location::Index(&location, index).path(), &items[index], detail));
        return;
    }
    let mut seen = Occurrences::default();
    let none = Map::new();
    for (index, item) in items.iter().enumerate() {
        let key_fields = key_of(keys, item.as_object().unwrap_or(&none));
        if seen.is_second(identity(&key_fields)) && errors.len() < MAX_FINDINGS {
            errors.push(FieldError::duplicate(Location::Index(&location, index).path(), &key_fields));
        }
    }
}

/// Counts equal items. As in Kubernetes, only the second of several equal ones is an error.
#[derive(Default)]
struct Occurrences(HashMap<String, usize>);

impl Occurrences {
    fn is_second(&mut self, identity: String) -> bool {
        let count = self.0.entry(identity).or_default();
        *count += 1;
        *count == 2
    }
}

/// The items of a map list by the [`identity`] of their keys. Of several with the same keys, the first one.
pub(super) fn by_key<'v>(keys: &[Box<str>], items: &'v [Value]) -> HashMap<String, &'v Value> {
    let mut found = HashMap::with_capacity(items.len());
    for item in items {
        if let Some(key) = item.as_object().and_then(|fields| complete_key(keys, fields)) {
            found.entry(key).or_insert(item);
        }
    }
    found
}

/// The [`identity`] of the keys of an item. As in Kubernetes, an item without all of them cannot be found again.
pub(super) fn complete_key(keys: &[Box<str>], fields: &Map<String, Value>) -> Option<String> {
    let is_scalar = |key: &str| {
        fields.get(key).is_some_and(|value| value.is_boolean() || value.is_number() || value.is_string())
    };
    keys.iter().all(|key| is_scalar(key)).then(|| identity(&key_of(keys, fields)))
}

/// The key fields of an item in a map list.
pub(super) fn key_of(keys: &[Box<str>], fields: &Map<String, Value>) -> Value {
    let present =
        keys.iter().filter_map(|key| fields.get(&**key).map(|value| (key.to_string(), value.clone())));
    Value::Object(present.collect())
}
