//! Requests to the admin API of a running gateway, as an operator.

use std::io;
use std::path::PathBuf;

use fairlead_client::{ClientError, CredentialsError, KubeconfigError};

use crate::installation::InstallationError;
use crate::up::ProbeError;

/// Runs a command that sends requests.
pub(super) fn block_on(
    command: impl Future<Output = Result<(), AdminClientError>>,
) -> Result<(), AdminClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AdminClientError::Runtime)?.block_on(command)
}

/// Errors of requests to the admin API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminClientError {
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error(transparent)]
    Credentials(#[from] ProbeError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("{}: {source}", file.display())]
    KubeconfigCredentials { file: PathBuf, source: CredentialsError },
    #[error("the gateway: {0}")]
    Request(#[from] ClientError),
    #[error("the response of the gateway cannot be parsed: {0}")]
    Response(#[from] serde_json::Error),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("{} cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} contains neither a certificate nor a token nor a kubeconfig with one", .0.display())]
    NoCredential(PathBuf),
    #[error("{0:?} is not a header: it must be \"Name: value\"")]
    Header(String),
}

impl AdminClientError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Installation(error) => error.hint(),
            Self::NotRunning(_) => Some(
                "`fairlead up` starts a gateway; --kubeconfig names an operator's kubeconfig of another gateway"
                    .to_owned(),
            ),
            Self::KubeconfigCredentials { .. } => Some(
                "an operator's kubeconfig has a certificate or a token; --dir names an installation of `fairlead up`"
                    .to_owned(),
            ),
            Self::Request(ClientError::Status(status)) if matches!(status.code, 401 | 403) => {
                Some("only operators may do this: members of the group system:kcp:admin".to_owned())
            }
            Self::NoCredential(_) => Some("--as takes a file: PEM, a token, or a kubeconfig".to_owned()),
            _ => None,
        }
    }
}
