//! The system under load: a kubeconfig, and the observed processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_client::{
    Client, ClientError, ClientOptions, Credentials, CredentialsError, Endpoint, Kubeconfig, KubeconfigError,
    UnverifiedTls,
};

use super::ObservedProcess;

/// Server, credentials and observed processes.
#[derive(Debug, Clone)]
pub struct Target {
    endpoint: Endpoint,
    credentials: Credentials,
    /// Processes whose CPU time and memory are reported.
    pub processes: Vec<ObservedProcess>,
}

/// A failed measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A request failed that must succeed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Its credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A process does not exist, or no longer.
    #[error("cannot observe {name}: {source}")]
    Process {
        /// The name of the process.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The disk cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A worker of the load generator panicked.
    #[error("a worker of the load generator failed: {0}")]
    Worker(#[from] tokio::task::JoinError),
    /// The system did not behave as required.
    #[error("{0}")]
    Unexpected(String),
}

impl Target {
    /// Takes the context of this name, or the current one.
    pub fn from_kubeconfig(
        path: &Path,
        context: Option<&str>,
        processes: Vec<ObservedProcess>,
    ) -> Result<Self, LoadError> {
        let context = Kubeconfig::load(path)?.resolve(context)?;
        let credentials = context.credentials(UnverifiedTls::Refuse)?;
        Ok(Self::new(context.endpoint, credentials, processes))
    }

    /// A server without a kubeconfig.
    pub fn new(endpoint: Endpoint, credentials: Credentials, processes: Vec<ObservedProcess>) -> Self {
        Self { endpoint, credentials, processes }
    }

    /// The same server without the path prefix of the context.
    pub fn without_prefix(&self) -> Self {
        self.with_prefix("")
    }

    /// The same server at another path prefix.
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { endpoint: self.endpoint.with_prefix(prefix), ..self.clone() }
    }

    /// The path prefix of the context, e.g. `/clusters/root`.
    pub fn prefix(&self) -> &str {
        self.endpoint.prefix()
    }

    /// A new client with exactly one connection of its own.
    pub(super) fn connection(&self) -> Client {
        let options = ClientOptions {
            max_connections: 1,
            request_timeout: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        Client::new(self.endpoint.clone(), self.credentials.clone(), options)
    }
}
