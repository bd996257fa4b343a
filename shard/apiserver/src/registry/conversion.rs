//! Conversion of objects between the requested version and the stored one.

use serde_json::Value;

use super::{Conversion, ServedResource};

/// Brings a tree from the requested version to the stored one.
pub(crate) fn to_storage(resource: &ServedResource, from: &str, object: Value) -> Value {
    convert(resource, from, &resource.storage_version, object)
}

/// Brings a stored tree to a version: converts, and fills in what the version's schema has come to
/// default since it was written.
pub(crate) fn to_version(resource: &ServedResource, version: &str, object: Value) -> Value {
    let stored =
        object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default().to_owned();
    let mut object = convert(resource, &stored, version, object);
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
