//! Changes of ownership by a write that is not server-side apply: whoever changes a field owns it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::fields::FieldSet;
use super::super::typed::{Changes, Duplicates, compare, reconcile, validate};
use super::cap::cap_updates;
use super::entries::{Entry, ManagedFields, ManagerIdentity, Operation};
use super::error::ApplyError;
use super::versions::ObjectVersions;

/// A manager that writes an object.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'m> {
    /// The name; an empty one counts as `unknown`.
    pub name: &'m str,
    /// `group/version` of the write.
    pub api_version: &'m str,
    /// The subresource, or empty.
    pub subresource: &'m str,
    /// The current time, RFC 3339 in whole seconds.
    pub now: &'m str,
}

impl Manager<'_> {
    pub(super) fn identity(&self, operation: Operation) -> ManagerIdentity {
        let name = if self.name.is_empty() { "unknown" } else { self.name };
        ManagerIdentity::new(name, operation, self.api_version, self.subresource)
    }
}

/// The owners after a create: the manager owns all fields. `managed` are entries that came with the object.
///
/// # Errors
/// The object has no type, or a list item that cannot be identified.
pub fn track_create(
    managed: ManagedFields,
    new: &Value,
    manager: &Manager<'_>,
    versions: &dyn ObjectVersions,
) -> Result<ManagedFields, ApplyError> {
    let empty = empty_like(new);
    track(managed, &empty, new, manager, versions)
}

/// The owners after an update from `old` to `new`, both in the version of the manager. An object without entries gets
/// none: its fields are tracked from the first applied configuration on.
///
/// # Errors
/// As [`track_create`].
pub fn track_update(
    managed: ManagedFields,
    old: &Value,
    new: &Value,
    manager: &Manager<'_>,
    versions: &dyn ObjectVersions,
) -> Result<ManagedFields, ApplyError> {
    if managed.is_empty() { Ok(managed) } else { track(managed, old, new, manager, versions) }
}

/// An object that has only the type of another one.
pub(super) fn empty_like(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"]})
}

pub(super) fn track(
    managed: ManagedFields,
    old: &Value,
    new: &Value,
    manager: &Manager<'_>,
    versions: &dyn ObjectVersions,
) -> Result<ManagedFields, ApplyError> {
    let object_type = versions.object_type(manager.api_version).ok_or(ApplyError::NoType)?;
    validate(object_type, new, Duplicates::Allowed).map_err(ApplyError::Object)?;
    let mut managed = reconciled(managed, versions);
    let mut comparisons = Comparisons::new(old, new, versions);
    comparisons.in_version(manager.api_version)?;
    hand_over(&mut managed, &mut comparisons, None)?;
    let own = comparisons.take(manager.api_version).ok_or(ApplyError::NoType)?;
    let changed = own.modified.union(own.added);
    let changed = match versions.reset_fields(manager.api_version) {
        Some(reset) => changed.difference_with_children(reset),
        None => changed,
    };
    let changed = without_server_fields(changed);
    if !changed.is_empty() {
        let identity = manager.identity(Operation::Update);
        let fields = match managed.remove(&identity) {
            Some(previous) => previous.fields.union(changed),
            None => changed,
        };
        managed.entries.push(Entry {
            identity,
            api_version: manager.api_version.to_owned(),
            time: Some(manager.now.to_owned()),
            fields,
        });
    }
    cap_updates(&mut managed);
    Ok(managed)
}

/// Takes all changed and removed fields from their owners. An owner without fields disappears, and one of a version that
/// does not exist any more. `except` is not changed.
pub(super) fn hand_over(
    managed: &mut ManagedFields,
    comparisons: &mut Comparisons<'_>,
    except: Option<&ManagerIdentity>,
) -> Result<(), ApplyError> {
    let mut kept = Vec::with_capacity(managed.entries.len());
    for mut entry in core::mem::take(&mut managed.entries) {
        if except != Some(&entry.identity) {
            let Some(changes) = comparisons.in_version(&entry.api_version)? else { continue };
            for set in [&changes.modified, &changes.added, &changes.removed] {
                entry.fields = entry.fields.difference(set);
            }
        }
        if !entry.fields.is_empty() {
            kept.push(entry);
        }
    }
    managed.entries = kept;
    Ok(())
}

/// The entries, adapted to the current schema of their version.
pub(super) fn reconciled(mut managed: ManagedFields, versions: &dyn ObjectVersions) -> ManagedFields {
    for entry in &mut managed.entries {
        let object_type = versions.object_type(&entry.api_version);
        if let Some(fields) = object_type.and_then(|object_type| reconcile(object_type, &entry.fields)) {
            entry.fields = fields;
        }
    }
    managed.entries.retain(|entry| versions.object_type(&entry.api_version).is_some());
    managed
}

/// The comparison of two states of an object in each version that its managers use; computed once for each.
pub(super) struct Comparisons<'c> {
    old: &'c Value,
    new: &'c Value,
    versions: &'c dyn ObjectVersions,
    known: BTreeMap<String, Option<Changes>>,
}

impl<'c> Comparisons<'c> {
    pub(super) fn new(old: &'c Value, new: &'c Value, versions: &'c dyn ObjectVersions) -> Self {
        Self { old, new, versions, known: BTreeMap::new() }
    }

    /// The changes in a version without the fields that this write cannot change; `None` if the version does not exist.
    pub(super) fn in_version(&mut self, api_version: &str) -> Result<Option<&Changes>, ApplyError> {
        if !self.known.contains_key(api_version) {
            let changes = self.compute(api_version)?;
            self.known.insert(api_version.to_owned(), changes);
        }
        Ok(self.computed(api_version))
    }

    /// The changes in a version that has been compared, which is not needed again.
    fn take(&mut self, api_version: &str) -> Option<Changes> {
        self.known.remove(api_version).flatten()
    }

    /// The changes in a version that has been compared.
    pub(super) fn computed(&self, api_version: &str) -> Option<&Changes> {
        self.known.get(api_version).and_then(Option::as_ref)
    }

    fn compute(&self, api_version: &str) -> Result<Option<Changes>, ApplyError> {
        let Some(object_type) = self.versions.object_type(api_version) else { return Ok(None) };
        let old = self.versions.convert(self.old, api_version)?;
        let new = self.versions.convert(self.new, api_version)?;
        let changes = compare(object_type, &old, &new)?;
        Ok(Some(match self.versions.reset_fields(api_version) {
            Some(reset) => changes.without(reset),
            None => changes,
        }))
    }
}

/// Removes the fields that nobody owns: those of the server, and the metadata object itself.
pub(super) fn without_server_fields(fields: FieldSet) -> FieldSet {
    static SERVER_FIELDS: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "clusterName"],
            &["metadata", "creationTimestamp"],
            &["metadata", "deletionGracePeriodSeconds"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "resourceVersion"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
        ])
    });
    fields.difference(&SERVER_FIELDS)
}
