//! The command line: what there is, and how failures are told.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::certs::{CertsError, CertsInit};
use crate::config::ConfigCommand;
use crate::gateway::{GatewayError, GatewayVerb};
use crate::login::{LoginCommand, LoginError, LogoutCommand};
use crate::site::SiteError;
use crate::status::{StatusCommand, StatusError};
use crate::up::{DownCommand, UpCommand, UpError};
use crate::ws::{Plugin, WsCommand, WsError};

/// Runs the command that the arguments name. Linked or copied as `kubectl-ws` or `kubectl-create-workspace`, the
/// program is that plugin of kubectl.
pub fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let called = arguments.first().map(PathBuf::from).unwrap_or_default();
    if let Some(plugin) = Plugin::called_as(&called) {
        arguments.splice(..1, plugin.spelled_out().iter().map(Into::into));
    }
    let outcome = match Command::parse_from(arguments).verb {
        Verb::Up(up) => up.run().map_err(Failure::from),
        Verb::Down(down) => down.run().map_err(Failure::from),
        Verb::Status(status) => status.run().map_err(Failure::from),
        Verb::Ws(ws) => ws.run().map_err(Failure::from),
        Verb::Gateway(gateway) => match gateway.run() {
            Ok(code) => return code,
            Err(error) => Err(Failure::from(error)),
        },
        Verb::Login(login) => login.run().map_err(Failure::from),
        Verb::Logout(logout) => logout.run().map_err(Failure::from),
        Verb::Certs(CertsVerb::Init(init)) => init.run().map_err(Failure::from),
        Verb::Config { command } => return command.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{}", failure.told());
            ExitCode::FAILURE
        }
    }
}

/// Fairlead: a Kubernetes-like control plane with workspaces spread over shards.
#[derive(Debug, Parser)]
#[command(name = "fairlead", version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a gateway, shards, a cache server and a development issuer here, and keep them running
    Up(UpCommand),
    /// Stop what `up` has started
    Down(DownCommand),
    /// Show processes, doors, shards and workspaces
    Status(StatusCommand),
    /// Go to, make and list workspaces, as kcp's `kubectl ws` does
    Ws(WsCommand),
    /// Check, reload, drain, upgrade and ask a gateway
    #[command(subcommand)]
    Gateway(GatewayVerb),
    /// Sign in at an OpenID issuer and print the token for kubectl
    Login(LoginCommand),
    /// Forget the tokens of earlier sign-ins
    Logout(LogoutCommand),
    /// Certificates
    #[command(subcommand)]
    Certs(CertsVerb),
    /// Configuration files of the servers
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
enum CertsVerb {
    /// Issue what is missing, renew what is near its end, write kubeconfigs
    Init(CertsInit),
}

/// Where an installation on this machine lies unless `--dir` says otherwise.
pub(crate) fn default_directory() -> &'static Path {
    Path::new(".fairlead")
}

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Failure {
    Up(#[from] UpError),
    Site(#[from] SiteError),
    Status(#[from] StatusError),
    Certs(#[from] CertsError),
    Ws(#[from] WsError),
    Gateway(#[from] GatewayError),
    Login(#[from] LoginError),
}

impl Failure {
    /// One sentence and advice, if there is some. `ws` speaks as kcp's plugin does.
    fn told(&self) -> String {
        let hint = match self {
            Self::Ws(error) => return format!("Error: {error}\n"),
            Self::Up(error) => error.hint(),
            Self::Site(error) => error.hint(),
            Self::Status(error) => error.hint(),
            Self::Gateway(error) => error.hint(),
            Self::Login(error) => error.hint(),
            Self::Certs(_) => None,
        };
        let hint = hint.map_or(String::new(), |hint| format!("  hint: {hint}\n"));
        format!("fairlead: {self}\n{hint}")
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Command::command().debug_assert();
    }
}
