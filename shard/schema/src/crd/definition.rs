//! Validation of whole definitions: name, spec, stored versions and approval. All errors are reported at once, in the
//! order of Kubernetes.

use serde_json::Value;

use super::{CrdNames, CrdSpec, approval, has_condition, parse, rules};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};
use crate::metadata::IMMUTABLE;

/// Validates a new definition. Defaults must have been applied ([`super::apply_defaults`]).
///
/// # Errors
/// All errors of the definition.
pub fn validate_create(definition: &Value) -> Result<CrdSpec, Vec<FieldError>> {
    let mut errors = rules::definition_name(definition);
    validate(definition, None, &mut errors)
}

/// Validates a definition that replaces `old`. Group and plural never change, scope and kind not once the definition
/// is established.
///
/// # Errors
/// All errors of the definition.
pub fn validate_update(definition: &Value, old: &Value) -> Result<CrdSpec, Vec<FieldError>> {
    validate(definition, Some(old), &mut Vec::new())
}

/// Validates a write to the status of a definition. As in Kubernetes, the stored versions may be any: the writer has
/// migrated the objects.
pub fn validate_status(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let names = CrdNames::read(&definition["status"]["acceptedNames"]);
    rules::names(&names, &FieldPath::new("status").child("acceptedNames"), &mut errors);
    errors
}

/// `status.storedVersions` after a write of a definition: those of the old one, and the storage version.
pub fn next_stored_versions(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let listed = old.and_then(|old| old["status"]["storedVersions"].as_array()).into_iter().flatten();
    let mut stored: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    let storage = versions(definition).iter().find(|version| version["storage"] == true);
    if let Some(name) = storage.and_then(|version| version["name"].as_str())
        && !stored.iter().any(|known| known == name)
    {
        stored.push(name.to_owned());
    }
    stored
}

fn validate(
    definition: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) -> Result<CrdSpec, Vec<FieldError>> {
    let spec = &definition["spec"];
    let path = FieldPath::new("spec");
    let parsed = parse::spec(spec, &path, parse::CommonErrors::InSpec, errors);
    if let Some(old) = old {
        immutable_fields(spec, &old["spec"], has_condition(old, "Established"), errors);
    }
    stored_versions(definition, &next_stored_versions(definition, old), errors);
    errors.extend(approval::validate(definition, old));
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid(path.child("preserveUnknownFields"), &Value::Bool(true), detail));
    }
    match parsed {
        Some(parsed) if errors.is_empty() => Ok(parsed),
        _ => {
            let mut errors = core::mem::take(errors);
            // Each pattern and rule of a large schema may have one.
            errors.truncate(MAX_FINDINGS);
            Err(errors)
        }
    }
}

fn immutable_fields(spec: &Value, old: &Value, is_established: bool, errors: &mut Vec<FieldError>) {
    let by_storage: &[&[&str]] = if is_established { &[&["scope"], &["names", "kind"]] } else { &[] };
    for fields in by_storage.iter().chain(&[&["group"][..], &["names", "plural"]]) {
        let text = |spec: &Value| {
            let value = fields.iter().fold(spec, |value, field| &value[*field]);
            value.as_str().unwrap_or_default().to_owned()
        };
        let value = text(spec);
        if value != text(old) {
            let path = fields.iter().fold(FieldPath::new("spec"), |path, field| path.child(field));
            errors.push(FieldError::invalid_str(path, &value, IMMUTABLE));
        }
    }
}

/// A version in which objects may still be stored cannot be removed from the spec, and the storage version must be a
/// stored version.
fn stored_versions(definition: &Value, stored: &[String], errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status.storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    }
    let name = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
    for version in versions(definition).iter().filter(|version| version["storage"] == true) {
        let name = name(version);
        if !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path.clone(), &Value::from(stored.to_vec()), &detail));
        }
    }
    for (index, stored) in stored.iter().enumerate() {
        if !versions(definition).iter().any(|version| name(version) == *stored) {
            let detail = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {stored} and removes \
                 {stored} from status.storedVersions"
            );
            errors.push(FieldError::invalid_str(path.index(index), stored, &detail));
        }
    }
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}
