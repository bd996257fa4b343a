//! Backups: the records of a store at one revision, as one stream of bytes that any store can make and read.
//!
//! Integers are little-endian.
//!
//! | part | content |
//! |---|---|
//! | begin | `fairlead`, format version (4 bytes), length of the header (4 bytes) |
//! | header | [`BackupHeader`] |
//! | blocks | each begins with a byte for its kind |
//!
//! | block | content |
//! |---|---|
//! | 1, records | their length (4 bytes), their stored length (4 bytes), and the records: an LZ4 block if the stored length is less |
//! | 2, end | number of records (8 bytes), SHA-256 of all bytes before it |
//! | 4, failure | length of the text (2 bytes), the reason why the server could not continue |
//!
//! A record is a byte for its [`Ownership`], the lengths of key and value (4 bytes each), the revisions that created and modified
//! it (8 bytes each), key and value. It is in one block.
//!
//! A backup ends with block 2 and nothing follows it. So a reader knows that it has everything, also from a pipe. The hash finds
//! damage; it is no signature.

mod digest;
mod error;
mod header;
mod reader;
mod restored_revision;
mod retention;
mod source;
mod writer;

pub use digest::ContentDigest;
pub use error::{BackupError, WriteBackupError};
pub use header::{Anchor, BackupContent, BackupHeader};
pub use reader::{BackupReader, BackupRecord};
pub use restored_revision::restored_revision;
pub use retention::{RetainedRevision, RetainedRevisions};
pub use source::has_commits_after;
pub use writer::{BackupRange, BackupWriter, write_backup};

use crate::mutation::{MAX_COMMIT_BYTES, MAX_KEY_BYTES};

/// The format version that this code writes, and the newest one that it reads.
const FORMAT: u32 = 1;

// Two bits differ between any two of them.
const RECORDS: u8 = 1;
const END: u8 = 2;
const FAILURE: u8 = 4;

const OWN: u8 = 1;
const SHARED: u8 = 2;

/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;

/// Bytes of a record before its key.
const RECORD_HEADER_BYTES: usize = 25;

/// A block is written when it has this length. The scan of a store that fills it is short.
const BLOCK_BYTES: usize = 256 << 10;

/// The longest block: the last record of one may be the largest one.
const MAX_BLOCK_BYTES: usize = BLOCK_BYTES + RECORD_HEADER_BYTES + MAX_KEY_BYTES + MAX_COMMIT_BYTES;

/// How a record belongs to a backup of a part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It is in this part only. A store that has its key already cannot take the part.
    Own,
    /// Other parts use it, too. A store that has its key already keeps its own record.
    Shared,
}
