//! The journal: a file beside the store file that makes commits durable with one short write.
//!
//! A durable transaction of redb writes every changed page and needs two syncs, which takes milliseconds. So the writer
//! appends the events of a group of commits to the journal, syncs it, and commits the transaction in memory only. Once
//! the journal is large, a checkpoint makes one durable transaction, and the journal starts again at its beginning, over
//! its old records: overwriting needs the cheapest sync. A store that was not closed replays its journal when it is opened.
//!
//! The store file names its journal by a random nonce, which each checkpoint replaces, so that records of other times are
//! not taken for its own. A record begins at a multiple of [`SECTOR`]:
//!
//! | bytes | content, integers in little-endian order |
//! |---|---|
//! | 0–3 | `flj1` |
//! | 4–7 | CRC-32 of all that follows |
//! | 8–15 | nonce |
//! | 16–23 | sequence number: 0, 1, … since the checkpoint |
//! | 24–27 | length of the rest |
//! | 28– | compacted revision, number of commits; for each its revision and number of events; for each of these the length of the key, the key, the length of the value or [`DELETED`], the value |
//!
//! A record is written after the one before it has been synced. So a record that is incomplete was not acknowledged if it
//! is the last one, and the file is damaged if it is not.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use redb::StorageBackend;

use super::full_disk::{is_full, sync_error};
use crate::follow::Batch;
use crate::mutation::{Change, Mutation};
use crate::record::Revision;

/// Opens, creates and removes the file of a journal.
pub(super) trait JournalFile: Send + std::fmt::Debug {
    /// The file, if there is one.
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>>;

    /// The file, which is created if there is none. Its name is durable.
    fn create(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// Removes the file, if there is one.
    fn remove(&self) -> io::Result<()>;
}

/// A journal that is open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    file: Box<dyn StorageBackend>,
    nonce: u64,
    /// The sequence number of the next record.
    sequence: u64,
    /// The place of the next record.
    offset: u64,
    /// The part of the file that has been written before. Overwriting changes no metadata of the file system.
    written: u64,
    buffer: Vec<u8>,
}

/// A group of commits that was acknowledged.
#[derive(Debug)]
pub(super) struct JournaledGroup {
    pub(super) compacted: Revision,
    pub(super) commits: Vec<JournaledCommit>,
}

/// One commit of a group. Its expectations held.
#[derive(Debug)]
pub(super) struct JournaledCommit {
    pub(super) revision: Revision,
    pub(super) mutations: Vec<Mutation>,
}

/// The error of reading a journal.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    /// The file has other content than any writer leaves behind.
    #[error("{0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The unit that a disk writes as a whole.
const SECTOR: u64 = 512;
const MAGIC: [u8; 4] = *b"flj1";
const HEADER_BYTES: usize = 28;
/// The checksum covers all bytes from here.
const CHECKED_FROM: usize = 8;
/// The length of the value of a deleted key.
const DELETED: u32 = u32::MAX;
/// The file grows by zeros of this size.
const GROWTH: u64 = 1 << 20;

impl Journal {
    /// A journal with one record without commits in `file`, whose content has other nonces. The first part of the file is durable. The
    /// record distinguishes the file from one that was exchanged or zeroed.
    pub(super) fn start(file: Box<dyn StorageBackend>, nonce: u64) -> io::Result<Self> {
        let mut journal = Self::at_begin(file, nonce)?;
        journal.grow(GROWTH)?;
        journal.append(Revision(0), &[])?;
        Ok(journal)
    }

    fn at_begin(file: Box<dyn StorageBackend>, nonce: u64) -> io::Result<Self> {
        let written = file.len()?;
        Ok(Self { file, nonce, sequence: 0, offset: 0, written, buffer: Vec::new() })
    }

    /// The journal of an earlier process in `file`, and the groups in it. After a checkpoint it has no record until the next commit, and
    /// begins with one of the journal before, whose nonce is `previous`; `None` for a store file that does not say it.
    pub(super) fn recover(
        file: Box<dyn StorageBackend>,
        nonce: u64,
        previous: Option<u64>,
    ) -> Result<(Self, Vec<JournaledGroup>), JournalError> {
        let mut journal = Self::at_begin(file, nonce)?;
        let mut groups = Vec::new();
        while let Some(record) = journal.read(journal.offset)? {
            let group = decode(&record).ok_or(JournalError::Damaged("a record is malformed"))?;
            groups.extend(Some(group).filter(|group| !group.commits.is_empty()));
            journal.advance(HEADER_BYTES + record.len());
        }
        if journal.is_truncated() {
            return Err(JournalError::Damaged("it is too short"));
        }
        if journal.has_later_record()? {
            return Err(JournalError::Damaged("a record is damaged"));
        }
        let first = journal.any_header(0)?.map(|header| header.nonce);
        let is_own = first == Some(nonce) || previous.is_none() || (first.is_some() && first == previous);
        if !is_own {
            return Err(JournalError::Damaged("it is of another store or of another time"));
        }
        if journal.header(journal.offset)?.is_some_and(|header| header.sequence == journal.sequence) {
            tracing::warn!(
                "the last record of the journal is incomplete and left out; it was never acknowledged, unless the file was changed later"
            );
        }
        Ok((journal, groups))
    }

    /// Whether the end of the file is missing. The file grows in parts, the first one before the journal is used, and only the
    /// growth of the last part can have been interrupted, before a record was written there.
    fn is_truncated(&self) -> bool {
        let whole_parts = self.written - self.written % GROWTH;
        whole_parts == 0 || (whole_parts < self.written && self.offset > whole_parts)
    }

    /// Appends the commits of a group and returns when they are durable.
    ///
    /// # Errors
    /// [`is_full`]: there is no room, and the journal is as before. After another error it must not be used.
    pub(super) fn append(&mut self, compacted: Revision, commits: &[Arc<Batch>]) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        encode(&mut buffer, self.nonce, self.sequence, compacted, commits)?;
        let size = buffer.len();
        self.grow(self.offset + size as u64)?;
        // A part of a record that found no room is incomplete, and the next record is written over it.
        self.file.write(self.offset, &buffer)?;
        self.file.sync_data().map_err(sync_error)?;
        self.advance(size);
        self.buffer = buffer;
        // A large group is rare, and its memory is not needed for the next one.
        if self.buffer.capacity() as u64 > GROWTH {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Starts again at the beginning: the store file has everything and names the journal `nonce`.
    pub(super) fn restart(&mut self, nonce: u64) {
        (self.nonce, self.sequence, self.offset) = (nonce, 0, 0);
    }

    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The size of the records, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }

    fn advance(&mut self, size: usize) {
        self.sequence += 1;
        self.offset = (self.offset + size as u64).next_multiple_of(SECTOR);
    }

    /// Makes room for one more part than there is.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub(super) fn probe(&mut self) -> io::Result<()> {
        self.grow(self.offset + GROWTH)
    }

    fn grow(&mut self, needed: u64) -> io::Result<()> {
        while self.written < needed {
            let end = (self.written + 1).next_multiple_of(GROWTH);
            let zeros = usize::try_from(end - self.written).map_err(io::Error::other)?;
            if let Err(error) = self.file.write(self.written, &vec![0; zeros]) {
                if is_full(&error) {
                    // Gives back what was written of the part, which others on the disk may need.
                    self.file.set_len(self.written).map_err(|error| {
                        io::Error::other(format!("the journal cannot be shortened: {error}"))
                    })?;
                }
                return Err(error);
            }
            self.written = end;
        }
        Ok(())
    }

    /// The rest of the record with the next sequence number, if there is a complete one at `offset`.
    fn read(&self, offset: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(header) = self.header(offset)?.filter(|header| header.sequence == self.sequence) else {
            return Ok(None);
        };
        let size = (HEADER_BYTES - CHECKED_FROM) as u64 + u64::from(header.length);
        if offset + CHECKED_FROM as u64 + size > self.written {
            return Ok(None);
        }
        let mut checked = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        self.file.read(offset + CHECKED_FROM as u64, &mut checked)?;
        let is_complete = crc32fast::hash(&checked) == header.checksum;
        Ok(is_complete.then(|| checked.split_off(HEADER_BYTES - CHECKED_FROM)))
    }

    /// The header at `offset`, if it is one of this journal.
    fn header(&self, offset: u64) -> io::Result<Option<Header>> {
        Ok(self.any_header(offset)?.filter(|header| header.nonce == self.nonce))
    }

    /// The header at `offset`, if it is one of any journal.
    fn any_header(&self, offset: u64) -> io::Result<Option<Header>> {
        if offset + HEADER_BYTES as u64 > self.written {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.file.read(offset, &mut bytes)?;
        Ok(Header::parse(&bytes))
    }

    /// Whether there is a header with a higher sequence number than the next one, so that the next one was complete once.
    fn has_later_record(&self) -> io::Result<bool> {
        let mut block = vec![0; GROWTH as usize];
        let mut begin = self.offset;
        while begin + SECTOR <= self.written {
            let size = usize::try_from((self.written - begin).min(GROWTH)).map_err(io::Error::other)?;
            self.file.read(begin, &mut block[..size])?;
            let headers = block[..size].chunks(SECTOR as usize).filter_map(Header::parse);
            let mut later =
                headers.filter(|header| header.nonce == self.nonce && header.sequence > self.sequence);
            if later.next().is_some() {
                return Ok(true);
            }
            begin += size as u64;
        }
        Ok(false)
    }
}

struct Header {
    checksum: u32,
    nonce: u64,
    sequence: u64,
    length: u32,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(&MAGIC)?);
        Some(Self {
            checksum: reader.u32()?,
            nonce: reader.u64()?,
            sequence: reader.u64()?,
            length: reader.u32()?,
        })
    }
}

fn encode(
    buffer: &mut Vec<u8>,
    nonce: u64,
    sequence: u64,
    compacted: Revision,
    commits: &[Arc<Batch>],
) -> io::Result<()> {
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&nonce.to_le_bytes());
    buffer.extend_from_slice(&sequence.to_le_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&compacted.0.to_le_bytes());
    put_length(buffer, commits.len())?;
    for commit in commits {
        buffer.extend_from_slice(&commit.revision.0.to_le_bytes());
        put_length(buffer, commit.events.len())?;
        for event in &commit.events {
            put_length(buffer, event.key.len())?;
            buffer.extend_from_slice(&event.key);
            match &event.value {
                Some(value) => {
                    put_length(buffer, value.len())?;
                    buffer.extend_from_slice(value);
                }
                None => buffer.extend_from_slice(&DELETED.to_le_bytes()),
            }
        }
    }
    let length = length(buffer.len() - HEADER_BYTES)?;
    buffer[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(&buffer[CHECKED_FROM..]);
    buffer[4..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn put_length(buffer: &mut Vec<u8>, size: usize) -> io::Result<()> {
    buffer.extend_from_slice(&length(size)?.to_le_bytes());
    Ok(())
}

/// A length as it is stored. The limits of commits and groups keep every length far below the bound.
fn length(size: usize) -> io::Result<u32> {
    u32::try_from(size)
        .ok()
        .filter(|length| *length != DELETED)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The group in a record. `None`: the record is malformed.
fn decode(record: &[u8]) -> Option<JournaledGroup> {
    let mut reader = Reader(record);
    let compacted = Revision(reader.u64()?);
    let commits = (0..reader.u32()?).map(|_| decode_commit(&mut reader)).collect::<Option<_>>()?;
    reader.0.is_empty().then_some(JournaledGroup { compacted, commits })
}

fn decode_commit(reader: &mut Reader<'_>) -> Option<JournaledCommit> {
    let revision = Revision(reader.u64()?);
    let mutations = (0..reader.u32()?).map(|_| decode_mutation(reader)).collect::<Option<_>>()?;
    Some(JournaledCommit { revision, mutations })
}

fn decode_mutation(reader: &mut Reader<'_>) -> Option<Mutation> {
    let size = reader.u32()?;
    let key = reader.bytes(size)?;
    let change = match reader.u32()? {
        DELETED => Change::Delete,
        size => Change::Put(reader.bytes(size)?),
    };
    Some(Mutation { change, ..Mutation::put(key, Bytes::new()) })
}

/// Reads integers and bytes from the front of a slice.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn bytes(&mut self, size: u32) -> Option<Bytes> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(size).ok()?)?;
        self.0 = rest;
        Some(Bytes::copy_from_slice(bytes))
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::follow::Event;
    use crate::record::Record;

    const NONCE: u64 = 7;

    /// A file that outlives its journals.
    #[derive(Clone, Debug, Default)]
    struct Shared(Arc<InMemoryBackend>);

    impl StorageBackend for Shared {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            // The backend of redb does not grow by writes.
            self.0.set_len(self.0.len()?.max(offset + data.len() as u64))?;
            self.0.write(offset, data)
        }
    }

    impl Shared {
        fn start(&self) -> Journal {
            Journal::start(Box::new(self.clone()), NONCE).unwrap()
        }

        fn recover(&self) -> Result<Vec<u64>, String> {
            let (_, groups) =
                Journal::recover(Box::new(self.clone()), NONCE, None).map_err(|error| error.to_string())?;
            let commits = groups.iter().flat_map(|group| &group.commits);
            Ok(commits.map(|commit| commit.revision.0).collect())
        }

        fn flip(&self, place: u64) {
            let mut byte = [0];
            self.read(place, &mut byte).unwrap();
            self.write(place, &[byte[0] ^ 1]).unwrap();
        }
    }

    fn commit(revision: u64, size: usize) -> Arc<Batch> {
        let put = Event {
            key: format!("key-{revision}").into(),
            value: Some(vec![b'v'; size].into()),
            previous: None,
        };
        let before =
            Record { key: "gone".into(), value: "old".into(), created: Revision(1), modified: Revision(1) };
        let deleted = Event { key: "gone".into(), value: None, previous: Some(before) };
        Arc::new(Batch { revision: Revision(revision), events: vec![put, deleted] })
    }

    #[test]
    fn a_recovered_journal_has_what_was_appended_and_goes_on() {
        let file = Shared::default();
        let mut journal = file.start();
        journal.append(Revision(3), &[commit(5, 10), commit(6, 0)]).unwrap();
        journal.append(Revision(4), &[commit(7, 3 * GROWTH as usize)]).unwrap();

        let (mut journal, groups) = Journal::recover(Box::new(file.clone()), NONCE, None).unwrap();
        assert_eq!(groups.iter().map(|group| group.compacted.0).collect::<Vec<_>>(), [3, 4]);
        let mutations = &groups[0].commits[0].mutations;
        assert_eq!(
            mutations[..],
            [Mutation::put("key-5", vec![b'v'; 10]), Mutation::delete("gone", crate::Expect::Any)]
        );
        journal.append(Revision(4), &[commit(8, 10)]).unwrap();
        assert_eq!(file.recover().unwrap(), [5, 6, 7, 8]);
    }

    #[test]
    fn records_of_earlier_checkpoints_are_not_replayed() {
        let file = Shared::default();
        let mut journal = file.start();
        for revision in 1..=5 {
            journal.append(Revision(0), &[commit(revision, 2_000)]).unwrap();
        }
        journal.restart(NONCE + 1);
        journal.append(Revision(0), &[commit(6, 100)]).unwrap();
        let (_, groups) = Journal::recover(Box::new(file.clone()), NONCE + 1, None).unwrap();
        assert_eq!(groups.len(), 1);
        assert_eq!(Journal::recover(Box::new(file), NONCE + 2, None).unwrap().1.len(), 0);
    }

    #[test]
    fn an_incomplete_last_record_is_ignored_and_overwritten() {
        // Whichever of its sectors is missing.
        for sector in 0..3 {
            let file = Shared::default();
            let mut journal = file.start();
            journal.append(Revision(0), &[commit(1, 100)]).unwrap();
            let last = journal.bytes();
            journal.append(Revision(0), &[commit(2, 1_000)]).unwrap();
            file.write(last + sector * SECTOR, &[0; SECTOR as usize]).unwrap();
            let (mut journal, groups) = Journal::recover(Box::new(file.clone()), NONCE, None).unwrap();
            assert_eq!(groups.len(), 1, "sector {sector}");
            journal.append(Revision(0), &[commit(2, 1)]).unwrap();
            assert_eq!(file.recover().unwrap(), [1, 2], "sector {sector}");
        }
    }

    #[test]
    fn a_damaged_record_before_the_last_one_is_found() {
        for place in [0, 5, 9, 17, 25, 30, 600] {
            let file = Shared::default();
            let mut journal = file.start();
            for revision in 1..=3 {
                journal.append(Revision(0), &[commit(revision, 1_000)]).unwrap();
            }
            file.flip(place);
            assert_eq!(file.recover(), Err("a record is damaged".to_owned()), "byte {place}");
        }
    }

    #[test]
    fn a_file_without_its_end_is_found_and_an_interrupted_growth_is_no_loss() {
        let file = Shared::default();
        let mut journal = file.start();
        journal.append(Revision(0), &[commit(1, 1_000)]).unwrap();
        for length in [0, 600, GROWTH - 1] {
            let short = Shared::default();
            let mut content = vec![0; length as usize];
            file.read(0, &mut content).unwrap();
            short.write(0, &content).unwrap();
            assert_eq!(short.recover(), Err("it is too short".to_owned()), "{length}");
        }
        file.write(GROWTH, &[0; 700]).unwrap();
        assert_eq!(file.recover().unwrap(), [1]);
        let mut journal = Journal::recover(Box::new(file.clone()), NONCE, None).unwrap().0;
        journal.append(Revision(0), &[commit(2, GROWTH as usize)]).unwrap();
        assert_eq!(file.recover().unwrap(), [1, 2]);
    }

    #[test]
    fn a_file_of_other_content_is_empty() {
        let file = Shared::default();
        file.write(0, &vec![b'f'; GROWTH as usize]).unwrap();
        assert_eq!(file.recover().unwrap(), [0; 0]);
        // A length beyond the end of the file.
        let mut record = Vec::new();
        encode(&mut record, NONCE, 0, Revision(0), &[]).unwrap();
        record[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        file.write(0, &record).unwrap();
        assert_eq!(file.recover().unwrap(), [0; 0]);
    }
}
