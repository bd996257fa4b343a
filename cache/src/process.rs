//! The process: takes the configuration from a file or from kcp's flags, and serves until a signal arrives.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use fairlead_apiserver::serve;
use fairlead_authn::TrustPurpose;
use fairlead_certs::{Host, create_private_folder, write_serving_chain};
use fairlead_config::CacheConfig;
use fairlead_config::flags::{CacheArguments, CacheFlags, FlagError};
use fairlead_process::{
    AllowedPeers, BoundServer, FatalError, Health, Metrics, ProcessError, Reloads, ServerMetrics,
    ServerOptions, Shutdown, Status, Tasks, TlsSource, check_open_files, init_logging, signals,
};
use fairlead_server_store::{OpenedStore, StoreError, StoreUser, check_store};
use fairlead_store::{OpenError, RetainedRevisions};

use crate::host::CacheAccess;
use crate::leadership::Leadership;
use crate::server::{CacheServer, KEYS};

/// The owner of a prefix of etcd: cache servers of one installation share it, and a shard refuses it.
const OWNER: &str = "cache";
/// File descriptors of the process besides those of connections.
const OWN_FILES: u64 = 64;

/// Parses the arguments, serves, and prints an error in one sentence.
pub fn main() -> ExitCode {
    // Arguments that are not UTF-8 are neither a flag nor an existing file.
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match CacheFlags::parse(env!("CARGO_PKG_VERSION"), arguments) {
        Ok(CacheArguments::Text(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        parsed => fairlead_process::run(|| match parsed.map_err(StartError::Flags)? {
            CacheArguments::Flags(flags) => {
                create_files(&flags).map_err(StartError::Files)?;
                start(flags.config, &flags.warnings)
            }
            CacheArguments::File(file) => start(fairlead_config::load(&file)?, &[]),
            CacheArguments::Text(_) => Ok(()),
        }),
    }
}

/// Creates the root directory, and the certificate that no flag names, if they do not exist yet.
fn create_files(flags: &CacheFlags) -> Result<(), fairlead_certs::Error> {
    create_private_folder(&flags.root_directory)?;
    if let Some(folder) = flags.config.store.path.parent() {
        create_private_folder(folder)?;
    }
    let Some(files) = &flags.self_signed else { return Ok(()) };
    if files.certificate.exists() && files.private_key.exists() {
        return Ok(());
    }
    let mut hosts = vec![Host::Name("localhost".to_owned()), Host::Address([127, 0, 0, 1].into())];
    let address = Host::Address(flags.config.serving.address.ip());
    if !flags.config.serving.address.ip().is_unspecified() && !hosts.contains(&address) {
        hosts.push(address);
    }
    write_serving_chain(&files.certificate, &files.private_key, &hosts)
}

/// Reasons for which the process cannot start or must exit.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A reason that other processes have, too.
    #[error(transparent)]
    Process(ProcessError),
    /// The command line cannot be used.
    #[error(transparent)]
    Flags(FlagError),
    /// The root directory cannot be used.
    #[error("the root directory cannot be used")]
    Files(#[source] fairlead_certs::Error),
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[source] StoreError),
    /// The store has failed while the process was running.
    #[error("the store has failed")]
    StoreFailed(#[source] StoreError),
    /// The store cannot be prepared.
    #[error("the store cannot be prepared")]
    Prepare(#[source] Status),
}

impl<E> From<E> for StartError
where
    ProcessError: From<E>,
{
    fn from(error: E) -> Self {
        Self::Process(error.into())
    }
}

impl FatalError for StartError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Process(error) => error.hint(),
            Self::Flags(_) => Some("`fairlead-cache-server --help` lists all flags".to_owned()),
            Self::Store(StoreError::File(OpenError::Corrupt { .. })) => Some(
                "a new cache is filled by the shards within seconds: move the file away to start with an empty one"
                    .to_owned(),
            ),
            Self::Store(StoreError::File(OpenError::InUse { .. })) => {
                Some("is another cache server running?".to_owned())
            }
            Self::Store(error) | Self::StoreFailed(error) => error.hint(),
            Self::Files(_) | Self::Prepare(_) => None,
        }
    }
}

fn start(config: CacheConfig, warnings: &[String]) -> Result<(), StartError> {
    init_logging(&config.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let files = check_open_files(config.limits.max_connections as u64 + OWN_FILES);
    if let Some(warning) = files.warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ProcessError::System)?;
    runtime.block_on(serve_until_signal(config))
}

async fn serve_until_signal(config: CacheConfig) -> Result<(), StartError> {
    let metrics = Metrics::new("cache", env!("CARGO_PKG_VERSION"))?;
    let reloads = Reloads::new(&metrics)?;
    let shutdown = Shutdown::new(&config.drain);
    let tasks = Tasks::new(shutdown.clone());
    let mut handled = pin!(signals(&shutdown, reloads.trigger()).map_err(ProcessError::System)?);
    let tls = TlsSource::https(&config.serving).with_server_policy(&config.tls);
    let tls = tls.watch("serving certificate", &reloads)?;
    let client_ca = (TrustPurpose::Client, config.client_ca.to_path_buf());
    let authorities = serve::watch_authorities(vec![client_ca], &reloads)?;
    let access = CacheAccess::of_certificates(authorities, &config);
    let settings = config.effective_store();
    let authorities = [config.client_ca.to_path_buf()];
    let user = StoreUser {
        owner: OWNER,
        replica: config.replica_name.as_deref(),
        authorities: &authorities,
        root: KEYS.prefix(),
    };
    let opened = OpenedStore::open_until_shutdown(&settings, user, &shutdown, handled.as_mut()).await;
    let Some(opened) = opened.map_err(StartError::Store)? else { return Ok(()) };
    let store = opened.store();
    // Bind the port after the store is open: clients that connect do not wait for its verification.
    let bound = BoundServer::bind(config.serving.address)?;
    let address = bound.local_addr();
    let health = Health::new();
    check_store(&health, &store, &settings);
    let leadership = Leadership::new(opened.election(), &metrics)?;
    let cache = CacheServer::new(Arc::clone(&store), access, health.clone(), &metrics, address.to_string())
        .await
        .map_err(StartError::Prepare)?;
    let cache = if settings.etcd.is_used() { cache.with_other_replicas() } else { cache };
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
    tasks.spawn("leadership", leadership.run(shutdown.clone()));
    let every = settings.compaction_interval.get();
    let retained = RetainedRevisions::default();
    tasks.spawn_fallible("compaction", serve::compact_periodically(store, every, retained, shutdown.clone()));
    tasks.spawn_fallible("listener", cache.run(bound, options));
    tracing::info!(%address, "serving");
    // Concurrent with the supervisor, because a second signal must be handled until the process exits.
    let running = async { tasks.supervise().await.map_err(StartError::from) };
    let outcome = tokio::select! {
        outcome = opened.run_until_failure(&shutdown, running, StartError::StoreFailed) => outcome,
        never = handled => match never {},
    };
    opened.close().await;
    outcome
}
