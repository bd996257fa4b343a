//! Conversion of objects between the requested version and the stored one.

use serde_json::Value;

use super::{Conversion, ServedResource};

/// Converts a tree from the requested version to the storage version.
pub(crate) fn to_storage(resource: &ServedResource, from: &str, object: Value) -> Value {
    convert(resource, from, &resource.storage_version, object)
}

/// Converts a stored tree to a version, and applies the defaults that the schema has got since the object was written.
pub(crate) fn to_version(resource: &ServedResource, version: &str, object: Value) -> Value {
    let stored_version =
        object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default().to_owned();
    let mut object = convert(resource, &stored_version, version, object);
    if let Some(version) = resource.version(version) {
        version.shape.refresh(&mut object);
    }
    object
}

fn convert(resource: &ServedResource, from: &str, to: &str, mut object: Value) -> Value {
    if from == to {
        return object;
    }
    if let Conversion::Function(function) = resource.conversion {
        function(&mut object, to);
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), resource.api_version(to).into());
    }
    object
}
