//! Errors of this crate, with their remedies.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::Authority;

/// The reason why a PKI directory could not be read or updated. No existing file is overwritten before an error. Messages
/// never contain key material.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system returned an error. A retry helps when its cause is removed (permissions, a full disk).
    #[error("cannot {attempt} {path}: {source}")]
    Io {
        /// The attempted operation, e.g. `read`.
        attempt: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A later version of this program has written the directory.
    #[error(
        "{path} has format {found}, but this program supports formats up to {known}: use a newer fairlead"
    )]
    NewerFormat {
        /// The format file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The latest supported version.
        known: u32,
    },
    /// The format file contains no number.
    #[error("{path} does not contain a format number: is this a PKI directory?")]
    UnreadableFormat {
        /// The format file.
        path: PathBuf,
    },
    /// Another process changes the directory. A retry helps when it has ended.
    #[error("another process is changing {path} right now: try again when it is done")]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// A leaf must be issued, but the key of its authority is stored elsewhere.
    #[error("cannot issue {item}: the key of {authority} is not at {path}")]
    AuthorityKeyMissing {
        /// The item that should have been issued.
        item: String,
        /// The authority that should have signed it.
        authority: Authority,
        /// The expected path of its key.
        path: PathBuf,
    },
    /// An authority or service-account key is damaged. It is not replaced, because a new one would invalidate all certificates
    /// or tokens in use.
    #[error("{path} {problem}: restore it from a backup, or move it away to start over")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem, as the end of a sentence that begins with the file.
        problem: &'static str,
    },
    /// The signing library failed. The input of the caller is not the cause.
    #[error("cannot issue {item}: {source}")]
    Issue {
        /// The item that should have been issued.
        item: String,
        /// The library's error.
        source: rcgen::Error,
    },
    /// The operating system returned no random numbers.
    #[error("the operating system returned no random numbers: {0}")]
    Random(getrandom::Error),
    /// The clock is outside the dates that certificates can represent.
    #[error("the system clock is not set to a usable date")]
    Clock,
    /// An existing kubeconfig cannot be parsed, so it is not replaced; or a new one is inconsistent.
    #[error("kubeconfig {path}: {problem}")]
    Kubeconfig {
        /// The file, or a placeholder for one without a path.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

impl Error {
    pub(crate) fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source }
    }

    pub(crate) fn issue(item: &impl ToString) -> impl FnOnce(rcgen::Error) -> Self {
        let item = item.to_string();
        move |source| Self::Issue { item, source }
    }
}
