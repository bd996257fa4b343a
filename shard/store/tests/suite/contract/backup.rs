//! Backups of every backend: consistent while it commits and compacts.

use std::io::Write;
use std::sync::mpsc;

use fairlead_store::{
    Anchor, BackupContent, BackupError, BackupHeader, BackupRange, BackupReader, ContentDigest, Ownership,
    Range, ReadError, RetainedRevisions, Revision, Store, WriteBackupError, write_backup,
};

use super::subject::{delete, put, show as show_page};
use crate::backend::on_every_backend;

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
#[allow(dead_code, reason = "for the suites that restore it")]
pub(crate) fn whole_backup(store: &dyn Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = header(BackupContent::Whole, store.revision());
    write_backup(store, &header, &[own(Range::all())], &mut bytes).unwrap();
    bytes
}

/// The records of a store, as of [`show`].
fn records(store: &dyn Store) -> Vec<String> {
    show_page(&store.list(&Range::all(), None, None).unwrap(), Revision(0))
}

/// The records of a backup as `key=value@created/modified`, with `*` after shared ones.
pub(crate) fn show(backup: &[u8]) -> Result<Vec<String>, BackupError> {
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
        let expected = records(&*store);
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
        let expected = records(&*store);
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

#[test]
fn the_digest_of_a_store_shows_its_records_and_their_order_but_not_its_revisions() {
    on_every_backend(|store| async move {
        let large = "v".repeat(100_000);
        for (key, value) in
            [("b", "1"), ("a", "1"), ("c", large.as_str()), ("d", large.as_str()), ("e", &large)]
        {
            put(&*store, key, value).await;
        }
        let digest = |store: &dyn Store| ContentDigest::of(store, store.revision()).unwrap();
        let first = digest(&*store);
        assert_eq!(first.records, 5);
        put(&*store, "e", &large).await;
        assert_eq!(digest(&*store), first, "only its revision has changed");
        put(&*store, "b", "1").await;
        let reordered = digest(&*store);
        assert_eq!(reordered.content, first.content);
        assert_ne!(reordered.order, first.order);
        put(&*store, "b", "2").await;
        assert_ne!(digest(&*store).content, first.content);
        delete(&*store, "d").await;
        assert_eq!(digest(&*store).records, 4);
        assert_eq!(ContentDigest::of(&*store, store.at(5)).unwrap(), first);
    });
}
