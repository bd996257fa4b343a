//! `fairlead bind` and `fairlead claims`: bind APIs of other workspaces and decide on their permission claims, with the
//! output of kcp's kubectl plugin.

mod bind;
mod binding;
mod claim;
mod claims;
mod edit;
mod editor;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use fairlead_client::ClientError;

use crate::connection::ConnectionError;
use crate::output::Output;

pub(crate) use bind::BindCommand;
pub(crate) use claims::ClaimsCommand;

/// Errors of `bind` and `claims`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharingError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("`root:ws:apiexport_object` reference to bind is required as an argument")]
    NoExport,
    #[error(
        "fully qualified reference to workspace where APIExport exists is required. \
         The format is `<logical-cluster-name>:<apiexport>` or `<full>:<path>:<to>:<apiexport>`"
    )]
    ExportWithoutPath,
    #[error("cannot use both --accept-all-permission-claims and --reject-all-permission-claims")]
    AcceptAndRejectAll,
    #[error("cannot use --{all}-all-permission-claims with --{some}-permission-claim")]
    AllAndSome { all: &'static str, some: &'static str },
    #[error("invalid {decision} permission claims: [{}]", .claims.iter().map(|claim| format!("invalid permission claim {claim:?}")).collect::<Vec<_>>().join(" "))]
    Claims { decision: &'static str, claims: Vec<String> },
    #[error("accepted permission claim {0} conflicts with rejected permission claim {0}")]
    Conflict(String),
    #[error("--timeout {0:?} is no duration")]
    Timeout(String),
    #[error("failed to get APIExport {name:?}: {}", message(.source))]
    Export { name: String, source: ClientError },
    #[error("failed to create APIBinding: {}", message(.0))]
    Create(ClientError),
    #[error("could not bind {name} within {timeout}{}", .reason.as_ref().map_or(String::new(), |reason| format!(": {reason}")))]
    NotBound { name: String, timeout: String, reason: Option<String> },
    #[error("could not bind {name}: {}", message(.source))]
    Wait { name: String, source: ClientError },
    #[error("error APIBinding name is missing")]
    NoBinding,
    #[error("error finding APIBinding: {}", message(.0))]
    Find(ClientError),
    #[error("error listing APIBindings in {workspace:?} workspace: {}", message(.source))]
    List { workspace: String, source: ClientError },
    #[error("error updating permission claim for APIBinding {name:?}: {}", message(.source))]
    Update { name: String, source: ClientError },
    #[error("the claims of APIBinding {0:?} to change are not named")]
    NoSelection(String),
    #[error("APIBinding {binding:?} has no claim {claim}, and its APIExport neither")]
    NoClaim { binding: String, claim: String },
    #[error("APIBinding {binding:?} has {count} claims with this identity hash")]
    Ambiguous { binding: String, count: usize },
    #[error("the editor {0:?} cannot be run: {1}")]
    Editor(String, io::Error),
    #[error("the editor {0:?} failed")]
    EditorFailed(String),
    #[error("{}: {source}", path.display())]
    EditedFile { path: PathBuf, source: io::Error },
    #[error("the edited claims are invalid: {reason}")]
    Edited { reason: String, copy: PathBuf },
    #[error("error updating permission claim for APIBinding {name:?}: {}", message(.source))]
    UpdateEdited { name: String, source: ClientError, copy: PathBuf },
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

impl SharingError {
    /// The next step, where there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Connection(error) => error.hint()?,
            Self::NoExport | Self::ExportWithoutPath => {
                "for example `fairlead bind apiexport root:org:my-export`"
            }
            Self::Claims { .. } => {
                "claims are `resource.group`; the group of core resources is `core`: `secrets.core`"
            }
            Self::Timeout(_) => "durations are numbers with a unit, such as `30s` or `1m30s`",
            Self::Create(error) if error.code() == Some(403) => {
                "the workspace of the APIExport has to grant the verb `bind` on it, and this workspace `create` on apibindings"
            }
            Self::Create(error) if error.is_already_exists() => "use another name with --name",
            Self::Export { source, .. } if matches!(source.code(), Some(403 | 404)) => {
                "without the right to read the APIExport, name its claims with --accept-permission-claim"
            }
            Self::Create(error) | Self::Find(error) if is_unserved(error) => UNSERVED,
            Self::List { source, .. } if is_unserved(source) => UNSERVED,
            Self::NotBound { .. } => {
                "the APIBinding is kept and may still be bound; `kubectl describe apibinding` shows its conditions"
            }
            Self::NoBinding => "`fairlead claims get apibinding` lists the claims of all APIBindings",
            Self::NoSelection(_) => "name them with --resource or --identity-hash",
            Self::NoClaim { binding, .. } => {
                return Some(format!("`fairlead claims get apibinding {binding}` lists its claims"));
            }
            Self::Ambiguous { .. } => "name the resource with --resource, too",
            Self::Editor(..) | Self::EditorFailed(_) => "KUBE_EDITOR or EDITOR names the editor",
            Self::Edited { copy, .. } | Self::UpdateEdited { copy, .. } => {
                return Some(format!("the edited claims are in {}", copy.display()));
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

const UNSERVED: &str = "the server must serve apis.kcp.io/v1alpha2";

/// Whether the resource, not the object, is missing.
fn is_unserved(error: &ClientError) -> bool {
    let message = error.status().map_or("", |status| status.message.as_str());
    error.is_not_found() && message.contains("could not find the requested resource")
}

/// The message of the server.
fn message(error: &ClientError) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}

/// Runs a command with the output of the process.
fn run(execute: impl AsyncFnOnce(&mut Output<'_>) -> Result<(), SharingError>) -> Result<(), SharingError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut output = Output { out: &mut out, err: &mut err };
    runtime.map_err(SharingError::Runtime)?.block_on(execute(&mut output))
}
