//! Reasons for which a process with virtual workspaces ends.

use std::path::{Path, PathBuf};

use fairlead_authn::InvalidHeaderName;
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};
use fairlead_config::flags::FlagError;
use fairlead_process::{FatalError, LoadError, ProcessError};

/// A process with virtual workspaces cannot start or must end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A reason that other processes have, too.
    #[error(transparent)]
    Process(ProcessError),
    /// The command line cannot be used.
    #[error(transparent)]
    Flags(FlagError),
    /// The certificate of the listener cannot be loaded. Unlike a shard, the process creates none.
    #[error(transparent)]
    Certificate(LoadError),
    /// A configured header name is invalid.
    #[error(transparent)]
    Header(InvalidHeaderName),
    /// No client could be authenticated.
    #[error("trust has neither clientCA nor requestHeaderCA, so no client can be authenticated")]
    NoAuthority,
    /// The server of the kubeconfig does not respond, or refuses the process.
    #[error(transparent)]
    Client(ClientError),
    /// The workspace does not serve a resource.
    #[error("{server} has no resource {resource}")]
    NoResource {
        /// The server.
        server: String,
        /// Group version and plural name.
        resource: String,
    },
}

impl<E> From<E> for ServerError
where
    ProcessError: From<E>,
{
    fn from(error: E) -> Self {
        Self::Process(error.into())
    }
}

impl FatalError for ServerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Process(error) => error.hint(),
            Self::NoResource { .. } => Some("`kubectl api-resources` lists those that it has".to_owned()),
            Self::Flags(_) => Some("`fairlead-virtual-workspaces --help` lists all flags".to_owned()),
            Self::NoAuthority => {
                Some("set requestHeaderCA for gateways, clientCA for other clients".to_owned())
            }
            Self::Certificate(_) => Some(
                "set --tls-cert-file and --tls-private-key-file, in a file serving.certificate and serving.privateKey"
                    .to_owned(),
            ),
            Self::Header(_) | Self::Client(_) => None,
        }
    }
}

/// A kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", described(.file, .cause))]
pub(super) struct KubeconfigFault {
    pub(super) file: PathBuf,
    #[source]
    pub(super) cause: KubeconfigCause,
}

/// The reason why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeconfigCause {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(
        "its server is now {present}: restart the process, which stays with {used} and the earlier credentials"
    )]
    OtherServer { used: String, present: String },
}

/// The file, before a cause that does not name it.
fn described(file: &Path, cause: &KubeconfigCause) -> String {
    match cause {
        KubeconfigCause::Kubeconfig(KubeconfigError::Access { .. } | KubeconfigError::Parse { .. }) => {
            cause.to_string()
        }
        _ => file.display().to_string(),
    }
}
