//! Adapts field sets to a schema that has changed since they were written.

use super::super::fields::{FieldNode, FieldSet, PathElement};
use crate::apply::types::{ListRelation, MapType, ObjectType, ScalarType, TypeRef};

/// The set where lists and objects that have become atomic are owned as a whole instead of by their parts; `None` if it
/// stays as it is, without a copy.
pub(crate) fn reconcile(object_type: ObjectType<'_>, fields: &FieldSet) -> Option<FieldSet> {
    match value(object_type, object_type.root, fields, false) {
        Reconciled::Same | Reconciled::Whole => None,
        Reconciled::Changed(fields) => Some(fields),
    }
}

enum Reconciled {
    Same,
    /// The value is owned as a whole.
    Whole,
    Changed(FieldSet),
}

/// `is_whole`: whether the set owns the value itself and nothing below it.
fn value(object_type: ObjectType<'_>, place: TypeRef, fields: &FieldSet, is_whole: bool) -> Reconciled {
    let declared = object_type.get(place);
    if let Some(map) = &declared.map {
        if is_open(object_type, map) {
            return Reconciled::Same;
        }
        if map.is_atomic && !is_whole {
            return if fields.is_empty() { Reconciled::Same } else { Reconciled::Whole };
        }
        return below(object_type, fields, |element| match element {
            PathElement::Field(name) => map.value(name),
            _ => map.others,
        });
    }
    match (&declared.scalar, &declared.list) {
        (None, Some(list)) if matches!(list.relation, ListRelation::Atomic) && !is_whole => Reconciled::Whole,
        (None, Some(list)) => below(object_type, fields, |_| Some(list.items)),
        _ => Reconciled::Same,
    }
}

fn below(
    object_type: ObjectType<'_>,
    fields: &FieldSet,
    place_of: impl Fn(&PathElement) -> Option<TypeRef>,
) -> Reconciled {
    let mut changed: Vec<(usize, FieldNode)> = Vec::new();
    for (index, node) in fields.nodes().iter().enumerate() {
        let Some(place) = place_of(&node.element) else { continue };
        let is_whole = node.is_member && node.children.is_empty();
        let element = || node.element.clone();
        match value(object_type, place, &node.children, is_whole) {
            Reconciled::Same => {}
            Reconciled::Whole => changed.push((
                index,
                FieldNode { element: element(), is_member: true, children: FieldSet::default() },
            )),
            Reconciled::Changed(children) => {
                changed.push((index, FieldNode { element: element(), is_member: node.is_member, children }));
            }
        }
    }
    if changed.is_empty() {
        return Reconciled::Same;
    }
    let mut nodes = fields.nodes().to_vec();
    for (index, node) in changed {
        nodes[index] = node;
    }
    Reconciled::Changed(nodes.into_iter().collect())
}

/// Whether the fields of a map have no schema: then it has no relation that could have changed.
fn is_open(object_type: ObjectType<'_>, map: &MapType) -> bool {
    let is_untyped = |others: TypeRef| {
        others == TypeRef::DEDUCED || object_type.get(others).scalar == Some(ScalarType::Untyped)
    };
    map.fields.is_empty() && map.others.is_some_and(is_untyped)
}
