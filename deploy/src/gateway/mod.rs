//! `fairlead gateway`: asks a running gateway, as an operator.

mod explain;
mod reach;
mod tail;
mod top;

use std::io;
use std::path::PathBuf;

use clap::Subcommand;
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};

use crate::site::SiteError;
use crate::up::ProbeError;
use explain::ExplainCommand;
use tail::TailCommand;
use top::TopCommand;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GatewayVerb {
    /// Tell how a request would be routed, who it would be, and why, step by step
    Explain(ExplainCommand),
    /// Show requests as they end
    Tail(TailCommand),
    /// Show what the gateway is doing, anew every second
    Top(TopCommand),
}

/// Why the gateway could not be asked, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error(transparent)]
    Credentials(#[from] ProbeError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    OfKubeconfig(#[from] CredentialsError),
    #[error("the gateway: {0}")]
    Ask(#[from] ClientError),
    #[error("the gateway does not answer as expected: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("cannot prepare to run: {0}")]
    Runtime(io::Error),
    #[error("{} cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} holds neither a certificate, a token nor a kubeconfig with one", .0.display())]
    NoCredential(PathBuf),
    #[error("{0:?} is no header: it has to be \"Name: value\"")]
    Header(String),
}

impl GatewayVerb {
    pub(crate) fn run(&self) -> Result<(), GatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(GatewayError::Runtime)?;
        match self {
            Self::Explain(explain) => runtime.block_on(explain.run()),
            Self::Tail(tail) => runtime.block_on(tail.run()),
            Self::Top(top) => runtime.block_on(top.run()),
        }
    }
}

impl GatewayError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Site(error) => error.hint(),
            Self::NotRunning(_) => Some(
                "`fairlead up` starts it; --kubeconfig names an operator's kubeconfig of a gateway somewhere else"
                    .to_owned(),
            ),
            Self::Ask(ClientError::Status(status)) if matches!(status.code, 401 | 403) => {
                Some("this is for operators: members of the group system:kcp:admin".to_owned())
            }
            Self::NoCredential(_) => Some("--as takes a file: PEM, a token, or a kubeconfig".to_owned()),
            _ => None,
        }
    }
}
