//! Ratcheting of rules (KEP-4008): a rule that a value already broke before an update does not refuse the update.

use std::cell::OnceCell;

use serde_json::Value;

use super::super::equality::identity;
use super::super::list_type::{by_key, key_of};
use super::super::{Additional, Inner, ListType, NodeId};

/// A value and the one that it replaces.
pub(super) struct Correlated<'v> {
    schema: &'v Inner,
    node: NodeId,
    new: &'v Value,
    old: &'v Value,
    /// Compared at most once, because many rules may fail below a large list.
    is_unchanged: OnceCell<bool>,
}

impl<'v> Correlated<'v> {
    pub(super) fn new(schema: &'v Inner, node: NodeId, new: &'v Value, old: &'v Value) -> Self {
        Self { schema, node, new, old, is_unchanged: OnceCell::new() }
    }

    fn is_unchanged(&self) -> bool {
        *self.is_unchanged.get_or_init(|| is_unchanged(self.schema, self.node, self.new, self.old))
    }
}

/// The old values at and around a place of the object.
#[derive(Clone, Copy, Default)]
pub(super) struct Ratchet<'c> {
    /// The value itself, if it had an old value.
    pub(super) current: Option<&'c Correlated<'c>>,
    /// The nearest value around it that had one.
    pub(super) parent: Option<&'c Correlated<'c>>,
}

impl Ratchet<'_> {
    /// Whether the value, or that around it, is the one from before the update.
    pub(super) fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::is_unchanged)
    }
}

/// Whether a value is unchanged in the sense of Kubernetes: items of map lists are found by their keys, and an object
/// with fields that its schema does not describe counts as changed.
fn is_unchanged(schema: &Inner, id: NodeId, new: &Value, old: &Value) -> bool {
    let node = schema.node(id);
    match (new, old) {
        (Value::Array(items), Value::Array(old_items)) => {
            let (ListType::Map { keys }, Some(property)) = (&node.list_type, &node.items) else {
                return items == old_items;
            };
            if items.len() != old_items.len() {
                return false;
            }
            let old_items = by_key(keys, old_items);
            items.iter().all(|item| {
                let old = item.as_object().and_then(|fields| old_items.get(&identity(&key_of(keys, fields))));
                old.is_some_and(|old| is_unchanged(schema, property.node, item, old))
            })
        }
        (Value::Object(fields), Value::Object(old_fields)) => {
            fields.len() == old_fields.len()
                && fields.iter().all(|(name, field)| {
                    let ((Some(property), _) | (None, Additional::Schema(property))) =
                        (node.property(name), &node.additional)
                    else {
                        return false;
                    };
                    old_fields.get(name).is_some_and(|old| is_unchanged(schema, property.node, field, old))
                })
        }
        _ => new == old,
    }
}
