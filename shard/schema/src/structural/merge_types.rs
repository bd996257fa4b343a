//! The types of server-side apply, from a compiled schema.

use rustc_hash::FxHashMap;

use super::{Additional, Inner, ListType, Node, NodeId, Property, TypeSet};
use crate::apply::{FieldType, ListKey, ListRelation, MapType, ScalarType, Type, TypeRef, TypeTable};

/// The types of all nodes, and that of the root, which has the fields of all objects.
pub(super) fn merge_types(schema: &Inner) -> (TypeTable, TypeRef) {
    let mut builder = Builder { schema, table: TypeTable::own(), known: FxHashMap::default() };
    let root = builder.place(schema.root, false);
    if let Some(mut root_type) = builder.table.get(root).cloned() {
        let map = root_type.map.get_or_insert_with(|| MapType {
            fields: Box::default(),
            others: Some(TypeRef::DEDUCED),
            is_atomic: false,
        });
        add_object_fields(map);
        // An object is never owned as a whole.
        map.is_atomic = false;
        root_type.scalar = None;
        root_type.list = None;
        builder.table.set(root, root_type);
    }
    (builder.table, root)
}

struct Builder<'s> {
    schema: &'s Inner,
    table: TypeTable,
    /// The types of nodes, by whether a node above preserves unknown fields.
    known: FxHashMap<(NodeId, bool), TypeRef>,
}

impl Builder<'_> {
    fn place(&mut self, id: NodeId, keeps_unknown: bool) -> TypeRef {
        let node = self.schema.node(id);
        if node.types == TypeSet::INT_OR_STRING && !self.is_text(node) {
            return TypeRef::DEDUCED;
        }
        let keeps_unknown = keeps_unknown || node.preserve_unknown;
        if let Some(known) = self.known.get(&(id, keeps_unknown)) {
            return *known;
        }
        let place = self.table.reserve();
        self.known.insert((id, keeps_unknown), place);
        let value = self.type_of(node, keeps_unknown);
        self.table.set(place, value);
        place
    }

    /// Whether `int-or-string` is the format of a text, which is a scalar, and not the extension, which allows anything.
    fn is_text(&self, node: &Node) -> bool {
        node.checks.as_ref().is_some_and(|checks| checks.format.as_deref() == Some("int-or-string"))
    }

    fn type_of(&mut self, node: &Node, keeps_unknown: bool) -> Type {
        let scalar = |scalar| Type { scalar: Some(scalar), ..Type::default() };
        match node.types {
            TypeSet::OBJECT => Type { map: Some(self.map(node, keeps_unknown)), ..Type::default() },
            TypeSet::ARRAY => Type { list: Some(self.list(node, keeps_unknown)), ..Type::default() },
            TypeSet::INTEGER | TypeSet::NUMBER => scalar(ScalarType::Numeric),
            TypeSet::BOOLEAN => scalar(ScalarType::Boolean),
            TypeSet::STRING | TypeSet::INT_OR_STRING => {
                let format = node.checks.as_ref().and_then(|checks| checks.format.as_deref());
                let is_plain = matches!(format, None | Some("byte"));
                scalar(if is_plain { ScalarType::Text } else { ScalarType::Untyped })
            }
            _ => Type {
                scalar: Some(ScalarType::Untyped),
                list: Some(self.list(node, keeps_unknown)),
                map: Some(self.map(node, keeps_unknown)),
            },
        }
    }

    fn map(&mut self, node: &Node, keeps_unknown: bool) -> MapType {
        let mut fields = Vec::with_capacity(node.properties.len());
        for property in &node.properties {
            let value = self.place(property.node, keeps_unknown);
            fields.push(FieldType { name: property.name.clone(), value, is_always_present: false });
        }
        let others = match &node.additional {
            Additional::Unspecified => (keeps_unknown || fields.is_empty()).then_some(TypeRef::DEDUCED),
            Additional::Any => Some(TypeRef::DEDUCED),
            Additional::Refused => None,
            Additional::Schema(values) => Some(self.place(values.node, keeps_unknown)),
        };
        let mut map = MapType { fields: fields.into(), others, is_atomic: node.is_atomic_map };
        if node.embedded_resource {
            add_object_fields(&mut map);
        }
        map
    }

    fn list(&mut self, node: &Node, keeps_unknown: bool) -> crate::apply::ListType {
        let items =
            node.items.as_ref().map_or(TypeRef::ATOMIC, |items| self.place(items.node, keeps_unknown));
        let relation = match &node.list_type {
            ListType::Atomic => ListRelation::Atomic,
            ListType::Set => ListRelation::Set,
            ListType::Map { keys } => {
                let keys = keys.iter().map(|name| ListKey {
                    name: name.clone(),
                    default: default_of(self.schema, node.items.as_ref(), name),
                });
                ListRelation::Map(keys.collect())
            }
        };
        crate::apply::ListType { items, relation }
    }
}

/// The default of a field of a list's items.
fn default_of(schema: &Inner, items: Option<&Property>, name: &str) -> Option<serde_json::Value> {
    let property = schema.node(items?.node).property(name)?;
    property.default.as_ref().map(|default| default.value.clone()).filter(|default| !default.is_null())
}

/// Adds the fields that all objects have.
fn add_object_fields(map: &mut MapType) {
    let common = [("apiVersion", TypeRef::TEXT), ("kind", TypeRef::TEXT), ("metadata", TypeRef::OBJECT_META)];
    let own = core::mem::take(&mut map.fields).into_vec().into_iter();
    let mut fields: Vec<FieldType> =
        own.filter(|field| common.iter().all(|(name, _)| **name != *field.name)).collect();
    fields.extend(common.map(|(name, value)| FieldType {
        name: name.into(),
        value,
        is_always_present: false,
    }));
    fields.sort_unstable_by(|one, two| one.name.cmp(&two.name));
    map.fields = fields.into();
}
