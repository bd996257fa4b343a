//! The view: an immutable snapshot of the tables as of one durable commit.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata};

use super::layout::{
    CURRENT, EventKind, HISTORY, HistoryKey, LOG, LogEntry, LogKey, META, StoredValue, corrupt, meta,
    read_error, read_meta,
};
use super::packing::{self, Row, Unpacker};
use crate::error::ReadError;
use crate::follow::{Batch, Event};
use crate::record::{Range, Record, RecordRef, Revision};

/// Events and bytes that are read from the log at once; the batch that exceeds either bound is the last one.
const CHUNK_EVENTS: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;

/// Rows of history that are skipped one by one before the reader jumps. A jump costs a tree descent.
const STEPS_BEFORE_JUMP: u32 = 16;

/// Opened once per durable write, then read without locks. As long as a view is held, its pages are not reused.
pub(super) struct View {
    revision: Revision,
    compacted: Revision,
    current: ReadOnlyTable<&'static [u8], StoredValue>,
    history: ReadOnlyTable<HistoryKey, StoredValue>,
    log: ReadOnlyTable<LogKey, LogEntry>,
}

impl fmt::Debug for View {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("View").field("revision", &self.revision.0).finish_non_exhaustive()
    }
}

impl View {
    /// The view of the last durable commit.
    pub(super) fn open(database: &Database) -> Result<Self, redb::Error> {
        let transaction = database.begin_read()?;
        let numbers = transaction.open_table(META)?;
        Ok(Self {
            revision: Revision(read_meta(&numbers, meta::REVISION)?),
            compacted: Revision(read_meta(&numbers, meta::COMPACTED)?),
            current: transaction.open_table(CURRENT)?,
            history: transaction.open_table(HISTORY)?,
            log: transaction.open_table(LOG)?,
        })
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn current(&self) -> &ReadOnlyTable<&'static [u8], StoredValue> {
        &self.current
    }

    pub(super) fn history(&self) -> &ReadOnlyTable<HistoryKey, StoredValue> {
        &self.history
    }

    #[cfg(test)]
    pub(super) fn log(&self) -> &ReadOnlyTable<LogKey, LogEntry> {
        &self.log
    }

    /// Rows of `current`, `history` and `log`. redb maintains these counts.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let (current, history, log) = (self.current.len(), self.history.len(), self.log.len());
        (current.unwrap_or(0), history.unwrap_or(0), log.unwrap_or(0))
    }

    /// Whether the log still has rows of compacted revisions.
    pub(super) fn has_rows_to_sweep(&self) -> Result<bool, redb::Error> {
        Ok(self.log.range(..=(self.compacted.0, u32::MAX))?.next().transpose()?.is_some())
    }

    pub(super) fn check_readable(&self, at: Revision) -> Result<(), ReadError> {
        if at < self.compacted {
            return Err(ReadError::Compacted { oldest: self.compacted });
        }
        if at > self.revision {
            return Err(ReadError::Future { current: self.revision });
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        let row = self.current.get(key).map_err(read_error)?;
        row.map(|row| record(key, row.value())).transpose()
    }

    pub(super) fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        let at = at.unwrap_or(self.revision);
        self.check_readable(at)?;
        if range.is_empty() {
            return Ok(at);
        }
        if at == self.revision {
            self.scan_latest(range, visit)?;
        } else {
            self.scan_past(range, at, visit)?;
        }
        Ok(at)
    }

    fn scan_latest(
        &self,
        range: &Range,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut unpacker = Unpacker::default();
        for row in self.current.range::<&[u8]>(current_bounds(range)).map_err(read_error)? {
            let (key, stored) = row.map_err(read_error)?;
            if visit(unpacker.record(key.value(), stored.value()).map_err(read_error)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// At an older revision a key's record is either still the current one, or in history, or it did not exist; so
    /// the two tables, each reduced to the rows that were live then, have no key in common and are merged by order.
    fn scan_past(
        &self,
        range: &Range,
        at: Revision,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let rows = self.current.range::<&[u8]>(current_bounds(range)).map_err(read_error)?;
        // An error is kept, so that it surfaces instead of a silently shortened list.
        let mut unchanged =
            rows.filter(|row| row.as_ref().map_or(true, |(_, stored)| stored.value().1 <= at.0));
        let mut superseded = SupersededRows::new(&self.history, range, at)?;
        let mut unpacker = Unpacker::default();
        let (mut left, mut right) = (unchanged.next().transpose().map_err(read_error)?, superseded.next()?);
        loop {
            let left_first = match (&left, &right) {
                (None, None) => return Ok(()),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((left, _)), Some((right, _))) => left.value() < right.value().0,
            };
            let record = match (&left, &right) {
                (Some((key, stored)), _) if left_first => unpacker.record(key.value(), stored.value()),
                (_, Some((key, stored))) => unpacker.record(key.value().0, stored.value()),
                _ => return Ok(()),
            };
            let flow = visit(record.map_err(read_error)?);
            if flow.is_break() {
                return Ok(());
            }
            if left_first {
                left = unchanged.next().transpose().map_err(read_error)?;
            } else {
                right = superseded.next()?;
            }
        }
    }

    /// The first batches after `after`, read from the log.
    pub(super) fn batches(&self, after: Revision) -> Result<VecDeque<Arc<Batch>>, ReadError> {
        if after < self.compacted {
            return Err(ReadError::Compacted { oldest: self.compacted });
        }
        let mut batches = VecDeque::new();
        let mut open: Option<Batch> = None;
        let (mut events, mut bytes) = (0, 0);
        for row in self.log.range((after.0.saturating_add(1), 0)..).map_err(read_error)? {
            let (position, entry) = row.map_err(read_error)?;
            let (revision, (kind, key)) = (Revision(position.value().0), entry.value());
            if open.as_ref().is_some_and(|batch| batch.revision != revision) {
                batches.extend(open.take().map(Arc::new));
                if events >= CHUNK_EVENTS || bytes >= CHUNK_BYTES {
                    break;
                }
            }
            let event = self.event(revision, EventKind::decode(kind)?, key)?;
            events += 1;
            bytes += event.bytes();
            open.get_or_insert_with(|| Batch { revision, events: Vec::new() }).events.push(event);
        }
        batches.extend(open.map(Arc::new));
        Ok(batches)
    }

    fn event(&self, revision: Revision, kind: EventKind, key: &[u8]) -> Result<Event, ReadError> {
        let missing = || corrupt(format!("the values of an event of revision {revision} are missing"));
        let previous = match kind {
            EventKind::Created => None,
            EventKind::Updated | EventKind::Deleted => {
                let row = self.history.get((key, revision.0)).map_err(read_error)?.ok_or_else(missing)?;
                Some(record(key, row.value())?)
            }
        };
        let value = match kind {
            EventKind::Deleted => None,
            EventKind::Created | EventKind::Updated => {
                Some(self.value_of(key, revision)?.ok_or_else(missing)?)
            }
        };
        let key = previous.as_ref().map_or_else(|| Bytes::copy_from_slice(key), |record| record.key.clone());
        Ok(Event { key, value, previous })
    }

    /// The value that `modified` wrote to `key`, in the current rows or in the history.
    fn value_of(&self, key: &[u8], modified: Revision) -> Result<Option<Bytes>, ReadError> {
        let written = |row: Row<'_>| (row.1 == modified.0).then(|| packing::value(row).map_err(read_error));
        let current = self.current.get(key).map_err(read_error)?;
        if let Some(value) = current.and_then(|row| written(row.value())) {
            return value.map(Some);
        }
        let later = (key, modified.0.saturating_add(1))..=(key, u64::MAX);
        let first = self.history.range::<(&[u8], u64)>(later).map_err(read_error)?.next();
        let first = first.transpose().map_err(read_error)?;
        first.and_then(|(_, row)| written(row.value())).transpose()
    }
}

pub(super) fn record(key: &[u8], row: Row<'_>) -> Result<Record, ReadError> {
    packing::record(key, row).map_err(read_error)
}

pub(super) fn current_bounds(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(&range.start), range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
}

type HistoryRow = (redb::AccessGuard<'static, HistoryKey>, redb::AccessGuard<'static, StoredValue>);

/// The rows of history that were live at one revision, in key order; at most one per key.
struct SupersededRows<'a> {
    history: &'a ReadOnlyTable<HistoryKey, StoredValue>,
    rows: redb::Range<'static, HistoryKey, StoredValue>,
    end: Option<&'a [u8]>,
    at: Revision,
}

impl<'a> SupersededRows<'a> {
    fn new(
        history: &'a ReadOnlyTable<HistoryKey, StoredValue>,
        range: &'a Range,
        at: Revision,
    ) -> Result<Self, ReadError> {
        let end = range.end.as_deref();
        let rows = Self::rows(history, Bound::Included((&range.start, 0)), end)?;
        Ok(Self { history, rows, end, at })
    }

    fn rows(
        history: &ReadOnlyTable<HistoryKey, StoredValue>,
        start: Bound<(&[u8], u64)>,
        end: Option<&[u8]>,
    ) -> Result<redb::Range<'static, HistoryKey, StoredValue>, ReadError> {
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded((end, 0)));
        history.range::<(&[u8], u64)>((start, end)).map_err(read_error)
    }

    fn next(&mut self) -> Result<Option<HistoryRow>, ReadError> {
        let mut steps = 0;
        while let Some(row) = self.rows.next() {
            let (position, stored) = row.map_err(read_error)?;
            let ((key, superseded), modified) = (position.value(), stored.value().1);
            let (too_old, too_new) = (superseded <= self.at.0, modified > self.at.0);
            if !too_old && !too_new {
                return Ok(Some((position, stored)));
            }
            steps += 1;
            if steps == STEPS_BEFORE_JUMP {
                // A key that is written all the time has thousands of rows: jump to the one that may be live, or
                // past the key.
                steps = 0;
                let start = if too_old {
                    Bound::Included((key, self.at.0 + 1))
                } else {
                    Bound::Excluded((key, u64::MAX))
                };
                self.rows = Self::rows(self.history, start, self.end)?;
            }
        }
        Ok(None)
    }
}
