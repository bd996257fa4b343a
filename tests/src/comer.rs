//! The pattern of two gateways (`deploy/patterns/comer`) on one machine: real servers with the pattern's own files, the
//! CDN before the edge, and kubectl with each identity at each gateway.

mod access_matrix;
mod certificates;
mod files;
mod sign_in;
mod site;
mod watch;

pub use access_matrix::{ACTIONS, Outcome, Row, matrix};
pub use site::{Comer, READ_LIMIT};
pub use watch::{IdleWatch, check_idle_watch};

use std::path::PathBuf;
use std::process::ExitStatus;

use fairlead_client::{ClientError, CredentialsError};

use crate::harness::HarnessError;

/// A failure to run the pattern.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComerError {
    /// A program, port or certificate is not available.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A request failed that had to succeed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A certificate of the CDN could not be made.
    #[error("a certificate of the CDN: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS of the CDN could not be set up.
    #[error("TLS of the CDN: {0}")]
    Tls(#[from] rustls::Error),
    /// A file of the pattern cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// `fairlead` failed.
    #[error("`fairlead {line}` ended with {status}:\n{printed}")]
    Command {
        /// The arguments.
        line: String,
        /// The exit status.
        status: ExitStatus,
        /// The output.
        printed: String,
    },
    /// A user could not sign in.
    #[error("{user} cannot sign in: {step}")]
    SignIn {
        /// The user's name.
        user: String,
        /// The failed step.
        step: String,
    },
    /// An expected event did not happen.
    #[error("{0}")]
    Missing(String),
}

impl ComerError {
    /// The directory for the pattern cannot be created.
    pub fn no_directory(source: std::io::Error) -> Self {
        HarnessError::system("making a temporary directory")(source).into()
    }

    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
