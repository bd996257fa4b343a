//! Errors of backups.

use crate::error::ReadError;

/// The error of reading a backup. Nothing of it may be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It does not begin like a backup.
    #[error("it is not a backup of a shard")]
    Foreign,
    /// A newer version of this program wrote it.
    #[error("it has format version {found}, this program supports up to {supported}: use the newer version")]
    NewerFormat {
        /// Its format version.
        found: u32,
        /// The newest format version that this program reads.
        supported: u32,
    },
    /// Its end is missing: the connection, or the program that wrote it, was broken off.
    #[error("it is incomplete: it ends after {records} records without the mark of its end")]
    Cut {
        /// The records before the end.
        records: u64,
    },
    /// It is not as it was written.
    #[error("it was altered: {detail}")]
    Altered {
        /// The first fault.
        detail: String,
    },
    /// The server could not continue. A new backup may succeed.
    #[error("it is incomplete, because the server stopped: {reason}")]
    Failed {
        /// The error of the server.
        reason: String,
    },
    /// Reading the file or pipe failed.
    #[error("reading it failed: {0}")]
    Io(#[source] std::io::Error),
}

/// The error of making a backup.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackupError {
    /// The output accepts no more bytes: a full disk, or a client that has left.
    #[error("writing the backup failed: {0}")]
    Output(#[from] std::io::Error),
    /// The store could not be read. The backup names the reason.
    #[error(transparent)]
    Read(#[from] ReadError),
}
