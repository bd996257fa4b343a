//! The cache server: connects a store, a watch hub and an API server.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::{ObjectStore, Registry, StoreRegistry};
use fairlead_apiserver::{Admission, AdmissionRequest, ApiServer, RequestMetrics, serve};
use fairlead_authn::{Chain, ClientCertificateAuthenticator, SharedAuthorities};
use fairlead_names::KeyCodec;
use fairlead_process::{ALL_PROBES, BoundServer, Health, Metrics, Probe, ServerOptions, Status};
use fairlead_store::{FollowError, Mutation, Store};
use serde_json::Value;

use crate::bootstrap::write_definitions;
use crate::definitions::{is_built_in, served_resources};
use crate::host::CacheHost;

/// The layout of storage keys, as in kcp.
const KEYS: KeyCodec = KeyCodec::new("/cache", 2, is_built_in);
/// The annotations with the shard and the logical cluster of an object.
const SCOPE_ANNOTATIONS: &[&str] =
    &[fairlead_api::annotation::CACHE_SHARD, fairlead_api::annotation::CLUSTER];

/// A cache server over a store, before it listens.
pub struct CacheServer {
    server: Arc<ApiServer<CacheHost>>,
    hub: Hub,
    health: Health,
}

impl CacheServer {
    /// Prepares the store and an API server for clients whose certificates `authorities` have signed. `address` is the
    /// server address in discovery documents.
    ///
    /// # Errors
    /// 500 if the store fails or a metric is registered twice.
    pub async fn new(
        store: Arc<dyn Store>,
        authorities: SharedAuthorities,
        health: Health,
        metrics: &Metrics,
        address: String,
    ) -> Result<Self, Status> {
        health.ping(ALL_PROBES);
        let probed = Arc::clone(&store);
        health.check("store", &[Probe::Ready, Probe::Health], move || {
            probed.stats().failure.map_or(Ok(()), Err)
        });
        let objects = ObjectStore::new(Arc::clone(&store), KEYS, SCOPE_ANNOTATIONS);
        write_definitions(&objects).await?;
        let hub = Hub::new(store, KEYS, HubOptions::default());
        let registry: Arc<dyn Registry> =
            Arc::new(StoreRegistry::replica(objects, hub.clone(), Arc::new(NoAdmission)));
        let resources = served_resources(&registry)
            .map_err(|errors| Status::internal(fairlead_schema::aggregate_message(&errors)))?;
        let chain = Chain::builder().with(ClientCertificateAuthenticator::new(authorities)).build();
        let host = CacheHost::new(chain, resources, metrics.clone());
        let request_metrics = RequestMetrics::new(metrics).map_err(Status::internal)?;
        let server = Arc::new(ApiServer::new(host, SCOPE_ANNOTATIONS, address, request_metrics));
        Ok(Self { server, hub, health })
    }

    /// Serves until the shutdown's drain is complete.
    ///
    /// # Errors
    /// [`FollowError`] if the change feed of the store fails. Watches then miss changes, and the process must exit.
    pub async fn run(self, bound: BoundServer, options: ServerOptions) -> Result<(), FollowError> {
        let Self { server, hub, health } = self;
        tokio::select! {
            () = serve::serve(bound, options, server, health, hub.clone()) => Ok(()),
            outcome = hub.run() => outcome,
        }
    }
}

/// No admission: the shards that write the copies have already run it.
struct NoAdmission;

#[async_trait]
impl Admission for NoAdmission {
    async fn mutate(
        &self,
        _write: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Ok(Vec::new())
    }

    async fn validate(
        &self,
        _write: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        Ok(Vec::new())
    }
}
