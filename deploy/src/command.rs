//! The command line: the subcommands, and the output of errors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::certs::{CertsError, CertsInit};
use crate::config::ConfigCommand;
use crate::crd::{CrdCommand, CrdError};
use crate::gateway::{GatewayError, GatewayVerb};
use crate::installation::InstallationError;
use crate::login::{LoginCommand, LoginError, LogoutCommand};
use crate::status::{StatusCommand, StatusError};
use crate::up::{DownCommand, UpCommand, UpError};
use crate::ws::{Plugin, WsCommand, WsError};

/// Runs the command in the arguments. Linked or copied as `kubectl-ws` or `kubectl-create-workspace`, the program is that
/// kubectl plugin.
pub fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let program = arguments.first().map(PathBuf::from).unwrap_or_default();
    if let Some(plugin) = Plugin::from_program_name(&program) {
        arguments.splice(..1, plugin.arguments().iter().map(Into::into));
    }
    let outcome = match Command::parse_from(arguments).verb {
        Verb::Up(up) => up.run().map_err(Failure::from),
        Verb::Down(down) => down.run().map_err(Failure::from),
        Verb::Status(status) => status.run().map_err(Failure::from),
        Verb::Ws(ws) => ws.run().map_err(Failure::from),
        Verb::Crd(crd) => crd.run().map_err(Failure::from),
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
            eprint!("{}", failure.message());
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
    /// Start a gateway, shards, a cache server and a development issuer on this machine
    Up(UpCommand),
    /// Stop the processes that `up` has started
    Down(DownCommand),
    /// Show processes, listeners, shards and workspaces
    Status(StatusCommand),
    /// Enter, create and list workspaces, like kcp's `kubectl ws`
    Ws(WsCommand),
    /// Convert CRDs to APIResourceSchemas, like kcp's `kubectl kcp crd`
    Crd(CrdCommand),
    /// Operate and inspect a gateway
    #[command(subcommand)]
    Gateway(GatewayVerb),
    /// Sign in at an OpenID issuer and print the token for kubectl
    Login(LoginCommand),
    /// Delete the tokens of earlier sign-ins
    Logout(LogoutCommand),
    /// Manage certificates
    #[command(subcommand)]
    Certs(CertsVerb),
    /// Print and check configuration files of the servers
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
enum CertsVerb {
    /// Issue missing certificates, renew expiring ones, write kubeconfigs
    Init(CertsInit),
}

/// The error of a command.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Failure {
    Up(#[from] UpError),
    Installation(#[from] InstallationError),
    Status(#[from] StatusError),
    Certs(#[from] CertsError),
    Ws(#[from] WsError),
    Crd(#[from] CrdError),
    Gateway(#[from] GatewayError),
    Login(#[from] LoginError),
}

impl Failure {
    /// The message and its hint. Commands of kcp's plugins print errors like these.
    fn message(&self) -> String {
        let mut program = "fairlead";
        let hint = match self {
            Self::Ws(error) => return format!("Error: {error}\n"),
            Self::Crd(error) => {
                program = "error";
                error.hint().map(str::to_owned)
            }
            Self::Up(error) => error.hint(),
            Self::Installation(error) => error.hint(),
            Self::Status(error) => error.hint(),
            Self::Gateway(error) => error.hint(),
            Self::Login(error) => error.hint(),
            Self::Certs(_) => None,
        };
        let hint = hint.map_or(String::new(), |hint| format!("  hint: {hint}\n"));
        format!("{program}: {self}\n{hint}")
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
