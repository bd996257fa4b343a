//! The public keys of those who sign tokens of service accounts.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::{ArcSwap, Guard};
use thiserror::Error;

use crate::jwt::{KeyError, VerificationKeys};

/// Reads key files (`--service-account-key-file`).
#[derive(Clone, Copy, Debug)]
pub struct ServiceAccountKeys;

/// Key files that cannot be used. Their author is to blame; the keys in force should stay in force.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceAccountKeyError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file does not hold keys.
    #[error("{path} is no file with keys of service accounts: {source}")]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
}

impl ServiceAccountKeys {
    /// The keys of all files: public and private ones and certificates in PEM, RSA or EC, several per file.
    pub fn load<P: AsRef<Path>>(
        files: impl IntoIterator<Item = P>,
    ) -> Result<VerificationKeys, ServiceAccountKeyError> {
        let mut keys = VerificationKeys::default();
        for file in files {
            let path = file.as_ref();
            let text = fs::read(path)
                .map_err(|source| ServiceAccountKeyError::Io { path: path.to_owned(), source })?;
            let found = VerificationKeys::from_pem(&text)
                .map_err(|source| ServiceAccountKeyError::Keys { path: path.to_owned(), source })?;
            keys.extend(found);
        }
        Ok(keys)
    }
}

/// The keys in force, shared by those who verify with them and whoever reloads them.
#[derive(Clone)]
pub struct SharedKeys {
    current: Arc<ArcSwap<VerificationKeys>>,
}

impl SharedKeys {
    /// Starts with these.
    #[must_use]
    pub fn new(keys: VerificationKeys) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(keys)) }
    }

    /// Puts others in force. Tokens that were accepted a moment ago are judged by them when they are next
    /// verified, at the latest after what a [`TokenUnion`](crate::TokenUnion) remembers.
    pub fn replace(&self, keys: VerificationKeys) {
        self.current.store(Arc::new(keys));
    }

    pub(crate) fn load(&self) -> Guard<Arc<VerificationKeys>> {
        self.current.load()
    }
}

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current.load().fmt(f)
    }
}
