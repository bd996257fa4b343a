//! Admission of APIResourceSchemas. Every schema that is accepted becomes a valid CustomResourceDefinition, so its
//! versions are validated as those of a definition are, and reported at the fields of the schema.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use fairlead_schema::builtin::normalize_definition;
use fairlead_schema::crd::{CrdSpec, validate_approval};
use fairlead_schema::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::field_order::json_in_order;
use super::{forbidden, listed};

/// The type of the schema of one version.
const SCHEMA_TYPE: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The fields of a schema in the order of kcp's types.
const FIELD_ORDER: &[&str] = &[
    "group",
    "names",
    "plural",
    "singular",
    "shortNames",
    "kind",
    "listKind",
    "categories",
    "scope",
    "versions",
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "schema",
    "subresources",
    "status",
    "scale",
    "specReplicasPath",
    "statusReplicasPath",
    "labelSelectorPath",
    "additionalPrinterColumns",
    "type",
    "format",
    "description",
    "priority",
    "jsonPath",
    "selectableFields",
    "nameValidation",
    "conversion",
    "strategy",
    "webhook",
    "clientConfig",
    "url",
    "caBundle",
    "conversionReviewVersions",
];

/// Refuses invalid schemas and changes of their spec, with 403 and all errors, as kcp does.
pub(super) fn validate(
    write: &AdmissionRequest<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let errors = errors(object, old);
    if errors.is_empty() { Ok(()) } else { Err(forbidden(write, listed(&errors))) }
}

fn errors(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    errors.extend(name_error(object["metadata"]["name"].as_str().unwrap_or_default(), spec));
    errors.extend(validate_approval(object));
    errors.extend(spec_errors(spec));
    if old.is_some_and(|old| old["spec"] != *spec) {
        let quoted = quoted(spec);
        errors.push(FieldError::invalid_quoted(FieldPath::new("spec"), &quoted, "is immutable"));
    }
    errors
}

/// The name is `<prefix>.<plural>.<group>`.
fn name_error(name: &str, spec: &Value) -> Option<FieldError> {
    let plural = spec["names"]["plural"].as_str().filter(|plural| !plural.is_empty())?;
    let group = spec["group"].as_str().filter(|group| !group.is_empty()).unwrap_or("core");
    let suffix = format!(".{plural}.{group}");
    let detail = match name.strip_suffix(&suffix) {
        None => format!("must end in {suffix}"),
        Some(prefix) if is_prefix(prefix) => return None,
        Some(_) => format!("must match ^[a-z]([-a-z0-9]*[a-z0-9])?$ in front of {suffix}"),
    };
    Some(FieldError::invalid_str(FieldPath::new("metadata.name"), name, &detail))
}

fn is_prefix(prefix: &str) -> bool {
    let bytes = prefix.as_bytes();
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
}

fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let (as_read, as_written) = match definition_specs(spec) {
        Ok(specs) => specs,
        Err(errors) => return errors,
    };
    let path = FieldPath::new("spec");
    let errors = |definition: &Value| CrdSpec::parse_versions(definition, &path).err().unwrap_or_default();
    let mut found = errors(&as_read);
    // The definition is compiled from the schema as it was written.
    if found.is_empty() && as_written != as_read {
        found = errors(&as_written);
    }
    let mut found: Vec<FieldError> = found.into_iter().flat_map(|error| in_schema(error, spec)).collect();
    found.extend(service_error(spec));
    found
}

/// The specs of the CustomResourceDefinition: with the schemas in the types of Kubernetes, and as they are written.
///
/// # Errors
/// Schemas with values of a wrong type.
fn definition_specs(spec: &Value) -> Result<(Value, Value), Vec<FieldError>> {
    let (mut as_read, mut as_written) = (spec.clone(), spec.clone());
    let mut errors = Vec::new();
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, version) in versions.iter().enumerate() {
        let schema = &version["schema"];
        if schema.is_null() {
            continue;
        }
        let mut typed = schema.clone();
        if let Err(error) = normalize_definition(SCHEMA_TYPE, &mut typed) {
            let path = version_path(index).child("schema");
            let detail = format!("invalid JSON: {error}");
            errors.push(FieldError::invalid_str(path, &schema.to_string(), &detail));
        }
        as_read["versions"][index]["schema"] = json!({"openAPIV3Schema": typed});
        as_written["versions"][index]["schema"] = json!({"openAPIV3Schema": schema});
    }
    if errors.is_empty() { Ok((as_read, as_written)) } else { Err(errors) }
}

/// An error of the definition as an error of the schema.
fn in_schema(error: FieldError, spec: &Value) -> Vec<FieldError> {
    const UNIQUE: &str = "must contain unique version names";
    const ONE_STORED: &str = "must have exactly one version marked as storage version";
    let versions = &spec["versions"];
    match error.path.as_str() {
        "spec.group" if spec["group"] == "core" => {
            let detail = "must be empty string for the core group";
            return vec![FieldError::invalid_str(error.path, "core", detail)];
        }
        "spec.versions" => {
            let detail = if error.message.ends_with(UNIQUE) { UNIQUE } else { ONE_STORED };
            return vec![FieldError::invalid_quoted(error.path, &quoted(versions), detail)];
        }
        _ => {}
    }
    for (index, version) in versions.as_array().into_iter().flatten().enumerate() {
        let path = version_path(index);
        let schema = path.child("schema");
        if version["schema"].is_null() && error.path == schema.child("openAPIV3Schema") {
            let mut errors = vec![FieldError::required(schema, "")];
            if version["selectableFields"].as_array().is_some_and(|fields| !fields.is_empty()) {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                errors.push(FieldError::invalid_str(path.child("selectableFields"), "", detail));
            }
            return errors;
        }
    }
    let path = error.path.as_str();
    let webhook_fields = [
        ("spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"),
        ("spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"),
    ];
    let renamed = webhook_fields.iter().find_map(|(of_definition, of_schema)| {
        path.strip_prefix(of_definition).map(|rest| FieldPath::new(format!("{of_schema}{rest}")))
    });
    vec![FieldError { path: renamed.unwrap_or_else(|| error.path.clone()), ..error }]
}

/// A logical cluster has no services that a webhook could be reached by.
fn service_error(spec: &Value) -> Option<FieldError> {
    let service = &spec["conversion"]["webhook"]["clientConfig"]["service"];
    let detail = "webhooks that refer to services are not supported, please use URL instead";
    let path = FieldPath::new("spec.conversion.webhook.clientConfig.service");
    (!service.is_null()).then(|| FieldError::forbidden(path, detail))
}

fn version_path(index: usize) -> FieldPath {
    FieldPath::new("spec").child("versions").index(index)
}

/// The spec or the versions in the form of kcp's messages.
fn quoted(value: &Value) -> String {
    let mut value = value.clone();
    let versions = match value.is_array() {
        true => value.as_array_mut(),
        false => value.get_mut("versions").and_then(Value::as_array_mut),
    };
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        version.entry("subresources").or_insert_with(|| json!({}));
    }
    json_in_order(&value, FIELD_ORDER, "schema")
}

#[cfg(test)]
mod tests;
