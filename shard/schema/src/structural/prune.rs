//! Pruning: removes fields that a schema does not specify.

use serde_json::{Map, Value};

use crate::field::{FieldPath, MAX_FINDINGS};

use super::{Additional, Dialect, Inner, Node, NodeId};

/// The fields of every object's root, and of every embedded resource's root.
pub(super) const TYPE_AND_META: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prune(schema: &Inner, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { schema, path: String::new(), unknown: Vec::new() };
    pruner.prune(object, Some(schema.root), AtRoot::Yes);
    pruner.unknown
}

/// Prunes a value within an object, such as a default.
pub(super) fn prune_nested(schema: &Inner, node: NodeId, value: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { schema, path: String::new(), unknown: Vec::new() };
    pruner.prune(value, Some(node), AtRoot::No);
    pruner.unknown
}

#[derive(Clone, Copy, PartialEq)]
enum AtRoot {
    Yes,
    No,
}

struct Pruner<'s> {
    schema: &'s Inner,
    /// The path of the current value; extended and truncated during the recursion.
    path: String,
    unknown: Vec<String>,
}

impl<'s> Pruner<'s> {
    fn prune(&mut self, value: &mut Value, node: Option<NodeId>, at_root: AtRoot) {
        let node = node.map(|id| self.schema.node(id));
        if let Some(node) = node.filter(|node| node.preserve_unknown) {
            self.prune_specified(value, node, at_root);
            return;
        }
        match value {
            Value::Object(fields) => match node {
                Some(node) => self.prune_object(fields, node, at_root),
                None => self.remove_all(fields),
            },
            Value::Array(items) => {
                let item_node = node.and_then(|node| node.items.as_ref()).map(|items| items.node);
                for (index, item) in items.iter_mut().enumerate() {
                    self.with_index(index, |pruner| pruner.prune(item, item_node, AtRoot::No));
                }
            }
            _ => {}
        }
    }

    fn prune_object(&mut self, fields: &mut Map<String, Value>, node: &'s Node, at_root: AtRoot) {
        let keeps_meta = self.keeps_meta(node, at_root);
        let mut unknown_here: Vec<String> = Vec::new();
        for (name, field) in fields.iter_mut() {
            if keeps_meta && TYPE_AND_META.contains(&name.as_str()) {
                if at_root == AtRoot::No && name == "metadata" {
                    self.embedded_metadata(field);
                }
                continue;
            }
            match self.node_of(node, name) {
                Known::As(id) => self.with_field(name, |pruner| pruner.prune(field, Some(id), AtRoot::No)),
                Known::Untyped => self.with_field(name, |pruner| pruner.prune(field, None, AtRoot::No)),
                Known::Free => {}
                Known::Not => unknown_here.push(name.clone()),
            }
        }
        for name in unknown_here {
            fields.remove(&name);
            self.record(&name);
        }
    }

    /// Prunes below `x-kubernetes-preserve-unknown-fields`: only specified fields are pruned.
    fn prune_specified(&mut self, value: &mut Value, node: &'s Node, at_root: AtRoot) {
        match value {
            Value::Object(fields) => {
                let keeps_meta = self.keeps_meta(node, at_root);
                for (name, field) in fields.iter_mut() {
                    if keeps_meta && TYPE_AND_META.contains(&name.as_str()) {
                        if at_root == AtRoot::No && name == "metadata" {
                            self.embedded_metadata(field);
                        }
                        continue;
                    }
                    if let Known::As(id) = self.node_of(node, name) {
                        self.with_field(name, |pruner| pruner.prune(field, Some(id), AtRoot::No));
                    }
                }
            }
            Value::Array(items) => {
                let Some(item_node) = node.items.as_ref().map(|items| self.schema.node(items.node)) else {
                    return;
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.with_index(index, |pruner| pruner.prune_specified(item, item_node, AtRoot::No));
                }
            }
            _ => {}
        }
    }

    fn remove_all(&mut self, fields: &mut Map<String, Value>) {
        for name in fields.keys() {
            self.record(name);
        }
        fields.clear();
    }

    fn keeps_meta(&self, node: &Node, at_root: AtRoot) -> bool {
        let root_of_custom_resource = at_root == AtRoot::Yes && self.schema.dialect == Dialect::Structural;
        node.embedded_resource || root_of_custom_resource
    }

    fn node_of(&self, node: &Node, name: &str) -> Known {
        if let Some(property) = node.property(name) {
            return Known::As(property.node);
        }
        match (&node.additional, self.schema.dialect) {
            (Additional::Schema(property), _) => Known::As(property.node),
            // In a structural schema, `true` allows any fields but does not specify their content.
            (Additional::Any, Dialect::Structural) => Known::Untyped,
            (Additional::Any, Dialect::OpenApi) => Known::Free,
            (Additional::Unspecified | Additional::Refused, _) => Known::Not,
        }
    }

    fn record(&mut self, name: &str) {
        if self.unknown.len() < MAX_FINDINGS {
            let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
            self.unknown.push(path);
        }
    }

    /// Prunes the metadata of an embedded resource, which needs no schema. Validation reports wrong types.
    fn embedded_metadata(&mut self, metadata: &mut Value) {
        let path = FieldPath::new(self.path.as_str()).child("metadata");
        if let Ok(unknown) = crate::metadata::coerce(metadata, &path) {
            let room = MAX_FINDINGS.saturating_sub(self.unknown.len());
            self.unknown.extend(unknown.into_iter().take(room));
        }
    }

    fn with_field(&mut self, name: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        walk(self);
        self.path.truncate(length);
    }

    fn with_index(&mut self, index: usize, walk: impl FnOnce(&mut Self)) {
        use std::fmt::Write as _;
        let length = self.path.len();
        let _ = write!(self.path, "[{index}]");
        walk(self);
        self.path.truncate(length);
    }
}

/// The schema of a field, from its parent's schema.
enum Known {
    /// The field is specified.
    As(NodeId),
    /// The field is allowed, and no content below it is specified.
    Untyped,
    /// The field is allowed with any content.
    Free,
    /// The field is unknown.
    Not,
}
