//! The controllers of APIExportEndpointSlices and ClusterCachedResourceEndpointSlices.
//!
//! The shard that stores a slice maintains its conditions and the selector of its shards ([`SliceConditions`]). Every shard
//! adds its own URL to the slices of an export while it has consumers of the export, and removes it after the last one
//! ([`SliceEndpoints`]), also in the slices of other shards, which it knows from the cache server.

mod cached_resources;
mod conditions;
mod endpoint;
mod family;
mod feeds;
mod index;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::virtual_workspace_url;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_process::Status;
use jiff::Timestamp;
use serde_json::Value;

use self::conditions::{ExportState, PartitionState, export_reference};
use self::endpoint::{EndpointFacts, EndpointPlan, EndpointWriter, SliceOwner};
use self::index::{SliceIndex, SliceKey};
use super::deletion::commit;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::export_directory::ExportDirectory;
use crate::global::GlobalView;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{CUSTOM, PARTITIONS};
use crate::placement::Placement;
use crate::shard_selector::ShardSelector;
use crate::writes::Writes;

pub(crate) use cached_resources::CachedReferences;
pub(crate) use family::SliceFamily;
pub(crate) use feeds::EndpointSliceControllers;

/// Controller of the conditions of this shard's slices.
struct SliceConditions {
    family: SliceFamily,
    objects: ObjectStore,
    definitions: Arc<Definitions>,
    exports: Arc<dyn ExportDirectory>,
    index: Arc<SliceIndex>,
}

#[async_trait]
impl Controller for SliceConditions {
    type Key = SliceKey;

    const NAME: &'static str = "endpointslice";
    const WORKERS: usize = 4;

    async fn reconcile(&self, key: &SliceKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, name) = key;
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(self.family.resource(), &CUSTOM, &scope, None, name)? else {
            self.family.forget(key);
            return Ok(ReconcileOutcome::Done);
        };
        let slice = self.objects.tree(&stored)?;
        if slice["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let (path, export_name) = export_reference(&slice, cluster);
        let mut export_cluster = None;
        let export = match self.index.resolve(key, &(path.into(), export_name.into()), &*self.exports) {
            Ok(Some(found)) => {
                export_cluster = Some(found);
                ExportState::Found
            }
            Ok(None) => ExportState::NotFound,
            Err(status) => {
                tracing::warn!(%cluster, slice = %name, %status, "the export of a slice cannot be read");
                ExportState::Unknown
            }
        };
        let partition = self.partition(&slice, &scope)?;
        let state = match (&slice["spec"]["partition"], &partition) {
            (Value::String(name), None) if !name.is_empty() => PartitionState::NotFound,
            (_, Some(partition)) => PartitionState::Found(partition),
            _ => PartitionState::Unset,
        };
        let now = Timestamp::now();
        let new = match &self.family {
            SliceFamily::Exports => conditions::plan(&slice, cluster, export, state, now),
            SliceFamily::CachedResources(references) => {
                let found = references.of_slice(key, &slice, export_cluster.as_deref(), export_name)?;
                cached_resources::plan(&slice, cluster, (export, found), state, now)
            }
        };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&slice)?;
        writes.replace(&resource, &stored, new)?;
        Ok(match commit(writes).await? {
            Some(_) if export != ExportState::Unknown => ReconcileOutcome::Done,
            _ => ReconcileOutcome::Retry,
        })
    }
}

impl SliceConditions {
    /// The Partition that a slice names, if it exists.
    fn partition(&self, slice: &Value, scope: &Scope) -> Result<Option<Value>, Status> {
        let Some(name) = slice["spec"]["partition"].as_str().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let Some(resource) = self.definitions.exported(&PARTITIONS) else {
            return Err(Status::service_unavailable("partitions are not served yet", 1));
        };
        let stored = self.objects.get(&PARTITIONS, &resource.origin, scope, None, name)?;
        stored.map(|stored| self.objects.tree(&stored)).transpose()
    }
}

/// Controller of this shard's URL in the slices of all shards.
struct SliceEndpoints {
    family: SliceFamily,
    objects: ObjectStore,
    clusters: Arc<ClusterIndex>,
    global: Arc<GlobalView>,
    placement: Arc<Placement>,
    exports: Arc<dyn ExportDirectory>,
    index: Arc<SliceIndex>,
    writer: EndpointWriter,
}

#[async_trait]
impl Controller for SliceEndpoints {
    type Key = SliceKey;

    const NAME: &'static str = "endpointslice-urls";
    const WORKERS: usize = 16;

    async fn reconcile(&self, key: &SliceKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, name) = key;
        let Some((slice, owner)) = self.find(cluster, name)? else {
            self.index.remove(key);
            return Ok(ReconcileOutcome::Done);
        };
        let (path, export) = export_reference(&slice, cluster);
        // An event of the export, or of this shard's Shard, queues the slice again.
        let export_cluster = self.index.resolve(key, &(path.into(), export.into()), &*self.exports)?;
        let Some(export_cluster) = export_cluster else { return Ok(ReconcileOutcome::Done) };
        let has_consumers = self.index.has_consumers(key, &export_cluster, &*self.exports);
        let shard = self.placement.shard(&self.writer.shard);
        let Some(shard) = shard.filter(|shard| !shard.virtual_workspace_url.is_empty()) else {
            return Ok(ReconcileOutcome::Done);
        };
        if !endpoint::is_ready(&slice) {
            return Ok(ReconcileOutcome::Done);
        }
        let selector = slice["status"]["shardSelector"].as_str().unwrap_or_default();
        let selector = match ShardSelector::parse(selector) {
            Ok(selector) => selector,
            Err(error) => {
                tracing::warn!(%cluster, slice = %name, %error, "the shard selector of a slice is invalid");
                return Ok(ReconcileOutcome::Done);
            }
        };
        let subject = match &self.family {
            SliceFamily::Exports => format!("{export_cluster}/{export}"),
            SliceFamily::CachedResources(_) => format!("{cluster}/{name}"),
        };
        let url = virtual_workspace_url(&shard.virtual_workspace_url, self.family.service(), &subject);
        let facts = EndpointFacts {
            shard: &self.writer.shard,
            url: &url,
            is_selected: selector.selects(&shard.labels),
            has_consumers,
        };
        let url = match endpoint::plan(&slice, &facts) {
            EndpointPlan::Keep => return Ok(ReconcileOutcome::Done),
            EndpointPlan::Publish => Some(&*url),
            EndpointPlan::Withdraw => None,
        };
        self.writer.apply(self.family.kind(), owner, (cluster, name), url).await?;
        Ok(ReconcileOutcome::Done)
    }
}

impl SliceEndpoints {
    /// A slice that is not being deleted: of this shard, or a replica of another one's.
    fn find(&self, cluster: &str, name: &str) -> Result<Option<(Arc<Value>, SliceOwner)>, Status> {
        // A replica of this shard's own slice may be older than the slice.
        let found = if self.clusters.get(cluster).is_some() {
            let scope = Scope::new(cluster);
            let stored = self.objects.get(self.family.resource(), &CUSTOM, &scope, None, name)?;
            let tree = |stored: StoredObject| self.objects.tree_with_managed_fields(&stored).map(Arc::new);
            stored.map(tree).transpose()?.map(|slice| (slice, SliceOwner::ThisShard))
        } else {
            let replica = self.global.get(self.family.resource(), cluster, name);
            replica.map(|slice| (slice, SliceOwner::OtherShard))
        };
        Ok(found.filter(|(slice, _)| slice["metadata"]["deletionTimestamp"].is_null()))
    }
}
