//! Reading CustomResourceDefinitions (`apiextensions.k8s.io/v1`): defaults, rules and what they mean.

mod naming;
mod parse;
mod rules;
mod scale;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use naming::{CrdCondition, Naming, accepted_names};
pub use rules::{next_stored_versions, validate_approval, validate_stored_versions, validate_update};
pub use scale::ScalePaths;

use crate::field::{FieldError, FieldPath};
use crate::jsonpath::JsonPath;
use crate::metadata::Scope;
use crate::printer_column::PrinterColumn;
use crate::structural::Schema;

/// What a CustomResourceDefinition says, checked.
#[derive(Clone, Debug)]
pub struct CrdSpec {
    /// The API group; empty for the core group, which kcp allows.
    pub group: String,
    /// The resource's names.
    pub names: CrdNames,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// In the order of the definition; exactly one is the storage version.
    pub versions: Vec<CrdVersion>,
    /// How objects get from one version to another.
    pub conversion: Conversion,
}

/// `spec.names` and `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdNames {
    /// The name in paths: `widgets`.
    pub plural: String,
    /// `widget`.
    pub singular: String,
    /// `Widget`.
    pub kind: String,
    /// `WidgetList`.
    pub list_kind: String,
    /// Abbreviations for clients.
    pub short_names: Vec<String>,
    /// Groups of resources for clients, such as `all`.
    pub categories: Vec<String>,
}

/// One version of a custom resource.
#[derive(Clone, Debug)]
pub struct CrdVersion {
    /// `v1`.
    pub name: String,
    /// Whether it is offered.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Whether its use deserves a warning, and which: the given one, or the standard text.
    pub deprecation_warning: Option<String>,
    /// Compiled.
    pub schema: Schema,
    /// The `openAPIV3Schema` as given, for OpenAPI documents.
    pub open_api_schema: Arc<Value>,
    /// Whether `status` is written apart from the rest.
    pub has_status: bool,
    /// The paths of the `scale` subresource, if it has one.
    pub scale: Option<ScalePaths>,
    /// The columns of its tables beside the name; [`PrinterColumn::age`] alone if none are given.
    pub columns: Vec<PrinterColumn>,
    /// What field selectors may name beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
}

/// A field that field selectors can name (KEP-4358).
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableField {
    /// As a client names it: `spec.color`.
    pub label: String,
    /// Where it is.
    pub path: JsonPath,
}

impl SelectableField {
    /// The field's value as a selector sees it; empty if it is not there.
    pub fn value(&self, object: &Value) -> String {
        match self.path.find_first(object) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// How objects get from one version to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// A webhook; see [`CrdSpec::unsupported`].
    Webhook,
}

impl CrdSpec {
    /// Reads and checks a whole CustomResourceDefinition, as it is to be created: defaults are taken as applied
    /// ([`apply_defaults`]), `metadata` is looked at only for its name.
    ///
    /// All errors are returned at once, in Kubernetes' order.
    pub fn parse(definition: &Value) -> Result<Self, Vec<FieldError>> {
        let spec = definition.get("spec").unwrap_or(&Value::Null);
        let mut errors = rules::definition_name(definition);
        let parsed = parse::spec(spec, &FieldPath::new("spec"), &mut errors);
        match parsed {
            Some(parsed) if errors.is_empty() => Ok(parsed),
            _ => Err(errors),
        }
    }

    /// Reads and checks a `spec` alone: that of something that has its form but not its name, such as the definitions
    /// that kcp names by the UID of what they are bound from.
    pub fn parse_spec(spec: &Value, path: &FieldPath) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        match parse::spec(spec, path, &mut errors) {
            Some(parsed) if errors.is_empty() => Ok(parsed),
            _ => Err(errors),
        }
    }

    /// What the definition asks for that this server cannot do yet. The caller refuses such a definition, unless it
    /// enforces the meaning of its rules by other means; ignoring it is never right.
    pub fn unsupported(&self) -> Vec<FieldError> {
        let mut findings = Vec::new();
        for (index, version) in self.versions.iter().enumerate() {
            let schema_path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            for rule in version.schema.cel_rules() {
                let path = FieldPath::new(format!("{schema_path}.{}.rule", rule.schema_path));
                let detail = "CEL validation rules are not supported by this server yet, so the rule could not be \
                              enforced; remove it to create the definition";
                findings.push(FieldError::forbidden(path, detail));
            }
            if version.scale.is_some() {
                let path = FieldPath::new(format!("spec.versions[{index}].subresources.scale"));
                let detail = "the scale subresource is not supported by this server yet; remove it to create the \
                              definition";
                findings.push(FieldError::forbidden(path, detail));
            }
        }
        if self.conversion == Conversion::Webhook {
            let detail = "conversion webhooks are not supported by this server yet; use the strategy None";
            findings.push(FieldError::forbidden(FieldPath::new("spec.conversion.strategy"), detail));
        }
        findings
    }

    /// The version that objects are stored in.
    pub fn storage_version(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The version of that name, if it is served.
    pub fn served_version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.served && version.name == name)
    }

    /// `<plural>.<group>`.
    pub fn group_resource(&self) -> String {
        rules::definition_name_of(&self.names.plural, &self.group)
    }
}

impl CrdNames {
    /// Reads names from `spec.names` or `status.acceptedNames`; what is missing is empty.
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

    /// The names as JSON; what is empty is left out, except for `plural` and `kind`.
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

/// Fills in the defaults of a whole CustomResourceDefinition: singular, list kind, conversion.
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
