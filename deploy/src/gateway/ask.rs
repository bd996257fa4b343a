//! What is asked of a running gateway goes over its own API, as an operator.

use std::io;
use std::path::PathBuf;

use fairlead_client::{ClientError, CredentialsError, KubeconfigError};

use crate::site::SiteError;
use crate::up::ProbeError;

/// Runs what asks.
pub(super) fn running(asking: impl Future<Output = Result<(), AskError>>) -> Result<(), AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AskError::Runtime)?.block_on(asking)
}

/// Why the gateway could not be asked, or did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error(transparent)]
    Credentials(#[from] ProbeError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("{}: {source}", file.display())]
    OfKubeconfig { file: PathBuf, source: CredentialsError },
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

impl AskError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Site(error) => error.hint(),
            Self::NotRunning(_) => Some(
                "`fairlead up` starts it; --kubeconfig names an operator's kubeconfig of a gateway somewhere else"
                    .to_owned(),
            ),
            Self::OfKubeconfig { .. } => Some(
                "an operator's kubeconfig has a certificate or a token; --dir names an installation of `fairlead up`"
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
