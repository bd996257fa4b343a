//! Replay of the journal when a store is opened that was not closed.

use redb::{Database, Durability, ReadableDatabase};

use super::journal::{Journal, JournalError, JournalFile, JournaledCommit};
use super::layout::{META, meta, read_meta};
use super::tables::{CommitOutcome, Tables, set_meta};
use crate::record::Revision;

/// The error of a replay.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    /// The store file names a journal, and there is no file.
    #[error("the journal does not exist")]
    Missing,
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Store(#[from] redb::Error),
}

/// Brings the commits of the journal into the view. `None`: the store was closed, so that it has no journal.
///
/// The transaction is not durable: the journal stays until the next checkpoint.
pub(super) fn recover(database: &Database, file: &dyn JournalFile) -> Result<Option<Journal>, RecoveryError> {
    let Numbers { revision, mut compacted, nonce, previous } = Numbers::read(database)?;
    if nonce == meta::NO_JOURNAL {
        return Ok(None);
    }
    let file = file.open().map_err(JournalError::from)?.ok_or(RecoveryError::Missing)?;
    let (journal, groups) = Journal::recover(file, nonce, previous)?;

    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    transaction.set_durability(Durability::None).map_err(redb::Error::from)?;
    let mut tables = Tables::open(&transaction)?;
    let mut last = revision;
    for group in groups {
        for commit in group.commits {
            last = replay(&mut tables, last, commit)?;
        }
        compacted = compacted.max(group.compacted.min(last));
    }
    drop(tables);
    set_meta(&transaction, meta::REVISION, last.0)?;
    set_meta(&transaction, meta::COMPACTED, compacted.0)?;
    transaction.commit().map_err(redb::Error::from)?;
    if last > revision {
        tracing::info!(from = revision.0, to = last.0, "replayed the journal of a store that was not closed");
    }
    Ok(Some(journal))
}

/// Applies a commit that is not in the store file; returns the revision after it.
fn replay(
    tables: &mut Tables<'_>,
    last: Revision,
    commit: JournaledCommit,
) -> Result<Revision, RecoveryError> {
    let JournaledCommit { revision, mutations } = commit;
    if revision <= last {
        return Ok(last);
    }
    let gap = "it does not continue the store file";
    match tables.apply(mutations, revision)? {
        CommitOutcome::Changed(_) if revision.0 == last.0 + 1 => Ok(revision),
        _ => Err(JournalError::Damaged(gap).into()),
    }
}

/// Rows of `meta`.
struct Numbers {
    revision: Revision,
    compacted: Revision,
    nonce: u64,
    previous: Option<u64>,
}

impl Numbers {
    fn read(database: &Database) -> Result<Self, redb::Error> {
        let table = database.begin_read()?.open_table(META)?;
        // Files of format 1 have no such row.
        let nonce = table.get(meta::JOURNAL)?.map_or(meta::NO_JOURNAL, |row| row.value());
        Ok(Self {
            revision: Revision(read_meta(&table, meta::REVISION)?),
            compacted: Revision(read_meta(&table, meta::COMPACTED)?),
            nonce,
            // Older programs did not write it.
            previous: table.get(meta::PREVIOUS_JOURNAL)?.map(|row| row.value()),
        })
    }
}
