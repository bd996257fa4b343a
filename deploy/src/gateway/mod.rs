//! `fairlead gateway`: operates and inspects a gateway.

mod address;
mod admin_client;
mod check;
mod drain;
mod explain;
mod process;
mod reload;
mod tail;
mod top;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use admin_client::AdminClientError;
use check::CheckCommand;
use drain::DrainCommand;
use explain::ExplainCommand;
use process::ProcessError;
use reload::ReloadCommand;
use tail::TailCommand;
use top::TopCommand;
use upgrade::UpgradeCommand;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GatewayVerb {
    /// Load a configuration like the gateway, without listening; exit code 1 on errors
    Check(CheckCommand),
    /// Make a gateway reload its files, and wait until they are in effect
    Reload(ReloadCommand),
    /// Make a gateway drain, and wait until it has ended
    Drain(DrainCommand),
    /// Make a gateway hand its sockets to a new process, and wait until that one is ready
    Upgrade(UpgradeCommand),
    /// Explain step by step how a request would be authenticated and routed
    Explain(ExplainCommand),
    /// Print requests as they complete
    Tail(TailCommand),
    /// Show rates, latency, listeners, shards and busy workspaces, every second
    Top(TopCommand),
}

/// Errors of `fairlead gateway`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    AdminClient(#[from] AdminClientError),
    #[error("the program {}, which checks configurations, is missing", .0.display())]
    NoProgram(PathBuf),
    #[error("the last good configuration stays in effect, because these cannot be loaded: {}", .0.join("; "))]
    NotReloaded(Vec<String>),
    #[error("process {pid} has ended before the operation was complete")]
    Ended { pid: u32 },
    #[error("process {pid} was not upgraded and keeps serving: {reason}")]
    NotUpgraded { pid: u32, reason: String },
}

impl GatewayVerb {
    pub(crate) fn run(&self) -> Result<ExitCode, GatewayError> {
        match self {
            Self::Check(check) => return check.run(),
            Self::Reload(reload) => reload.run()?,
            Self::Drain(drain) => drain.run()?,
            Self::Upgrade(upgrade) => upgrade.run()?,
            Self::Explain(explain) => admin_client::block_on(explain.run())?,
            Self::Tail(tail) => admin_client::block_on(tail.run())?,
            Self::Top(top) => admin_client::block_on(top.run())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl GatewayError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Process(error) => error.hint(),
            Self::AdminClient(error) => error.hint(),
            Self::NoProgram(_) => Some("it must be in the folder of this program".to_owned()),
            Self::NotReloaded(_) => Some(
                "correct the file; it is loaded again within ten seconds, and at the next reload".to_owned(),
            ),
            Self::Ended { .. } => Some("see its log".to_owned()),
            Self::NotUpgraded { .. } => None,
        }
    }
}
