//! The cache server: connects a store, a watch hub and an API server.

use std::sync::Arc;

use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::{ObjectStore, Registry, StoreRegistry};
use fairlead_apiserver::serve::{Mount, RevisionBarrier};
use fairlead_apiserver::{Admission, ApiServer, RequestMetrics, register_store_metrics, serve};
use fairlead_names::KeyCodec;
use fairlead_process::{ALL_PROBES, BoundServer, Health, Metrics, ServerOptions, Status};
use fairlead_store::{FollowError, Store};

use crate::bootstrap::write_definitions;
use crate::cached_resources::CachedResources;
use crate::definitions::{is_built_in, served_resources};
use crate::host::{CacheAccess, CacheHost, ClientAuthentication};

/// The layout of storage keys, as in kcp.
pub(crate) const KEYS: KeyCodec = KeyCodec::new("/cache", 2, is_built_in);
/// The annotations with the shard and the logical cluster of an object.
const SCOPE_ANNOTATIONS: &[&str] =
    &[fairlead_api::annotation::CACHE_SHARD, fairlead_api::annotation::CLUSTER];

/// A cache server over a store, before it listens.
pub struct CacheServer {
    server: Arc<ApiServer<CacheHost>>,
    hub: Hub,
    health: Health,
    store: Arc<dyn Store>,
    barrier: Option<RevisionBarrier>,
}

impl CacheServer {
    /// Prepares the store and an API server for the clients of `access`. `address` is the server address in discovery
    /// documents. The checks of the store are the caller's.
    ///
    /// # Errors
    /// 500 if the store fails or a metric is registered twice.
    pub async fn new(
        store: Arc<dyn Store>,
        access: CacheAccess,
        health: Health,
        metrics: &Metrics,
        address: String,
    ) -> Result<Self, Status> {
        health.ping(ALL_PROBES);
        register_store_metrics(metrics, Arc::clone(&store)).map_err(Status::internal)?;
        let request_metrics = RequestMetrics::new(metrics).map_err(Status::internal)?;
        let (server, hub) = api_server(Arc::clone(&store), access, metrics, request_metrics, address).await?;
        Ok(Self { server, hub, health, store, barrier: None })
    }

    /// The same beside other cache servers on its store: a request waits until this one has passed the revision that the
    /// client has seen at any of them.
    pub fn with_other_replicas(mut self) -> Self {
        self.barrier = Some(RevisionBarrier::new(Arc::clone(&self.store), self.hub.clone()));
        self
    }

    /// Serves until the shutdown's drain is complete.
    ///
    /// # Errors
    /// [`FollowError`] if the change feed of the store fails. Watches then miss changes, and the process must exit.
    pub async fn run(self, bound: BoundServer, options: ServerOptions) -> Result<(), FollowError> {
        let Self { server, hub, health, barrier, .. } = self;
        tokio::select! {
            () = serve::serve(bound, options, server, health, hub.clone(), Vec::new(), barrier) => Ok(()),
            outcome = hub.run() => outcome,
        }
    }
}

/// A cache server in the process of a shard, on the shard's listener and in the shard's store.
pub struct EmbeddedCache {
    server: Arc<ApiServer<CacheHost>>,
    hub: Hub,
}

impl EmbeddedCache {
    /// The path below which it is served.
    pub const PATH: &'static str = "/services/cache";

    /// Prepares the store and an API server for clients that the shard authenticates.
    ///
    /// # Errors
    /// 500 if the store fails.
    pub async fn new(
        store: Arc<dyn Store>,
        authentication: Arc<dyn ClientAuthentication>,
        metrics: &Metrics,
        request_metrics: RequestMetrics,
        address: String,
    ) -> Result<Self, Status> {
        let access = CacheAccess::of_shard(authentication);
        let (server, hub) = api_server(store, access, metrics, request_metrics, address).await?;
        Ok(Self { server, hub })
    }

    /// Its place on the listener.
    pub fn mount(&self) -> Mount {
        Mount { path: Self::PATH, server: self.server.clone(), hub: Some(self.hub.clone()) }
    }

    /// Delivers changes to watches, as long as the future exists.
    ///
    /// # Errors
    /// [`FollowError`] if the change feed of the store fails; the process must exit then.
    pub async fn run(self) -> Result<(), FollowError> {
        self.hub.run().await
    }
}

async fn api_server(
    store: Arc<dyn Store>,
    access: CacheAccess,
    metrics: &Metrics,
    request_metrics: RequestMetrics,
    address: String,
) -> Result<(Arc<ApiServer<CacheHost>>, Hub), Status> {
    let objects = ObjectStore::new(Arc::clone(&store), KEYS, SCOPE_ANNOTATIONS);
    write_definitions(&objects).await?;
    let hub = Hub::new(store, KEYS, HubOptions::default());
    let registry: Arc<dyn Registry> =
        Arc::new(StoreRegistry::replica(objects.clone(), hub.clone(), Arc::new(NoAdmission)));
    let cached = CachedResources::follow(&objects, &hub, Arc::clone(&registry))?;
    let resources = served_resources(&registry)
        .map_err(|errors| Status::internal(fairlead_schema::aggregate_message(&errors)))?;
    let host = CacheHost::new(access, resources, cached, metrics.clone());
    Ok((Arc::new(ApiServer::new(host, SCOPE_ANNOTATIONS, address, request_metrics)), hub))
}

/// No admission: the shards that write the copies have already run it.
struct NoAdmission;

impl Admission for NoAdmission {}
