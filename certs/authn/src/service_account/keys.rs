//! The public keys that verify tokens of service accounts.

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

/// Key files that cannot be used; their author has to correct them. The keys in force should stay in force.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceAccountKeyError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file contains no usable keys.
    #[error("{path} is no file with keys of service accounts: {source}")]
    Keys {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: KeyError,
    },
}

impl ServiceAccountKeys {
    /// Loads the keys of all files: public keys, private keys and certificates in PEM, RSA or EC, several per file.
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

/// The keys in force, shared by authenticators and the reload.
#[derive(Clone)]
pub struct SharedKeys {
    current: Arc<ArcSwap<VerificationKeys>>,
}

impl SharedKeys {
    /// Shares these keys.
    #[must_use]
    pub fn new(keys: VerificationKeys) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(keys)) }
    }

    /// Replaces the keys. A token in the cache of a [`TokenUnion`](crate::TokenUnion) is verified with the new keys when its
    /// entry has expired.
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
