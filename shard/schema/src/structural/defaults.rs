//! Filling in defaults, and removing nulls that nobody allows.

use serde_json::{Map, Value};

use super::{Additional, Inner, Node, NodeId, Property};

pub(super) fn apply(schema: &Inner, node: NodeId, value: &mut Value) {
    default_value(schema, node, value);
    remove_nulls(schema, node, value);
}

fn default_value(schema: &Inner, id: NodeId, value: &mut Value) {
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            fill_missing(node, fields);
            for (name, field) in fields.iter_mut() {
                let Some(property) = place_of(node, name) else { continue };
                replace_null(property, field);
                default_value(schema, property.node, field);
            }
        }
        Value::Array(items) => {
            let Some(property) = &node.items else { return };
            for item in items {
                replace_null(property, item);
                default_value(schema, property.node, item);
            }
        }
        _ => {}
    }
}

fn fill_missing(node: &Node, fields: &mut Map<String, Value>) {
    for property in &node.properties {
        if let Some(default) = &property.default {
            if !fields.contains_key(&*property.name) {
                fields.insert(property.name.to_string(), Value::clone(default));
            }
        }
    }
}

fn replace_null(property: &Property, value: &mut Value) {
    if let (true, false, Some(default)) = (value.is_null(), property.nullable, &property.default) {
        *value = Value::clone(default);
    }
}

fn remove_nulls(schema: &Inner, id: NodeId, value: &mut Value) {
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| match place_of(node, name) {
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

fn place_of<'n>(node: &'n Node, name: &str) -> Option<&'n Property> {
    node.property(name).or(match &node.additional {
        Additional::Schema(property) => Some(property),
        _ => None,
    })
}
