//! Reasons for which a process with virtual workspaces ends.

use fairlead_authn::InvalidHeaderName;
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};
use fairlead_config::ConfigError;
use fairlead_config::flags::FlagError;
use fairlead_process::{BindError, FatalError, LoadError, LoggingError, MetricsError, TaskFailed};

/// A process with virtual workspaces cannot start or must end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The command line cannot be used.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// A configured header name is invalid.
    #[error(transparent)]
    Header(#[from] InvalidHeaderName),
    /// No client could be authenticated.
    #[error("trust has neither clientCA nor requestHeaderCA, so no client can be authenticated")]
    NoAuthority,
    /// Logging cannot be set up.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The program declares a metric twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A certificate, authority or kubeconfig cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server of the kubeconfig does not respond, or refuses the process.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The workspace does not serve a resource.
    #[error("{server} has no resource {resource}")]
    NoResource {
        /// The server.
        server: String,
        /// Group version and plural name.
        resource: String,
    },
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses signal handlers.
    #[error("the process cannot be set up")]
    System(#[source] std::io::Error),
    /// A background task failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for ServerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => FatalError::hint(error),
            Self::Bind(error) => error.hint(),
            Self::NoResource { .. } => Some("`kubectl api-resources` lists those that it has".to_owned()),
            Self::Flags(_) => Some("`fairlead-virtual-workspaces --help` lists all flags".to_owned()),
            Self::NoAuthority => {
                Some("set requestHeaderCA for gateways, clientCA for other clients".to_owned())
            }
            Self::Header(_)
            | Self::Logging(_)
            | Self::Metrics(_)
            | Self::Load(_)
            | Self::Client(_)
            | Self::System(_)
            | Self::Task(_) => None,
        }
    }
}

/// A kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeconfigFault {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}
