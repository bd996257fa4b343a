//! Defaulting: fills in defaults and removes nulls that the schema does not allow.

use serde_json::{Map, Value};

use super::{Additional, DefaultValue, DefaultingResult, Inner, Node, NodeId, Property};

/// Maximum JSON bytes that defaults may add to one object. A small list can have a large default in each of its items,
/// and no larger object could be stored anyway.
const MAX_ADDED_BYTES: usize = 8 << 20;

pub(super) fn apply(schema: &Inner, node: NodeId, value: &mut Value) -> DefaultingResult {
    let mut defaulter =
        Defaulter { schema, remaining_bytes: MAX_ADDED_BYTES, outcome: DefaultingResult::Complete };
    defaulter.value(node, value);
    remove_nulls(schema, node, value);
    defaulter.outcome
}

struct Defaulter<'s> {
    schema: &'s Inner,
    /// Bytes that may still be added.
    remaining_bytes: usize,
    outcome: DefaultingResult,
}

impl Defaulter<'_> {
    fn value(&mut self, id: NodeId, value: &mut Value) {
        let schema = self.schema;
        let node = schema.node(id);
        match value {
            Value::Object(fields) => {
                self.fill_missing(node, fields);
                for (name, field) in fields.iter_mut() {
                    let Some(property) = property_of(node, name) else { continue };
                    self.fill_null(property, field);
                    self.value(property.node, field);
                }
            }
            Value::Array(items) => {
                let Some(property) = &node.items else { return };
                for item in items {
                    self.fill_null(property, item);
                    self.value(property.node, item);
                }
            }
            _ => {}
        }
    }

    fn fill_missing(&mut self, node: &Node, fields: &mut Map<String, Value>) {
        for property in &node.properties {
            if let Some(default) = &property.default
                && !fields.contains_key(&*property.name)
                && self.spend(default, property.name.len())
            {
                fields.insert(property.name.to_string(), default.value.clone());
            }
        }
    }

    fn fill_null(&mut self, property: &Property, value: &mut Value) {
        if let (true, false, Some(default)) = (value.is_null(), property.nullable, &property.default)
            && self.spend(default, 0)
        {
            *value = default.value.clone();
        }
    }

    fn spend(&mut self, default: &DefaultValue, name_length: usize) -> bool {
        match self.remaining_bytes.checked_sub(default.size + name_length) {
            Some(remaining) => {
                self.remaining_bytes = remaining;
                true
            }
            None => {
                self.outcome = DefaultingResult::LimitReached;
                false
            }
        }
    }
}

fn remove_nulls(schema: &Inner, id: NodeId, value: &mut Value) {
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| match property_of(node, name) {
                Some(property) if field.is_null() => property.nullable,
                Some(property) => {
                    remove_nulls(schema, property.node, field);
                    true
                }
                None => true,
            });
        }
        Value::Array(items) => {
            let Some(property) = &node.items else { return };
            for item in items {
                remove_nulls(schema, property.node, item);
            }
        }
        _ => {}
    }
}

fn property_of<'n>(node: &'n Node, name: &str) -> Option<&'n Property> {
    node.property(name).or(match &node.additional {
        Additional::Schema(property) => Some(property),
        _ => None,
    })
}
