//! Compaction in the file: deletes the rows of the oldest revisions, a few at a time.

use redb::{ReadableTable, Table};

use super::layout::{EventKind, HistoryKey, LogEntry, LogKey, StoredValue};
use crate::record::Revision;

/// Deletes up to `rows` of the oldest log rows up to revision `compacted`, each with the value that it superseded: a
/// read at `compacted` or later does not need them. Returns the number of deleted rows; fewer than `rows`: all such rows
/// are deleted.
pub(super) fn sweep(
    log: &mut Table<'_, LogKey, LogEntry>,
    history: &mut Table<'_, HistoryKey, StoredValue>,
    compacted: Revision,
    rows: usize,
) -> Result<usize, redb::Error> {
    let mut swept = Vec::with_capacity(rows);
    for row in log.range(..=(compacted.0, u32::MAX))?.take(rows) {
        let (position, entry) = row?;
        let (kind, key) = entry.value();
        if kind != EventKind::Created as u8 {
            history.remove((key, position.value().0))?;
        }
        swept.push(position.value());
    }
    for position in &swept {
        log.remove(position)?;
    }
    Ok(swept.len())
}
