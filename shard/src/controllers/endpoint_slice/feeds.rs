//! Starts the controllers of endpoint slices with their event feeds.

use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ResourceName;
use fairlead_process::{Shutdown, Tasks};
use serde_json::Value;

use super::endpoint::EndpointWriter;
use super::index::{SliceIndex, SliceKey};
use super::{CachedReferences, SliceConditions, SliceEndpoints, SliceFamily};
use crate::controller_runtime::{Queue, drive, feed};
use crate::controllers::content_controllers::for_each_key;
use crate::export_directory::ExportDirectory;
use crate::external_clusters::ExternalClusters;
use crate::global::GlobalView;
use crate::index::{BindingIndex, ClusterIndex, Definitions};
use crate::names::{API_EXPORTS, CLUSTER_CACHED_RESOURCES, CUSTOM, PARTITIONS, SHARDS};
use crate::placement::Placement;

/// Dependencies of the controllers of one kind of endpoint slices.
pub(crate) struct EndpointSliceControllers {
    pub(crate) family: SliceFamily,
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) global: Arc<GlobalView>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) exports: Arc<dyn ExportDirectory>,
    /// Reaches slices of other shards.
    pub(crate) external: Option<Arc<ExternalClusters>>,
    /// The name of this shard.
    pub(crate) shard: String,
}

/// Adds slices to the queues of their controllers.
pub(super) struct SliceQueues {
    conditions: Arc<Queue<SliceKey>>,
    endpoints: Arc<Queue<SliceKey>>,
    index: Arc<SliceIndex>,
    exports: Arc<dyn ExportDirectory>,
}

impl SliceQueues {
    /// A binding of an export was created or deleted on this shard, and the directory shows it. Costs a map look-up, and a
    /// hash per slice of the export.
    pub(super) fn binding_changed(&self, export_hash: &str) {
        for key in self.index.of_binding(export_hash, &*self.exports) {
            self.endpoints.add(key);
        }
    }

    fn add(&self, key: SliceKey) {
        self.conditions.add(key.clone());
        self.endpoints.add(key);
    }

    fn add_all(&self, keys: impl IntoIterator<Item = SliceKey>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    fn add_endpoints(&self, keys: impl IntoIterator<Item = SliceKey>) {
        keys.into_iter().for_each(|key| self.endpoints.add(key));
    }
}

impl EndpointSliceControllers {
    /// Starts the controllers, which follow the bindings of this shard. They run until the process drains.
    pub(crate) fn start(&self, bindings: &BindingIndex, tasks: &Tasks, shutdown: &Shutdown) {
        let queues = self.queues();
        // Before the first slice is planned, so that no change is missed.
        let followers = queues.clone();
        bindings.on_change(Box::new(move |change| {
            let hashes = [change.before, change.after].map(|binding| binding.map(|one| &*one.export_hash));
            // Most changes of a binding keep its export.
            if hashes[0] != hashes[1] {
                hashes.into_iter().flatten().for_each(|hash| followers.binding_changed(hash));
            }
        }));
        self.run(&queues, tasks, shutdown);
    }

    /// The queues of the controllers.
    pub(super) fn queues(&self) -> Arc<SliceQueues> {
        Arc::new(SliceQueues {
            conditions: Arc::new(Queue::with_groups(|(cluster, _): &SliceKey| cluster)),
            endpoints: Arc::new(Queue::with_groups(|(cluster, _): &SliceKey| cluster)),
            index: Arc::default(),
            exports: self.exports.clone(),
        })
    }

    /// Starts the controllers and their event feeds. The caller reports changes of bindings to the queues.
    pub(super) fn run(&self, queues: &Arc<SliceQueues>, tasks: &Tasks, shutdown: &Shutdown) {
        let conditions = Arc::new(SliceConditions {
            family: self.family.clone(),
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            exports: self.exports.clone(),
            index: queues.index.clone(),
        });
        let endpoints = Arc::new(SliceEndpoints {
            family: self.family.clone(),
            objects: self.objects.clone(),
            clusters: self.clusters.clone(),
            global: self.global.clone(),
            placement: self.placement.clone(),
            exports: self.exports.clone(),
            index: queues.index.clone(),
            writer: EndpointWriter {
                definitions: self.definitions.clone(),
                external: self.external.clone(),
                shard: self.shard.clone(),
            },
        });
        tasks.spawn(
            "endpoint slice conditions",
            drive(conditions, queues.conditions.clone(), shutdown.clone()),
        );
        tasks.spawn("endpoint slice URLs", drive(endpoints, queues.endpoints.clone(), shutdown.clone()));
        self.feed_slices(queues, tasks, shutdown);
        self.feed_exports(queues, tasks, shutdown);
        self.feed_partitions(queues, tasks, shutdown);
        self.feed_shards(queues, tasks, shutdown);
        if let SliceFamily::CachedResources(references) = &self.family {
            self.feed_cached_resources(references, queues, tasks, shutdown);
        }
    }

    fn feed_slices(&self, queues: &Arc<SliceQueues>, tasks: &Tasks, shutdown: &Shutdown) {
        let resource = self.family.resource();
        let (objects, resync_queues, event_queues) = (self.objects.clone(), queues.clone(), queues.clone());
        let resync = move || {
            for_each_key(&objects, resource, &CUSTOM, |cluster, name| resync_queues.add((cluster, name)));
        };
        let keys = move |event: &ObjectEvent| event_queues.add(((*event.scope).into(), event.name.clone()));
        tasks.spawn(
            "endpoint slice events",
            feed(self.hub.clone(), resource.clone(), Some(CUSTOM), shutdown.clone(), resync, keys),
        );
        queues.add_endpoints(replicated_slices(&self.global, resource, None));
        let (global, queues) = (Arc::downgrade(&self.global), queues.clone());
        let changed = move |cluster: &str| {
            let Some(global) = global.upgrade() else { return };
            // A removed slice is forgotten when its key is reconciled.
            queues.add_endpoints(queues.index.in_cluster(cluster));
            queues.add_endpoints(replicated_slices(&global, resource, Some(cluster)));
        };
        self.global.on_change(resource.clone(), Box::new(changed));
    }

    fn feed_exports(&self, queues: &Arc<SliceQueues>, tasks: &Tasks, shutdown: &Shutdown) {
        let event_queues = queues.clone();
        // Slices of exports depend on the existence of an export, not on its content.
        let follows_content = matches!(self.family, SliceFamily::CachedResources(_));
        let keys = move |event: &ObjectEvent| {
            if matches!(event.change, ObjectChange::Updated { .. }) && !follows_content {
                return;
            }
            let metadata = event.metadata().ok();
            let path = metadata.as_ref().and_then(|metadata| metadata.annotation(annotation::PATH));
            event_queues.add_all(event_queues.index.of_export(&event.scope, path, &event.name));
        };
        let resync_queues = queues.clone();
        let resync = move || resync_queues.add_all(resync_queues.index.keys());
        tasks.spawn(
            "export events for endpoint slices",
            feed(self.hub.clone(), API_EXPORTS.clone(), Some(CUSTOM), shutdown.clone(), resync, keys),
        );
        let (global, queues) = (Arc::downgrade(&self.global), queues.clone());
        let changed = move |cluster: &str| {
            let Some(global) = global.upgrade() else { return };
            queues.add_all(queues.index.of_replicas(cluster, &replicated_exports(&global, cluster)));
            if follows_content {
                queues.add_all(queues.index.of_exports_in(cluster));
            }
        };
        self.global.on_change(API_EXPORTS.clone(), Box::new(changed));
    }

    fn feed_partitions(&self, queues: &Arc<SliceQueues>, tasks: &Tasks, shutdown: &Shutdown) {
        let (objects, resync_queues, queues) = (self.objects.clone(), queues.clone(), queues.clone());
        let resource = self.family.resource();
        let resync = move || resync_queues.add_all(resync_queues.index.keys());
        let keys = move |event: &ObjectEvent| {
            queues.add_all(slices_of_partition(&objects, resource, &event.scope, &event.name));
        };
        tasks.spawn(
            "partition events for endpoint slices",
            feed(self.hub.clone(), PARTITIONS.clone(), None, shutdown.clone(), resync, keys),
        );
    }

    fn feed_cached_resources(
        &self,
        references: &Arc<CachedReferences>,
        queues: &Arc<SliceQueues>,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let (local, local_queues) = (references.clone(), queues.clone());
        let keys = move |event: &ObjectEvent| {
            // Slices depend on the existence of a ClusterCachedResource, not on its content.
            if !matches!(event.change, ObjectChange::Updated { .. }) {
                local_queues.add_all(local.slices_of(&event.name));
            }
        };
        let resource = &CLUSTER_CACHED_RESOURCES;
        tasks.spawn(
            "cached resource events for endpoint slices",
            feed(self.hub.clone(), (**resource).clone(), Some(CUSTOM), shutdown.clone(), || {}, keys),
        );
        let (remote, queues) = (Arc::downgrade(references), queues.clone());
        let changed = move |cluster: &str| {
            let Some(references) = remote.upgrade() else { return };
            queues.add_all(references.slices_of_replicas(cluster));
        };
        self.global.on_change((**resource).clone(), Box::new(changed));
    }

    /// A changed Shard may be this shard's own, with another URL or other labels.
    fn feed_shards(&self, queues: &Arc<SliceQueues>, tasks: &Tasks, shutdown: &Shutdown) {
        let (remote, local) = (queues.clone(), queues.clone());
        self.global.on_change(SHARDS.clone(), Box::new(move |_| remote.add_endpoints(remote.index.keys())));
        let keys = move |_: &ObjectEvent| local.add_endpoints(local.index.keys());
        tasks.spawn(
            "shard events for endpoint slices",
            feed(self.hub.clone(), SHARDS.clone(), None, shutdown.clone(), || {}, keys),
        );
    }
}

/// The slices of all shards, in one logical cluster or in all.
fn replicated_slices(global: &GlobalView, resource: &ResourceName, cluster: Option<&str>) -> Vec<SliceKey> {
    let key = |slice: Arc<Value>| {
        let metadata = &slice["metadata"];
        let cluster = metadata["annotations"][annotation::CLUSTER].as_str()?;
        Some((cluster.into(), metadata["name"].as_str()?.into()))
    };
    global.list(resource, cluster).into_iter().filter_map(key).collect()
}

/// Path and name of the exports in a logical cluster of any shard.
fn replicated_exports(global: &GlobalView, cluster: &str) -> Vec<(Option<Box<str>>, Box<str>)> {
    let location = |export: Arc<Value>| {
        let metadata = &export["metadata"];
        let path = metadata["annotations"][annotation::PATH].as_str().map(Into::into);
        Some((path, metadata["name"].as_str()?.into()))
    };
    global.list(&API_EXPORTS, Some(cluster)).into_iter().filter_map(location).collect()
}

/// The slices in a logical cluster that name a Partition. Costs a read of the logical cluster's slices.
fn slices_of_partition(
    objects: &ObjectStore,
    resource: &ResourceName,
    cluster: &str,
    partition: &str,
) -> Vec<SliceKey> {
    let one = ScopeSelector::One(Scope::new(cluster));
    let mut keys = Vec::new();
    let read = objects.for_each(resource, &CUSTOM, &one, &mut |listed| {
        let slice: Value = serde_json::from_slice(listed.object.json()).unwrap_or_default();
        if slice["spec"]["partition"] == partition
            && let Some(name) = slice["metadata"]["name"].as_str()
        {
            keys.push((cluster.into(), name.into()));
        }
    });
    if let Err(error) = read {
        tracing::error!(cluster, %error, "endpoint slices cannot be read");
    }
    keys
}
