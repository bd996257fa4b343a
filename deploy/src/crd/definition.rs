//! The fields of CRDs that an APIResourceSchema has, and the APIResourceSchema.
//!
//! Fields are in the order of Kubernetes' Go types, which is their order in JSON. Unknown fields are dropped, `null` is an
//! absent field, and a field with its zero value is printed only where Go prints it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::omitted::{is_default, null_as_default};
use super::schema::JsonSchema;

/// A CustomResourceDefinition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CustomResourceDefinition {
    pub metadata: Name,
    pub spec: DefinitionSpec,
}

/// The name of an object.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Name {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// The spec of a CustomResourceDefinition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DefinitionSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub group: String,
    #[serde(deserialize_with = "null_as_default")]
    pub names: Names,
    #[serde(deserialize_with = "null_as_default")]
    pub scope: String,
    #[serde(deserialize_with = "null_as_default")]
    pub versions: Vec<DefinitionVersion>,
    pub conversion: Option<DefinitionConversion>,
}

/// The names of a kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Names {
    #[serde(deserialize_with = "null_as_default")]
    pub plural: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub singular: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub list_kind: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

/// A version of a CustomResourceDefinition.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DefinitionVersion {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub served: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub storage: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub deprecated: bool,
    pub deprecation_warning: Option<String>,
    pub schema: Option<Validation>,
    #[serde(deserialize_with = "null_as_default")]
    pub subresources: Subresources,
    #[serde(deserialize_with = "null_as_default")]
    pub additional_printer_columns: Vec<PrinterColumn>,
    #[serde(deserialize_with = "null_as_default")]
    pub selectable_fields: Vec<SelectableField>,
}

/// `schema` of a version.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Validation {
    #[serde(rename = "openAPIV3Schema")]
    pub schema: Option<JsonSchema>,
}

/// The subresources of a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subresources {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<Scale>,
}

/// An object of whose fields none is known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Empty {}

/// The subresource `scale`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Scale {
    #[serde(deserialize_with = "null_as_default")]
    spec_replicas_path: String,
    #[serde(deserialize_with = "null_as_default")]
    status_replicas_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector_path: Option<String>,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PrinterColumn {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    value_type: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    format: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(deserialize_with = "null_as_default")]
    json_path: String,
}

/// A field for field selectors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SelectableField {
    #[serde(deserialize_with = "null_as_default")]
    json_path: String,
}

/// The conversion of a CustomResourceDefinition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DefinitionConversion {
    #[serde(deserialize_with = "null_as_default")]
    pub strategy: String,
    #[serde(deserialize_with = "null_as_default")]
    pub webhook: DefinitionWebhook,
}

/// The conversion webhook of a CustomResourceDefinition.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DefinitionWebhook {
    pub client_config: Option<DefinitionClientConfig>,
    pub conversion_review_versions: Option<Vec<String>>,
}

/// The address of a conversion webhook.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DefinitionClientConfig {
    pub url: Option<String>,
    pub service: Option<Value>,
    #[serde(deserialize_with = "null_as_default")]
    pub ca_bundle: String,
}

/// An APIResourceSchema.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiResourceSchema<'a> {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub metadata: Name,
    pub spec: SchemaSpec<'a>,
}

/// The spec of an APIResourceSchema.
#[derive(Debug, Serialize)]
pub(crate) struct SchemaSpec<'a> {
    pub group: &'a str,
    pub names: Names,
    pub scope: &'a str,
    /// `null` without versions.
    pub versions: Option<Vec<SchemaVersion<'a>>>,
    pub conversion: SchemaConversion<'a>,
}

/// A version of an APIResourceSchema.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SchemaVersion<'a> {
    pub name: &'a str,
    pub served: bool,
    pub storage: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub deprecated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_warning: Option<&'a str>,
    /// `null` without a schema.
    pub schema: Option<&'a JsonSchema>,
    pub subresources: &'a Subresources,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub additional_printer_columns: &'a [PrinterColumn],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub selectable_fields: &'a [SelectableField],
}

/// The conversion of an APIResourceSchema.
#[derive(Debug, Serialize)]
pub(crate) struct SchemaConversion<'a> {
    pub strategy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<SchemaWebhook<'a>>,
}

/// The conversion webhook of an APIResourceSchema.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SchemaWebhook<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_config: Option<SchemaClientConfig<'a>>,
    pub conversion_review_versions: Option<&'a [String]>,
}

/// The address of a conversion webhook.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SchemaClientConfig<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub url: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub ca_bundle: &'a str,
}
