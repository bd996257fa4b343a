//! Removes fields and items from a value.

use serde_json::Value;

use super::item::element_of;
use super::{Form, form};
use crate::apply::fields::{FieldSet, PathElement};
use crate::apply::types::{ListRelation, ObjectType, TypeRef};

/// Removes all members of a set from an object. A container that loses all its fields or items stays, empty.
pub(crate) fn remove(object_type: ObjectType<'_>, object: &mut Value, fields: &FieldSet) {
    remove_below(object_type, object_type.root, object, fields);
}

fn remove_below(object_type: ObjectType<'_>, place: TypeRef, value: &mut Value, fields: &FieldSet) {
    let Some(form) = form(object_type.get(place), value) else { return };
    match (form, value) {
        (Form::Map(map), Value::Object(entries)) if map.is_atomic => entries.clear(),
        (Form::Map(map), Value::Object(entries)) => {
            for node in fields.nodes() {
                let PathElement::Field(name) = &node.element else { continue };
                if node.is_member {
                    entries.remove(&**name);
                } else if let (Some(entry), Some(place)) = (entries.get_mut(&**name), map.value(name)) {
                    remove_below(object_type, place, entry, &node.children);
                }
            }
        }
        (Form::List(list), Value::Array(items)) if matches!(list.relation, ListRelation::Atomic) => {
            items.clear();
        }
        (Form::List(list), Value::Array(items)) => items.retain_mut(|item| {
            let node = element_of(list, item).ok().and_then(|element| fields.node(&element));
            match node {
                Some(node) if node.is_member => false,
                Some(node) => {
                    remove_below(object_type, list.items, item, &node.children);
                    true
                }
                None => true,
            }
        }),
        _ => {}
    }
}
