//! Declarations from a structural schema in its JSON form, as Kubernetes derives them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{DeclType, FieldType, ListKind, TextFormat};

impl DeclType {
    /// The declaration of a structural schema, or `None` if expressions cannot use its values: arrays without items,
    /// and schemas without a type.
    ///
    /// `name` is the name of the type in error messages; objects below get names with the path to them.
    /// The root of a resource always has `apiVersion`, `kind`, `metadata.name` and `metadata.generateName`.
    #[must_use]
    pub fn from_schema(schema: &Value, name: &str, is_resource_root: bool) -> Option<Self> {
        let schema = schema.as_object()?;
        let type_ = declare(schema, name, is_resource_root)?;
        Some(if flag(schema, "nullable") { type_.nullable() } else { type_ })
    }
}

fn declare(schema: &Map<String, Value>, name: &str, is_resource_root: bool) -> Option<DeclType> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Some(DeclType::int_or_string(number(schema, "maxLength")));
    }
    let type_ = schema.get("type").and_then(Value::as_str);
    match if is_resource_root { Some("object") } else { type_ }? {
        "array" => {
            let items = nested(schema.get("items")?, &format!("{name}.@idx"))?;
            Some(DeclType::list(items, list_kind(schema), number(schema, "maxItems")))
        }
        "object" => {
            if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                let values = nested(values, &format!("{name}.@elem"))?;
                return Some(DeclType::map(values, number(schema, "maxProperties")));
            }
            Some(object(schema, name, is_resource_root))
        }
        "string" => {
            let format = match schema.get("format").and_then(Value::as_str) {
                Some("byte") => TextFormat::Byte,
                Some("duration") => TextFormat::Duration,
                Some("date") => TextFormat::Date,
                Some("date-time") => TextFormat::DateTime,
                _ => TextFormat::Plain,
            };
            let enumeration =
                schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let texts: Vec<&str> = enumeration.iter().filter_map(Value::as_str).collect();
            Some(DeclType::text(format, number(schema, "maxLength"), &texts))
        }
        "boolean" => Some(DeclType::bool()),
        "number" => Some(DeclType::double()),
        "integer" => Some(DeclType::int()),
        _ => None,
    }
}

fn nested(schema: &Value, name: &str) -> Option<DeclType> {
    let is_embedded = schema.as_object().is_some_and(|schema| flag(schema, "x-kubernetes-embedded-resource"));
    DeclType::from_schema(schema, name, is_embedded)
}

fn object(schema: &Map<String, Value>, name: &str, is_resource_root: bool) -> DeclType {
    let mut properties = schema.get("properties").and_then(Value::as_object).map(Cow::Borrowed);
    if is_resource_root {
        add_meta(properties.get_or_insert_with(Cow::default).to_mut());
    }
    let Some(properties) = properties else {
        return DeclType::empty_object(name);
    };
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let required: Vec<&str> = required
        .iter()
        .filter_map(Value::as_str)
        // The server fills in defaults, so they take no room in a request.
        .filter(|name| {
            properties.get(*name).is_some_and(|schema| schema.get("default").is_none_or(Value::is_null))
        })
        .collect();
    let fields = properties
        .iter()
        .map(|(property, schema)| {
            let identifier = super::escape(property).unwrap_or_else(|| property.clone());
            let declared = nested(schema, &format!("{name}.{identifier}"));
            let type_ = declared.map_or(FieldType::Preserved, |type_| FieldType::Declared(type_.into()));
            (property.clone(), type_)
        })
        .collect();
    DeclType::object(name, fields, &required)
}

/// Adds what every resource has, unless the schema describes all of it: of the metadata, rules see names only.
fn add_meta(properties: &mut Map<String, Value>) {
    let has_type = |path: &str, type_: &str| {
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| properties.get(part));
        let found = parts.fold(first, |schema, part| schema?.get("properties")?.get(part));
        found.and_then(|schema| schema.get("type")).and_then(Value::as_str) == Some(type_)
    };
    let texts = ["kind", "apiVersion", "metadata.name", "metadata.generateName"];
    if texts.iter().all(|path| has_type(path, "string")) && has_type("metadata", "object") {
        return;
    }
    for property in ["apiVersion", "kind"] {
        properties.insert(property.to_owned(), serde_json::json!({ "type": "string" }));
    }
    let metadata = serde_json::json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "generateName": { "type": "string" } },
    });
    properties.insert("metadata".to_owned(), metadata);
}

fn list_kind(schema: &Map<String, Value>) -> ListKind {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.map(Vec::as_slice).unwrap_or_default();
            ListKind::Map(keys.iter().filter_map(Value::as_str).map(Box::from).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn number(schema: &Map<String, Value>, name: &str) -> Option<i64> {
    schema.get(name).and_then(Value::as_i64)
}
