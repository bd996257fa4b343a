//! The process: loads the configuration and serves until a signal arrives.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use fairlead_apiserver::serve;
use fairlead_authn::TrustPurpose;
use fairlead_config::{CacheConfig, ConfigError};
use fairlead_process::{
    AllowedPeers, BindError, BoundServer, FatalError, Health, LoadError, LoggingError, Metrics, MetricsError,
    Reloads, ServerMetrics, ServerOptions, Shutdown, Status, TaskFailed, Tasks, TlsSource, check_open_files,
    init_logging, signals,
};
use fairlead_store::{OpenError, RedbOptions, RedbStore, Store};

use crate::server::CacheServer;

/// File descriptors of the process besides those of connections.
const OWN_FILES: u64 = 64;

/// Serves the objects that all shards share.
#[derive(Debug, Parser)]
#[command(name = "fairlead-cache-server", version)]
struct Arguments {
    /// The configuration file; `fairlead config defaults cache` prints a complete one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Parses the arguments, serves, and prints an error in one sentence.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    fairlead_process::run(|| start(&arguments.config))
}

/// Reasons for which the process cannot start or must exit.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Logging cannot be set up.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The program declares a metric twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A certificate or authority cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[from] OpenError),
    /// The store cannot be prepared.
    #[error("the store cannot be prepared")]
    Prepare(#[source] Status),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses threads or signal handlers.
    #[error("the process cannot be set up")]
    System(#[source] std::io::Error),
    /// A background task failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for StartError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => FatalError::hint(error),
            Self::Bind(error) => error.hint(),
            Self::Store(OpenError::Corrupt { .. }) => Some(
                "a new cache is filled by the shards within seconds: move the file away to start with an empty one"
                    .to_owned(),
            ),
            Self::Store(OpenError::InUse { .. }) => Some("is another cache server running?".to_owned()),
            Self::Logging(_)
            | Self::Metrics(_)
            | Self::Load(_)
            | Self::Store(OpenError::NewerFormat { .. } | OpenError::Io { .. })
            | Self::Prepare(_)
            | Self::System(_)
            | Self::Task(_) => None,
        }
    }
}

fn start(config: &Path) -> Result<(), StartError> {
    let config: CacheConfig = fairlead_config::load(config)?;
    init_logging(&config.log)?;
    let files = check_open_files(config.limits.max_connections as u64 + OWN_FILES);
    if let Some(warning) = files.warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(StartError::System)?;
    runtime.block_on(serve_until_signal(config))
}

async fn serve_until_signal(config: CacheConfig) -> Result<(), StartError> {
    let metrics = Metrics::new("cache", env!("CARGO_PKG_VERSION"))?;
    let reloads = Reloads::new(&metrics)?;
    let shutdown = Shutdown::new(&config.drain);
    let tasks = Tasks::new(shutdown.clone());
    let handled = signals(&shutdown, reloads.trigger()).map_err(StartError::System)?;
    let tls = TlsSource::https(&config.serving).watch("serving certificate", &reloads)?;
    let client_ca = (TrustPurpose::Client, config.client_ca.to_path_buf());
    let authorities = serve::watch_authorities(vec![client_ca], &reloads)?;
    let store = open_store(&config)?;
    // Bind the port after the store is open: clients that connect do not wait for its verification.
    let bound = BoundServer::bind(config.serving.address)?;
    let address = bound.local_addr();
    let health = Health::new();
    let cache =
        CacheServer::new(Arc::clone(&store), authorities, health.clone(), &metrics, address.to_string())
            .await
            .map_err(StartError::Prepare)?;
    health.shutdown(&shutdown);
    let options = ServerOptions {
        name: "cache".to_owned(),
        tls,
        limits: config.limits.clone(),
        slow_clients: config.slow_clients.clone(),
        peers: AllowedPeers::of(&config.peers, "the cache server", &reloads)?,
        shutdown: shutdown.clone(),
        metrics: ServerMetrics::new(&metrics)?,
    };
    tasks.spawn("reloads", reloads.run(shutdown.clone()));
    let every = config.store.compaction_interval.get();
    tasks.spawn_fallible("compaction", serve::compact_periodically(store, every, shutdown));
    tasks.spawn_fallible("listener", cache.run(bound, options));
    tracing::info!(%address, "serving");
    // Concurrent with the supervisor, because a second signal must be handled until the process exits.
    tokio::select! {
        outcome = tasks.supervise() => Ok(outcome?),
        () = handled => Ok(tasks.supervise().await?),
    }
}

/// Opens the store. Blocks while the file is verified, but no other task runs yet.
fn open_store(config: &CacheConfig) -> Result<Arc<dyn Store>, OpenError> {
    let bytes = |size: fairlead_config::ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    let options = RedbOptions {
        cache_bytes: bytes(config.store.cache_size),
        ring_bytes: bytes(config.store.recent_changes_size),
        verify: config.store.verify_at_start,
        ..RedbOptions::default()
    };
    Ok(Arc::new(RedbStore::open(&config.store.path, options)?))
}
