//! The references of ClusterCachedResourceEndpointSlices and their conditions.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlead_api::{
    Condition, Severity, annotation, condition_type, conditions_of, set_condition, write_conditions,
};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::conditions::{self, ExportState, PartitionState, export_reference};
use super::index::SliceKey;
use crate::exports::ExportLookup;
use crate::global::GlobalView;
use crate::names::{CLUSTER_CACHED_RESOURCES, CUSTOM};

/// Looks up what ClusterCachedResourceEndpointSlices refer to, on all shards.
pub(crate) struct CachedReferences {
    objects: ObjectStore,
    exports: Arc<ExportLookup>,
    global: Arc<GlobalView>,
    /// The slices by the name of their ClusterCachedResource.
    slices: Mutex<FxHashMap<Box<str>, BTreeSet<SliceKey>>>,
    /// The names of the replicated ClusterCachedResources of each logical cluster.
    replicated: Mutex<FxHashMap<Box<str>, BTreeSet<Box<str>>>>,
}

/// The result of the look-up of a slice's references.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Referenced {
    pub(super) has_cached_resource: bool,
    /// Whether the export refers to the slice for the storage of a resource.
    pub(super) is_storage_of_export: bool,
}

impl CachedReferences {
    pub(crate) fn new(objects: ObjectStore, exports: Arc<ExportLookup>, global: Arc<GlobalView>) -> Self {
        Self { objects, exports, global, slices: Mutex::default(), replicated: Mutex::default() }
    }

    /// Looks up the references of a slice. The reference is known before the look-up, so no later event is missed.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn of_slice(
        &self,
        key: &SliceKey,
        slice: &Value,
        export_cluster: Option<&str>,
        export: &str,
    ) -> Result<Referenced, Status> {
        let (cluster, slice_name) = key;
        let (path, name) = cached_resource_reference(slice, cluster);
        // A reference never changes.
        self.slices.lock().entry(name.into()).or_default().insert(key.clone());
        let export =
            export_cluster.map(|cluster| self.exports.in_cluster(cluster, export)).transpose()?.flatten();
        Ok(Referenced {
            has_cached_resource: self.has_cached_resource(path, name)?,
            is_storage_of_export: export.is_some_and(|export| uses_slice(&export.object, slice_name)),
        })
    }

    /// The slices that refer to a ClusterCachedResource of this name, in any logical cluster.
    pub(super) fn slices_of(&self, name: &str) -> BTreeSet<SliceKey> {
        self.slices.lock().get(name).cloned().unwrap_or_default()
    }

    /// The slices that refer to a ClusterCachedResource whose replica appeared or disappeared in a logical cluster.
    pub(super) fn slices_of_replicas(&self, cluster: &str) -> BTreeSet<SliceKey> {
        let replicas = self.global.list(&CLUSTER_CACHED_RESOURCES, Some(cluster));
        let names = replicas.iter().filter_map(|replica| replica["metadata"]["name"].as_str());
        let now: BTreeSet<Box<str>> = names.map(Into::into).collect();
        let before = {
            let mut replicated = self.replicated.lock();
            match now.is_empty() {
                true => replicated.remove(cluster),
                false => replicated.insert(cluster.into(), now.clone()),
            }
        };
        let before = before.unwrap_or_default();
        before.symmetric_difference(&now).flat_map(|name| self.slices_of(name)).collect()
    }

    pub(super) fn forget(&self, key: &SliceKey) {
        self.slices.lock().retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }

    fn has_cached_resource(&self, path: &str, name: &str) -> Result<bool, Status> {
        if let Some(cluster) = self.exports.workspace(path) {
            let scope = Scope::new(&cluster);
            let stored = self.objects.get(&CLUSTER_CACHED_RESOURCES, &CUSTOM, &scope, None, name)?;
            if stored.is_some() || self.global.get(&CLUSTER_CACHED_RESOURCES, &cluster, name).is_some() {
                return Ok(true);
            }
        }
        let replicas = self.global.list(&CLUSTER_CACHED_RESOURCES, None);
        Ok(replicas.iter().any(|replica| {
            let metadata = &replica["metadata"];
            let annotations = &metadata["annotations"];
            let is_at_path =
                annotations[annotation::PATH] == path || annotations[annotation::CLUSTER] == path;
            metadata["name"] == name && is_at_path
        }))
    }
}

/// The slice with its conditions and `status.shardSelector`. Without what it refers to it has no endpoints.
pub(super) fn plan(
    slice: &Value,
    cluster: &str,
    (export, found): (ExportState, Referenced),
    partition: PartitionState<'_>,
    now: Timestamp,
) -> Value {
    let mut new = slice.clone();
    let mut conditions = conditions_of(slice);
    match check(slice, cluster, export, found) {
        Ok(()) => {
            set_condition(&mut conditions, Condition::met(condition_type::RESOURCE_VALID), now);
            set_condition(&mut conditions, Condition::met(condition_type::API_EXPORT_VALID), now);
            conditions::set_partition(slice, &mut new, &mut conditions, partition, now);
        }
        Err(condition) => {
            if found.has_cached_resource {
                set_condition(&mut conditions, Condition::met(condition_type::RESOURCE_VALID), now);
            }
            set_condition(&mut conditions, condition, now);
            // The look-up of the export is repeated.
            if export != ExportState::Unknown || !found.has_cached_resource {
                conditions::set_status(&mut new, "endpoints", None);
            }
        }
    }
    write_conditions(&mut new, &conditions);
    new
}

fn check(slice: &Value, cluster: &str, export: ExportState, found: Referenced) -> Result<(), Condition> {
    let unmet = |kind, reason, message| Err(Condition::unmet(kind, Severity::Error, reason, message));
    if !found.has_cached_resource {
        let (path, name) = cached_resource_reference(slice, cluster);
        let message = format!("Error getting ClusterCachedResource {path}|{name}");
        return unmet(condition_type::RESOURCE_VALID, "ClusterCachedResourceNotFound", message);
    }
    let (path, name) = export_reference(slice, cluster);
    let (reason, message) = match export {
        ExportState::Found if found.is_storage_of_export => return Ok(()),
        ExportState::Found => (
            "APIExportInvalidReference",
            format!("APIExport {path}|{name} does not reference this ClusterCachedResourceEndpointSlice"),
        ),
        ExportState::NotFound => ("APIExportInvalidReference", format!("APIExport {path}|{name} not found")),
        ExportState::Unknown => ("InternalError", format!("Error getting APIExport {path}|{name}")),
    };
    unmet(condition_type::API_EXPORT_VALID, reason, message)
}

/// Path or logical cluster, and name of the ClusterCachedResource of a slice.
fn cached_resource_reference<'s>(slice: &'s Value, cluster: &'s str) -> (&'s str, &'s str) {
    let reference = &slice["spec"]["clusterCachedResource"];
    let path = reference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(cluster);
    (path, reference["name"].as_str().unwrap_or_default())
}

/// Whether an export has a resource whose objects are those of a slice.
fn uses_slice(export: &Value, slice: &str) -> bool {
    let resources = export["spec"]["resources"].as_array();
    resources.into_iter().flatten().any(|resource| {
        let reference = &resource["storage"]["virtual"]["reference"];
        reference["apiGroup"] == "cache.kcp.io"
            && reference["kind"] == "ClusterCachedResourceEndpointSlice"
            && reference["name"] == slice
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::condition;
    use super::*;

    #[test]
    fn conditions_name_the_reference_that_is_not_valid() {
        let slice = json!({
            "metadata": {"name": "s"},
            "spec": {"clusterCachedResource": {"path": "root:p", "name": "r"}, "export": {"name": "e"}},
            "status": {"endpoints": [{"url": "u"}]},
        });
        type Expected = Option<(bool, &'static str, &'static str)>;
        let valid: Expected = Some((true, "", ""));
        let missing: Expected =
            Some((false, "ClusterCachedResourceNotFound", "Error getting ClusterCachedResource root:p|r"));
        let invalid = |message| Some((false, "APIExportInvalidReference", message));
        for (export, cached, used, resource_valid, export_valid, keeps_endpoints) in [
            (ExportState::Found, true, true, valid, valid, true),
            (ExportState::Found, false, true, missing, None, false),
            (ExportState::NotFound, true, false, valid, invalid("APIExport abc|e not found"), false),
            (
                ExportState::Found,
                true,
                false,
                valid,
                invalid("APIExport abc|e does not reference this ClusterCachedResourceEndpointSlice"),
                false,
            ),
            (
                ExportState::Unknown,
                true,
                false,
                valid,
                Some((false, "InternalError", "Error getting APIExport abc|e")),
                true,
            ),
        ] {
            let found = Referenced { has_cached_resource: cached, is_storage_of_export: used };
            let planned = |slice: &Value| {
                plan(slice, "abc", (export, found), PartitionState::Unset, Timestamp::UNIX_EPOCH)
            };
            let new = planned(&slice);
            let expected =
                |(met, reason, message): (bool, &str, &str)| (met, reason.to_owned(), message.to_owned());
            assert_eq!(
                condition(&new, "ResourceValid"),
                resource_valid.map(expected),
                "{export:?} {found:?}"
            );
            assert_eq!(condition(&new, "APIExportValid"), export_valid.map(expected), "{export:?} {found:?}");
            let is_complete = export == ExportState::Found && cached && used;
            assert_eq!(condition(&new, "PartitionValid").is_some(), is_complete, "{export:?} {found:?}");
            assert_eq!(new["status"]["endpoints"].is_array(), keeps_endpoints, "{export:?} {found:?}");
            assert_eq!(planned(&new), new, "planning again changes nothing");
        }
    }

    #[test]
    fn an_export_uses_the_slices_of_its_virtual_storages() {
        let export = |group: &str, kind: &str, name: &str| {
            json!({"spec": {"resources": [
                {"storage": {"crd": {}}},
                {"storage": {"virtual": {"reference": {"apiGroup": group, "kind": kind, "name": name}}}},
            ]}})
        };
        let kind = "ClusterCachedResourceEndpointSlice";
        assert!(uses_slice(&export("cache.kcp.io", kind, "s"), "s"));
        for other in [
            export("cache.kcp.io", kind, "t"),
            export("example.com", kind, "s"),
            export("cache.kcp.io", "Other", "s"),
            json!({}),
        ] {
            assert!(!uses_slice(&other, "s"), "{other}");
        }
    }
}
