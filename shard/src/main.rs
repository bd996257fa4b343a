//! The shard process: `fairlead-shard --config <file>`, or `fairlead-shard start` with kcp's flags.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_config::flags::{FlagError, ShardArguments, ShardFlags};
use fairlead_config::{ConfigError, ShardConfig};
use fairlead_process::{FatalError, LoggingError, check_open_files, init_logging};
use fairlead_shard::ShardError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A shard of an installation: serves its logical clusters and manages the life cycle of workspaces.
///
/// `fairlead-shard start` takes the flags of `kcp start` in place of a configuration file; `fairlead-shard start options`
/// lists them.
#[derive(Parser)]
#[command(name = "fairlead-shard", version)]
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
    Flags(#[from] FlagError),
    #[error("the root directory cannot be used")]
    Files(#[from] fairlead_certs::Error),
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
            Self::Flags(_) => Some("`fairlead-shard start options` lists all flags".to_owned()),
            Self::Files(_) | Self::Logging(_) | Self::Runtime(_) => None,
        }
    }
}

fn main() -> ExitCode {
    // Arguments that are not UTF-8 are neither a flag nor an existing file.
    let mut arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    if arguments.next().is_some_and(|first| first == "start") {
        return match ShardFlags::parse(env!("CARGO_PKG_VERSION"), arguments) {
            Ok(ShardArguments::Text(text)) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Ok(ShardArguments::Flags(flags)) => fairlead_process::run(|| start(*flags)),
            Err(error) => fairlead_process::run(|| Err(Failure::from(error))),
        };
    }
    let arguments = Arguments::parse();
    fairlead_process::run(|| serve(fairlead_config::load(&arguments.config)?, &[]))
}

fn start(flags: ShardFlags) -> Result<(), Failure> {
    fairlead_shard::create_files(&flags)?;
    serve(flags.config, &flags.warnings)
}

fn serve(config: ShardConfig, warnings: &[String]) -> Result<(), Failure> {
    init_logging(&config.log)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = check_open_files(config.limits.max_connections as u64 * 2).warning {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(fairlead_shard::run(config))?;
    Ok(())
}
