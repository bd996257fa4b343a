//! Reads and verifies a backup.

use std::io::Read;
use std::ops::Range;

use lz4_flex::block;
use sha2::{Digest as _, Sha256};

use super::error::BackupError;
use super::header::{BackupHeader, fill};
use super::{
    END, FAILURE, HASH_BYTES, MAX_BLOCK_BYTES, OWN, Ownership, RECORD_HEADER_BYTES, RECORDS, SHARED,
};
use crate::mutation::{MAX_COMMIT_BYTES, MAX_KEY_BYTES};
use crate::record::{RecordRef, Revision};

/// Reads a backup record by record. What was read may be used only after [`next_record`](Self::next_record) has returned `None`: the
/// checksum comes last.
///
/// Needs memory for a block, twice: 256 KiB or as large as the largest value, and at most 17 MiB each for an altered backup.
pub struct BackupReader<R: Read> {
    header: BackupHeader,
    input: R,
    /// Of all bytes that were read.
    hash: Sha256,
    records: u64,
    is_complete: bool,
    /// The bytes of a block as they were read.
    stored: Vec<u8>,
    /// The records of a block.
    block: Vec<u8>,
    /// The place of the next record in the block.
    next: usize,
}

/// A record of a backup, valid until the next one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupRecord<'a> {
    /// The record.
    pub record: RecordRef<'a>,
    /// How it belongs to the backup.
    pub ownership: Ownership,
}

impl<R: Read> std::fmt::Debug for BackupReader<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BackupReader")
            .field("header", &self.header)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl<R: Read> BackupReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is no backup, or of a newer format, or cut or altered before the first record.
    pub fn open(mut input: R) -> Result<Self, BackupError> {
        let (header, bytes) = BackupHeader::read(&mut input)?;
        Ok(Self {
            header,
            input,
            hash: Sha256::new_with_prefix(&bytes),
            records: 0,
            is_complete: false,
            stored: Vec::new(),
            block: Vec::new(),
            next: 0,
        })
    }

    /// The header. It is verified only when all records have been read.
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record; `None` if the backup is complete and verified.
    ///
    /// # Errors
    /// The backup is not complete, or not as it was written.
    pub fn next_record(&mut self) -> Result<Option<BackupRecord<'_>>, BackupError> {
        if self.next == self.block.len() && !self.is_complete {
            match self.bytes::<1>()? {
                [RECORDS] => self.read_block()?,
                [END] => self.verify_end()?,
                [FAILURE] => return Err(self.failure()?),
                [other] => return Err(altered(format!("it has a block of unknown kind {other}"))),
            }
        }
        if self.is_complete {
            return Ok(None);
        }
        let decoded = decode(&self.block[self.next..]);
        let RecordParts { ownership, created, modified, key, value } =
            decoded.ok_or_else(|| altered("it has a malformed record".to_owned()))?;
        if created > modified || modified > self.header.revision {
            return Err(altered("it has a record of a later revision".to_owned()));
        }
        let record = &self.block[self.next..];
        self.next += value.end;
        self.records += 1;
        let record = RecordRef { key: &record[key], value: &record[value], created, modified };
        Ok(Some(BackupRecord { record, ownership }))
    }

    fn read_block(&mut self) -> Result<(), BackupError> {
        let length = u32::from_le_bytes(self.bytes()?) as usize;
        let stored_length = u32::from_le_bytes(self.bytes()?) as usize;
        if length == 0 || length > MAX_BLOCK_BYTES || stored_length > length {
            return Err(altered("it has a block of an impossible size".to_owned()));
        }
        self.next = 0;
        let (mut stored, mut records) = (std::mem::take(&mut self.stored), std::mem::take(&mut self.block));
        stored.resize(stored_length, 0);
        self.fill(&mut stored)?;
        if stored_length < length {
            records.resize(length, 0);
            if block::decompress_into(&stored, &mut records).ok() != Some(length) {
                return Err(altered("its compressed data is malformed".to_owned()));
            }
        } else {
            std::mem::swap(&mut stored, &mut records);
        }
        (self.stored, self.block) = (stored, records);
        Ok(())
    }

    fn verify_end(&mut self) -> Result<(), BackupError> {
        let records = u64::from_le_bytes(self.bytes()?);
        let expected = self.hash.clone().finalize();
        let found: [u8; HASH_BYTES] = self.bytes()?;
        if found[..] != expected[..] || records != self.records {
            return Err(altered("its checksum does not fit its content".to_owned()));
        }
        if fill(&mut self.input, &mut [0])? > 0 {
            return Err(altered("something follows its end".to_owned()));
        }
        self.is_complete = true;
        Ok(())
    }

    fn failure(&mut self) -> Result<BackupError, BackupError> {
        let length = u16::from_le_bytes(self.bytes()?);
        let mut reason = vec![0; usize::from(length)];
        self.fill(&mut reason)?;
        Ok(BackupError::Failed { reason: String::from_utf8_lossy(&reason).into_owned() })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        if fill(&mut self.input, buffer)? < buffer.len() {
            return Err(BackupError::Cut { records: self.records });
        }
        self.hash.update(buffer);
        Ok(())
    }
}

/// The parts of a record; key and value as places from its begin.
struct RecordParts {
    ownership: Ownership,
    created: Revision,
    modified: Revision,
    key: Range<usize>,
    value: Range<usize>,
}

/// The record at the begin of `bytes`; `None` if there is none.
fn decode(bytes: &[u8]) -> Option<RecordParts> {
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let (ownership, numbers) = header.split_first()?;
    let ownership = match *ownership {
        OWN => Ownership::Own,
        SHARED => Ownership::Shared,
        _ => return None,
    };
    let (key_length, numbers) = numbers.split_first_chunk()?;
    let (value_length, numbers) = numbers.split_first_chunk()?;
    let (created, numbers) = numbers.split_first_chunk()?;
    let modified = numbers.first_chunk()?;
    let key_length = usize::try_from(u32::from_le_bytes(*key_length)).ok()?;
    let value_length = usize::try_from(u32::from_le_bytes(*value_length)).ok()?;
    if key_length > MAX_KEY_BYTES || value_length > MAX_COMMIT_BYTES || key_length + value_length > rest.len()
    {
        return None;
    }
    let key = RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key_length;
    let value = key.end..key.end + value_length;
    let (created, modified) =
        (Revision(u64::from_le_bytes(*created)), Revision(u64::from_le_bytes(*modified)));
    Some(RecordParts { ownership, created, modified, key, value })
}

fn altered(detail: String) -> BackupError {
    BackupError::Altered { detail }
}
