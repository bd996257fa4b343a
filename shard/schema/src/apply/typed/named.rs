//! Field sets with the declared fields on the way to their members.

use super::super::fields::{FieldNode, FieldSet, PathElement};
use crate::apply::types::{ObjectType, TypeRef};

/// The set with all declared fields that have members below them. A set has only leaves and items, so an object that
/// was applied empty differs from one with fields.
pub(crate) fn with_named_fields(object_type: ObjectType<'_>, fields: FieldSet) -> FieldSet {
    named(object_type, Some(object_type.root), fields)
}

fn named(object_type: ObjectType<'_>, place: Option<TypeRef>, fields: FieldSet) -> FieldSet {
    let declared = place.map(|place| object_type.get(place));
    let map = declared.and_then(|declared| declared.map.as_ref());
    let list = declared.and_then(|declared| declared.list.as_ref());
    let nodes = fields.into_nodes().into_iter().map(|mut node| {
        let below = match &node.element {
            PathElement::Field(name) => {
                let is_declared = map.is_some_and(|map| map.field(name).is_some());
                node.is_member |= is_declared && !node.children.is_empty();
                map.and_then(|map| map.value(name))
            }
            PathElement::Key(_) => list.map(|list| list.items),
            PathElement::Value(_) | PathElement::Index(_) => None,
        };
        FieldNode { children: named(object_type, below, node.children), ..node }
    });
    nodes.collect()
}
