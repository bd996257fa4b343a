//! Assembles the parts of a shard and starts them in order.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_api::{LOGICAL_CLUSTER_NAME, PartialWorkspace, Phase, ShardSpec};
use fairlead_apiserver::DynamicAdmission;
use fairlead_apiserver::audit::{AuditMetrics, AuditWorker};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::built_in_resources;
use fairlead_apiserver::registry::{ObjectStore, Registry, StoreRegistry};
use fairlead_apiserver::{ApiServer, RequestMetrics, ScopeSelector};
use fairlead_client::{Client, Kubeconfig, UnverifiedTls};
use fairlead_config::ShardConfig;
use fairlead_names::ClusterName;
use fairlead_process::{Metrics, ReadyFlag, Reloadable, Reloads, Shutdown, Tasks};
use prometheus::IntCounterVec;
use serde_json::{Value, json};

use super::{ANNOTATIONS, ShardError, audit, authenticators, client_of};
use crate::admission::{ShardAdmission, follow_remote_configurations};
use crate::bootstrap;
use crate::controller_runtime::{Queue, drive, feed};
use crate::controllers::{
    CachedReferences, CachedResourceControllers, ContentControllers, DefaultBindings,
    EndpointSliceControllers, LogicalClusters, PartitionSetController, SliceFamily, TypeKey, WorkspaceTypes,
    Workspaces,
};
use crate::export_directory::{ExportDirectory, IndexedExports};
use crate::exports::{ExportLookup, RootExports};
use crate::external_clusters::ExternalClusters;
use crate::global::GlobalView;
use crate::host::{
    AccessWebhook, Authentication, Authenticators, Authorizer, HomeWorkspaces, RbacChain, Reviews, ShardHost,
    TokenReviewer,
};
use crate::index::{ClusterIndex, Definitions, PathIndex, PolicyIndex};
use crate::names::{LOGICAL_CLUSTERS, SHARDS, WORKSPACE_TYPES, WORKSPACES};
use crate::peers::Peers;
use crate::placement::{PickClient, Placement};
use crate::quota::UsageTracker;
use crate::replication::Replication;
use crate::service_accounts::{AccountLookup, ServiceAccountRegistry, TokenIssuer};
use crate::virtual_storage::{NewMirrors, PublishedCopies, SourceLookup, VirtualStorage};
use crate::virtual_workspaces::ShardAccess;
use crate::workspace_authentication::WorkspaceAuthenticators;
use crate::workspace_owner::{WorkspaceKey, owner_key};
use crate::workspace_types::TypeLookup;
use crate::writes::Writes;

/// The build part of `gitVersion` in `/version`; clients look for `+kcp-`.
const BUILD: &str = concat!("kcp-v0.32.0-fairlead-", env!("CARGO_PKG_VERSION"));

/// The first pause between requests to root's shard while it does not respond.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between these requests.
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(2);

/// The parts of a shard that exist before it starts.
pub(super) struct ShardParts {
    objects: ObjectStore,
    hub: Hub,
    pub(super) global: Arc<GlobalView>,
    clusters: Arc<ClusterIndex>,
    paths: Arc<PathIndex>,
    definitions: Arc<Definitions>,
    dynamic: Arc<DynamicAdmission>,
    types: Arc<TypeLookup>,
    exports: Arc<ExportLookup>,
    pub(super) copies: Arc<PublishedCopies>,
    new_mirrors: NewMirrors,
    storage: VirtualStorage,
    external: Option<Arc<ExternalClusters>>,
    usage: Arc<UsageTracker>,
    issuer: Arc<TokenIssuer>,
    picks: IntCounterVec,
    metrics: Metrics,
    pub(super) authenticators: Arc<Reloadable<Authenticators>>,
    pub(super) request_metrics: RequestMetrics,
    pub(super) api: Arc<ApiServer<ShardHost>>,
    /// Write the events of the audit log.
    pub(super) audit_workers: Vec<AuditWorker>,
}

impl ShardParts {
    /// Assembles the parts. It reads only the indexes from the store.
    pub(super) fn assemble(
        config: &ShardConfig,
        admin_users: Vec<authenticators::TokenUser>,
        objects: &ObjectStore,
        hub: &Hub,
        metrics: &Metrics,
        reloads: &Reloads,
    ) -> Result<Self, ShardError> {
        let broken = |status: fairlead_process::Status| ShardError::Bootstrap(status.to_string());
        let global = GlobalView::new();
        let clusters = ClusterIndex::follow(objects, hub).map_err(broken)?;
        let paths = PathIndex::follow(hub);
        let policies = PolicyIndex::follow(objects.clone(), hub, global.clone());
        let types =
            Arc::new(TypeLookup::new(objects.clone(), clusters.clone(), paths.clone(), global.clone()));
        let exports =
            ExportLookup::follow(objects.clone(), hub, clusters.clone(), paths.clone(), global.clone())
                .map_err(broken)?;
        let dynamic = DynamicAdmission::follow(objects.clone(), hub).map_err(broken)?;
        follow_remote_configurations(hub, &global, &clusters, &dynamic);
        let refusals = metrics.counters(
            "fairlead_shard_quota_refusals_total",
            "Creates refused because of a limit on the number of objects, by kind of limit: resource-quota or logical-cluster.",
            &["limit"],
        )?;
        let default_limit = config.object_limits.total.and_then(|limit| u64::try_from(limit).ok());
        let usage = UsageTracker::follow(objects.clone(), hub, clusters.clone(), default_limit, refusals)
            .map_err(broken)?;
        let issuer = Arc::new(authenticators::token_issuer(config, reloads)?);
        let admission = Arc::new(ShardAdmission::new(
            objects.clone(),
            clusters.clone(),
            types.clone(),
            exports.clone(),
            dynamic.clone(),
            global.clone(),
            usage.clone(),
        ));
        let registry: Arc<dyn Registry> =
            Arc::new(StoreRegistry::new(objects.clone(), hub.clone(), admission.clone()));
        let reviews = Reviews::new();
        let service_accounts: Arc<dyn Registry> = Arc::new(ServiceAccountRegistry {
            stored: registry.clone(),
            objects: objects.clone(),
            admission: admission.clone(),
            issuer: issuer.clone(),
        });
        let stored = registry.clone();
        let review_registry = reviews.clone();
        let built_in = built_in_resources(move |kind| {
            Some(match kind.kind {
                "ServiceAccount" => service_accounts.clone(),
                _ if kind.is_stored() => stored.clone(),
                _ => review_registry.clone(),
            })
        });
        let definitions = Definitions::follow(objects.clone(), hub, registry, built_in)?;
        usage.set_definitions(definitions.clone());
        let (copies, new_mirrors) = PublishedCopies::new();
        let lookup = SourceLookup {
            bindings: definitions.bindings().clone(),
            exports: exports.clone(),
            global: global.clone(),
        };
        let storage = VirtualStorage::new(lookup, copies.clone(), &global);
        definitions.set_virtual_storage(storage.registry());
        let rbac = RbacChain {
            clusters: clusters.clone(),
            policies,
            definitions: definitions.clone(),
            exports: exports.clone(),
            global: global.clone(),
        };
        let access_webhook = access_webhook(config)?;
        let authorizer = Arc::new(Authorizer::new(&config.authorization, rbac, access_webhook));
        admission.set_authorizer(authorizer.clone());
        reviews.set_authorizer(authorizer.clone());
        let external = external_clusters(config)?;
        let accounts = Arc::new(AccountLookup {
            objects: objects.clone(),
            clusters: clusters.clone(),
            external: external.clone(),
        });
        let chain = authenticators::authenticators(config, admin_users, accounts, reloads)?;
        let workspaces = config.authentication.workspaces.then(|| {
            WorkspaceAuthenticators::follow(
                objects.clone(),
                hub,
                &global,
                definitions.clone(),
                clusters.clone(),
                types.clone(),
                external.clone(),
            )
        });
        reviews.set_token_reviewer(TokenReviewer {
            authenticators: chain.clone(),
            workspaces: workspaces.clone(),
            audiences: issuer.audiences.clone(),
        });
        let host = ShardHost {
            clusters: clusters.clone(),
            paths: paths.clone(),
            definitions: definitions.clone(),
            authentication: Authentication::new(chain.clone(), workspaces),
            issuer: issuer.clone(),
            homes: config.home_workspaces.enabled.then(|| HomeWorkspaces {
                objects: objects.clone(),
                definitions: definitions.clone(),
                types: types.clone(),
                shard: config.name.as_str().to_owned(),
            }),
            authorizer,
            metrics: metrics.clone(),
            version: fairlead_apiserver::version_document(BUILD),
        };
        let picks = metrics.counters(
            "fairlead_shard_picks_total",
            "Shards chosen for new workspaces, by source: gateway or random.",
            &["by"],
        )?;
        let address = config.serving.address.to_string();
        let request_metrics = RequestMetrics::new(metrics)?;
        let mut api = ApiServer::new(host, ANNOTATIONS, address, request_metrics.clone());
        let mut audit_workers = Vec::new();
        if let Some((log, workers)) = audit::open(config.audit.as_ref(), AuditMetrics::new(metrics)?)? {
            api = api.with_audit(log);
            audit_workers = workers;
        }
        let api = Arc::new(api);
        Ok(Self {
            objects: objects.clone(),
            hub: hub.clone(),
            global,
            clusters,
            paths,
            definitions,
            dynamic,
            types,
            exports,
            copies,
            new_mirrors,
            storage,
            external,
            usage,
            issuer,
            picks,
            metrics: metrics.clone(),
            authenticators: chain,
            request_metrics,
            api,
            audit_workers,
        })
    }

    /// The access of virtual workspaces to this shard.
    pub(super) fn virtual_workspaces(&self) -> ShardAccess {
        ShardAccess {
            api: self.api.clone(),
            objects: self.objects.clone(),
            types: self.types.clone(),
            exports: self.exports.clone(),
            storage: self.storage.clone(),
        }
    }

    /// The replicas of other shards, if this shard must have read them before it is ready: only at its first start.
    /// Later it starts without the cache server, too.
    pub(super) fn replicas_to_wait_for(
        &self,
        config: &ShardConfig,
    ) -> Result<Option<Arc<GlobalView>>, ShardError> {
        let stored_exports =
            bootstrap::stored_exports(&self.objects).map_err(bootstrap::BootstrapError::from)?;
        Ok((config.cache_kubeconfig.is_some() && stored_exports.is_none()).then(|| self.global.clone()))
    }

    /// Fills the store, registers the shard and starts the controllers.
    pub(super) async fn start(
        self,
        config: ShardConfig,
        cache: Client,
        tasks: Tasks,
        shutdown: Shutdown,
        bootstrapped: ReadyFlag,
    ) -> Result<(), ShardError> {
        bootstrap::system(&self.objects, &self.definitions).await?;
        self.follow_cache(cache.clone(), &tasks, &shutdown);
        let is_root = config.name.is_root();
        let (exports, schemas) =
            if is_root { self.local_exports().await? } else { self.remote_exports(&config).await? };
        self.set_identities(&exports)?;
        bootstrap::shard(&self.objects, &self.definitions, &exports, &schemas).await?;
        if is_root {
            let external_url = config.effective_external_url();
            let settings = bootstrap::ShardSettings {
                shard: config.name.as_str(),
                external_url: external_url.as_str(),
                batteries: &config.batteries,
                home_creators: &config.home_workspaces.creator_groups,
            };
            bootstrap::root(&self.objects, &self.definitions, &exports, &settings).await?;
        }
        self.replicate(&config, cache.clone(), &exports, &tasks, &shutdown)?;
        self.load_paths()?;
        self.register(&config, &tasks, &shutdown).await?;
        self.start_cached_resources(&config, cache.clone(), &tasks, &shutdown);
        self.start_controllers(config, &tasks, &shutdown)?;
        let reading = self.copies.run(cache, self.new_mirrors, shutdown.clone());
        tasks.spawn("copies of bound resources", reading);
        // The indexes contain all of these writes before the first request is served.
        let _ = self.hub.wait(self.objects.store().revision()).await;
        bootstrapped.set();
        tracing::info!("ready");
        Ok(())
    }

    fn follow_cache(&self, client: Client, tasks: &Tasks, shutdown: &Shutdown) {
        let (global, shutdown) = (self.global.clone(), shutdown.clone());
        tasks.spawn("replicas of other shards", async move { global.run(client, shutdown).await });
    }

    fn replicate(
        &self,
        config: &ShardConfig,
        client: Client,
        exports: &RootExports,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        let (objects, hub) = (self.objects.clone(), self.hub.clone());
        let identities = exports.identities();
        let replication =
            Replication::new(config.name.as_str(), objects, hub, &identities, client, &self.metrics)?;
        tasks.spawn("replication", replication.run(shutdown.clone()));
        Ok(())
    }

    async fn local_exports(&self) -> Result<(RootExports, Vec<Value>), ShardError> {
        let exports = bootstrap::root_exports(&self.objects, &self.definitions).await?;
        let schemas = bootstrap::root_schemas(&self.objects).map_err(bootstrap::BootstrapError::from)?;
        Ok((exports, schemas))
    }

    /// The exports that an earlier run stored. Without them, requests root's shard until it responds.
    async fn remote_exports(&self, config: &ShardConfig) -> Result<(RootExports, Vec<Value>), ShardError> {
        let stored_exports =
            bootstrap::stored_exports(&self.objects).map_err(bootstrap::BootstrapError::from)?;
        if let Some((exports, schemas)) = stored_exports.filter(|(exports, _)| exports.is_complete()) {
            return Ok((exports, schemas));
        }
        let client = root_client(config)?;
        let mut pause = FIRST_RETRY_PAUSE;
        loop {
            match fetch_root_exports(&client).await {
                Ok((exports, schemas)) if exports.is_complete() => return Ok((exports, schemas)),
                Ok(_) => tracing::debug!("root's exports are not complete yet"),
                Err(error) => tracing::debug!(%error, "root's shard does not respond yet"),
            }
            // There is no event for the start of root's shard.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
        }
    }

    fn set_identities(&self, exports: &RootExports) -> Result<(), ShardError> {
        self.definitions.set_identities(&exports.identities())?;
        self.exports.set_root(exports.clone());
        if let Some(types) = self.definitions.exported(&WORKSPACE_TYPES) {
            self.types.set_origin(types.origin.clone());
        }
        Ok(())
    }

    fn load_paths(&self) -> Result<(), ShardError> {
        let Some(workspaces) = self.definitions.exported(&WORKSPACES) else { return Ok(()) };
        let all = ScopeSelector::all();
        let loaded = self.objects.for_each(&WORKSPACES, &workspaces.origin, &all, &mut |listed| {
            self.paths.load(listed.scope, listed.object.json());
        });
        loaded.map_err(bootstrap::BootstrapError::from)?;
        Ok(())
    }

    /// Registers this shard and its URLs as a Shard in root.
    async fn register(
        &self,
        config: &ShardConfig,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        let spec = ShardSpec {
            base_url: config.base_url().as_str().to_owned(),
            external_url: config.effective_external_url().as_str().to_owned(),
            virtual_workspace_url: config.effective_virtual_workspace_url().as_str().to_owned(),
        };
        let object = fairlead_api::shard_registration(config.name.as_str(), &spec);
        if config.name.is_root() {
            let mut writes = Writes::new(&self.objects, &self.definitions);
            writes.ensure("root", object).map_err(bootstrap::BootstrapError::from)?;
            writes.commit().await.map_err(bootstrap::BootstrapError::from)?;
            return Ok(());
        }
        let client = root_client(config)?;
        let shutdown = shutdown.clone();
        tasks.spawn("registration", async move {
            let mut pause = FIRST_RETRY_PAUSE;
            while let Err(error) = register_at(&client, &object).await {
                tracing::debug!(%error, "the shard is not registered yet");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = shutdown.draining() => return,
                }
                pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
            }
        });
        Ok(())
    }

    fn start_controllers(
        &self,
        config: ShardConfig,
        tasks: &Tasks,
        shutdown: &Shutdown,
    ) -> Result<(), ShardError> {
        let shard = config.name.as_str().to_owned();
        let shard_name = shard.clone();
        let placement = Arc::new(Placement {
            objects: self.objects.clone(),
            definitions: self.definitions.clone(),
            global: self.global.clone(),
            gateway: pick_client(&config)?,
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

    fn start_cached_resources(
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

/// The client of logical clusters on other shards.
fn external_clusters(config: &ShardConfig) -> Result<Option<Arc<ExternalClusters>>, ShardError> {
    let Some(file) = &config.external_logical_cluster_admin_kubeconfig else { return Ok(None) };
    let external = ExternalClusters::new(file)
        .map_err(|error| ShardError::Kubeconfig { path: file.to_path_buf(), reason: error.to_string() })?;
    Ok(Some(Arc::new(external)))
}

fn access_webhook(config: &ShardConfig) -> Result<Option<AccessWebhook>, ShardError> {
    let Some(webhook) = &config.authorization.webhook else { return Ok(None) };
    AccessWebhook::new(webhook).map(Some).map_err(|error| ShardError::Kubeconfig {
        path: webhook.kubeconfig.to_path_buf(),
        reason: error.to_string(),
    })
}

fn root_client(config: &ShardConfig) -> Result<Client, ShardError> {
    match &config.root_shard_kubeconfig {
        Some(file) => client_of(file, "shard-base"),
        None => Err(ShardError::Bootstrap("rootShardKubeconfig is not set".to_owned())),
    }
}

async fn fetch_root_exports(
    client: &Client,
) -> Result<(RootExports, Vec<Value>), fairlead_client::ClientError> {
    let root = ClusterName::root();
    let items = |list: Value| list["items"].as_array().cloned().unwrap_or_default();
    let exports = client.get_json(&format!("/clusters/{root}/apis/apis.kcp.io/v1alpha2/apiexports")).await?;
    let schemas =
        client.get_json(&format!("/clusters/{root}/apis/apis.kcp.io/v1alpha1/apiresourceschemas")).await?;
    let schemas = items(schemas);
    Ok((RootExports::read(&items(exports), &schemas), schemas))
}

async fn register_at(client: &Client, object: &Value) -> Result<(), fairlead_client::ClientError> {
    let path = "/clusters/root/apis/core.kcp.io/v1alpha1/shards";
    let options = fairlead_client::WriteOptions::default();
    let created: Result<Value, _> = client.create(path, object, &options).await;
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let patch = json!({"spec": object["spec"], "metadata": {"labels": object["metadata"]["labels"]}});
            let kind = fairlead_client::PatchType::Merge;
            let _: Value = client.patch(&format!("{path}/{name}"), kind, &patch, &options).await?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn pick_client(config: &ShardConfig) -> Result<Option<PickClient>, ShardError> {
    let Some(pick) = &config.placement else { return Ok(None) };
    let unusable =
        |path: &std::path::Path, reason: String| ShardError::Kubeconfig { path: path.to_path_buf(), reason };
    let read =
        |path: &std::path::Path| std::fs::read(path).map_err(|error| unusable(path, error.to_string()));
    let roots = fairlead_client::TrustRoots::Pem(read(&pick.server_ca)?);
    let credentials = fairlead_client::Credentials::new(roots)
        .and_then(|credentials| {
            let chain = std::fs::read(&*pick.certificate).unwrap_or_default();
            let key = std::fs::read(&*pick.private_key).unwrap_or_default();
            credentials.with_certificate(&chain, &key)
        })
        .map_err(|error| unusable(&pick.certificate, error.to_string()))?;
    let endpoint = fairlead_client::Endpoint::parse(pick.url.as_str())
        .map_err(|error| unusable(std::path::Path::new(pick.url.as_str()), error.to_string()))?;
    let client = Client::new(endpoint, credentials, fairlead_client::ClientOptions::default());
    Ok(Some(PickClient { client, timeout: pick.timeout.get() }))
}

fn credentials_of(file: &std::path::Path) -> Result<fairlead_client::Credentials, ShardError> {
    let unusable = |reason: String| ShardError::Kubeconfig { path: file.to_path_buf(), reason };
    let kubeconfig = Kubeconfig::load(file).map_err(|error| unusable(error.to_string()))?;
    let context = kubeconfig.resolve(None).map_err(|error| unusable(error.to_string()))?;
    context.credentials(UnverifiedTls::Refuse).map_err(|error| unusable(error.to_string()))
}
