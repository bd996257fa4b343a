//! Object metadata: fields that the server sets, and fields that must not change.

use fairlead_process::Status;
use fairlead_schema::metadata::remove_absent;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Target;
use super::store_backed::Authority;

/// The longest prefix of a generated name; a longer one is truncated.
const MAX_GENERATED_PREFIX: usize = 58;
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fills the metadata of a new object and returns its name.
///
/// # Errors
/// 400 for a namespace that differs from the request's, 500 when the system provides no random bytes.
pub(super) fn fill(object: &mut Value, target: &Target, authority: Authority) -> Result<String, Status> {
    let fields =
        object.as_object_mut().ok_or_else(|| Status::bad_request("the object is not a JSON object"))?;
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let metadata = metadata
        .as_object_mut()
        .ok_or_else(|| Status::bad_request("metadata: Invalid value: must be an object"))?;
    if text(metadata, "resourceVersion").is_some_and(|version| !version.is_empty()) {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    set_namespace(metadata, target)?;
    let is_replica = authority == Authority::Replica
        && metadata.get("annotations").is_some_and(|annotations| annotations.get("kcp.io/shard").is_some());
    if !is_replica {
        for name in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            metadata.remove(name);
        }
        metadata.insert("uid".into(), Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), now().into());
        if target.resource.strategy(&target.version).counts_generations() {
            metadata.insert("generation".into(), 1.into());
        }
    }
    for name in ["selfLink", "managedFields", "resourceVersion"] {
        metadata.remove(name);
    }
    let name = match (text(metadata, "name"), text(metadata, "generateName")) {
        (Some(name), _) if !name.is_empty() => name.to_owned(),
        (_, Some(prefix)) if !prefix.is_empty() => generated_name(prefix)?,
        _ => return Ok(String::new()),
    };
    metadata.insert("name".into(), name.clone().into());
    remove_absent(metadata);
    Ok(name)
}

/// Whether the name will be generated, so that a collision is retried with another name.
pub(super) fn wants_generated_name(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let filled = |name: &str| metadata[name].as_str().is_some_and(|text| !text.is_empty());
    !filled("name") && filled("generateName")
}

/// A name from `generateName`: the prefix, truncated to 58 characters, and five random characters.
///
/// # Errors
/// 500 when the system provides no random bytes.
pub fn generated_name(prefix: &str) -> Result<String, Status> {
    let mut random = [0; 5];
    getrandom::fill(&mut random).map_err(Status::internal)?;
    let mut name: String = prefix.chars().take(MAX_GENERATED_PREFIX).collect();
    name.extend(
        random.map(|byte| char::from(SUFFIX_CHARACTERS[usize::from(byte) % SUFFIX_CHARACTERS.len()])),
    );
    Ok(name)
}

/// Sets the namespace of the request in a new object of any registry, stored or not.
///
/// # Errors
/// 400 for an object of another namespace.
pub(crate) fn set_request_namespace(object: &mut Value, target: &Target) -> Result<(), Status> {
    if target.namespace.is_some() && object["metadata"].is_null() {
        object["metadata"] = Value::Object(Map::new());
    }
    object.get_mut("metadata").and_then(Value::as_object_mut).map_or(Ok(()), |own| set_namespace(own, target))
}

fn set_namespace(metadata: &mut Map<String, Value>, target: &Target) -> Result<(), Status> {
    let given = text(metadata, "namespace").unwrap_or_default();
    match &target.namespace {
        Some(namespace) if given.is_empty() || given == &**namespace => {
            metadata.insert("namespace".into(), (**namespace).into());
            Ok(())
        }
        None if given.is_empty() || !target.resource.namespaced => {
            metadata.remove("namespace");
            Ok(())
        }
        Some(_) | None => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// 400 if the name in the object differs from the name in the request.
pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), Status> {
    match object["metadata"]["name"].as_str() {
        Some(given) if given == name => Ok(()),
        None | Some("") => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        Some(given) => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Restores the immutable metadata of a changed object. The generation of a replica is set by its writer.
///
/// # Errors
/// 400 for another name or namespace, 409 for another UID.
pub(super) fn restore_immutable(
    old: &Value,
    new: &mut Value,
    target: &Target,
    name: &str,
    authority: Authority,
) -> Result<(), Status> {
    let old =
        old["metadata"].as_object().ok_or_else(|| Status::internal("a stored object has no metadata"))?;
    check_name(new, name)?;
    let metadata = new
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| Status::bad_request("metadata: Required value"))?;
    metadata.insert("name".into(), name.into());
    set_namespace(metadata, target)?;
    if let (Some(given), Some(own)) = (text(metadata, "uid"), text(old, "uid"))
        && !given.is_empty()
        && given != own
    {
        let message = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {own}");
        return Err(Status::conflict(super::read::group_resource(&target.resource), name, message));
    }
    let immutable =
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];
    let is_given = |field: &str| {
        authority == Authority::Replica && field == "generation" && metadata.contains_key(field)
    };
    for field in immutable.into_iter().filter(|field| !is_given(field)).collect::<Vec<_>>() {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["selfLink", "managedFields"] {
        metadata.remove(field);
    }
    remove_absent(metadata);
    Ok(())
}

/// Marks an object for deletion at the current time.
pub(super) fn mark_deleted(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !metadata.contains_key("deletionTimestamp")
    {
        metadata.insert("deletionTimestamp".into(), now().into());
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
}

/// Whether an object is marked for deletion.
pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The finalizers of an object.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Increments the generation when anything but metadata has changed. A status that is a subresource must
/// have been restored before.
pub(super) fn increment_generation(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return;
    };
    let content = |(name, _): &(&String, &Value)| !matches!(name.as_str(), "metadata" | "apiVersion");
    if before.iter().filter(content).eq(after.iter().filter(content)) {
        return;
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// The current time in the form of Kubernetes: whole seconds, UTC.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text<'m>(metadata: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    metadata.get(name).and_then(Value::as_str)
}
