//! Changes of the tables in a transaction under way.

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};

use super::layout::{CURRENT, EventKind, HISTORY, HistoryKey, LOG, LogEntry, LogKey, META, StoredValue};
use super::packing::{self, pack};
use crate::follow::{Batch, Event};
use crate::mutation::{Change, Mutation};
use crate::record::{Record, Revision};

/// Sets a row of `meta`.
pub(super) fn set_meta(
    transaction: &WriteTransaction,
    name: &'static str,
    value: u64,
) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert(name, value)?;
    Ok(())
}

/// The outcome of one commit inside the group.
pub(super) enum CommitOutcome {
    Changed(Batch),
    Unchanged,
    Conflict { index: usize, current: Option<Record> },
}

/// The tables of the transaction under way.
pub(super) struct Tables<'transaction> {
    current: Table<'transaction, &'static [u8], StoredValue>,
    pub(super) history: Table<'transaction, HistoryKey, StoredValue>,
    pub(super) log: Table<'transaction, LogKey, LogEntry>,
}

impl<'transaction> Tables<'transaction> {
    pub(super) fn open(transaction: &'transaction WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            current: transaction.open_table(CURRENT)?,
            history: transaction.open_table(HISTORY)?,
            log: transaction.open_table(LOG)?,
        })
    }

    /// Checks every expectation before the first change, because a conflict must leave no trace.
    pub(super) fn apply(
        &mut self,
        mutations: Vec<Mutation>,
        revision: Revision,
    ) -> Result<CommitOutcome, redb::Error> {
        let mut events = Vec::with_capacity(mutations.len());
        for (index, mutation) in mutations.into_iter().enumerate() {
            let previous = self.record(&mutation.key)?;
            if !mutation.expect.admits(previous.as_ref().map(|record| record.modified)) {
                return Ok(CommitOutcome::Conflict { index, current: previous });
            }
            let value = match mutation.change {
                Change::Put(value) => Some(value),
                Change::Delete if previous.is_some() => None,
                Change::Delete | Change::Keep => continue,
            };
            events.push(Event { key: mutation.key, value, previous });
        }
        if events.is_empty() {
            return Ok(CommitOutcome::Unchanged);
        }
        for (index, event) in (0..).zip(&events) {
            self.write(event, revision, index)?;
        }
        Ok(CommitOutcome::Changed(Batch { revision, events }))
    }

    fn record(&self, key: &Bytes) -> Result<Option<Record>, redb::Error> {
        let Some(row) = self.current.get(&key[..])? else {
            return Ok(None);
        };
        let row = row.value();
        Ok(Some(Record {
            key: key.clone(),
            value: packing::value(row)?,
            created: packing::created(row),
            modified: Revision(row.1),
        }))
    }

    fn write(&mut self, event: &Event, revision: Revision, index: u32) -> Result<(), redb::Error> {
        let key = &event.key[..];
        let kind = match (&event.previous, &event.value) {
            (None, _) => EventKind::Created,
            (Some(_), Some(_)) => EventKind::Updated,
            (Some(_), None) => EventKind::Deleted,
        };
        let mut packed = Vec::new();
        let superseded = match &event.value {
            Some(value) => {
                let created = event.previous.as_ref().map_or(revision, |previous| previous.created);
                self.current.insert(key, pack(created, revision, value, &mut packed))?
            }
            None => self.current.remove(key)?,
        };
        if let Some(superseded) = superseded {
            self.history.insert((key, revision.0), superseded.value())?;
        }
        self.log.insert((revision.0, index), (kind as u8, key))?;
        Ok(())
    }
}
