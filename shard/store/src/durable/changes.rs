//! The events of a range of keys, found by its rows instead of by the log: the cost depends on what is stored in the
//! range, not on what all others have written.

use std::ops::Bound;

use redb::ReadOnlyTable;

use super::layout::{HistoryKey, StoredValue, read_error};
use super::packing;
use super::view::{View, current_bounds, record};
use crate::error::ReadError;
use crate::follow::{Changes, Event};
use crate::record::{Range, Record, Revision};

/// Rows of history that are too old and are skipped one by one before the reader jumps. A jump costs a tree descent.
const STEPS_BEFORE_JUMP: u32 = 16;

impl View {
    /// The events of `range` after a revision; `None` if more than `max_rows` rows would have to be visited.
    pub(super) fn changes(
        &self,
        range: &Range,
        after: Revision,
        max_rows: usize,
    ) -> Result<Option<Changes>, ReadError> {
        self.check_readable(after)?;
        let mut events = Vec::new();
        let mut budget = max_rows;
        if !range.is_empty()
            && (!self.created_since(range, after, &mut budget, &mut events)?
                || !self.replaced_since(range, after, &mut budget, &mut events)?)
        {
            return Ok(None);
        }
        // Keys of one commit stay in their order.
        events.sort_by_key(|(revision, _)| *revision);
        Ok(Some(Changes { events, up_to: self.revision() }))
    }

    /// Existing keys that were created after the revision and never updated. Each other event has a row of history.
    fn created_since(
        &self,
        range: &Range,
        after: Revision,
        budget: &mut usize,
        events: &mut Vec<(Revision, Event)>,
    ) -> Result<bool, ReadError> {
        for row in self.current().range::<&[u8]>(current_bounds(range)).map_err(read_error)? {
            let Some(rest) = budget.checked_sub(1) else { return Ok(false) };
            *budget = rest;
            let (key, stored) = row.map_err(read_error)?;
            let row = stored.value();
            if packing::created(row).0 == row.1 && row.1 > after.0 {
                events.push(created_event(record(key.value(), row)?));
            }
        }
        Ok(true)
    }

    fn replaced_since(
        &self,
        range: &Range,
        after: Revision,
        budget: &mut usize,
        events: &mut Vec<(Revision, Event)>,
    ) -> Result<bool, ReadError> {
        let history: &ReadOnlyTable<HistoryKey, StoredValue> = self.history();
        let mut remaining = history_rows(history, (&range.start, 0), range)?;
        // The record that the previous row replaced, and the revision that replaced it.
        let mut replaced: Option<(Record, Revision)> = None;
        let mut too_old = 0;
        while let Some(row) = remaining.next() {
            let Some(rest) = budget.checked_sub(1) else { return Ok(false) };
            *budget = rest;
            let (position, stored) = row.map_err(read_error)?;
            let (key, superseded) = position.value();
            if superseded <= after.0 {
                too_old += 1;
                if too_old == STEPS_BEFORE_JUMP {
                    too_old = 0;
                    remaining = history_rows(history, (key, after.0.saturating_add(1)), range)?;
                }
                continue;
            }
            too_old = 0;
            let version = record(key, stored.value())?;
            if let Some(previous) = replaced.take() {
                events.push(self.replacement(previous, Some(&version))?);
            }
            if version.created == version.modified && version.modified > after {
                events.push(created_event(version.clone()));
            }
            replaced = Some((version, Revision(superseded)));
        }
        if let Some(previous) = replaced {
            events.push(self.replacement(previous, None)?);
        }
        Ok(true)
    }

    /// The event that replaced a record: an update if a record of the key was written at that revision, else a deletion.
    fn replacement(
        &self,
        (previous, at): (Record, Revision),
        next: Option<&Record>,
    ) -> Result<(Revision, Event), ReadError> {
        let value = match next.filter(|next| next.key == previous.key) {
            Some(next) => (next.modified == at).then(|| next.value.clone()),
            None => {
                self.get(&previous.key)?.filter(|current| current.modified == at).map(|found| found.value)
            }
        };
        Ok((at, Event { key: previous.key.clone(), value, previous: Some(previous) }))
    }
}

fn created_event(record: Record) -> (Revision, Event) {
    (record.modified, Event { key: record.key, value: Some(record.value), previous: None })
}

/// The rows of history from a position to the end of a range.
fn history_rows(
    history: &ReadOnlyTable<HistoryKey, StoredValue>,
    start: (&[u8], u64),
    range: &Range,
) -> Result<redb::Range<'static, HistoryKey, StoredValue>, ReadError> {
    let end = range.end.as_deref().map_or(Bound::Unbounded, |end| Bound::Excluded((end, 0)));
    history.range::<(&[u8], u64)>((Bound::Included(start), end)).map_err(read_error)
}
