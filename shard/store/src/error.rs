//! Why the store says no: whose fault it is and whether trying again helps.

use std::path::PathBuf;
use std::sync::Arc;

use crate::record::{Record, Revision};

/// The cause of a failure below the store, shared because one failure is reported to many callers.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a commit did not happen. Except where [`CommitError::Unavailable`] says otherwise, nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// An expectation did not hold. The caller reads again (`current` is the state that contradicted, unset when the
    /// key does not exist) and decides anew; repeating the same commit is pointless.
    #[error("mutation {index} expected another state of its key")]
    Conflict {
        /// Which mutation: the first whose expectation failed.
        index: usize,
        /// The present record of the key.
        current: Option<Record>,
    },
    /// A commit without mutations: the caller's mistake.
    #[error("a commit needs at least one mutation")]
    Empty,
    /// Two mutations of one key: the caller's mistake.
    #[error("mutation {index} names a key that an earlier mutation of the commit names")]
    DuplicateKey {
        /// The second mutation of that key.
        index: usize,
    },
    /// A key, or the whole commit, is too large: the caller's mistake.
    #[error("{bytes} bytes are more than the {limit} that fit")]
    TooLarge {
        /// The requested size.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// The store cannot write (any more): the medium's fault; only reopening helps. A commit that was under way when
    /// the medium failed may or may not be found afterwards.
    #[error("the store does not accept commits: {cause}")]
    Unavailable {
        /// The first failure.
        cause: Cause,
    },
}

/// Why a read failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The revision has been compacted away: the reader starts over at the latest revision.
    #[error("history before revision {oldest} has been compacted")]
    Compacted {
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision has not happened yet: the reader waits for it, or is confused.
    #[error("the revision asked for is in the future; the latest is {current}")]
    Future {
        /// The latest revision.
        current: Revision,
    },
    /// The medium failed. Trying again rarely helps.
    #[error("reading the store failed: {0}")]
    Io(Cause),
    /// The store holds what it never wrote: the medium's fault, or a bug. Trying again does not help.
    #[error("the store is damaged: {0}")]
    Corrupt(Cause),
}

/// Why a follower gets no further batches.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The follower fell behind the compaction: it reads the latest state and follows from there.
    #[error("history before revision {oldest} has been compacted")]
    Compacted {
        /// The oldest revision after which one can still follow.
        oldest: Revision,
    },
    /// The store was closed, or its medium failed on a commit. Everything acknowledged has been delivered before.
    #[error("the store is closed")]
    Closed,
    /// Reading the log failed.
    #[error(transparent)]
    Read(ReadError),
}

impl From<ReadError> for FollowError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted { oldest } => FollowError::Compacted { oldest },
            other => FollowError::Read(other),
        }
    }
}

/// Why compaction did not finish.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompactError {
    /// The store cannot write (any more): the medium's fault; only reopening helps.
    #[error("the store does not accept commits: {cause}")]
    Unavailable {
        /// The first failure.
        cause: Cause,
    },
}

/// Why a store file could not be opened. The file is left as it was found.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a store, or damaged: the operator's turn.
    #[error("{} is not a readable store: {hint}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The fault and its remedy.
        hint: String,
    },
    /// A newer version of this program wrote the file: the operator runs that version, or restores a backup.
    #[error("{} has format version {found}, this program knows up to {supported}: run the newer version", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The file's format version.
        found: u64,
        /// The newest format version that this program reads.
        supported: u64,
    },
    /// Another process (or another store in this one) has the file open. Trying again helps once that one has ended.
    #[error("{} is in use by another process: stop it first, or choose another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be created, read or written (permissions, full disk, missing directory).
    #[error("cannot open {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
