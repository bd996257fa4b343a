//! Failures to set up a test.

use std::path::PathBuf;

use fairlead_client::{ClientError, CredentialsError};

/// A failure of a test's environment, not of what is tested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// A program has not been built.
    #[error("{name} is not in {}: build it first (cargo build --release)", directory.display())]
    NotBuilt {
        /// Name of the binary.
        name: String,
        /// The searched folder.
        directory: PathBuf,
    },
    /// A third-party program is not installed.
    #[error(
        "{name} is missing: run `deploy/tools.sh prometheus` (or `kubectl`, `python`, `browser`, `drawing`), or put it on the PATH"
    )]
    NoTool {
        /// Name of the program.
        name: String,
    },
    /// An environment variable has a value that does not exist.
    #[error("{name}={value} is not one of {expected}")]
    Setting {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that exist.
        expected: &'static str,
    },
    /// A file, process or socket could not be used.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A process ended before it was ready.
    #[error("{name} ended with {status} before it was ready; the end of its log:\n{log}")]
    Ended {
        /// Name of the process.
        name: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A process did not reach an expected state in time.
    #[error("{name} did not become ready: {last}; the end of its log:\n{log}")]
    NotReady {
        /// Name of the process.
        name: String,
        /// The last result of the check.
        last: String,
        /// The last lines of its log.
        log: String,
    },
    /// Certificates could not be made.
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    /// A shard or host name is invalid.
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
        /// The version.
        version: String,
        /// The arguments.
        command: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The output on standard error.
        stderr: String,
    },
}

impl HarnessError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
