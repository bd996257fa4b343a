//! Starts the controllers of a shard and the feeds of their queues.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_api::{LOGICAL_CLUSTER_NAME, PartialWorkspace, Phase};
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_client::Client;
use fairlead_config::ShardConfig;
use fairlead_process::{Shutdown, Tasks};
use serde_json::Value;

use super::ShardError;
use super::clients::{credentials_of, pick_client};
use super::leadership::LeaderParts;
use crate::controller_runtime::{Queue, drive, feed};
use crate::controllers::{
    CachedReferences, CachedResourceControllers, ContentControllers, DefaultBindings,
    EndpointSliceControllers, LogicalClusters, PartitionSetController, SliceFamily, TypeKey, WorkspaceTypes,
    Workspaces,
};
use crate::export_directory::{ExportDirectory, IndexedExports};
use crate::index::Definitions;
use crate::names::{LOGICAL_CLUSTERS, SHARDS, WORKSPACE_TYPES, WORKSPACES};
use crate::peers::Peers;
use crate::placement::Placement;
use crate::workspace_owner::{WorkspaceKey, owner_key};
use crate::workspace_types::TypeLookup;

impl LeaderParts {
    /// Starts the controllers of workspaces and of what is in them.
    pub(super) fn start_controllers(
        &self,
        config: &ShardConfig,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        let shard = config.name.as_str().to_owned();
        let shard_name = shard.clone();
        let placement = Arc::new(Placement {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            global: self.global.clone(),
            gateway: pick_client(config)?,
            picks: self.picks.clone(),
        });
        let credentials = match &config.logical_cluster_admin_kubeconfig {
            Some(file) => Some(Arc::new(ArcSwap::from_pointee(credentials_of(file)?))),
            None => None,
        };
        let peers = Arc::new(Peers::new(shard.clone(), credentials));
        let workspaces = Arc::new(Workspaces {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            types: self.types.clone(),
            placement: placement.clone(),
            peers: peers.clone(),
            shard: shard.clone(),
        });
        let root_ca = config.root_ca.as_deref().unwrap_or(&config.serving.certificate);
        let serving_ca = std::fs::read_to_string(root_ca).unwrap_or_default();
        let content_controllers = ContentControllers {
            objects: self.objects.clone(),
            hub: self.hub.clone(),
            definitions: self.definitions.clone(),
            admission: self.dynamic.clone(),
            clusters: self.clusters.clone(),
            exports: self.exports.clone(),
            global: self.global.clone(),
            usage: self.usage.clone(),
            issuer: self.issuer.clone(),
            keep_events: config.event_ttl.get(),
            serving_ca: serving_ca.clone(),
        };
        content_controllers.start(tasks, shutdown);
        let default_bindings = Arc::new(DefaultBindings {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            types: self.types.clone(),
            exports: self.exports.clone(),
        });
        default_bindings.start(&self.hub, &self.global, tasks, shutdown);
        let logical_clusters = Arc::new(LogicalClusters {
            objects: self.objects.clone(),
            hub: self.hub.clone(),
            definitions: self.definitions.clone(),
            types: self.types.clone(),
            exports: self.exports.clone(),
            shard,
            external_url: config.effective_external_url().as_str().to_owned(),
            serving_ca,
        });
        let workspace_queue = Arc::new(Queue::<WorkspaceKey>::new());
        let cluster_queue = Arc::new(Queue::<Box<str>>::new());
        tasks.spawn("workspaces", drive(workspaces, workspace_queue.clone(), shutdown.clone()));
        tasks.spawn("logical clusters", drive(logical_clusters, cluster_queue.clone(), shutdown.clone()));
        self.feed_workspaces(&workspace_queue, tasks, shutdown);
        self.feed_clusters(&workspace_queue, &cluster_queue, tasks, shutdown);
        let types = Arc::new(WorkspaceTypes {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            placement: placement.clone(),
        });
        let type_queue = Arc::new(Queue::<TypeKey>::new());
        tasks.spawn("workspace types", drive(types, type_queue.clone(), shutdown.clone()));
        self.feed_types(&type_queue, tasks, shutdown);
        let partition_sets = PartitionSetController {
            objects: self.objects.clone(),
            hub: self.hub.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            global: self.global.clone(),
            placement: placement.clone(),
        };
        partition_sets.start(tasks, shutdown);
        self.start_endpoint_slices(&placement, shard_name, tasks, shutdown);
        let shards_changed = self.shards_changed(&workspace_queue, &type_queue, tasks, shutdown);
        tasks.spawn("peers", peers.run(placement, shards_changed, workspace_queue, shutdown.clone()));
        Ok(())
    }

    /// Starts the controllers of published objects, which read them from the cache server.
    pub(super) fn start_cached_resources(
        &self,
        config: &ShardConfig,
        cache: Client,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let controllers = CachedResourceControllers {
            objects: self.objects.clone(),
            hub: self.hub.clone(),
            definitions: self.definitions.clone(),
            clusters: self.clusters.clone(),
            cache,
            shard: config.name.as_str().to_owned(),
        };
        controllers.start(tasks, shutdown);
    }

    fn start_endpoint_slices(
        &self,
        placement: &Arc<Placement>,
        shard: String,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let bindings = self.definitions.bindings().clone();
        let exports = IndexedExports { lookup: self.exports.clone(), bindings: bindings.clone() };
        let exports: Arc<dyn ExportDirectory> = Arc::new(exports);
        let references =
            CachedReferences::new(self.objects.clone(), self.exports.clone(), self.global.clone());
        let families = [SliceFamily::Exports, SliceFamily::CachedResources(Arc::new(references))];
        for family in families {
            let controllers = EndpointSliceControllers {
                family,
                objects: self.objects.clone(),
                hub: self.hub.clone(),
                definitions: self.definitions.clone(),
                clusters: self.clusters.clone(),
                global: self.global.clone(),
                placement: placement.clone(),
                exports: exports.clone(),
                external: self.external.clone(),
                shard: shard.clone(),
            };
            controllers.start(&bindings, tasks, shutdown);
        }
    }

    fn feed_workspaces(&self, queue: &Arc<Queue<WorkspaceKey>>, tasks: &Tasks, shutdown: &Shutdown) {
        let (resync_queue, event_queue) = (queue.clone(), queue.clone());
        let (objects, definitions) = (self.objects.clone(), self.definitions.clone());
        let resync = move || add_all_workspaces(&objects, &definitions, &resync_queue);
        let keys = move |event: &ObjectEvent| event_queue.add(((*event.scope).into(), event.name.clone()));
        tasks.spawn(
            "workspace events",
            feed(self.hub.clone(), WORKSPACES.clone(), None, shutdown.clone(), resync, keys),
        );
    }

    fn feed_clusters(
        &self,
        workspaces: &Arc<Queue<WorkspaceKey>>,
        queue: &Arc<Queue<Box<str>>>,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) {
        let (resync_queue, event_queue, owner_queue) = (queue.clone(), queue.clone(), workspaces.clone());
        let clusters = self.clusters.clone();
        let resync = move || clusters.names().into_iter().for_each(|cluster| resync_queue.add(cluster));
        let keys = move |event: &ObjectEvent| {
            if &*event.name != LOGICAL_CLUSTER_NAME {
                return;
            }
            event_queue.add((*event.scope).into());
            let owner = serde_json::from_slice::<Value>(event.object().json()).ok();
            if let Some(key) = owner.as_ref().and_then(owner_key) {
                owner_queue.add(key);
            }
        };
        // Default bindings that are complete let their logical cluster become Ready.
        let (waiting, binding_queue) = (self.clusters.clone(), queue.clone());
        self.definitions.bindings().on_change(Box::new(move |change| {
            let state = waiting.get(change.cluster);
            if state.is_some_and(|state| state.phase == Some(Phase::Initializing)) {
                binding_queue.add(change.cluster.into());
            }
        }));
        tasks.spawn(
            "logical cluster events",
            feed(self.hub.clone(), LOGICAL_CLUSTERS.clone(), None, shutdown.clone(), resync, keys),
        );
    }

    fn feed_types(&self, queue: &Arc<Queue<TypeKey>>, tasks: &Tasks, shutdown: &Shutdown) {
        let (resync_queue, event_queue, types) = (queue.clone(), queue.clone(), self.types.clone());
        let resync = move || add_all_types(&types, &resync_queue);
        let keys = move |event: &ObjectEvent| event_queue.add(((*event.scope).into(), event.name.clone()));
        tasks.spawn(
            "workspace type events",
            feed(self.hub.clone(), WORKSPACE_TYPES.clone(), None, shutdown.clone(), resync, keys),
        );
    }

    /// Counts changes of Shards, here or in the cache server. A change requeues unscheduled workspaces, and all types,
    /// whose status has the shards' URLs.
    fn shards_changed(
        &self,
        queue: &Arc<Queue<WorkspaceKey>>,
        type_queue: &Arc<Queue<TypeKey>>,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> tokio::sync::watch::Receiver<u64> {
        let (sender, receiver) = tokio::sync::watch::channel(0_u64);
        let sender = Arc::new(sender);
        let (objects, definitions, queue) = (self.objects.clone(), self.definitions.clone(), queue.clone());
        let (types, type_queue) = (self.types.clone(), type_queue.clone());
        let changed: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            sender.send_modify(|count| *count += 1);
            add_unscheduled(&objects, &definitions, &queue);
            add_all_types(&types, &type_queue);
        });
        let remote = changed.clone();
        self.global.on_change(SHARDS.clone(), Box::new(move |_| remote()));
        tasks.spawn(
            "shard events",
            feed(self.hub.clone(), SHARDS.clone(), None, shutdown.clone(), || {}, move |_| changed()),
        );
        receiver
    }
}

fn add_all_workspaces(objects: &ObjectStore, definitions: &Definitions, queue: &Queue<WorkspaceKey>) {
    add_workspaces(objects, definitions, queue, |_| true);
}

fn add_unscheduled(objects: &ObjectStore, definitions: &Definitions, queue: &Queue<WorkspaceKey>) {
    add_workspaces(objects, definitions, queue, |workspace| workspace.cluster.is_none());
}

fn add_workspaces(
    objects: &ObjectStore,
    definitions: &Definitions,
    queue: &Queue<WorkspaceKey>,
    selects: impl Fn(&PartialWorkspace<'_>) -> bool,
) {
    let Some(resource) = definitions.exported(&WORKSPACES) else { return };
    let visited = objects.for_each(&WORKSPACES, &resource.origin, &ScopeSelector::all(), &mut |listed| {
        if let Ok(workspace) = PartialWorkspace::decode(listed.object.json())
            && selects(&workspace)
        {
            queue.add((listed.scope.into(), workspace.name.as_ref().into()));
        }
    });
    if let Err(status) = visited {
        tracing::error!(%status, "workspaces cannot be read");
    }
}

fn add_all_types(types: &TypeLookup, queue: &Queue<TypeKey>) {
    match types.all_local() {
        Ok(all) => {
            for stored in all {
                if let Ok(meta) = fairlead_apiserver::object::ObjectMetaRef::parse(stored.object.as_object())
                {
                    queue.add((stored.scope.as_str().into(), meta.name.as_ref().into()));
                }
            }
        }
        Err(status) => tracing::error!(%status, "workspace types cannot be read"),
    }
}
