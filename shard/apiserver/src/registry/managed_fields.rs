//! `metadata.managedFields` between its stored form and trees: trees have it only where a reader or a review needs it.

use fairlead_process::Status;
use serde_json::Value;

/// Removes managedFields from an object. `None`: it has none.
pub(crate) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields").filter(|managed| !managed.is_null())
}

/// The object with its stored managedFields, for changes that use them.
///
/// # Errors
/// 500 if they are malformed.
pub(super) fn with_managed_fields(object: &Value, stored: &[u8]) -> Result<Value, Status> {
    let mut object = object.clone();
    set_managed_fields(&mut object, managed_fields_of(stored)?);
    Ok(object)
}

/// Stored managedFields as a tree. `None`: there are none.
///
/// # Errors
/// 500 if they are malformed.
pub(crate) fn managed_fields_of(stored: &[u8]) -> Result<Option<Value>, Status> {
    if stored.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(stored).map(Some).map_err(Status::internal)
}

/// Sets managedFields of an object, if there are any.
pub(crate) fn set_managed_fields(object: &mut Value, managed: Option<Value>) {
    if let Some(managed) = managed
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".into(), managed);
    }
}
