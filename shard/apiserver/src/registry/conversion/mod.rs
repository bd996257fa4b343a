//! Conversion of objects between the requested version and the stored one.
//!
//! A resource without a conversion webhook is converted where it is rendered. The objects of one with a webhook are converted
//! when they leave the registry: calls take time, so they never happen in a read transaction or while a response is
//! rendered.

mod converter;
mod cursor;

use fairlead_process::Status;
use serde_json::Value;

use super::{Conversion, ServedResource};

pub(crate) use converter::{ConversionBatch, WebhookConverter};
pub(super) use cursor::ConvertedCursor;

/// The schema hash of objects that get defaults at each read. No structural schema has it.
const UNKNOWN_SCHEMA: u64 = 0;

impl ServedResource {
    /// An object that a registry has returned, in another version.
    ///
    /// # Errors
    /// 500 if the object cannot be expressed in the version.
    pub fn in_version(&self, version: &str, object: Value) -> Result<Value, Status> {
        to_version_in_place(self, version, object)
    }
}

/// Converts a tree from the requested version to the stored one, and prunes it by the storage version, as Kubernetes does. Returns it
/// with the hash of the schema that it complies with: [`UNKNOWN_SCHEMA`] if it lacks a default of the storage version, which readers
/// get and the store does not.
///
/// # Errors
/// 400 if the object cannot be expressed in the storage version, 500 if the webhook fails.
pub(crate) async fn to_storage(
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
    let mut object = match &resource.conversion {
        Conversion::Webhook(webhook) => {
            webhook.convert_one(&resource.api_version(&storage.name), object).await?
        }
        Conversion::None | Conversion::Function(_) | Conversion::Rules(_) => {
            convert(resource, &storage.name, object).map_err(|reason| {
                Status::bad_request(format!(
                    "{} cannot be converted from {from} to {}: {reason}",
                    resource.kind, storage.name
                ))
            })?
        }
    };
    storage.shape.prune(&mut object);
    let mut refreshed = object.clone();
    storage.shape.refresh(&mut refreshed);
    let schema_hash = if refreshed == object { resource.schema_hash } else { UNKNOWN_SCHEMA };
    Ok((object, schema_hash))
}

/// Converts a tree to a version. Defaults that a schema got after the tree was written are those of the stored version, as in
/// Kubernetes: a reader of another version gets what a conversion makes of them.
///
/// # Errors
/// 500 if the object cannot be expressed in the version or the webhook fails.
pub(crate) async fn to_version(
    resource: &ServedResource,
    version: &str,
    object: Value,
) -> Result<Value, Status> {
    match &resource.conversion {
        Conversion::Webhook(webhook) if version_of(&object) != version => {
            let mut object = object;
            refresh_stored(resource, &mut object);
            let mut object = webhook.convert_one(&resource.api_version(version), object).await?;
            prune_converted(resource, version, &mut object);
            Ok(object)
        }
        _ => to_version_in_place(resource, version, object),
    }
}

/// As [`to_version`], for objects that need no webhook: those of resources without one, and those that the registry returns.
///
/// # Errors
/// 500 if the object cannot be expressed in the version.
pub(crate) fn to_version_in_place(
    resource: &ServedResource,
    version: &str,
    object: Value,
) -> Result<Value, Status> {
    if let Some(form) = resource.shared_form() {
        return Ok((form.serve)(object));
    }
    let stored_version = version_of(&object).to_owned();
    let mut object = object;
    refresh_stored(resource, &mut object);
    if stored_version == version {
        return Ok(object);
    }
    let mut object = convert(resource, version, object).map_err(|reason| {
        Status::internal(format!(
            "conversion of a stored {} from {stored_version} to {version} failed: {reason}",
            resource.kind
        ))
    })?;
    prune_converted(resource, version, &mut object);
    Ok(object)
}

/// Prunes and defaults a stored object by the schema of the version in which it is stored.
pub(super) fn refresh_stored(resource: &ServedResource, object: &mut Value) {
    let version = version_of(object);
    let storage = Some(&resource.versions.storage).filter(|storage| &*storage.name == version);
    let shape = resource.version(version).or(storage).map(|version| version.shape.clone());
    if let Some(shape) = shape {
        shape.refresh(object);
    }
}

/// Removes what a conversion made that the version does not have.
pub(super) fn prune_converted(resource: &ServedResource, version: &str, object: &mut Value) {
    if let Some(version) = resource.version(version) {
        version.shape.prune(object);
    }
}

/// Converts a tree without a webhook.
///
/// # Errors
/// The reason why the object cannot be expressed in the version.
pub(super) fn convert(resource: &ServedResource, to: &str, mut object: Value) -> Result<Value, String> {
    if version_of(&object) == to {
        return Ok(object);
    }
    match &resource.conversion {
        Conversion::None => {}
        Conversion::Function(function) => object = function(object, to)?,
        Conversion::Rules(rules) => object = rules.convert(object, to)?,
        Conversion::Webhook(_) => return Err("the webhook has not been called".to_owned()),
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), resource.api_version(to).into());
    }
    Ok(object)
}

/// The version part of an object's apiVersion.
fn version_of(object: &Value) -> &str {
    object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default()
}
