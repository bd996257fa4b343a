//! The pattern of two gateways (`deploy/patterns/comer`) on one machine: real servers with the pattern's own files, the
//! CDN before the edge, and kubectl as everybody at every door.

mod certificates;
mod doors;
mod files;
mod sign_in;
mod site;
mod watch;

pub use doors::{DEEDS, Finding, Row, matrix};
pub use site::{Comer, READ_LIMIT};
pub use watch::{Quiet, quiet_watch};

use std::path::PathBuf;
use std::process::ExitStatus;

use fairlead_client::{ClientError, CredentialsError};

use crate::harness::HarnessError;

/// Why the pattern does not run here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComerError {
    /// A program, port or certificate.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// A request that had to succeed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Certificates that do not fit.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A certificate of the CDN could not be made.
    #[error("a certificate of the CDN: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS of the CDN could not be set up.
    #[error("TLS of the CDN: {0}")]
    Tls(#[from] rustls::Error),
    /// A file of the site.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// `fairlead` refused.
    #[error("`fairlead {line}` ended with {status}:\n{printed}")]
    Command {
        /// Its arguments.
        line: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        printed: String,
    },
    /// Somebody could not sign in.
    #[error("{user} cannot sign in: {why}")]
    SignIn {
        /// The user.
        user: String,
        /// At which step.
        why: String,
    },
    /// Something that was waited for did not happen.
    #[error("{0}")]
    Missing(String),
}

impl ComerError {
    /// For whoever looks for a place to run it in.
    pub fn no_directory(source: std::io::Error) -> Self {
        HarnessError::system("making a temporary directory")(source).into()
    }

    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
