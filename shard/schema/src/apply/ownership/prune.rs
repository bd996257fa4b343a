//! Removes fields that a manager does not apply any more and nobody else owns.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::fields::FieldSet;
use super::super::typed::{fields_of, fields_of_pruned, remove, with_named_fields};
use super::entries::ManagedFields;
use super::error::ApplyError;
use super::versions::ObjectVersions;

/// What a manager has applied before.
pub(super) struct LastApplied {
    pub(super) api_version: String,
    pub(super) fields: FieldSet,
}

/// Removes the fields of `last` from the merged object (in `version`) unless an entry of `managed` has them. An item of
/// a list stays while it has a field of another owner. `applied` are the fields of the new configuration.
pub(super) fn prune(
    merged: Value,
    managed: &ManagedFields,
    applied: &FieldSet,
    last: Option<LastApplied>,
    version: &str,
    versions: &dyn ObjectVersions,
) -> Result<Value, ApplyError> {
    let Some(last) = last.filter(|last| !last.fields.is_empty()) else { return Ok(merged) };
    // Nothing of the last configuration is missing, the usual case.
    if last.api_version == version && last.fields.is_subset(applied) {
        return Ok(merged);
    }
    let Some(object_type) = versions.object_type(&last.api_version) else { return Ok(merged) };
    let merged = versions.convert(&merged, &last.api_version)?.into_owned();
    let last_fields = with_named_fields(object_type, last.fields);
    let mut without = merged.clone();
    remove(object_type, &mut without, &last_fields);
    let kept = restore_owned(&merged, without, managed, &last.api_version, versions)?;
    let kept = with_named_fields(object_type, fields_of_pruned(object_type, &kept)?);
    let all = with_named_fields(object_type, fields_of(object_type, &merged)?);
    let mut pruned = merged;
    remove(object_type, &mut pruned, &all.difference(&kept).intersection(&last_fields));
    Ok(versions.convert(&pruned, version)?.into_owned())
}

/// Adds to `without` again what any manager owns, in the versions of all managers; those of the last configuration first.
fn restore_owned(
    merged: &Value,
    without: Value,
    managed: &ManagedFields,
    last_version: &str,
    versions: &dyn ObjectVersions,
) -> Result<Value, ApplyError> {
    let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for entry in &managed.entries {
        let fields = owned.entry(&entry.api_version).or_default();
        *fields = core::mem::take(fields).union(entry.fields.clone());
    }
    let mut order: Vec<(&str, FieldSet)> = Vec::with_capacity(owned.len());
    order.extend(owned.remove(last_version).map(|fields| (last_version, fields)));
    order.extend(owned);
    let mut restored = without;
    for (version, fields) in order {
        let Some(object_type) = versions.object_type(version) else { continue };
        let mut whole = versions.convert(merged, version)?.into_owned();
        let present = versions.convert(&restored, version)?;
        let all = with_named_fields(object_type, fields_of(object_type, &whole)?);
        // An item whose keys nobody owns has lost them, although another manager owns the item.
        let present = with_named_fields(object_type, fields_of_pruned(object_type, &present)?);
        let fields = with_named_fields(object_type, fields);
        remove(object_type, &mut whole, &all.difference(&present.union(fields)));
        restored = whole;
    }
    Ok(versions.convert(&restored, last_version)?.into_owned())
}
