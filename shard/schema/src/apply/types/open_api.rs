//! Types of OpenAPI definitions. A definition may refer to others and to itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{FieldType, ListKey, ListRelation, ListType, MapType, ScalarType, Type, TypeRef, TypeTable};

/// Definitions whose schema does not say what they hold.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl TypeTable {
    /// The types of all definitions, and the place of each one in the table. The table is a common table: other tables
    /// may refer to it.
    ///
    /// `is_struct` says of a field of a definition whether it is a Go struct that is not a pointer.
    pub fn of_definitions(
        definitions: &Map<String, Value>,
        is_struct: &dyn Fn(&str, &str) -> bool,
    ) -> (Self, BTreeMap<String, TypeRef>) {
        let mut table = Self { types: common_types() };
        let mut places = BTreeMap::from([(OBJECT_META.to_owned(), TypeRef::OBJECT_META)]);
        for name in definitions.keys().filter(|name| *name != OBJECT_META) {
            let place = table.reserve();
            places.insert(name.clone(), TypeRef::common((place.0 & !TypeRef::COMMON) as usize));
        }
        let mut builder = Builder { table, places, is_struct };
        for (name, schema) in definitions {
            let value = match name.as_str() {
                QUANTITY => Type { scalar: Some(ScalarType::Untyped), ..Type::default() },
                RAW_EXTENSION => untyped(TypeRef::ATOMIC, true),
                _ => builder.type_of(name, schema, false),
            };
            if let Some(place) = builder.places.get(name).copied() {
                builder.table.set(place, value);
            }
        }
        (builder.table, builder.places)
    }
}

/// The types at the fixed places of a common table.
fn common_types() -> Vec<Type> {
    let text = Type { scalar: Some(ScalarType::Text), ..Type::default() };
    vec![
        untyped(TypeRef::ATOMIC, true),
        untyped(TypeRef::DEDUCED, false),
        untyped(TypeRef::DEDUCED, false),
        text,
    ]
}

/// A value of any form, whose fields have the type `others`.
fn untyped(others: TypeRef, is_atomic: bool) -> Type {
    Type {
        scalar: Some(ScalarType::Untyped),
        list: Some(ListType { items: TypeRef::ATOMIC, relation: ListRelation::Atomic }),
        map: Some(MapType { fields: Box::default(), others: Some(others), is_atomic }),
    }
}

struct Builder<'a> {
    table: TypeTable,
    places: BTreeMap<String, TypeRef>,
    is_struct: &'a dyn Fn(&str, &str) -> bool,
}

impl Builder<'_> {
    /// The type of a schema in a definition. `keeps_unknown`: whether a schema above it preserves unknown fields.
    fn type_of(&mut self, definition: &str, schema: &Value, keeps_unknown: bool) -> Type {
        let keeps_unknown =
            keeps_unknown || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let scalar = |scalar| Type { scalar: Some(scalar), ..Type::default() };
        match text("type").unwrap_or_default() {
            "object" => Type { map: Some(self.map(definition, schema, keeps_unknown)), ..Type::default() },
            "array" => Type { list: Some(self.list(definition, schema, keeps_unknown)), ..Type::default() },
            "integer" | "number" => scalar(ScalarType::Numeric),
            "boolean" => scalar(ScalarType::Boolean),
            "string" if matches!(text("format"), None | Some("" | "byte")) => scalar(ScalarType::Text),
            "string" => scalar(ScalarType::Untyped),
            _ => Type {
                scalar: Some(ScalarType::Untyped),
                list: Some(self.list(definition, schema, keeps_unknown)),
                map: Some(self.map(definition, schema, keeps_unknown)),
            },
        }
    }

    fn reference(&mut self, definition: &str, schema: &Value, keeps_unknown: bool) -> TypeRef {
        let Some(name) = referenced(schema) else {
            let value = self.type_of(definition, schema, keeps_unknown);
            return self.add(value);
        };
        self.places.get(name).copied().unwrap_or(TypeRef::DEDUCED)
    }

    fn add(&mut self, value: Type) -> TypeRef {
        let place = self.table.reserve();
        self.table.set(place, value);
        TypeRef::common((place.0 & !TypeRef::COMMON) as usize)
    }

    fn map(&mut self, definition: &str, schema: &Value, keeps_unknown: bool) -> MapType {
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields = Vec::with_capacity(properties.map_or(0, Map::len));
        for (name, property) in properties.into_iter().flatten() {
            fields.push(FieldType {
                name: name.as_str().into(),
                value: self.reference(definition, property, keeps_unknown),
                is_always_present: (self.is_struct)(definition, name),
            });
        }
        fields.sort_unstable_by(|one, two| one.name.cmp(&two.name));
        let others = match schema.get("additionalProperties") {
            None | Some(Value::Null) => (keeps_unknown || fields.is_empty()).then_some(TypeRef::DEDUCED),
            Some(Value::Bool(allows)) => allows.then_some(TypeRef::DEDUCED),
            Some(values) => Some(self.reference(definition, values, keeps_unknown)),
        };
        let is_atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        MapType { fields: fields.into(), others, is_atomic }
    }

    fn list(&mut self, definition: &str, schema: &Value, keeps_unknown: bool) -> ListType {
        let items = match schema.get("items") {
            Some(items) => self.reference(definition, items, keeps_unknown),
            None => TypeRef::ATOMIC,
        };
        let default_of = |key: &str| {
            let items = schema.get("items")?;
            items.get("properties")?.get(key)?.get("default").filter(|default| !default.is_null()).cloned()
        };
        ListType { items, relation: relation(schema, &default_of) }
    }
}

/// The relation of a list's items, by its extensions.
fn relation(schema: &Value, default_of: &dyn Fn(&str) -> Option<Value>) -> ListRelation {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let keys = |names: Vec<&str>| {
        let keys = names.into_iter().map(|name| ListKey { name: name.into(), default: default_of(name) });
        ListRelation::Map(keys.collect())
    };
    match text("x-kubernetes-list-type") {
        Some("set") => ListRelation::Set,
        Some("map") => {
            let names = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            keys(names.into_iter().flatten().filter_map(Value::as_str).collect())
        }
        Some(_) => ListRelation::Atomic,
        None => match (text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")) {
            (Some("merge" | "merge,retainKeys"), Some(key)) => keys(vec![key]),
            (Some("merge" | "merge,retainKeys"), None) => ListRelation::Set,
            _ => ListRelation::Atomic,
        },
    }
}

/// The definition that a schema refers to, directly or wrapped in `allOf`.
fn referenced(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").and_then(Value::as_str);
    let wrapped = || match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref").and_then(Value::as_str),
        _ => None,
    };
    direct.or_else(wrapped).map(|reference| reference.rsplit('/').next().unwrap_or(reference))
}
