//! The shard process: opens the store, assembles the parts, serves, and drains.

mod administrators;
mod assembly;
mod audit;
mod authenticators;
mod cache;
mod clients;
mod controllers;
mod leadership;
mod start;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::register_store_metrics;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::registry::is_built_in;
use fairlead_apiserver::serve::{Mount, RevisionBarrier, compact_periodically, serve};
use fairlead_cache::EmbeddedCache;
use fairlead_config::ShardConfig;
use fairlead_names::KeyCodec;
use fairlead_process::{
    ALL_PROBES, AllowedPeers, BindError, BoundServer, FatalError, Health, LoadError, Metrics, MetricsError,
    Probe, Reloads, ServerMetrics, ServerOptions, Shutdown, TaskFailed, Tasks, TlsSource, signals,
};
use fairlead_schema::FieldError;
use fairlead_server_store::{OpenedStore, StoreError, StoreUser, check_store};
use fairlead_store::{FollowError, OpenError, RetainedRevisions, Store};

use crate::bootstrap::BootstrapError;
use crate::index::DefinitionsError;

use administrators::{AdministratorError, Administrators};
use assembly::ShardParts;
use cache::LoopbackToken;

/// The layout of a shard's keys.
const CODEC: KeyCodec = KeyCodec::new("/registry", 1, is_built_in);
/// The annotation with an object's logical cluster.
const ANNOTATIONS: &[&str] = &[fairlead_api::annotation::CLUSTER];

/// The reason why a shard does not start or stops.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The files of administrators cannot be used.
    #[error(transparent)]
    Administrators(#[from] AdministratorError),
    /// The audit policy or log cannot be used.
    #[error("{0}")]
    Audit(String),
    /// The address is in use.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The store could not be filled at start.
    #[error("the shard cannot be set up: {0}")]
    Bootstrap(String),
    /// The shard cannot be a client of itself, which the embedded cache server needs.
    #[error("the embedded cache server cannot be reached: {reason}")]
    Loopback {
        /// The reason.
        reason: String,
    },
    /// A kubeconfig cannot be used.
    #[error("{} cannot be used: {reason}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A metric is registered twice.
    #[error("metrics cannot be registered")]
    Metrics(#[from] MetricsError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A compiled-in schema does not compile: a bug.
    #[error("a compiled-in schema is invalid: {0}")]
    Schema(String),
    /// Signals cannot be handled.
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
    /// A background task failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for ShardError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Administrators(error) => error.hint(),
            Self::Bind(error) => error.hint(),
            Self::Store(StoreError::File(OpenError::InUse { .. })) => {
                Some("another shard runs on this store: stop it first".to_owned())
            }
            Self::Store(StoreError::File(OpenError::Corrupt { .. })) => {
                Some("restore it from a backup; nothing was changed".to_owned())
            }
            Self::Store(error) => error.hint(),
            Self::Task(error) => error.hint(),
            _ => None,
        }
    }
}

impl From<BootstrapError> for ShardError {
    fn from(error: BootstrapError) -> Self {
        Self::Bootstrap(error.to_string())
    }
}

impl From<DefinitionsError> for ShardError {
    fn from(error: DefinitionsError) -> Self {
        match error {
            DefinitionsError::Schema(errors) => errors.into(),
            DefinitionsError::Store(status) => Self::Bootstrap(status.to_string()),
        }
    }
}

impl From<Vec<FieldError>> for ShardError {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::Schema(fairlead_schema::aggregate_message(&errors))
    }
}

/// Runs a shard until a signal ends it.
///
/// # Errors
/// [`ShardError`], with a hint where there is one.
pub async fn run(config: ShardConfig) -> Result<(), ShardError> {
    let metrics = Metrics::new("shard", env!("CARGO_PKG_VERSION"))?;
    let shutdown = Shutdown::new(&config.drain);
    let tasks = Tasks::new(shutdown.clone());
    let reloads = Reloads::new(&metrics)?;
    let mut handled = pin!(signals(&shutdown, reloads.trigger()).map_err(ShardError::Signals)?);

    let owner = format!("shard {}", config.name.as_str());
    let trust = [&config.trust.client_ca, &config.trust.request_header_ca];
    let authorities: Vec<_> = trust.into_iter().flatten().map(|file| file.to_path_buf()).collect();
    let user = StoreUser {
        owner: &owner,
        replica: config.replica_name.as_deref(),
        authorities: &authorities,
        root: CODEC.prefix(),
    };
    let opened = OpenedStore::open_until_shutdown(&config.store, user, &shutdown, handled.as_mut()).await?;
    let Some(opened) = opened else { return Ok(()) };
    let store: Arc<dyn Store> = opened.store();
    register_store_metrics(&metrics, store.clone())?;
    // After the store's lock is held: a second process on the same files must not replace the tokens of the first.
    let administrators = Administrators::create(&config)?;
    let mut admin_users = administrators.as_ref().map(Administrators::users).unwrap_or_default();
    let loopback = LoopbackToken::new();
    if config.cache_kubeconfig.is_none() {
        admin_users.push(loopback.user());
    }
    let objects = ObjectStore::new(store.clone(), CODEC, ANNOTATIONS);
    let hub = Hub::new(store.clone(), CODEC, HubOptions::default());

    let health = Health::new();
    health.ping(ALL_PROBES);
    check_store(&health, &store, &config.store);
    let bootstrapped = health.flag("poststarthook/kcp-start", &[Probe::Ready, Probe::Health]);

    let mut parts = ShardParts::assemble(&config, admin_users, &objects, &hub, &metrics, &reloads)?;
    if let Some(replicas) = parts.replicas_to_wait_for(&config)? {
        health.check("informer-sync/cache", &[Probe::Ready], move || {
            if replicas.is_synced() { Ok(()) } else { Err("the cache server was not read yet".to_owned()) }
        });
    }
    health.shutdown(&shutdown);
    let embedded_cache = cache::embed(&config, &parts, &store, &metrics).await?;

    let tls = TlsSource::https(&config.serving).with_server_policy(&config.tls);
    let tls = tls.watch("serving certificate", &reloads)?;
    let server = BoundServer::bind(config.serving.address)?;
    if let Some(administrators) = &administrators {
        administrators.write_files(config.base_url().as_str(), &config.serving.certificate)?;
    }
    let options = ServerOptions {
        name: "shard".to_owned(),
        tls,
        limits: config.limits.clone(),
        slow_clients: config.slow_clients.clone(),
        peers: AllowedPeers::of(&config.peers, "the shard", &reloads)?,
        shutdown: shutdown.clone(),
        metrics: ServerMetrics::new(&metrics)?,
    };
    tracing::info!(shard = %config.name, address = %server.local_addr(), "listening");
    // The hub and the audit log run until the last watch has ended.
    let (served, mut all_served) = tokio::sync::broadcast::channel::<()>(1);
    for worker in parts.audit_workers.drain(..) {
        let mut all_served = served.subscribe();
        tasks.spawn("audit log", worker.run(async move { _ = all_served.recv().await }));
    }
    let mut mounts: Vec<_> = embedded_cache.as_ref().map(EmbeddedCache::mount).into_iter().collect();
    let mut virtual_workspaces = parts.virtual_workspaces().into_workspaces();
    if config.virtual_workspaces_for_masters_only {
        virtual_workspaces = virtual_workspaces.for_masters_only();
    }
    // All other watches of virtual workspaces are those of the shard's hub.
    mounts.push(Mount { hub: Some(parts.copies.hub().clone()), ..virtual_workspaces.mount() });
    let barrier = RevisionBarrier::new(store.clone(), hub.clone());
    let serving = serve(server, options, parts.api.clone(), health, hub.clone(), mounts, Some(barrier));
    tasks.spawn("server", async move {
        serving.await;
        drop(served);
    });
    tasks.spawn("reloads", reloads.run(shutdown.clone()));
    let (following, copies) = (hub.clone(), parts.copies.clone());
    let copy_store = copies.store();
    tasks.spawn_fallible("watch hub", async move {
        tokio::select! {
            ended = following.run() => ended,
            ended = follow_cache(embedded_cache) => ended,
            ended = copies.hub().run() => ended,
            _ = all_served.recv() => Ok(()),
        }
    });
    let interval = config.store.compaction_interval.get();
    let compaction = compact_periodically(store, interval, parts.retained.clone(), shutdown.clone());
    tasks.spawn_fallible("compaction", compaction);
    let compaction =
        compact_periodically(copy_store, interval, RetainedRevisions::default(), shutdown.clone());
    tasks.spawn_fallible("compaction of copies", compaction);

    let cache = cache::client(&config, &loopback)?;
    let election = opened.election();
    let starting = parts.start(config, cache, election, tasks.clone(), shutdown.clone(), bootstrapped);
    let started = async {
        tokio::select! {
            started = starting => started,
            () = shutdown.draining() => Ok(()),
        }
    };
    let supervised = tasks.clone();
    let running = async {
        started.await?;
        Ok(supervised.supervise().await?)
    };
    let outcome = tokio::select! {
        outcome = opened.run_until_failure(&shutdown, running, ShardError::Store) => outcome,
        never = handled => match never {},
    };
    opened.close().await;
    outcome
}

/// Delivers changes to the watches of the embedded cache server, if there is one.
async fn follow_cache(embedded_cache: Option<EmbeddedCache>) -> Result<(), FollowError> {
    match embedded_cache {
        Some(cache) => cache.run().await,
        None => std::future::pending().await,
    }
}
