//! The status of APIBindings, and the locks of their resources.

use fairlead_api::{Condition, annotation, condition_type, finalizer, label};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{PublishedExport, PublishedSchema};
use crate::resource_locks::{ResourceLock, ResourceLocks};

/// An APIBinding with the finalizer, status and conditions of one that is bound to all resources of an export.
pub(crate) fn as_bound(mut binding: Value, export: &PublishedExport, now: Timestamp) -> Value {
    add_finalizer(&mut binding);
    record_extra_annotations(&mut binding, Some(export));
    record_export(&mut binding, export);
    record_resources(&mut binding, export, &export.schemas);
    let mut conditions = fairlead_api::conditions_of(&binding);
    for kind in [
        condition_type::API_EXPORT_VALID,
        condition_type::BINDING_UP_TO_DATE,
        condition_type::INITIAL_BINDING_COMPLETED,
    ] {
        fairlead_api::set_condition(&mut conditions, Condition::met(kind), now);
    }
    set_claim_conditions(&binding, &mut conditions, now);
    fairlead_api::set_summary(&mut conditions, &[condition_type::INITIAL_BINDING_COMPLETED], now);
    binding["status"]["phase"] = "Bound".into();
    fairlead_api::write_conditions(&mut binding, &conditions);
    binding
}

/// The locks of a binding that owns all resources of an export.
pub(crate) fn locks_of(binding: &str, export: &PublishedExport) -> ResourceLocks {
    let lock = ResourceLock { binding: Some(binding.to_owned()), ..ResourceLock::default() };
    ResourceLocks(export.schemas.iter().map(|schema| (schema.lock_name(), lock.clone())).collect())
}

/// Adds the finalizer to a binding that is not being deleted.
pub(crate) fn add_finalizer(binding: &mut Value) {
    if !binding["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let finalizers = &mut binding["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) if all.iter().any(|one| one == finalizer::API_BINDING) => {}
        Some(all) => all.push(finalizer::API_BINDING.into()),
        None => *finalizers = json!([finalizer::API_BINDING]),
    }
}

/// Gives a binding the annotations of its export that start with [`annotation::EXTRA_PREFIX`], and no others of this prefix. A
/// binding without an export has none.
pub(crate) fn record_extra_annotations(binding: &mut Value, export: Option<&PublishedExport>) {
    let metadata = &mut binding["metadata"];
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(annotation::EXTRA_PREFIX));
    }
    for (key, value) in export.into_iter().flat_map(PublishedExport::extra_annotations) {
        metadata["annotations"][key] = value.into();
    }
    if metadata["annotations"].as_object().is_none_or(serde_json::Map::is_empty)
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}

/// Writes the claims and the logical cluster of the export to the status.
pub(crate) fn record_export(binding: &mut Value, export: &PublishedExport) {
    record_claims(binding, export);
    // Another logical cluster may have taken the place of the one that had the export when the label was set.
    let name = binding["spec"]["reference"]["export"]["name"].as_str().unwrap_or_default();
    let hash = fairlead_names::export_hash(&export.cluster, name);
    binding["metadata"]["labels"][label::EXPORT] = hash.into();
    binding["status"]["apiExportClusterName"] = (*export.cluster).into();
}

/// Writes the claims of the export to the status.
pub(crate) fn record_claims(binding: &mut Value, export: &PublishedExport) {
    if !binding["status"].is_object() {
        binding["status"] = json!({});
    }
    let Some(status) = binding["status"].as_object_mut() else { return };
    if export.claims().is_empty() {
        status.remove("exportPermissionClaims");
    } else {
        status.insert("exportPermissionClaims".to_owned(), export.claims().into());
    }
}

/// Writes resources that are bound to these schemas to the status. Other bound resources stay.
pub(crate) fn record_resources<'s>(
    binding: &mut Value,
    export: &PublishedExport,
    schemas: impl IntoIterator<Item = &'s PublishedSchema>,
) {
    // Taken, not copied: a binding is recorded schema by schema.
    let status = binding.get_mut("status").and_then(Value::as_object_mut);
    let mut bound = match status.and_then(|status| status.remove("boundResources")) {
        Some(Value::Array(bound)) => bound,
        _ => Vec::new(),
    };
    for (near, schema) in schemas.into_iter().enumerate() {
        let is_of = |one: &Value| {
            one["resource"] == *schema.resource && one["group"].as_str().unwrap_or_default() == &*schema.group
        };
        // Bindings have their resources mostly in the order of their export.
        let at = match bound.get(near) {
            Some(one) if is_of(one) => Some(near),
            _ => bound.iter().position(is_of),
        };
        let known = at.and_then(|at| bound.get_mut(at));
        if known.as_deref().is_some_and(|known| is_recorded(known, export, schema)) {
            continue;
        }
        let mut versions: Vec<&str> = Vec::new();
        if schema.is_stored {
            versions.push(&schema.storage_version);
            let before = known.as_ref().and_then(|one| one["storageVersions"].as_array());
            versions.extend(before.into_iter().flatten().filter_map(Value::as_str));
            versions.sort_unstable();
            versions.dedup();
        }
        let mut resource = json!({
            "group": schema.group,
            "resource": schema.resource,
            "schema": {"name": schema.name, "UID": schema.uid, "identityHash": export.identity},
        });
        if !versions.is_empty() {
            resource["storageVersions"] = versions.into();
        }
        match known {
            Some(known) => *known = resource,
            None => bound.push(resource),
        }
    }
    if !bound.is_empty() {
        binding["status"]["boundResources"] = bound.into();
    }
}

/// Whether a bound resource is what it becomes when it is bound to a schema.
fn is_recorded(bound: &Value, export: &PublishedExport, schema: &PublishedSchema) -> bool {
    let recorded = &bound["schema"];
    let versions = bound["storageVersions"].as_array();
    recorded["UID"] == *schema.uid
        && recorded["name"] == *schema.name
        && recorded["identityHash"].as_str() == export.identity.as_deref()
        && if schema.is_stored {
            versions.is_some_and(|versions| versions.iter().any(|one| *one == *schema.storage_version))
        } else {
            versions.is_none()
        }
}

/// Sets the conditions of permission claims of a binding that accepts none and has none in force. The controller of permission claims
/// sets those of others.
pub(crate) fn set_claim_conditions(binding: &Value, conditions: &mut Vec<Condition>, now: Timestamp) {
    let is_empty = |claims: &Value| claims.as_array().is_none_or(Vec::is_empty);
    if !is_empty(&binding["spec"]["permissionClaims"])
        || !is_empty(&binding["status"]["appliedPermissionClaims"])
    {
        return;
    }
    for kind in [condition_type::PERMISSION_CLAIMS_APPLIED, condition_type::PERMISSION_CLAIMS_VALID] {
        fairlead_api::set_condition(conditions, Condition::met(kind), now);
    }
}
