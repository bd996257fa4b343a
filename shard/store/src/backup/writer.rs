//! Writes a backup.

use std::io::{self, Write};
use std::ops::ControlFlow;

use lz4_flex::block;
use sha2::{Digest as _, Sha256};

use super::error::WriteBackupError;
use super::header::BackupHeader;
use super::{BLOCK_BYTES, END, FAILURE, OWN, Ownership, RECORDS, SHARED};
use crate::record::{Range, RecordRef};
use crate::store::Store;

/// A range of keys for a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRange {
    /// The keys.
    pub range: Range,
    /// How they belong to the backup.
    pub ownership: Ownership,
}

/// Writes the records of `ranges` as they were at the revision of the header. Blocks until the output has taken everything; a
/// slow output delays the reader and costs no memory. Needs a block of 256 KiB or as large as the largest value, twice.
///
/// The revision must not be compacted meanwhile; see [`RetainedRevisions`](super::RetainedRevisions). Returns how many records
/// were written.
///
/// # Errors
/// [`WriteBackupError::Read`] after the backup has been ended with the reason.
pub fn write_backup(
    store: &dyn Store,
    header: &BackupHeader,
    ranges: &[BackupRange],
    output: impl Write,
) -> Result<u64, WriteBackupError> {
    let mut writer = BackupWriter::begin(output, header)?;
    for BackupRange { range, ownership } in ranges {
        let mut rest = range.clone();
        loop {
            let mut last = None;
            // No output meanwhile: a scan holds pages of the store.
            let read = store.scan(&rest, Some(header.revision), &mut |record| {
                writer.push(record, *ownership);
                if writer.block.len() < BLOCK_BYTES {
                    return ControlFlow::Continue(());
                }
                last = Some(record.key.to_vec());
                ControlFlow::Break(())
            });
            if let Err(error) = read {
                writer.fail(&error.to_string())?;
                return Err(error.into());
            }
            let Some(last) = last else { break };
            writer.write_block()?;
            rest = rest.after(&last);
        }
    }
    let records = writer.records;
    writer.finish()?;
    Ok(records)
}

/// Writes a backup record by record.
pub struct BackupWriter<W: Write> {
    output: W,
    /// Of all bytes that were written.
    hash: Sha256,
    records: u64,
    /// Records that are not written yet.
    block: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for BackupWriter<W> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BackupWriter").field("records", &self.records).finish_non_exhaustive()
    }
}

impl<W: Write> BackupWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// The output accepts no more bytes; so for the others.
    pub fn begin(output: W, header: &BackupHeader) -> io::Result<Self> {
        let block = Vec::with_capacity(BLOCK_BYTES);
        let mut writer = Self { output, hash: Sha256::new(), records: 0, block };
        writer.put(&header.encode())?;
        Ok(writer)
    }

    /// Adds a record. Records in the order of their keys are restored fastest.
    pub fn write(&mut self, record: RecordRef<'_>, ownership: Ownership) -> io::Result<()> {
        self.push(record, ownership);
        if self.block.len() < BLOCK_BYTES { Ok(()) } else { self.write_block() }
    }

    /// Completes the backup and returns the output, flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_block()?;
        let mut end = vec![END];
        end.extend(self.records.to_le_bytes());
        self.put(&end)?;
        let hash = self.hash.finalize();
        self.output.write_all(&hash)?;
        self.output.flush()?;
        Ok(self.output)
    }

    /// Ends the backup with the reason why it is not complete.
    pub fn fail(mut self, reason: &str) -> io::Result<W> {
        let reason = &reason.as_bytes()[..reason.len().min(usize::from(u16::MAX))];
        let mut failure = vec![FAILURE];
        failure.extend((reason.len() as u16).to_le_bytes());
        failure.extend(reason);
        self.output.write_all(&failure)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn push(&mut self, record: RecordRef<'_>, ownership: Ownership) {
        let block = &mut self.block;
        block.push(match ownership {
            Ownership::Own => OWN,
            Ownership::Shared => SHARED,
        });
        // Commits are limited to 16 MiB.
        block.extend((record.key.len() as u32).to_le_bytes());
        block.extend((record.value.len() as u32).to_le_bytes());
        block.extend(record.created.0.to_le_bytes());
        block.extend(record.modified.0.to_le_bytes());
        block.extend(record.key);
        block.extend(record.value);
        self.records += 1;
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.block);
        let packed = block::compress(&records);
        let stored = if packed.len() < records.len() { &packed } else { &records };
        let mut begin = vec![RECORDS];
        begin.extend((records.len() as u32).to_le_bytes());
        begin.extend((stored.len() as u32).to_le_bytes());
        self.put(&begin)?;
        self.put(stored)?;
        // The memory of a large value is not needed for the next block.
        if records.capacity() <= 2 * BLOCK_BYTES {
            self.block = records;
            self.block.clear();
        } else {
            self.block = Vec::with_capacity(BLOCK_BYTES);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.output.write_all(bytes)
    }
}
