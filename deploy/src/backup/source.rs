//! The servers that a backup is requested from.

use fairlead_certs::Client as Identity;
use fairlead_client::{Client, ClientOptions, Kubeconfig, UnverifiedTls};
use fairlead_names::WorkspacePath;

use super::{BackupCommand, BackupCommandError};
use crate::installation::{Installation, SavedState};
use crate::up::client;
use crate::ws::workspace_of;

/// The endpoint of shards and workspaces.
pub(super) const BACKUP: &str = "/backup";

/// A backup to request.
pub(super) struct Source {
    /// The shard or the workspace.
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) path: String,
}

/// The backups that a command asks for.
pub(super) fn sources(command: &BackupCommand) -> Result<Vec<Source>, BackupCommandError> {
    let workspace = command.workspace.as_deref().map(parse_workspace).transpose()?;
    match &command.kubeconfig {
        Some(file) => {
            let context = Kubeconfig::load(file)?.resolve(command.context.as_deref())?;
            let prefix = context.endpoint.prefix();
            let base = workspace_of(prefix).map_or(prefix, |(base, _)| base).to_owned();
            let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default())?;
            let client = client.with_prefix(&base);
            Ok(vec![match workspace {
                Some(workspace) => of_workspace(&workspace, client),
                None => Source { name: "shard".to_owned(), client, path: BACKUP.to_owned() },
            }])
        }
        None => of_installation(command, workspace),
    }
}

fn of_installation(
    command: &BackupCommand,
    workspace: Option<WorkspacePath>,
) -> Result<Vec<Source>, BackupCommandError> {
    let installation = Installation::at(&command.dir)?;
    let running = installation.running_up()?.is_some();
    let state = installation.read_state().filter(|_| running);
    let state = state.ok_or_else(|| BackupCommandError::NotRunning(installation.directory().to_owned()))?;
    let certificates = installation.certificates();
    if let Some(workspace) = workspace {
        let gateway = client(&state.gateway, &Identity::Admin, &certificates)?;
        return Ok(vec![of_workspace(&workspace, gateway)]);
    }
    let shards = selected(command, &state)?;
    let source = |(name, url): (String, String)| {
        let client = client(&url, &Identity::ShardAdmin, &certificates)?;
        Ok(Source { name, client, path: BACKUP.to_owned() })
    };
    shards.into_iter().map(source).collect()
}

/// Names and URLs of the shards to back up.
fn selected(
    command: &BackupCommand,
    state: &SavedState,
) -> Result<Vec<(String, String)>, BackupCommandError> {
    let is_shard = |name: &str| !matches!(name, "gateway" | "cache" | "issuer" | "etcd");
    let shards = state.processes.iter().filter(|process| is_shard(&process.name));
    let mut shards: Vec<_> = shards.map(|process| (process.name.clone(), process.url.clone())).collect();
    let names = || shards.iter().map(|(name, _)| name.clone()).collect();
    match &command.shard {
        Some(wanted) if !shards.iter().any(|(name, _)| name == wanted) => {
            return Err(BackupCommandError::UnknownShard { name: wanted.clone(), shards: names() });
        }
        Some(wanted) => shards.retain(|(name, _)| name == wanted),
        None if command.all || shards.len() == 1 => {}
        None => return Err(BackupCommandError::SeveralShards(names())),
    }
    Ok(shards)
}

fn of_workspace(workspace: &WorkspacePath, client: Client) -> Source {
    Source { name: workspace.to_string(), client, path: format!("/clusters/{workspace}{BACKUP}") }
}

/// A path from the top, with or without a colon before it.
fn parse_workspace(text: &str) -> Result<WorkspacePath, BackupCommandError> {
    let path = text.strip_prefix(':').unwrap_or(text);
    WorkspacePath::parse(path).map_err(|_| BackupCommandError::Workspace(text.to_owned()))
}
