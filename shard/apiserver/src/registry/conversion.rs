//! Conversion of objects between the requested version and the stored one.

use fairlead_process::Status;
use serde_json::Value;

use super::{Conversion, ServedResource};

/// The schema hash of objects that get defaults at each read. No structural schema has it.
const UNKNOWN_SCHEMA: u64 = 0;

/// Converts a tree from the requested version to the stored one, and prunes it by the storage version, as Kubernetes does. Returns it
/// with the hash of the schema that it complies with: [`UNKNOWN_SCHEMA`] if it lacks a default of the storage version, which readers
/// get and the store does not.
///
/// # Errors
/// 400 if the object cannot be expressed in the storage version.
pub(crate) fn to_storage(
    resource: &ServedResource,
    from: &str,
    object: Value,
) -> Result<(Value, u64), Status> {
    if let Some(form) = resource.shared_form() {
        return Ok(((form.store)(object), UNKNOWN_SCHEMA));
    }
    let storage = &resource.versions.storage;
    if from == &*storage.name {
        return Ok((object, resource.schema_hash));
    }
    let mut object = convert(resource, from, &storage.name, object).map_err(|reason| {
        Status::bad_request(format!(
            "{} cannot be converted from {from} to {}: {reason}",
            resource.kind, storage.name
        ))
    })?;
    storage.shape.prune(&mut object);
    let mut refreshed = object.clone();
    storage.shape.refresh(&mut refreshed);
    let schema_hash = if refreshed == object { resource.schema_hash } else { UNKNOWN_SCHEMA };
    Ok((object, schema_hash))
}

/// Converts a stored tree to a version, and applies defaults that the version's schema got after it was written.
///
/// # Errors
/// 500 if the stored object cannot be expressed in the version.
pub(crate) fn to_version(resource: &ServedResource, version: &str, object: Value) -> Result<Value, Status> {
    if let Some(form) = resource.shared_form() {
        return Ok((form.serve)(object));
    }
    let stored_version =
        object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default().to_owned();
    let mut object = convert(resource, &stored_version, version, object).map_err(|reason| {
        Status::internal(format!(
            "conversion of a stored {} from {stored_version} to {version} failed: {reason}",
            resource.kind
        ))
    })?;
    if let Some(version) = resource.version(version) {
        version.shape.refresh(&mut object);
    }
    Ok(object)
}

/// Converts a tree between two versions. The error is the reason why it cannot be converted.
pub(super) fn convert(
    resource: &ServedResource,
    from: &str,
    to: &str,
    mut object: Value,
) -> Result<Value, String> {
    if from == to {
        return Ok(object);
    }
    if let Conversion::Function(function) = resource.conversion {
        object = function(object, to)?;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), resource.api_version(to).into());
    }
    Ok(object)
}
