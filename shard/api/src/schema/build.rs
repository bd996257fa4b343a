//! A small notation for OpenAPI v3 schemas as CRDs use them: each call adds one keyword.

use serde_json::{Map, Value, json};

/// A schema under construction.
pub(super) struct Schema(Map<String, Value>);

pub(super) fn string() -> Schema {
    of_type("string")
}

pub(super) fn boolean() -> Schema {
    of_type("boolean")
}

pub(super) fn integer() -> Schema {
    of_type("integer")
}

/// An object without declared fields; see [`Schema::field`].
pub(super) fn any_object() -> Schema {
    of_type("object")
}

/// An object with these fields, all optional until [`Schema::required`] names them.
pub(super) fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    fields.into_iter().fold(any_object(), |object, (name, schema)| object.field(name, schema))
}

/// A list of `items`.
pub(super) fn list(items: Schema) -> Schema {
    of_type("array").with("items", items.build())
}

/// A list that server-side apply replaces as a whole.
pub(super) fn atomic_list(items: Schema) -> Schema {
    list(items).with("x-kubernetes-list-type", "atomic")
}

/// A list without duplicates.
pub(super) fn set(items: Schema) -> Schema {
    list(items).with("x-kubernetes-list-type", "set")
}

/// A list whose items are identified by the values of `keys`.
pub(super) fn map_list<const N: usize>(keys: [&str; N], items: Schema) -> Schema {
    list(items).with("x-kubernetes-list-type", "map").with("x-kubernetes-list-map-keys", json!(keys.to_vec()))
}

/// A map from any key to values of one schema.
pub(super) fn map_of(values: Schema) -> Schema {
    any_object().with("additionalProperties", values.build())
}

/// A value that may be an integer or a string, such as a quantity.
pub(super) fn int_or_string() -> Schema {
    Schema(Map::new())
        .with("x-kubernetes-int-or-string", true)
        .with("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
}

fn of_type(name: &str) -> Schema {
    Schema(Map::new()).with("type", name)
}

impl Schema {
    pub(super) fn build(self) -> Value {
        Value::Object(self.0)
    }

    /// Sets the description, which `kubectl explain` prints.
    pub(super) fn about(self, description: &str) -> Self {
        self.with("description", description)
    }

    pub(super) fn field(mut self, name: &str, schema: Schema) -> Self {
        let fields = self.0.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(fields) = fields {
            fields.insert(name.to_owned(), schema.build());
        }
        self
    }

    pub(super) fn required<const N: usize>(self, names: [&str; N]) -> Self {
        self.with("required", json!(names.to_vec()))
    }

    /// Requires exactly one of these fields.
    pub(super) fn exactly_one_of<const N: usize>(self, names: [&str; N]) -> Self {
        let choices: Vec<Value> = names.iter().map(|name| json!({"required": [name]})).collect();
        self.with("oneOf", choices)
    }

    /// Makes server-side apply replace the object as a whole.
    pub(super) fn atomic(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    pub(super) fn preserve_unknown_fields(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }

    pub(super) fn one_of<const N: usize>(self, values: [&str; N]) -> Self {
        self.with("enum", json!(values.to_vec()))
    }

    pub(super) fn none_of<const N: usize>(self, values: [&str; N]) -> Self {
        self.with("not", json!({"enum": values.to_vec()}))
    }

    pub(super) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    pub(super) fn format(self, format: &str) -> Self {
        self.with("format", format)
    }

    pub(super) fn default(self, value: Value) -> Self {
        self.with("default", value)
    }

    pub(super) fn min_length(self, length: u32) -> Self {
        self.with("minLength", length)
    }

    pub(super) fn not_empty(self) -> Self {
        self.min_length(1)
    }

    pub(super) fn max_length(self, length: u32) -> Self {
        self.with("maxLength", length)
    }

    pub(super) fn min_items(self, count: u32) -> Self {
        self.with("minItems", count)
    }

    pub(super) fn max_items(self, count: u32) -> Self {
        self.with("maxItems", count)
    }

    pub(super) fn max_properties(self, count: u32) -> Self {
        self.with("maxProperties", count)
    }

    /// Adds a CEL rule (KEP-2876). Each rule used here has a native implementation in [`crate::rules`].
    pub(super) fn rule(mut self, rule: &str, message: &str) -> Self {
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(rules) = rules {
            rules.push(json!({"rule": rule, "message": message}));
        }
        self
    }

    fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }
}
