//! Errors of the store: the cause of each, and whether a retry helps.

use std::path::PathBuf;
use std::sync::Arc;

use crate::record::{Record, Revision};

/// The cause of a failure below the store, shared because one failure is reported to many callers.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// The error of a commit. Nothing was changed, except where [`CommitError::Unavailable`] and [`CommitError::Unknown`] say
/// otherwise.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// An expectation did not hold. `current` is the record that was found, `None` if the key does not exist. The
    /// caller computes the commit anew from it; repeating the same commit does not help.
    #[error("mutation {index} expected another state of its key")]
    Conflict {
        /// The index of the first mutation whose expectation failed.
        index: usize,
        /// The current record of the key.
        current: Option<Record>,
    },
    /// A commit without mutations: a bug of the caller.
    #[error("a commit needs at least one mutation")]
    Empty,
    /// Two mutations of one key: a bug of the caller.
    #[error("mutation {index} names a key that an earlier mutation of the commit names")]
    DuplicateKey {
        /// The second mutation of that key.
        index: usize,
    },
    /// A key, or the whole commit, is too large.
    #[error("{bytes} bytes exceed the limit of {limit} bytes")]
    TooLarge {
        /// The requested size.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// The commit has more mutations than [`Limits`](crate::Limits) permit: the caller divides it.
    #[error("{count} mutations exceed the limit of {limit} mutations")]
    TooManyMutations {
        /// The requested number.
        count: usize,
        /// The maximum number.
        limit: usize,
    },
    /// The disk of the store is full: nothing was changed. Reads go on, and a retry helps once there is room.
    #[error("the disk of the store is full, so it accepts no commits until there is room: {cause}")]
    Full {
        /// The refusal of the file system.
        cause: Cause,
    },
    /// The store does not accept commits. On redb the medium failed, and only reopening helps; a commit that was under way
    /// at that time may or may not be found afterwards. On a server, such as etcd, nothing was changed, and a retry helps
    /// once the server is available.
    #[error("the store does not accept commits: {cause}")]
    Unavailable {
        /// The first failure.
        cause: Cause,
    },
    /// The term of leadership in which the commit was begun is over: another process leads, or may do so. The caller stops
    /// what only the leader may do.
    #[error("this process does not lead any more")]
    NotLeader,
    /// The connection to the store was lost before the outcome was known: the commit may or may not have happened. The
    /// caller reads the state again before it repeats anything.
    #[error("it is unknown whether the commit has happened: {cause}")]
    Unknown {
        /// The failure of the connection.
        cause: Cause,
    },
}

/// The error of a read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The revision has been compacted: the reader must start again at the latest revision.
    #[error("history before revision {oldest} has been compacted")]
    Compacted {
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision has not been committed yet.
    #[error("the requested revision is in the future; the latest is {current}")]
    Future {
        /// The latest revision.
        current: Revision,
    },
    /// The medium failed. A retry rarely helps.
    #[error("reading the store failed: {0}")]
    Io(Cause),
    /// The medium failed before, or the store was closed. Only a store that is opened again can be read.
    #[error("the store cannot be read until it is opened again: {0}")]
    Unavailable(Cause),
    /// The store contains data that it never wrote: the medium failed, or there is a bug. A retry does not help.
    #[error("the store is damaged: {0}")]
    Corrupt(Cause),
}

/// The error that ends a follower.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The follower fell behind the compaction: it must read the latest state and follow from there.
    #[error("history before revision {oldest} has been compacted")]
    Compacted {
        /// The oldest revision from which a follower can start.
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

/// The error of a compaction.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompactError {
    /// The store cannot write any more, because the medium failed; only reopening helps.
    #[error("the store does not accept commits: {cause}")]
    Unavailable {
        /// The first failure.
        cause: Cause,
    },
}

/// The error of opening a store file. The file is not changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a store, or is damaged. `hint` is the remedy for the operator.
    #[error("{} is not a readable store: {hint}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The fault and its remedy.
        hint: String,
    },
    /// A newer version of this program wrote the file: the operator runs that version, or restores a backup.
    #[error("{} has format version {found}, this program supports up to {supported}: run the newer version", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The file's format version.
        found: u64,
        /// The newest format version that this program reads.
        supported: u64,
    },
    /// Another process (or another store in this one) has the file open. A retry helps after that process has ended.
    #[error("{} is in use by another process: stop it first, or choose another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is a copy of another source, or of another part of it: the operator checks the address of the source, or
    /// removes the file.
    #[error("{} is a copy of another source, the cluster {cluster:x}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The cluster of its content.
        cluster: u64,
    },
    /// The file has the objects of another server: the operator names another file.
    #[error("{} belongs to {found:?}, not to {expected:?}", path.display())]
    OtherOwner {
        /// The file.
        path: PathBuf,
        /// The owner that is recorded in it.
        found: String,
        /// The server that opens it.
        expected: String,
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
