//! OpenAPI schemas of CRDs, with the fields and their order of Kubernetes' `JSONSchemaProps`.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::omitted::{is_default, null_as_default};

/// Declares a structure whose fields may be absent or `null`, and are printed unless they have the zero value.
macro_rules! with_omitted_defaults {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident { $($key:literal $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        $visibility struct $name {
            $(#[serde(rename = $key, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
            $field: $type,)*
        }
    };
}

with_omitted_defaults! {
    /// A schema. An unknown field is dropped, as the API server drops it.
    pub(crate) struct JsonSchema {
        "id" id: String,
        "$schema" schema: String,
        "$ref" reference: Option<String>,
        "description" description: String,
        "type" value_type: String,
        "format" format: String,
        "title" title: String,
        "default" default_value: Option<Value>,
        "maximum" maximum: Option<f64>,
        "exclusiveMaximum" exclusive_maximum: bool,
        "minimum" minimum: Option<f64>,
        "exclusiveMinimum" exclusive_minimum: bool,
        "maxLength" max_length: Option<i64>,
        "minLength" min_length: Option<i64>,
        "pattern" pattern: String,
        "maxItems" max_items: Option<i64>,
        "minItems" min_items: Option<i64>,
        "uniqueItems" unique_items: bool,
        "multipleOf" multiple_of: Option<f64>,
        "enum" values: Vec<Value>,
        "maxProperties" max_properties: Option<i64>,
        "minProperties" min_properties: Option<i64>,
        "required" required: Vec<String>,
        "items" items: Option<SchemaOrList>,
        "allOf" all_of: Vec<JsonSchema>,
        "oneOf" one_of: Vec<JsonSchema>,
        "anyOf" any_of: Vec<JsonSchema>,
        "not" not: Option<Box<JsonSchema>>,
        "properties" properties: BTreeMap<String, JsonSchema>,
        "additionalProperties" additional_properties: Option<SchemaOrBoolean>,
        "patternProperties" pattern_properties: BTreeMap<String, JsonSchema>,
        "dependencies" dependencies: BTreeMap<String, SchemaOrNames>,
        "additionalItems" additional_items: Option<SchemaOrBoolean>,
        "definitions" definitions: BTreeMap<String, JsonSchema>,
        "externalDocs" external_documents: Option<ExternalDocuments>,
        "example" example: Option<Value>,
        "nullable" nullable: bool,
        "x-kubernetes-preserve-unknown-fields" preserve_unknown_fields: Option<bool>,
        "x-kubernetes-embedded-resource" embedded_resource: bool,
        "x-kubernetes-int-or-string" integer_or_string: bool,
        "x-kubernetes-list-map-keys" list_map_keys: Vec<String>,
        "x-kubernetes-list-type" list_type: Option<String>,
        "x-kubernetes-map-type" map_type: Option<String>,
        "x-kubernetes-validations" validations: Vec<ValidationRule>,
    }
}

with_omitted_defaults! {
    pub(crate) struct ExternalDocuments {
        "description" description: String,
        "url" url: String,
    }
}

/// A CEL rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ValidationRule {
    #[serde(deserialize_with = "null_as_default")]
    rule: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    message: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    message_expression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    field_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_old_self: Option<bool>,
}

/// `items`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum SchemaOrList {
    Schema(Box<JsonSchema>),
    List(Vec<JsonSchema>),
}

/// `additionalProperties`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum SchemaOrBoolean {
    Schema(Box<JsonSchema>),
    Boolean(bool),
}

/// `dependencies`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum SchemaOrNames {
    Schema(Box<JsonSchema>),
    Names(Vec<String>),
}

impl<'de> Deserialize<'de> for SchemaOrList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = if value.is_array() {
            serde_json::from_value(value).map(Self::List)
        } else {
            serde_json::from_value(value).map(Self::Schema)
        };
        read.map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for SchemaOrBoolean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(value) => Ok(Self::Boolean(value)),
            value => serde_json::from_value(value).map(Self::Schema).map_err(D::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for SchemaOrNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = if value.is_array() {
            serde_json::from_value(value).map(Self::Names)
        } else {
            serde_json::from_value(value).map(Self::Schema)
        };
        read.map_err(D::Error::custom)
    }
}
