//! Tables of the file.
//!
//! | table | row |
//! |---|---|
//! | `current` | key → created, modified, value: every key that exists |
//! | `history` | (key, superseding revision) → created, modified, value: the value that this revision replaced or deleted |
//! | `log` | (revision, index) → kind, key: the events of every revision |
//! | `meta` | `format`, `revision`, `compacted`, `journal`: the nonce of the journal whose records continue the file, 0 if it was closed; `previous_journal`: the nonce of the records that are in the journal's file until the first of them; in a replica also `cluster` and `part`, its source, and `position`: the source has nothing newer for it up to this revision |
//! | `owner` | `name` → the server whose store the file is; [absent](super::owner) in files that no server with a name has opened |
//!
//! A value is stored once: in `current`, and from the revision that supersedes it on in `history`. The record that
//! event (r, i) made is the one with `modified == r` (in `current`, or the first history row of its key behind r); the
//! one that it replaced is the history row (key, r). So the log row names all that compaction has to delete with it.

use std::sync::Arc;

use redb::{ReadableTable, TableDefinition};

use crate::error::ReadError;

/// The newest format that this code reads, and the one that it writes. Files of format 1 have no journal, those of format 2 no
/// [compressed](super::packing) values.
pub(super) const FORMAT: u64 = 3;

/// The oldest format that this code reads.
pub(super) const OLDEST_FORMAT: u64 = 1;

/// The source of a replica. A file of another source is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The identifier of the source.
    pub cluster: u64,
    /// A hash of the part of the source that is copied.
    pub part: u64,
}

/// (created, modified, value), as [`packing`](super::packing) reads it.
pub(super) type StoredValue = (u64, u64, &'static [u8]);

/// (key, superseding revision).
pub(super) type HistoryKey = (&'static [u8], u64);

/// (revision, index in the commit).
pub(super) type LogKey = (u64, u32);

/// (kind, key).
pub(super) type LogEntry = (u8, &'static [u8]);

pub(super) const CURRENT: TableDefinition<'static, &'static [u8], StoredValue> =
    TableDefinition::new("current");
pub(super) const HISTORY: TableDefinition<'static, HistoryKey, StoredValue> = TableDefinition::new("history");
pub(super) const LOG: TableDefinition<'static, LogKey, LogEntry> = TableDefinition::new("log");
pub(super) const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");

/// Names of `meta` rows.
pub(super) mod meta {
    pub(in super::super) const FORMAT: &str = "format";
    pub(in super::super) const REVISION: &str = "revision";
    pub(in super::super) const COMPACTED: &str = "compacted";
    pub(in super::super) const JOURNAL: &str = "journal";
    pub(in super::super) const PREVIOUS_JOURNAL: &str = "previous_journal";

    /// Only in a replica.
    pub(in super::super) const CLUSTER: &str = "cluster";
    pub(in super::super) const PART: &str = "part";
    pub(in super::super) const POSITION: &str = "position";

    /// The value of `journal` in a file that was closed.
    pub(in super::super) const NO_JOURNAL: u64 = 0;
}

/// Reads a row of `meta` that every store has.
pub(super) fn read_meta(
    table: &impl ReadableTable<&'static str, u64>,
    name: &'static str,
) -> Result<u64, redb::Error> {
    let row = table.get(name)?;
    row.map(|row| row.value())
        .ok_or_else(|| redb::Error::Corrupted(format!("the table `meta` has no row `{name}`")))
}

/// The effect of an event on its key; the log stores the discriminant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventKind {
    Created = 0,
    Updated = 1,
    Deleted = 2,
}

impl EventKind {
    pub(super) fn decode(byte: u8) -> Result<Self, ReadError> {
        match byte {
            0 => Ok(EventKind::Created),
            1 => Ok(EventKind::Updated),
            2 => Ok(EventKind::Deleted),
            other => Err(corrupt(format!("event of unknown kind {other}"))),
        }
    }
}

/// The error for rows that no writer produces.
pub(super) fn corrupt(detail: String) -> ReadError {
    ReadError::Corrupt(Arc::new(redb::Error::Corrupted(detail)))
}

/// Maps an error of redb to a [`ReadError`].
pub(super) fn read_error(error: impl Into<redb::Error>) -> ReadError {
    let error: redb::Error = error.into();
    let read_error = match error {
        redb::Error::Corrupted(_) => ReadError::Corrupt,
        // A write has failed.
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => ReadError::Unavailable,
        _ => ReadError::Io,
    };
    read_error(Arc::new(error))
}
