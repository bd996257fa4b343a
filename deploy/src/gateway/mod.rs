//! `fairlead gateway`: what an operator does with a gateway and asks of it, and what came of it.

mod ask;
mod check;
mod drain;
mod explain;
mod process;
mod reach;
mod reload;
mod tail;
mod top;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use ask::AskError;
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
    /// Load a configuration as the gateway would, without listening; exit code 1 if anything is wrong
    Check(CheckCommand),
    /// Have a gateway read its files again, and tell whether they are in force
    Reload(ReloadCommand),
    /// Have a gateway end, and wait until everything that was open has come to its end
    Drain(DrainCommand),
    /// Have a gateway hand its sockets to a new process, and wait until that one serves
    Upgrade(UpgradeCommand),
    /// Tell how a request would be routed, who it would be, and why, step by step
    Explain(ExplainCommand),
    /// Show requests as they end
    Tail(TailCommand),
    /// Show what the gateway is doing, anew every second
    Top(TopCommand),
}

/// A gateway has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the program {} is missing, which checks configurations", .0.display())]
    NoProgram(PathBuf),
    #[error("the last good one is in effect, because this cannot be loaded: {}", .0.join("; "))]
    NotReloaded(Vec<String>),
    #[error("process {pid} has ended before it was done")]
    Ended { pid: u32 },
    #[error("process {pid} goes on as it was: {why}")]
    NotUpgraded { pid: u32, why: String },
}

impl GatewayVerb {
    pub(crate) fn run(&self) -> Result<ExitCode, GatewayError> {
        match self {
            Self::Check(check) => return check.run(),
            Self::Reload(reload) => reload.run()?,
            Self::Drain(drain) => drain.run()?,
            Self::Upgrade(upgrade) => upgrade.run()?,
            Self::Explain(explain) => ask::running(explain.run())?,
            Self::Tail(tail) => ask::running(tail.run())?,
            Self::Top(top) => ask::running(top.run())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl GatewayError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Process(error) => error.hint(),
            Self::Ask(error) => error.hint(),
            Self::NoProgram(_) => Some("it has to lie beside this one".to_owned()),
            Self::NotReloaded(_) => {
                Some("mend it; it is tried again every ten seconds, and at the next reload".to_owned())
            }
            Self::Ended { .. } => Some("its log says why".to_owned()),
            Self::NotUpgraded { .. } => None,
        }
    }
}
