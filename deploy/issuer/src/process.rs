//! The process: loads the configuration and serves until a signal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use fairlead_config::{IssuerConfig, SlowClientsConfig};
use fairlead_process::{
    ALL_PROBES, AllowedPeers, BoundServer, FatalError, Health, Metrics, ProcessError, Reloads, ServerMetrics,
    ServerOptions, Shutdown, Tasks, TlsSource, check_open_files, init_logging, signals,
};

use crate::key::{KeyError, SigningKey};
use crate::provider::Provider;
use crate::service::IssuerService;
use crate::tokens::TokenSigner;
use crate::users::Users;

/// File descriptors besides those of connections.
const OWN_FILES: u64 = 32;

/// A development issuer without passwords, for this machine.
#[derive(Debug, Parser)]
#[command(name = "fairlead-issuer", version)]
struct Arguments {
    /// The configuration file; `fairlead config defaults issuer` prints a complete one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs the program. An error is printed as one sentence.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    fairlead_process::run(|| start(&arguments.config))
}

/// Errors that end the process.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A reason that other processes have, too.
    #[error(transparent)]
    Process(ProcessError),
    /// The signing key is missing or unusable.
    #[error(transparent)]
    Key(KeyError),
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
            Self::Key(KeyError::Exposed { file, .. }) => Some(format!(
                "run chmod 600 {}, or remove the file; a new key is generated then",
                file.display()
            )),
            Self::Key(KeyError::Unusable { .. }) => Some(
                "move the file away; a new key is generated then, and tokens of the old one become invalid"
                    .to_owned(),
            ),
            Self::Key(KeyError::Io { .. } | KeyError::Generate(_)) => None,
        }
    }
}

fn start(config: &Path) -> Result<(), StartError> {
    let config: IssuerConfig = fairlead_config::load(config)?;
    init_logging(&config.log)?;
    let files = check_open_files(config.limits.max_connections as u64 + OWN_FILES);
    if let Some(warning) = files.warning {
        tracing::warn!("{warning}");
    }
    // One thread is enough for a few sign-ins.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProcessError::System)?;
    runtime.block_on(serve_until_signal(config))
}

async fn serve_until_signal(config: IssuerConfig) -> Result<(), StartError> {
    let metrics = Metrics::new("issuer", env!("CARGO_PKG_VERSION"))?;
    let reloads = Reloads::new(&metrics)?;
    let shutdown = Shutdown::new(&config.drain);
    let tasks = Tasks::new(shutdown.clone());
    let handled = signals(&shutdown, reloads.trigger()).map_err(ProcessError::System)?;
    let tls = TlsSource::https(&config.serving).watch("serving certificate", &reloads)?;
    let file = config.users.to_path_buf();
    let users = reloads.register("users", [file.clone()], move || Users::load(&file))?;
    let key = SigningKey::load_or_create(&config.signing_key).map_err(StartError::Key)?;
    let bound = BoundServer::bind(config.serving.address)?;
    let address = bound.local_addr();
    let health = Health::new();
    health.ping(ALL_PROBES);
    health.shutdown(&shutdown);
    let signer = TokenSigner {
        issuer: format!("https://{address}"),
        client_id: config.client_id.clone(),
        key,
        token_lifetime: config.token_lifetime.get(),
        sign_in_lifetime: config.sign_in_lifetime.get(),
    };
    let provider = Arc::new(Provider::new(signer, users));
    let service = Arc::new(IssuerService::new(provider, health, metrics.clone())?);
    let options = ServerOptions {
        name: "issuer".to_owned(),
        tls,
        limits: config.limits.clone(),
        slow_clients: SlowClientsConfig::default(),
        // The issuer listens on a loopback address only.
        peers: AllowedPeers::default(),
        shutdown: shutdown.clone(),
        metrics: ServerMetrics::new(&metrics)?,
    };
    tasks.spawn("reloads", reloads.run(shutdown));
    let respond = move |request| {
        let service = Arc::clone(&service);
        async move { service.respond(request).await }
    };
    tasks.spawn("listener", bound.serve(options, respond));
    tracing::info!(%address, "serving");
    // In parallel with the supervisor, because a second signal must work until the end.
    tokio::select! {
        outcome = tasks.supervise() => Ok(outcome?),
        never = handled => match never {},
    }
}
