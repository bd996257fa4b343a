//! The logical clusters that publish APIs. Their webhooks and policies review the objects of these APIs on all shards.

use std::sync::LazyLock;

use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use rustc_hash::FxHashSet;

use super::sources::Source;
use crate::names::{API_EXPORTS, API_RESOURCE_SCHEMAS, CUSTOM};

/// The objects by which a logical cluster publishes APIs. Bindings survive the deletion of their export, and so does the review of
/// their objects while the provider keeps the schemas.
pub(super) static PUBLISHED: LazyLock<[&ResourceName; 2]> =
    LazyLock::new(|| [&*API_EXPORTS, &*API_RESOURCE_SCHEMAS]);

/// Whether a logical cluster publishes APIs. Reads the names of its exports and schemas.
///
/// # Errors
/// 500 if the store cannot be read.
pub(super) fn publishes(objects: &ObjectStore, scope: &Scope) -> Result<bool, Status> {
    let one = ScopeSelector::One(scope.clone());
    let mut found = false;
    for resource in *PUBLISHED {
        if !found {
            objects.for_each(resource, &CUSTOM, &one, &mut |_| found = true)?;
        }
    }
    Ok(found)
}

/// All logical clusters that publish APIs.
///
/// # Errors
/// 500 if the store cannot be read.
pub(super) fn publishers(objects: &ObjectStore) -> Result<FxHashSet<Box<str>>, Status> {
    let mut found = FxHashSet::default();
    for resource in *PUBLISHED {
        objects.for_each(resource, &CUSTOM, &ScopeSelector::all(), &mut |listed| {
            if Source::covers(listed.scope) && !found.contains(listed.scope) {
                found.insert(listed.scope.into());
            }
        })?;
    }
    Ok(found)
}
