//! Backups of every backend, and what a reader says of one that is not as it was written.

use std::io::{Read, Write};
use std::sync::mpsc;

use fairlead_store::{
    Anchor, BackupContent, BackupError, BackupHeader, BackupRange, BackupReader, BackupWriter, Ownership,
    Range, ReadError, RetainedRevisions, Revision, Store, WriteBackupError, write_backup,
};

use crate::backend::{list_all, on_every_backend};
use crate::contract::subject::{delete, put};

pub(crate) fn header(content: BackupContent, revision: Revision) -> BackupHeader {
    let anchor = Anchor { key: "anchor".to_owned(), text: "0f9d".to_owned() };
    BackupHeader {
        content,
        source: "root".to_owned(),
        anchor: Some(anchor),
        revision,
        created: 1_700_000_000,
    }
}

pub(crate) fn own(range: Range) -> BackupRange {
    BackupRange { range, ownership: Ownership::Own }
}

/// The backup of the whole store at its latest revision.
pub(crate) fn whole_backup(store: &dyn Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = header(BackupContent::Whole, store.revision());
    write_backup(store, &header, &[own(Range::all())], &mut bytes).unwrap();
    bytes
}

/// The records of a backup as `key=value@created/modified`, with `*` after shared ones.
fn show(backup: &[u8]) -> Result<Vec<String>, BackupError> {
    let mut reader = BackupReader::open(backup)?;
    let mut shown = Vec::new();
    while let Some(found) = reader.next_record()? {
        let record = found.record;
        let mark = if found.ownership == Ownership::Shared { "*" } else { "" };
        shown.push(format!(
            "{}={}@{}/{}{mark}",
            record.key.escape_ascii(),
            record.value.escape_ascii(),
            record.created,
            record.modified
        ));
    }
    assert_eq!(reader.records(), shown.len() as u64);
    assert!(reader.next_record()?.is_none(), "the end is the end");
    Ok(shown)
}

#[test]
fn a_backup_has_the_records_of_one_revision_while_writes_go_on() {
    on_every_backend(|store| async move {
        for key in 0..50 {
            put(&*store, &format!("key-{key:02}"), &"v".repeat(20_000)).await;
        }
        delete(&*store, "key-07").await;
        put(&*store, "key-03", "short").await;
        let expected = list_all(&*store, None);
        let retained = RetainedRevisions::default();
        let revision = retained.retain_latest(&*store);

        let writer = {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..200 {
                    put(&*store, &format!("key-{:02}", round % 60), "later").await;
                }
            })
        };
        let reader = store.clone();
        let backup = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let header = header(BackupContent::Whole, revision.revision());
            let records = write_backup(&*reader, &header, &[own(Range::all())], &mut bytes).unwrap();
            (header, records, bytes)
        });
        let (header, records, bytes) = backup.await.unwrap();
        writer.await.unwrap();
        assert_eq!(BackupReader::open(&bytes[..]).unwrap().header(), &header);
        assert_eq!(show(&bytes).unwrap(), expected);
        assert_eq!(records, 49);
        assert!(bytes.len() < 100_000, "{} bytes are not compressed", bytes.len());
    });
}

/// An output that stops at its third write, in the first block, until it may go on.
struct SlowOutput {
    writes: u32,
    stopped: mpsc::Sender<()>,
    resumed: mpsc::Receiver<()>,
    bytes: Vec<u8>,
}

impl Write for SlowOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.writes += 1;
        if self.writes == 3 {
            self.stopped.send(()).unwrap();
            self.resumed.recv().unwrap();
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_reader_stops_neither_commits_nor_compaction() {
    on_every_backend(|store| async move {
        for key in 0..30 {
            put(&*store, &format!("key-{key:02}"), &"v".repeat(20_000)).await;
        }
        let expected = list_all(&*store, None);
        let retained = RetainedRevisions::default();
        let revision = retained.retain_latest(&*store);
        let (stopped, has_stopped) = mpsc::channel();
        let (resume, resumed) = mpsc::channel();
        let mut output = SlowOutput { writes: 0, stopped, resumed, bytes: Vec::new() };
        let reader = store.clone();
        let backup = tokio::task::spawn_blocking(move || {
            let header = header(BackupContent::Whole, revision.revision());
            write_backup(&*reader, &header, &[own(Range::all())], &mut output).unwrap();
            output.bytes
        });
        tokio::task::spawn_blocking(move || has_stopped.recv().unwrap()).await.unwrap();

        for key in 0..30 {
            put(&*store, &format!("key-{key:02}"), "later").await;
        }
        delete(&*store, "key-29").await;
        store.compact(retained.limit(store.revision())).await.unwrap();
        assert_eq!(store.compacted(), store.at(30));
        resume.send(()).unwrap();
        assert_eq!(show(&backup.await.unwrap()).unwrap(), expected);

        assert_eq!(retained.limit(store.revision()), store.at(61), "the backup is over");
        store.compact(store.at(61)).await.unwrap();
        assert_eq!(store.stats().history, 0);
    });
}

#[test]
fn ranges_are_written_in_their_order_with_their_ownership() {
    on_every_backend(|store| async move {
        for key in ["a/1", "a/2", "b/1", "c/1"] {
            put(&*store, key, "-").await;
        }
        let shared = BackupRange { range: Range::prefix("a/"), ownership: Ownership::Shared };
        let header = header(BackupContent::Part { name: "part".to_owned() }, store.revision());
        let mut bytes = Vec::new();
        write_backup(&*store, &header, &[own(Range::prefix("c/")), shared], &mut bytes).unwrap();
        let record = |key, nth| format!("{key}=-@{0}/{0}", store.at(nth));
        let expected = [record("c/1", 4), record("a/1", 1) + "*", record("a/2", 2) + "*"];
        assert_eq!(show(&bytes).unwrap(), expected);
    });
}

#[test]
fn a_retained_revision_limits_compaction_until_it_is_dropped() {
    on_every_backend(|store| async move {
        let retained = RetainedRevisions::default();
        put(&*store, "a", "1").await;
        let first = retained.retain_latest(&*store);
        let again = retained.retain_latest(&*store);
        put(&*store, "a", "2").await;
        let second = retained.retain_latest(&*store);
        assert_eq!((first.revision(), second.revision()), (store.at(1), store.at(2)));
        assert_eq!(retained.limit(Revision(0)), Revision(0));
        assert_eq!(retained.limit(store.at(9)), store.at(1));
        drop(first);
        assert_eq!(retained.limit(store.at(9)), store.at(1));
        drop(again);
        assert_eq!(retained.limit(store.at(9)), store.at(2));
        drop(second);
        assert_eq!(retained.limit(store.at(9)), store.at(9));
    });
}

#[test]
fn a_backup_of_a_compacted_revision_ends_with_the_reason() {
    on_every_backend(|store| async move {
        put(&*store, "a", "1").await;
        put(&*store, "a", "2").await;
        store.compact(store.at(2)).await.unwrap();
        let mut bytes = Vec::new();
        let header = header(BackupContent::Whole, store.at(1));
        let error = write_backup(&*store, &header, &[own(Range::all())], &mut bytes).unwrap_err();
        assert!(matches!(error, WriteBackupError::Read(ReadError::Compacted { .. })), "{error}");
        let error = show(&bytes).unwrap_err();
        assert!(
            matches!(&error, BackupError::Failed { reason } if reason.contains("has been compacted")),
            "{error}"
        );
    });
}

#[test]
fn an_output_that_accepts_no_more_ends_the_backup() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    on_every_backend(|store| async move {
        put(&*store, "a", "1").await;
        let header = header(BackupContent::Whole, store.revision());
        let error = write_backup(&*store, &header, &[own(Range::all())], Full(80)).unwrap_err();
        assert!(matches!(&error, WriteBackupError::Output(_)), "{error}");
    });
}

/// A backup that was written by hand.
fn small_backup() -> Vec<u8> {
    let header = header(BackupContent::Whole, Revision(40));
    let mut writer = BackupWriter::begin(Vec::new(), &header).unwrap();
    for (revision, key) in (1..).zip(["a", "b", "c", "d"]) {
        let value = format!("the value of {key} {}", "0123456789".repeat(revision as usize));
        let (created, modified) = (Revision(revision), Revision(revision * 10));
        let record =
            fairlead_store::RecordRef { key: key.as_bytes(), value: value.as_bytes(), created, modified };
        writer.write(record, Ownership::Own).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_cut_backup_is_told_from_a_whole_one_wherever_it_is_cut() {
    let backup = small_backup();
    show(&backup).unwrap();
    for length in 0..backup.len() {
        let error = show(&backup[..length]).unwrap_err();
        match error {
            BackupError::Foreign => assert!(length < 8, "{length}"),
            BackupError::Cut { .. } => assert!(length >= 8, "{length}"),
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let backup = small_backup();
    for position in 0..backup.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut bytes = backup.clone();
            bytes[position] ^= bit;
            match show(&bytes) {
                // The magic, and the format version.
                Err(BackupError::Foreign) => assert!(position < 8, "{position}"),
                Err(BackupError::NewerFormat { .. }) => assert!((8..12).contains(&position), "{position}"),
                Err(BackupError::Altered { .. } | BackupError::Cut { .. }) => {}
                other => panic!("byte {position}: {other:?}"),
            }
        }
    }
}

#[test]
fn other_content_has_one_clear_sentence() {
    let backup = small_backup();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = backup.clone();
        change(&mut bytes);
        bytes
    };
    for (bytes, message) in [
        (b"apiVersion: v1\n".to_vec(), "it is not a backup of a shard"),
        (Vec::new(), "it is not a backup of a shard"),
        (
            with(&|bytes| bytes[8] = 2),
            "it has format version 2, this program supports up to 1: use the newer version",
        ),
        (with(&|bytes| bytes[8] = 0), "it was altered: its header is malformed"),
        (with(&|bytes| bytes[15] = 1), "it was altered: its header is malformed"),
        (with(&|bytes| bytes[40] ^= 1), "it was altered: its checksum does not fit its content"),
        (
            with(&|bytes| bytes.truncate(bytes.len() - 1)),
            "it is incomplete: it ends after 4 records without the mark of its end",
        ),
        (with(&|bytes| bytes.push(b'x')), "it was altered: something follows its end"),
        (with(&|bytes| bytes[55] = 9), "it was altered: it has a block of unknown kind 9"),
        (with(&|bytes| bytes[59] = 9), "it was altered: it has a block of an impossible size"),
        (with(&|bytes| bytes[23] = 0x7f), "it was altered: its header is malformed"),
    ] {
        let error = show(&bytes).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_reader_goes_on_failing_after_a_fault() {
    let backup = small_backup();
    for position in 55..backup.len() {
        let mut altered = backup.clone();
        altered[position] ^= 0xff;
        let mut reader = BackupReader::open(&altered[..]).unwrap();
        while let Ok(read) = reader.next_record() {
            assert!(read.is_some(), "{position}");
        }
        for _ in 0..3 {
            assert!(!matches!(reader.next_record(), Ok(None)), "{position}");
        }
    }
}

#[test]
fn an_error_of_the_input_is_no_fault_of_the_backup() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            self.0.read(buffer)
        }
    }
    let backup = small_backup();
    for length in [3, 60, backup.len() - 5] {
        let read = BackupReader::open(Broken(&backup[..length])).and_then(|mut reader| {
            while reader.next_record()?.is_some() {}
            Ok(())
        });
        assert!(matches!(read, Err(BackupError::Io(_))), "{length}: {read:?}");
    }
}
