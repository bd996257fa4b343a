//! The shard process: `fairlead-shard --config <file>`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_config::{ConfigError, ShardConfig};
use fairlead_process::{FatalError, LoggingError, check_open_files, init_logging};
use fairlead_shard::ShardError;

/// A shard of an installation: serves its logical clusters and manages the life cycle of workspaces.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration file; `fairlead config defaults shard` prints one.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Shard(#[from] ShardError),
}

impl FatalError for Failure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Shard(error) => error.hint(),
            Self::Logging(_) | Self::Runtime(_) => None,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    fairlead_process::run(|| serve(&arguments))
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let config: ShardConfig = fairlead_config::load(&arguments.config)?;
    init_logging(&config.log)?;
    if let Some(warning) = check_open_files(config.limits.max_connections as u64 * 2).warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(fairlead_shard::run(config))?;
    Ok(())
}
