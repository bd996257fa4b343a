//! `fairlead-gateway --config <file>`: the gateway as a process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_config::{ConfigError, GatewayConfig};
use fairlead_gateway::{Environment, Gateway, StartError, follow_configuration};
use fairlead_process::{
    FatalError, LoadError, LoggingError, Metrics, MetricsError, Reloads, Shutdown, TaskFailed, Tasks,
    check_open_files, init_logging, run, signals,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The front door of an installation: finds the shard of a workspace and forwards requests to it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration file; `fairlead config defaults gateway` prints one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("metrics cannot be registered")]
    Metrics(#[from] MetricsError),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for Failure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Start(error) => error.hint(),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| serve(&arguments))
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let config: GatewayConfig = fairlead_config::load(&arguments.config)?;
    init_logging(&config.log)?;
    if let Some(warning) = check_open_files(config.limits.max_connections as u64 * 2).warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(async {
        let metrics = Metrics::new("gateway", env!("CARGO_PKG_VERSION"))?;
        let shutdown = Shutdown::new(&config.drain);
        let environment = Environment {
            reloads: Reloads::new(&metrics)?,
            tasks: Tasks::new(shutdown.clone()),
            metrics,
            shutdown: shutdown.clone(),
        };
        let gateway = Gateway::start(config, &environment)?;
        follow_configuration(gateway, &arguments.config, &environment)?;
        let handled = signals(&shutdown, environment.reloads.trigger()).map_err(Failure::Runtime)?;
        let (tasks, reloads) = (environment.tasks.clone(), environment.reloads.clone());
        tasks.spawn("reloads", reloads.run(shutdown.clone()));
        // Beside the supervisor, because a second signal counts until the very end.
        tokio::select! {
            outcome = tasks.supervise() => Ok(outcome?),
            () = handled => Ok(tasks.supervise().await?),
        }
    })
}
