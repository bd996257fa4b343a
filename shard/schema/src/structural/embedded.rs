//! Embedded resources (`x-kubernetes-embedded-resource`): objects within objects, with their own type and metadata.

use serde_json::{Map, Value};

use super::{Additional, Inner, NodeId, Property};
use crate::field::{FieldError, FieldPath, Location, MAX_FINDINGS};
use crate::metadata::{self, Scope};
use crate::names::{self, NameRule};

/// Validates every embedded resource: the type is required, and metadata must be valid if present.
pub(super) fn validate(schema: &Inner, node: NodeId, value: &Value, base: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.has_embedded_resources {
        validate_node(schema, node, value, Location::Base(base), &resource, &mut errors);
    }
    errors
}

/// The fields of embedded resources whose type is wrong.
pub(super) fn wrong_types(schema: &Inner, node: NodeId, value: &Value, base: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.has_embedded_resources {
        validate_node(schema, node, value, Location::Base(base), &types_of_resource, &mut errors);
    }
    errors
}

/// The error of a default of `apiVersion` or `kind` with which no resource is valid.
pub(super) fn default_of_type(property: &Property, path: &FieldPath) -> Option<FieldError> {
    let default = &property.default.as_deref()?.value;
    let mut errors = Vec::new();
    let own = FieldPath::new(&*property.name);
    match &*property.name {
        "apiVersion" => api_version(Some(default), own, &mut errors),
        "kind" => kind(Some(default), own, &mut errors),
        _ => return None,
    }
    let detail = format!("must result in valid metadata: {}", errors.first()?);
    Some(FieldError::invalid(path.child("default"), default, &detail))
}

/// Reports the errors of a resource at a path.
type Check<'c> = &'c dyn Fn(&Map<String, Value>, &FieldPath, &mut Vec<FieldError>);

fn validate_node(
    schema: &Inner,
    id: NodeId,
    value: &Value,
    location: Location<'_>,
    check: Check<'_>,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    let node = schema.node(id);
    match value {
        Value::Object(fields) => {
            if node.embedded_resource && id != schema.root {
                check(fields, &location.path(), errors);
            }
            for (name, field) in fields {
                // Kubernetes writes entries of maps in another form than fields.
                let (property, location) = match (node.property(name), &node.additional) {
                    (Some(property), _) => (property, Location::Child(&location, name)),
                    (None, Additional::Schema(property)) => (property, Location::Key(&location, name)),
                    _ => continue,
                };
                validate_node(schema, property.node, field, location, check, errors);
            }
        }
        Value::Array(items) => {
            let Some(property) = &node.items else { return };
            for (index, item) in items.iter().enumerate() {
                validate_node(schema, property.node, item, Location::Index(&location, index), check, errors);
            }
        }
        _ => {}
    }
}

fn types_of_resource(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = fields.get(name).filter(|value| !value.is_string()) {
            errors.push(FieldError::invalid(path.child(name), value, "must be a string"));
        }
    }
    if let Some(own) = fields.get("metadata")
        && let Err(findings) = metadata::coerce(&mut own.clone(), &path.child("metadata"))
    {
        errors.extend(findings);
    }
}

fn resource(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    api_version(fields.get("apiVersion"), path.child("apiVersion"), errors);
    kind(fields.get("kind"), path.child("kind"), errors);
    let Some(own) = fields.get("metadata").filter(|own| !own.is_null()) else {
        return;
    };
    let path = path.child("metadata");
    let mut own = own.clone();
    if let Err(findings) = metadata::coerce(&mut own, &path) {
        errors.extend(findings);
        return;
    }
    if let Some(fields) = own.as_object_mut() {
        // The name of an embedded resource, such as a template, is optional.
        let name = fields.entry("name").or_insert(Value::Null);
        if name.as_str().unwrap_or_default().is_empty() {
            *name = Value::from("unnamed");
        }
    }
    let namespace = own.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let scope = if namespace.is_empty() { Scope::Cluster } else { Scope::Namespaced };
    errors.extend(metadata::validate_object_meta(&own, scope, NameRule::PathSegment, &path));
    managed_fields(own.get("managedFields"), &path.child("managedFields"), errors);
}

/// The server writes managed fields of whole objects, but those of embedded resources come from clients.
fn managed_fields(entries: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = path.index(index);
        if !matches!(text("operation"), "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid_str(path.child("operation"), text("operation"), detail));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            let detail = "must be `FieldsV1`";
            errors.push(FieldError::invalid_str(path.child("fieldsType"), text("fieldsType"), detail));
        }
    }
}

fn api_version(value: Option<&Value>, path: FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        None => errors.push(FieldError::required(path, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid_str(path, text, "must not be empty"));
        }
        Some(Value::String(text)) if text.matches('/').count() > 1 => {
            let detail = format!("unexpected GroupVersion string: {text}");
            errors.push(FieldError::invalid_str(path, text, &detail));
        }
        Some(Value::String(_)) => {}
        Some(other) => errors.push(FieldError::invalid(path, other, "must be a string")),
    }
}

fn kind(value: Option<&Value>, path: FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        None => errors.push(FieldError::required(path, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid_str(path, text, "must not be empty"));
        }
        Some(Value::String(text)) => {
            let findings = names::dns1035_label(&text.to_lowercase());
            if !findings.is_empty() {
                let detail =
                    format!("may have mixed case, but should otherwise match: {}", findings.join(","));
                errors.push(FieldError::invalid_str(path, text, &detail));
            }
        }
        Some(other) => errors.push(FieldError::invalid(path, other, "must be a string")),
    }
}
