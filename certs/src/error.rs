//! What can go wrong, who is to blame, and what to do about it.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::Authority;

/// Why a PKI directory could not be read or brought up to date. Nothing that exists is overwritten on the way
/// to any of these. Messages never contain key material.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused. A retry helps once its cause is gone (permissions, a full disk).
    #[error("cannot {attempt} {path}: {source}")]
    Io {
        /// What was tried, e.g. `read`.
        attempt: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A later version of this program has written the directory.
    #[error("{path} says format {found}, but this program knows formats up to {known}: use a newer fairlead")]
    NewerFormat {
        /// The format file.
        path: PathBuf,
        /// What it says.
        found: u32,
        /// What we know.
        known: u32,
    },
    /// The format file holds no number.
    #[error("{path} should hold the format's number and does not: is this a PKI directory?")]
    UnreadableFormat {
        /// The format file.
        path: PathBuf,
    },
    /// Another process is at work in the directory. A retry helps when it has ended.
    #[error("another process is changing {path} right now: try again when it is done")]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// A leaf must be issued and its authority's key is kept elsewhere.
    #[error("cannot issue {item}: the key of {authority} is not at {path}")]
    AuthorityKeyMissing {
        /// What should have been issued.
        item: String,
        /// Who should have signed it.
        authority: Authority,
        /// Where its key is expected.
        path: PathBuf,
    },
    /// A file that everything else hangs on cannot be used. It is left alone, because a new one would make
    /// all certificates or tokens in use invalid.
    #[error("{path} {problem}: restore it from a backup, or move it away to start anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is the matter, as the end of a sentence that begins with the file.
        problem: &'static str,
    },
    /// The signature could not be made. Not the caller's fault.
    #[error("cannot issue {item}: {source}")]
    Issue {
        /// What should have been issued.
        item: String,
        /// The library's reason.
        source: rcgen::Error,
    },
    /// The operating system has no random numbers.
    #[error("the operating system gave no random numbers: {0}")]
    Random(getrandom::Error),
    /// The clock is outside the years that certificates can express.
    #[error("the system clock is not set to a usable date")]
    Clock,
    /// A kubeconfig that exists cannot be understood, so it is not replaced; or a new one contradicts itself.
    #[error("kubeconfig {path}: {problem}")]
    Kubeconfig {
        /// The file, or a placeholder for one that has no path yet.
        path: PathBuf,
        /// What is wrong with it.
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
