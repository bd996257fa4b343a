//! The command line: the subcommands, and the output of errors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::backup::{BackupCommand, BackupCommandError};
use crate::certs::{CertsError, CertsInit};
use crate::config::ConfigCommand;
use crate::crd::{CrdCommand, CrdError};
use crate::gateway::{GatewayError, GatewayVerb};
use crate::installation::InstallationError;
use crate::login::{LoginCommand, LoginError, LogoutCommand};
use crate::plugin::{KcpCommand, KcpVerb, Plugin};
use crate::restore::{RestoreCommand, RestoreCommandError};
use crate::sharing::{BindCommand, ClaimsCommand, SharingError};
use crate::status::{StatusCommand, StatusError};
use crate::store::{StoreCommand, StoreCommandError};
use crate::up::{DownCommand, EtcdProcess, UpCommand, UpError};
use crate::ws::{WsCommand, WsError};

/// Runs the command in the arguments. Linked or copied as `kubectl-kcp`, `kubectl-ws` or `kubectl-create-workspace`, the
/// program is that kubectl plugin.
pub fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let program = arguments.first().map(PathBuf::from).unwrap_or_default();
    let plugin = Plugin::from_program_name(&program);
    if let Some(plugin) = plugin {
        arguments.splice(..1, plugin.arguments().iter().map(Into::into));
    }
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) => return usage_failure(&error, plugin),
    };
    let outcome = match command.verb {
        Verb::Up(up) => up.run().map_err(Failure::from),
        Verb::Etcd(etcd) => Err(etcd.become_etcd().into()),
        Verb::Down(down) => down.run().map_err(Failure::from),
        Verb::Status(status) => status.run().map_err(Failure::from),
        Verb::Ws(ws) | Verb::Kcp(KcpCommand { verb: KcpVerb::Workspace(ws) }) => {
            ws.run().map_err(Failure::from)
        }
        Verb::Bind(bind) | Verb::Kcp(KcpCommand { verb: KcpVerb::Bind(bind) }) => {
            bind.run().map_err(Failure::from)
        }
        Verb::Claims(claims) | Verb::Kcp(KcpCommand { verb: KcpVerb::Claims(claims) }) => {
            claims.run().map_err(Failure::from)
        }
        Verb::Crd(crd) | Verb::Kcp(KcpCommand { verb: KcpVerb::Crd(crd) }) => {
            crd.run().map_err(Failure::from)
        }
        Verb::Gateway(gateway) => match gateway.run() {
            Ok(code) => return code,
            Err(error) => Err(Failure::from(error)),
        },
        Verb::Login(login) => login.run().map_err(Failure::from),
        Verb::Logout(logout) => logout.run().map_err(Failure::from),
        Verb::Backup(backup) => backup.run().map_err(Failure::from),
        Verb::Restore(restore) => restore.run().map_err(Failure::from),
        Verb::Store(store) => store.run().map_err(Failure::from),
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

/// Prints help, or what is wrong with the arguments. Plugins exit like those of kcp.
fn usage_failure(error: &clap::Error, plugin: Option<Plugin>) -> ExitCode {
    // Nothing can be reported if the output is closed.
    let _ = error.print();
    match plugin {
        Some(_) if error.use_stderr() => ExitCode::FAILURE,
        _ => u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
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
    /// Become the etcd of `up --store etcd`
    #[command(hide = true)]
    Etcd(EtcdProcess),
    /// Stop the processes that `up` has started
    Down(DownCommand),
    /// Show processes, listeners, shards and workspaces
    Status(StatusCommand),
    /// Enter, create and list workspaces, like kcp's `kubectl ws`
    Ws(WsCommand),
    /// Bind the API of another workspace, like kcp's `kubectl kcp bind`
    Bind(BindCommand),
    /// Show, accept and reject permission claims, like kcp's `kubectl kcp claims`
    Claims(ClaimsCommand),
    /// Convert CRDs to APIResourceSchemas, like kcp's `kubectl kcp crd`
    Crd(CrdCommand),
    /// The commands of kcp's `kubectl kcp`
    #[command(hide = true)]
    Kcp(KcpCommand),
    /// Operate and inspect a gateway
    #[command(subcommand)]
    Gateway(GatewayVerb),
    /// Sign in at an OpenID issuer and print the token for kubectl
    Login(LoginCommand),
    /// Delete the tokens of earlier sign-ins
    Logout(LogoutCommand),
    /// Back up shards or a workspace while they are served
    Backup(BackupCommand),
    /// Make the store of a shard from a backup, put a workspace back, or verify a backup
    Restore(RestoreCommand),
    /// Carry the store of a shard from a file into an etcd, or back
    Store(StoreCommand),
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
    Sharing(#[from] SharingError),
    Crd(#[from] CrdError),
    Gateway(#[from] GatewayError),
    Backup(#[from] BackupCommandError),
    Restore(#[from] RestoreCommandError),
    Store(#[from] StoreCommandError),
    Login(#[from] LoginError),
}

impl Failure {
    /// The message and its hint. Commands of kcp's plugins print errors like these.
    fn message(&self) -> String {
        let mut program = "fairlead";
        let hint = match self {
            Self::Ws(error) => return format!("Error: {error}\n"),
            Self::Sharing(error) => {
                program = "error";
                error.hint()
            }
            Self::Crd(error) => {
                program = "error";
                error.hint().map(str::to_owned)
            }
            Self::Up(error) => error.hint(),
            Self::Installation(error) => error.hint(),
            Self::Status(error) => error.hint(),
            Self::Gateway(error) => error.hint(),
            Self::Backup(error) => error.hint(),
            Self::Restore(error) => error.hint(),
            Self::Store(error) => error.hint(),
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
