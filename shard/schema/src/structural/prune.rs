//! Pruning: removes fields that a schema does not specify.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::field::{FieldPath, MAX_FINDINGS};

use super::{Additional, DefaultValue, Dialect, Inner, Node, NodeId, Property};

/// The fields of every object's root, and of every embedded resource's root.
pub(super) const TYPE_AND_META: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prune(schema: &Inner, object: &mut Value) -> Vec<String> {
    let mut pruner = Pruner::new(schema, Fields::All);
    pruner.prune(object, Some(schema.root), Level::Root);
    pruner.unknown
}

/// Prunes a value within an object, such as a default.
pub(super) fn prune_nested(schema: &Inner, node: NodeId, value: &mut Value) -> Vec<String> {
    prune_fields(schema, node, value, Fields::All)
}

/// Prunes some fields of a value within an object.
pub(super) fn prune_fields(schema: &Inner, node: NodeId, value: &mut Value, fields: Fields) -> Vec<String> {
    let mut pruner = Pruner::new(schema, fields);
    pruner.prune(value, Some(node), Level::Nested);
    pruner.unknown
}

/// The fields that are pruned.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fields {
    All,
    /// Those outside the metadata of embedded resources.
    OfSchema,
    /// Those in the metadata of embedded resources.
    OfMetadata,
}

/// Prunes the defaults of a schema. Only those below map entries, and metadata, can have unknown fields: others are checked
/// before.
pub(super) fn prune_defaults(schema: &mut Inner) {
    let mut pruned = Vec::new();
    for (id, node) in schema.nodes.iter().enumerate() {
        for (place, property) in node.places().enumerate() {
            let Some(default) = &property.default else { continue };
            let mut value = default.value.clone();
            prune_nested(schema, property.node, &mut value);
            if value != default.value {
                pruned.push((id, place, DefaultValue::new(value)));
            }
        }
    }
    for (id, place, default) in pruned {
        if let Some(property) = schema.nodes[id].places_mut().nth(place) {
            property.default = Some(Arc::new(default));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Nested,
}

struct Pruner<'s> {
    schema: &'s Inner,
    fields: Fields,
    /// The path of the current value; extended and truncated during the recursion.
    path: String,
    /// The parts of the path that are keys of maps.
    keys: Vec<Range<usize>>,
    unknown: Vec<String>,
}

impl<'s> Pruner<'s> {
    fn new(schema: &'s Inner, fields: Fields) -> Self {
        Self { schema, fields, path: String::new(), keys: Vec::new(), unknown: Vec::new() }
    }

    fn prune(&mut self, value: &mut Value, node: Option<NodeId>, level: Level) {
        let node = node.map(|id| self.schema.node(id));
        if let Some(node) = node.filter(|node| node.preserve_unknown) {
            self.prune_specified(value, node, level);
            return;
        }
        match value {
            Value::Object(fields) => match node {
                Some(node) => self.prune_object(fields, node, level),
                None => self.remove_all(fields),
            },
            Value::Array(items) => {
                let item_node = node.and_then(|node| node.items.as_ref()).map(|items| items.node);
                for (index, item) in items.iter_mut().enumerate() {
                    self.with_index(index, |pruner| pruner.prune(item, item_node, Level::Nested));
                }
            }
            _ => {}
        }
    }

    fn prune_object(&mut self, fields: &mut Map<String, Value>, node: &'s Node, level: Level) {
        let keeps_meta = self.keeps_meta(node, level);
        let mut unknown_here: Vec<String> = Vec::new();
        for (name, field) in fields.iter_mut() {
            if keeps_meta && TYPE_AND_META.contains(&name.as_str()) {
                if level == Level::Nested && name == "metadata" {
                    self.embedded_metadata(node, field);
                }
                continue;
            }
            match self.node_of(node, name) {
                FieldSchema::Specified(id) => self.with_specified(node, name, |pruner| {
                    pruner.prune(field, Some(id), Level::Nested);
                }),
                FieldSchema::Untyped => {
                    self.with_field(name, |pruner| pruner.prune(field, None, Level::Nested))
                }
                FieldSchema::Any => {}
                FieldSchema::Unknown => unknown_here.push(name.clone()),
            }
        }
        if self.fields == Fields::OfMetadata {
            return;
        }
        for name in unknown_here {
            fields.remove(&name);
            self.record(&name);
        }
    }

    /// Prunes a value with `x-kubernetes-preserve-unknown-fields`: keeps its unknown fields and prunes within specified ones.
    fn prune_specified(&mut self, value: &mut Value, node: &'s Node, level: Level) {
        match value {
            Value::Object(fields) => {
                let keeps_meta = self.keeps_meta(node, level);
                for (name, field) in fields.iter_mut() {
                    if keeps_meta && TYPE_AND_META.contains(&name.as_str()) {
                        if level == Level::Nested && name == "metadata" {
                            self.embedded_metadata(node, field);
                        }
                        continue;
                    }
                    let id = match self.node_of(node, name) {
                        FieldSchema::Specified(id) => Some(id),
                        FieldSchema::Untyped => None,
                        FieldSchema::Any | FieldSchema::Unknown => continue,
                    };
                    self.with_specified(node, name, |pruner| pruner.prune(field, id, Level::Nested));
                }
            }
            Value::Array(items) => {
                let Some(item_node) = node.items.as_ref().map(|items| self.schema.node(items.node)) else {
                    return;
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.with_index(index, |pruner| pruner.prune_specified(item, item_node, Level::Nested));
                }
            }
            _ => {}
        }
    }

    fn remove_all(&mut self, fields: &mut Map<String, Value>) {
        if self.fields == Fields::OfMetadata {
            return;
        }
        for name in fields.keys() {
            self.record(name);
        }
        fields.clear();
    }

    fn keeps_meta(&self, node: &Node, level: Level) -> bool {
        let root_of_custom_resource = level == Level::Root && self.schema.dialect == Dialect::Structural;
        node.embedded_resource || root_of_custom_resource
    }

    fn node_of(&self, node: &Node, name: &str) -> FieldSchema {
        if let Some(property) = node.property(name) {
            return FieldSchema::Specified(property.node);
        }
        match (&node.additional, self.schema.dialect) {
            (Additional::Schema(property), _) => FieldSchema::Specified(property.node),
            (Additional::Any, Dialect::OpenApi) => FieldSchema::Any,
            // In a structural schema, `true` allows any fields but does not specify their content. The fields that
            // `false` refuses are errors of the object, so they are kept.
            (Additional::Any, _) => FieldSchema::Untyped,
            (Additional::Refused, Dialect::Structural | Dialect::StructuralDefaults) => FieldSchema::Untyped,
            (Additional::Unspecified | Additional::Refused, _) => FieldSchema::Unknown,
        }
    }

    fn record(&mut self, name: &str) {
        if self.unknown.len() < MAX_FINDINGS {
            let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
            self.unknown.push(path);
        }
    }

    /// Prunes the metadata of an embedded resource, which needs no schema. Validation reports wrong types.
    fn embedded_metadata(&mut self, node: &Node, metadata: &mut Value) {
        if self.fields == Fields::OfSchema {
            return;
        }
        // Defaulting removes a null that the schema does not allow.
        let is_refused = |property: &Property| !property.nullable;
        if metadata.is_null() && node.property("metadata").is_some_and(is_refused) {
            return;
        }
        let path = self.path_with_keys().child("metadata");
        if let Ok(unknown) = crate::metadata::coerce(metadata, &path) {
            crate::metadata::complete(metadata);
            let remaining = MAX_FINDINGS.saturating_sub(self.unknown.len());
            self.unknown.extend(unknown.into_iter().take(remaining));
        }
    }

    /// The path of the current value, with the keys of maps in brackets. Kubernetes writes only the metadata of embedded
    /// resources so.
    fn path_with_keys(&self) -> FieldPath {
        let mut path = self.path.clone();
        for key in self.keys.iter().rev() {
            let name = path[key.clone()].to_owned();
            let start = key.start.saturating_sub(1);
            path.replace_range(start..key.end, &format!("[{name}]"));
        }
        FieldPath::new(path)
    }

    /// Like [`Pruner::with_field`], for a field of a schema or an entry of a map.
    fn with_specified(&mut self, node: &Node, name: &str, prune_below: impl FnOnce(&mut Self)) {
        let is_key = node.property(name).is_none();
        if is_key {
            let start = self.path.len() + usize::from(!self.path.is_empty());
            self.keys.push(start..start + name.len());
        }
        self.with_field(name, prune_below);
        if is_key {
            self.keys.pop();
        }
    }

    fn with_field(&mut self, name: &str, prune_below: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        prune_below(self);
        self.path.truncate(length);
    }

    fn with_index(&mut self, index: usize, prune_below: impl FnOnce(&mut Self)) {
        use std::fmt::Write as _;
        let length = self.path.len();
        let _ = write!(self.path, "[{index}]");
        prune_below(self);
        self.path.truncate(length);
    }
}

/// The schema of a field, from its parent's schema.
enum FieldSchema {
    /// The field is specified.
    Specified(NodeId),
    /// The field is allowed, and all fields below it are unknown.
    Untyped,
    /// The field is allowed with any content.
    Any,
    /// The field is unknown.
    Unknown,
}
