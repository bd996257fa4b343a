//! Why a test could not be set up.

use std::path::PathBuf;

use fairlead_client::{ClientError, CredentialsError};

/// A failure of the surroundings of a test, not of what it tests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// A program has not been built.
    #[error("{name} is not in {}: build it first (cargo build --release)", directory.display())]
    NotBuilt {
        /// Name of the binary.
        name: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A program of others is not installed.
    #[error(
        "{name} is missing: run `deploy/tools.sh prometheus` (or `kubectl`, `browser`, `drawing`), or put it on the PATH"
    )]
    NoTool {
        /// Name of the program.
        name: String,
    },
    /// A file, process or socket could not be used.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A process ended while it was waited for.
    #[error("{name} ended with {status} before it was ready; the end of its log:\n{log}")]
    Ended {
        /// Name of the process.
        name: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last lines that it wrote.
        log: String,
    },
    /// A process did not do what it was waited for.
    #[error("{name} did not become ready: {last}; the end of its log:\n{log}")]
    NotReady {
        /// Name of the process.
        name: String,
        /// The last answer to the question.
        last: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// Certificates could not be made.
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    /// A shard or host name is no name.
    #[error(transparent)]
    Inventory(#[from] fairlead_certs::InventoryError),
    /// Certificates could not be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// kubectl failed.
    #[error("kubectl {version}: `{command}` ended with {status}\n{stderr}")]
    Kubectl {
        /// Which kubectl.
        version: String,
        /// Its arguments.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it complained about.
        stderr: String,
    },
}

impl HarnessError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
