//! CustomResourceDefinitions (`apiextensions.k8s.io/v1`): parsing, defaults, validation, names and subresources.

mod approval;
mod conversion;
mod definition;
mod naming;
mod parse;
mod rules;
mod scale;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use approval::{approval_condition, validate_approval};
pub use conversion::{Conversion, ReviewVersion, WebhookClient};
pub use definition::{next_stored_versions, validate_create, validate_status, validate_update};
pub use naming::{CrdCondition, NamesStatus, accepted_names};
pub use scale::{Scale, ScalePaths};

use self::parse::CommonErrors;
use crate::field::{FieldError, FieldPath};
use crate::jsonpath::JsonPath;
use crate::metadata::Scope;
use crate::printer_column::PrinterColumn;
use crate::structural::Schema;

/// A parsed and validated `spec` of a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct CrdSpec {
    /// The API group; empty for the core group, which kcp allows.
    pub group: String,
    /// The resource's names.
    pub names: CrdNames,
    /// Whether objects are namespaced.
    pub scope: Scope,
    /// The versions, in the order of the definition. Exactly one is the storage version.
    pub versions: Vec<CrdVersion>,
    /// The conversion of objects between versions.
    pub conversion: Conversion,
}

/// Whether a condition in the status of a definition is true.
pub fn has_condition(definition: &Value, kind: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

/// `spec.names` and `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdNames {
    /// The resource name in URLs: `widgets`.
    pub plural: String,
    /// The singular name: `widget`.
    pub singular: String,
    /// The kind of one object: `Widget`.
    pub kind: String,
    /// The kind of a list: `WidgetList`.
    pub list_kind: String,
    /// Short names for clients.
    pub short_names: Vec<String>,
    /// Groups of resources for clients, such as `all`.
    pub categories: Vec<String>,
}

/// A version of a custom resource.
#[derive(Clone, Debug)]
pub struct CrdVersion {
    /// The version's name: `v1`.
    pub name: String,
    /// Whether the version is served.
    pub served: bool,
    /// Whether it is the storage version.
    pub storage: bool,
    /// The warning to clients of a deprecated version: the configured one, or the standard text. `None` if the version
    /// is not deprecated.
    pub deprecation_warning: Option<String>,
    /// The compiled schema.
    pub schema: Schema,
    /// The `openAPIV3Schema` as given, for OpenAPI documents.
    pub open_api_schema: Arc<Value>,
    /// Whether the version has a `status` subresource.
    pub has_status: bool,
    /// The paths of the `scale` subresource, if it has one.
    pub scale: Option<ScalePaths>,
    /// The printer columns beside the name; only [`PrinterColumn::age`] if none are defined.
    pub columns: Vec<PrinterColumn>,
    /// The fields that field selectors can name, beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
}

/// A field that field selectors can name (KEP-4358).
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableField {
    /// The name of the field in selectors: `spec.color`.
    pub label: String,
    /// The path of the field's value.
    pub path: JsonPath,
}

impl SelectableField {
    /// The value that selectors compare; empty if the field is absent.
    pub fn value(&self, object: &Value) -> String {
        match self.path.find_first(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

impl CrdSpec {
    /// Parses a whole CustomResourceDefinition and validates its name and its `spec`. Defaults must have been applied
    /// ([`apply_defaults`]). [`validate_create`] and [`validate_update`] also validate what depends on other fields.
    ///
    /// Returns all errors at once, in the order of Kubernetes.
    pub fn parse(definition: &Value) -> Result<Self, Vec<FieldError>> {
        let spec = definition.get("spec").unwrap_or(&Value::Null);
        let mut errors = rules::definition_name(definition);
        let parsed = parse::spec(spec, &FieldPath::new("spec"), CommonErrors::InSpec, &mut errors);
        match parsed {
            Some(parsed) if errors.is_empty() => Ok(parsed),
            _ => Err(errors),
        }
    }

    /// Parses and validates a `spec` alone, without the rule for `metadata.name`. kcp names definitions of bound
    /// resources by a UID.
    pub fn parse_spec(spec: &Value, path: &FieldPath) -> Result<Self, Vec<FieldError>> {
        Self::parse_with(spec, path, CommonErrors::InSpec)
    }

    /// As [`CrdSpec::parse_spec`], but reports the errors of each version at the version, as kcp does for
    /// APIResourceSchemas.
    pub fn parse_versions(spec: &Value, path: &FieldPath) -> Result<Self, Vec<FieldError>> {
        Self::parse_with(spec, path, CommonErrors::InVersions)
    }

    fn parse_with(
        spec: &Value,
        path: &FieldPath,
        common_errors: CommonErrors,
    ) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        match parse::spec(spec, path, common_errors, &mut errors) {
            Some(parsed) if errors.is_empty() => Ok(parsed),
            _ => Err(errors),
        }
    }

    /// The storage version.
    pub fn storage_version(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The version with that name, if it is served.
    pub fn served_version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.served && version.name == name)
    }

    /// `<plural>.<group>`.
    pub fn group_resource(&self) -> String {
        rules::definition_name_of(&self.names.plural, &self.group)
    }
}

impl CrdNames {
    /// Reads names from `spec.names` or `status.acceptedNames`; absent names are empty.
    pub fn read(names: &Value) -> Self {
        let text = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = |field: &str| {
            let items = names.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: list("shortNames"),
            categories: list("categories"),
        }
    }

    /// The names as JSON. Empty names are omitted, except for `plural` and `kind`.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("plural".to_owned(), Value::from(self.plural.as_str()));
        fields.insert("kind".to_owned(), Value::from(self.kind.as_str()));
        for (field, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                fields.insert(field.to_owned(), Value::from(text.as_str()));
            }
        }
        for (field, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                fields.insert(field.to_owned(), Value::from(list.clone()));
            }
        }
        Value::Object(fields)
    }
}

/// Fills in the defaults of a whole CustomResourceDefinition: singular name, list kind, conversion.
pub fn apply_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_empty = |names: &Map<String, Value>, field: &str| {
            names.get(field).and_then(Value::as_str).unwrap_or_default().is_empty()
        };
        if !kind.is_empty() && is_empty(names, "singular") {
            names.insert("singular".to_owned(), Value::String(kind.to_lowercase()));
        }
        if !kind.is_empty() && is_empty(names, "listKind") {
            names.insert("listKind".to_owned(), Value::String(format!("{kind}List")));
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = serde_json::json!({"strategy": "None"});
    }
}

#[cfg(test)]
mod tests;
