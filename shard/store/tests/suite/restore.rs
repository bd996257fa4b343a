//! Stores that are made of backups.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use fairlead_store::{
    BackupContent, BackupError, BackupRange, BackupReader, ExistingStore, MemoryStore, Mutation, OpenError,
    Ownership, Range, ReadError, RedbOptions, RedbStore, RestoreError, RestoreSummary, Revision, Store,
    write_backup,
};

use crate::backend::{list_all, on_every_backend, runtime};
use crate::contract::backup::{header, own, whole_backup};
use crate::contract::subject::{delete, put, take};

fn restore(path: &Path, backup: &[u8], existing: ExistingStore) -> Result<RestoreSummary, RestoreError> {
    RedbStore::restore(path, BackupReader::open(backup)?, existing, None)
}

fn open(path: &Path) -> Result<RedbStore, OpenError> {
    RedbStore::open(path, RedbOptions::default())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_restored_store_has_the_records_and_goes_on_beyond_every_earlier_revision() {
    on_every_backend(|store| async move {
        for key in ["b", "a", "c", "a"] {
            put(&*store, key, &format!("{key} is here")).await;
        }
        delete(&*store, "c").await;
        let expected = list_all(&*store, None);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let restored = restore(&path, &whole_backup(&*store), ExistingStore::Refuse).unwrap();
        let revision = restored.revision;
        let first = store.at(2);
        assert_eq!(restored.records, 2);
        assert!(revision.0 >= store.at(5).0 + 1_000_000_000, "{revision}");
        assert_eq!(names(directory.path()), ["store.redb"]);

        let store = open(&path).unwrap();
        assert_eq!(list_all(&store, None), expected);
        assert_eq!((store.revision(), store.compacted()), (revision, revision));
        for old in [0, 4, 5, 6, 1005, 1006, revision.0 - 1] {
            let followed = store.follow(Revision(old));
            assert!(matches!(followed, Err(ReadError::Compacted { .. })), "{old}: {followed:?}");
            let listed = store.list(&Range::all(), None, Some(Revision(old)));
            assert!(matches!(listed, Err(ReadError::Compacted { .. })), "{old}: {listed:?}");
        }
        let mut follower = store.follow(revision).unwrap();
        let next = Revision(revision.0 + 1);
        assert_eq!(put(&store, "a", "new").await, next);
        assert_eq!(take(&mut follower, 1).await[0].revision, next);
        let crashed = open(&crashed_copy(directory.path())).unwrap();
        assert_eq!(list_all(&crashed, None), list_all(&store, None));
        drop(store);
        let store = open(&path).unwrap();
        assert_eq!(store.revision(), next);
        // A backup of the new store is that of any other.
        assert_eq!(store.list(&Range::all(), None, Some(next)).unwrap().records[0].created, first);
    });
}

#[test]
fn a_backup_that_is_restored_again_begins_beyond_the_commits_of_the_first_time() {
    let source = MemoryStore::with_seed(1);
    runtime().block_on(async { put(&source, "a", "from the backup").await });
    let backup = whole_backup(&source);
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first.redb"), directory.path().join("second.redb"));
    restore(&first, &backup, ExistingStore::Refuse).unwrap();
    let store = open(&first).unwrap();
    let mut seen = store.revision();
    for value in ["1", "2", "3"] {
        seen = runtime().block_on(put(&store, "a", value));
    }
    restore(&second, &backup, ExistingStore::Refuse).unwrap();
    // A client of the first store that comes to the second one.
    let followed = open(&second).unwrap().follow(seen);
    assert!(matches!(followed, Err(ReadError::Compacted { .. })), "{followed:?}");
}

/// A copy of an open store, as a crash would leave it: the last commits are in the journal only.
fn crashed_copy(folder: &Path) -> PathBuf {
    for suffix in ["", "-journal"] {
        let named = |name: &str| folder.join(format!("{name}{suffix}"));
        std::fs::copy(named("store.redb"), named("crashed.redb")).unwrap();
    }
    folder.join("crashed.redb")
}

#[test]
fn a_crash_before_the_journal_of_the_replaced_store_was_removed_is_no_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let source = MemoryStore::with_seed(1);
    runtime().block_on(async { put(&source, "a", "from the backup").await });
    let store = open(&path).unwrap();
    runtime().block_on(async { put(&store, "a", "from before").await });
    let old_journal = crashed_copy(directory.path()).with_file_name("crashed.redb-journal");
    drop(store);

    restore(&path, &whole_backup(&source), ExistingStore::Replace).unwrap();
    std::fs::copy(old_journal, directory.path().join("store.redb-journal")).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(list_all(&store, None), ["a=from the backup@1/1"]);
    runtime().block_on(async { put(&store, "b", "later").await });
    let crashed = open(&crashed_copy(directory.path())).unwrap();
    assert_eq!(list_all(&crashed, None), list_all(&store, None));
}

#[test]
fn a_restore_replaces_no_store_of_another_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let source = MemoryStore::with_seed(1);
    runtime().block_on(async { put(&source, "a", "from the backup").await });
    let backup = whole_backup(&source);
    let restore = |path: &Path, owner: &str| {
        let reader = BackupReader::open(backup.as_slice()).unwrap();
        RedbStore::restore(path, reader, ExistingStore::Replace, Some(owner))
    };
    restore(&path, "shard a").unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.owner(), Some("shard a"));
    runtime().block_on(async { put(&store, "b", "later").await });
    let crashed = crashed_copy(directory.path());
    drop(store);
    for path in [&path, &crashed] {
        let before = std::fs::read(path).unwrap();
        let refused = restore(path, "shard b").unwrap_err().to_string();
        assert!(refused.ends_with("belongs to \"shard a\", not to \"shard b\""), "{refused}");
        assert!(before == std::fs::read(path).unwrap(), "the store has changed");
        restore(path, "shard a").unwrap();
    }
    // A damaged store does not say to which server it belongs.
    std::fs::write(&path, "no store").unwrap();
    restore(&path, "shard b").unwrap();
    assert_eq!(open(&path).unwrap().owner(), Some("shard b"));
}

#[test]
fn values_of_any_size_and_content_come_back() {
    let mut state = 7_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let text = |length: usize| b"{\"group\":\"example.com\"},".repeat(length / 24 + 1)[..length].to_vec();
    let store = MemoryStore::with_seed(1);
    let values = [
        Vec::new(),
        text(1),
        text(5_000),
        noise(5_000),
        noise(700_000),
        text(3 << 20),
        noise(300),
        text(300_000),
    ];
    runtime().block_on(async {
        for (index, value) in values.iter().enumerate() {
            let put = Mutation::put(format!("key-{index}"), value.clone());
            store.commit(vec![put]).await.unwrap();
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let backup = whole_backup(&store);
    assert!(backup.len() < 900_000, "{} bytes", backup.len());
    restore(&path, &backup, ExistingStore::Refuse).unwrap();
    let expected = store.list(&Range::all(), None, None).unwrap().records;
    let restored = open(&path).unwrap();
    let revision = restored.revision();
    assert!(restored.list(&Range::all(), None, None).unwrap().records == expected);

    // The same from a store that has compressed them, at a revision that is not its latest.
    runtime().block_on(async { put(&restored, "key-2", "later").await });
    let mut again = Vec::new();
    write_backup(&restored, &header(BackupContent::Whole, revision), &[own(Range::all())], &mut again)
        .unwrap();
    drop(restored);
    restore(&path, &again, ExistingStore::Replace).unwrap();
    assert!(open(&path).unwrap().list(&Range::all(), None, None).unwrap().records == expected);
}

#[test]
fn a_backup_that_cannot_be_used_leaves_nothing_behind() {
    let store = MemoryStore::with_seed(1);
    runtime().block_on(async {
        for key in 0..100 {
            put(&store, &format!("key-{key}"), &key.to_string()).await;
        }
    });
    let backup = whole_backup(&store);
    let mut altered = backup.clone();
    altered[40] ^= 1;
    let mut newer = backup.clone();
    newer[8] = 9;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    for existing in [ExistingStore::Refuse, ExistingStore::Replace] {
        for bytes in [&backup[..backup.len() - 3], &altered, &newer, b"text"] {
            let error = restore(&path, bytes, existing).unwrap_err();
            assert!(matches!(error, RestoreError::Backup(_)), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            assert_eq!(names(directory.path()), [""; 0]);
        }
    }
    for bytes in [&backup[..backup.len() - 3], &altered] {
        let reader = BackupReader::open(bytes).unwrap();
        RedbStore::verify_backup(directory.path(), reader).unwrap_err();
    }
    let verified = RedbStore::verify_backup(directory.path(), BackupReader::open(&backup[..]).unwrap());
    assert_eq!(verified.unwrap().records, 100);
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn an_existing_store_is_replaced_only_on_request_and_never_while_it_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let source = MemoryStore::with_seed(1);
    runtime().block_on(async { put(&source, "a", "from the backup").await });
    let backup = whole_backup(&source);
    let store = open(&path).unwrap();
    runtime().block_on(async { put(&store, "a", "from before").await });

    let error = restore(&path, &backup, ExistingStore::Refuse).unwrap_err();
    assert!(matches!(error, RestoreError::Exists { .. }), "{error}");
    let error = restore(&path, &backup, ExistingStore::Replace).unwrap_err();
    assert!(matches!(error, RestoreError::Open(OpenError::InUse { .. })), "{error}");
    drop(store);
    restore(&path, &backup[..backup.len() - 1], ExistingStore::Replace).unwrap_err();
    assert_eq!(list_all(&open(&path).unwrap(), None), ["a=from before@1/1"]);

    // A store that was not closed, with its journal.
    std::fs::write(directory.path().join("store.redb-journal"), b"journal").unwrap();
    restore(&path, &backup, ExistingStore::Replace).unwrap();
    assert_eq!(names(directory.path()), ["store.redb"]);
    assert_eq!(list_all(&open(&path).unwrap(), None), ["a=from the backup@1/1"]);

    std::fs::write(&path, b"damaged").unwrap();
    restore(&path, &backup, ExistingStore::Replace).unwrap();
    assert_eq!(list_all(&open(&path).unwrap(), None), ["a=from the backup@1/1"]);

    std::fs::remove_file(&path).unwrap();
    std::fs::write(directory.path().join("store.redb-journal"), b"journal").unwrap();
    let error = restore(&path, &backup, ExistingStore::Refuse).unwrap_err();
    assert!(error.to_string().ends_with("store.redb-journal exists"), "{error}");
}

/// The backup of the keys below `a/`, with `shared` as a record that others use, too.
fn part(store: &dyn Store) -> Vec<u8> {
    let shared = BackupRange { range: Range::prefix("shared"), ownership: Ownership::Shared };
    let header = header(BackupContent::Part { name: "part a".to_owned() }, store.revision());
    let mut bytes = Vec::new();
    write_backup(store, &header, &[own(Range::prefix("a/")), shared], &mut bytes).unwrap();
    bytes
}

#[test]
fn a_part_comes_back_into_its_store_in_the_order_of_its_revisions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = open(&path).unwrap();
    let backup = runtime().block_on(async {
        put(&store, "anchor", "this store is 0f9d").await;
        put(&store, "shared", "-").await;
        for key in ["a/2", "b/1", "a/1", "a/2"] {
            put(&store, key, key).await;
        }
        let together = ["a/3", "a/4"].map(|key| Mutation::put(key, key));
        store.commit(together.into()).await.unwrap();
        let backup = part(&store);
        for key in ["a/1", "a/2", "a/3", "a/4"] {
            delete(&store, key).await;
        }
        put(&store, "b/1", "later").await;
        backup
    });
    let in_use = RedbStore::restore_part(&path, &mut Cursor::new(&backup)).unwrap_err();
    assert!(matches!(in_use, RestoreError::Open(OpenError::InUse { .. })), "{in_use}");
    drop(store);

    let restored = RedbStore::restore_part(&path, &mut Cursor::new(&backup)).unwrap();
    // Revisions 2, 3, 5, 6 and 7 of the backup follow 12.
    assert_eq!((restored.records, restored.kept, restored.revision), (4, 1, Revision(17)));
    let store = open(&path).unwrap();
    assert_eq!(
        list_all(&store, None),
        [
            "a/1=a/1@15/15",
            "a/2=a/2@14/16",
            "a/3=a/3@17/17",
            "a/4=a/4@17/17",
            "anchor=this store is 0f9d@1/1",
            "b/1=later@4/12",
            "shared=-@2/2"
        ]
    );
    assert_eq!((store.revision(), store.compacted()), (Revision(17), Revision(17)));
    assert!(matches!(store.follow(Revision(16)), Err(ReadError::Compacted { .. })));
    runtime().block_on(async {
        assert_eq!(put(&store, "b/1", "last").await, Revision(18));
        store.compact(Revision(18)).await.unwrap();
        assert_eq!((store.stats().history, store.stats().log), (0, 0));
    });
    drop(store);

    let again = RedbStore::restore_part(&path, &mut Cursor::new(&backup)).unwrap_err();
    assert!(matches!(&again, RestoreError::Present { key, .. } if key == "a/1"), "{again}");
    assert_eq!(open(&path).unwrap().revision(), Revision(18));
}

#[test]
fn a_part_is_refused_by_any_other_store_and_a_whole_store_by_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let source = MemoryStore::with_seed(1);
    runtime().block_on(async {
        put(&source, "anchor", "this store is 0f9d").await;
        put(&source, "a/1", "1").await;
    });
    let (part, whole) = (part(&source), whole_backup(&source));
    let add = |bytes: &[u8]| RedbStore::restore_part(&path, &mut Cursor::new(bytes.to_vec())).unwrap_err();
    assert!(matches!(add(&part), RestoreError::NoStore { .. }));
    assert!(!path.exists());
    let store = open(&path).unwrap();
    runtime().block_on(async { put(&store, "anchor", "this store is another one").await });
    drop(store);
    assert!(matches!(add(&part), RestoreError::OtherStore { .. }));
    assert!(matches!(add(&whole), RestoreError::Whole));
    assert!(matches!(add(&part[..part.len() - 1]), RestoreError::Backup(BackupError::Cut { .. })));
    assert_eq!(list_all(&open(&path).unwrap(), None), ["anchor=this store is another one@1/1"]);

    let alone = restore(&directory.path().join("new.redb"), &part, ExistingStore::Refuse).unwrap_err();
    assert!(matches!(&alone, RestoreError::Part { name } if name == "part a"), "{alone}");
}
