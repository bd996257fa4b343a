//! Shapes of the definitions: types, merge behaviour of lists and zero values, without texts and validation.
//!
//! Normalization and strategic merge patch use shapes on every write, so shapes are small and borrowed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::overlay::{is_empty_object, is_struct};
use super::reference::referenced;
use crate::protobuf::keeps_zero;

/// The OpenAPI extension with the behaviour of strategic merge patch.
pub(crate) const PATCH_STRATEGY: &str = "x-kubernetes-patch-strategy";

/// All shapes by definition name.
#[derive(Debug, Default)]
pub(crate) struct ShapeTable(BTreeMap<String, Shape>);

#[derive(Debug)]
pub(crate) enum Shape {
    /// Any JSON.
    Any,
    Scalar(Scalar),
    List {
        items: Box<Shape>,
        merge: ListMerge,
    },
    Map(Box<Shape>),
    Object(ObjectShape),
    /// A reference into the table.
    Definition(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    /// Base64 text.
    Bytes,
    Bool,
    Int32,
    Int64,
    Number,
    /// RFC 3339, whole seconds.
    Time,
    /// RFC 3339, microseconds.
    MicroTime,
    /// Text or a number.
    Quantity,
}

/// The behaviour of strategic merge patch for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListMerge {
    Replace,
    /// The result is the union of both lists, whose items are distinct scalars.
    Set,
    /// Items with the same value of this field are merged.
    ByKey(String),
}

#[derive(Debug)]
pub(crate) struct ObjectShape {
    /// The Go type's name in error texts: the last part of the definition's name.
    pub(crate) name: String,
    /// Sorted by name.
    fields: Vec<FieldShape>,
}

#[derive(Debug)]
pub(crate) struct FieldShape {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// Whether a zero value differs from an absent one.
    pub(crate) keeps_zero: bool,
    /// Whether the field is a Go struct that is not a pointer, so that an absent object is an empty one.
    pub(crate) is_struct: bool,
    /// Whether strategic merge patch replaces an object instead of merging it.
    pub(crate) is_replaced: bool,
}

impl ObjectShape {
    pub(crate) fn field(&self, name: &str) -> Option<&FieldShape> {
        let index = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(index)
    }
}

impl Shape {
    /// The name of the definition without its package; empty for a shape without a name.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Definition(definition) => definition.rsplit('.').next().unwrap_or(definition),
            Self::Object(object) => &object.name,
            _ => "",
        }
    }
}

impl ShapeTable {
    pub(crate) fn get(&self, definition: &str) -> Option<&Shape> {
        self.0.get(definition)
    }

    /// Follows references. A reference to an unknown definition is an open value.
    pub(crate) fn resolve<'a>(&'a self, shape: &'a Shape) -> &'a Shape {
        let mut shape = shape;
        while let Shape::Definition(name) = shape {
            shape = self.0.get(name).unwrap_or(&Shape::Any);
        }
        shape
    }
}

pub(crate) fn shape_table(schemas: &Map<String, Value>) -> ShapeTable {
    ShapeTable(schemas.iter().map(|(name, schema)| (name.clone(), shape_of(name, schema))).collect())
}

/// The shape of a schema. `definition` is the name of the definition that contains the schema.
fn shape_of(definition: &str, schema: &Value) -> Shape {
    let Value::Object(schema) = schema else {
        return Shape::Any;
    };
    if let Some(target) = referenced(schema) {
        return Shape::Definition(target);
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    match (text("type"), text("format")) {
        (Some("string"), Some("byte")) => Shape::Scalar(Scalar::Bytes),
        (Some("string"), Some("date-time")) if definition.ends_with(".MicroTime") => {
            Shape::Scalar(Scalar::MicroTime)
        }
        (Some("string"), Some("date-time")) => Shape::Scalar(Scalar::Time),
        _ if definition.ends_with(".Quantity") => Shape::Scalar(Scalar::Quantity),
        (Some("string"), _) => Shape::Scalar(Scalar::Text),
        (Some("boolean"), _) => Shape::Scalar(Scalar::Bool),
        (Some("integer"), Some("int32")) => Shape::Scalar(Scalar::Int32),
        (Some("integer"), _) => Shape::Scalar(Scalar::Int64),
        (Some("number"), _) => Shape::Scalar(Scalar::Number),
        (Some("array"), _) => {
            let items = schema.get("items").map_or(Shape::Any, |items| shape_of(definition, items));
            Shape::List { items: Box::new(items), merge: list_merge(schema) }
        }
        (Some("object"), _) => object_shape(definition, schema),
        _ => Shape::Any,
    }
}

fn list_merge(schema: &Map<String, Value>) -> ListMerge {
    let key = schema.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
    match (schema.get(PATCH_STRATEGY).and_then(Value::as_str), key) {
        (Some("merge"), Some(key)) => ListMerge::ByKey(key.to_owned()),
        (Some("merge"), None) => ListMerge::Set,
        _ => ListMerge::Replace,
    }
}

fn object_shape(definition: &str, schema: &Map<String, Value>) -> Shape {
    let empty = Map::new();
    let properties = match schema.get("properties") {
        Some(Value::Object(properties)) => Some(properties),
        _ => is_empty_object(definition).then_some(&empty),
    };
    if let Some(properties) = properties {
        let mut fields: Vec<_> = properties
            .iter()
            .map(|(name, schema)| FieldShape {
                name: name.clone(),
                shape: shape_of(definition, schema),
                keeps_zero: keeps_zero(definition, name),
                is_struct: is_struct(definition, name),
                is_replaced: schema.get(PATCH_STRATEGY).is_some_and(|strategy| strategy == "replace"),
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let name = definition.rsplit('.').next().unwrap_or(definition).to_owned();
        return Shape::Object(ObjectShape { name, fields });
    }
    match schema.get("additionalProperties") {
        Some(values @ Value::Object(_)) => Shape::Map(Box::new(shape_of(definition, values))),
        _ => Shape::Any,
    }
}
