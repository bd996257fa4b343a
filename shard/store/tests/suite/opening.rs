//! Opening of files: a new one, a store, a file of another program, a damaged one, one in use.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairlead_store::{CommitError, Expect, Mutation, OpenError, RedbOptions, RedbStore, Revision, Store};
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::backend::{list_all, runtime};
use crate::contract::subject::{put, take};

fn open(path: &Path) -> Result<RedbStore, OpenError> {
    RedbStore::open(path, RedbOptions::default())
}

fn with_some_content(path: &Path) {
    let store = open(path).unwrap();
    runtime().block_on(async {
        for round in 0..50 {
            put(&store, &format!("key-{}", round % 20), &"v".repeat(500)).await;
        }
    });
}

/// All readable data: the keys at every revision, and the log.
fn content(store: &RedbStore) -> String {
    let (first, last) = (store.compacted(), store.revision());
    let states: Vec<_> = (first.0..=last.0).map(|at| list_all(store, Some(Revision(at)))).collect();
    let log = runtime()
        .block_on(async { take(&mut store.follow(first).unwrap(), (last.0 - first.0) as usize).await });
    format!("{states:?} {log:?}")
}

#[test]
fn everything_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    runtime().block_on(async {
        let store = open(&path).unwrap();
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")] {
            put(&store, key, value).await;
        }
        store.compact(Revision(2)).await.unwrap();
        let log = take(&mut store.follow(Revision(2)).unwrap(), 2).await;
        let listed = [list_all(&store, Some(Revision(2))), list_all(&store, None)];
        drop(store);

        let store = open(&path).unwrap();
        assert_eq!((store.revision(), store.compacted()), (Revision(4), Revision(2)));
        assert_eq!([list_all(&store, Some(Revision(2))), list_all(&store, None)], listed);
        assert_eq!(take(&mut store.follow(Revision(2)).unwrap(), 2).await, log);
        assert_eq!(put(&store, "d", "1").await, Revision(5));
    });
}

#[test]
fn a_new_file_has_mode_0600_and_leaves_no_temporary_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    drop(open(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_use_is_refused_until_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let first = open(&path).unwrap();
    // A reader that outlives the store must not keep the file.
    let follower = first.follow(Revision(0)).unwrap();
    let second = open(&path);
    assert!(matches!(second, Err(OpenError::InUse { .. })), "{second:?}");
    drop(first);
    open(&path).unwrap();
    drop(follower);
}

#[test]
fn a_file_in_a_missing_directory_is_an_io_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(&directory.path().join("missing/store.redb")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(error.to_string().contains("No such file or directory"), "{error}");
}

#[test]
fn a_newer_format_is_refused_and_not_touched() {
    const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    with_some_content(&path);
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", 4).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let before = std::fs::read(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 4, supported: 3, .. }), "{error}");
    assert!(before == std::fs::read(&path).unwrap(), "the file has changed");
}

#[test]
fn a_file_that_is_no_store_is_refused_with_a_hint_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    with_some_content(&path);
    let good = std::fs::read(&path).unwrap();

    let foreign = directory.path().join("foreign.redb");
    let database = Database::create(&foreign).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("meta")).unwrap();
    transaction.commit().unwrap();
    drop(database);

    let zeroed = |from: usize, to: usize| {
        let mut bytes = good.clone();
        bytes[from..to].fill(0);
        bytes
    };
    let cases = [
        ("empty", Vec::new(), "it is empty; restore"),
        ("text", b"apiVersion: v1\n".to_vec(), "it does not begin like a store file; check the path"),
        ("short text", b"re".to_vec(), "it does not begin like a store file; check the path"),
        ("signature only", good[..9].to_vec(), "it is damaged ("),
        ("cut in the header", good[..100].to_vec(), "it is damaged ("),
        ("cut in half", good[..good.len() / 2].to_vec(), "it is damaged ("),
        ("zeroed commit slots", zeroed(64, 320), "it is damaged ("),
        ("zeroed behind the header", zeroed(4096, good.len()), "it is damaged ("),
        ("another program's", std::fs::read(&foreign).unwrap(), "it is damaged ("),
    ];
    for (name, bytes, hint) in cases {
        let path = directory.path().join("bad.redb");
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path).expect_err(name);
        assert!(
            matches!(&error, OpenError::Corrupt { hint: found, .. } if found.starts_with(hint)),
            "{name}: {error}"
        );
        assert!(!error.to_string().contains('\n'), "{name}: {error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: the file has changed");
    }
}

#[test]
fn flipped_bits_never_crash_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    with_some_content(&path);
    let content_of_good = content(&open(&path).unwrap());
    let good = std::fs::read(&path).unwrap();
    let path = directory.path().join("flipped.redb");
    for position in (9..320).step_by(3).chain((4096..good.len()).step_by(good.len() / 40)) {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        // Either the change is detected, or it is in an unused place.
        match open(&path) {
            Ok(store) => {
                assert!(content(&store) == content_of_good, "byte {position}: the damaged file is served")
            }
            Err(error) => {
                assert!(matches!(error, OpenError::Corrupt { .. }), "byte {position}: {error}");
                assert!(std::fs::read(&path).unwrap() == bytes, "byte {position}: the file has changed");
            }
        }
    }
}

#[test]
fn a_value_that_was_changed_on_the_disk_is_never_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let words = ["the value as it is now", "the value as it was before", "the value that was deleted"];
    runtime().block_on(async {
        let store = open(&path).unwrap();
        put(&store, "a", words[1]).await;
        put(&store, "a", words[0]).await;
        put(&store, "b", words[2]).await;
        store.commit(vec![Mutation::delete("b", Expect::Any)]).await.unwrap();
    });
    let good = std::fs::read(&path).unwrap();
    for word in words {
        // Pages that are not in use any more may hold it, too.
        let places = good.windows(word.len()).enumerate().filter(|(_, seen)| *seen == word.as_bytes());
        let mut bytes = good.clone();
        for (place, _) in places {
            bytes[place + word.len() - 1] ^= 1;
        }
        assert!(bytes != good, "{word} is not in the file");
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path).expect_err(word);
        assert!(matches!(error, OpenError::Corrupt { .. }), "{word}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{word}: the file has changed");
    }
    std::fs::write(&path, &good).unwrap();
    open(&path).unwrap();
}

/// redb itself, read by an independent reader: the tables hold what their description says.
#[test]
fn the_file_has_the_documented_layout() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    runtime().block_on(async {
        let store = open(&path).unwrap();
        put(&store, "a", "1").await;
        put(&store, "a", "2").await;
    });
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_read().unwrap();
    let current = TableDefinition::<&[u8], (u64, u64, &[u8])>::new("current");
    let history = TableDefinition::<(&[u8], u64), (u64, u64, &[u8])>::new("history");
    let log = TableDefinition::<(u64, u32), (u8, &[u8])>::new("log");
    let current = transaction.open_table(current).unwrap();
    let history = transaction.open_table(history).unwrap();
    let log = transaction.open_table(log).unwrap();
    assert_eq!(current.get(&b"a"[..]).unwrap().unwrap().value(), (1, 2, &b"2"[..]));
    assert_eq!(history.get((&b"a"[..], 2)).unwrap().unwrap().value(), (1, 1, &b"1"[..]));
    assert_eq!(log.get((1, 0)).unwrap().unwrap().value(), (0, &b"a"[..]));
    assert_eq!(log.get((2, 0)).unwrap().unwrap().value(), (1, &b"a"[..]));
}

#[test]
fn a_file_belongs_to_the_first_server_that_opens_it_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let options = RedbOptions::default;
    let new = directory.path().join("new.redb");
    RedbStore::open_owned(&new, "shard a", options()).unwrap();
    let unnamed = directory.path().join("unnamed.redb");
    with_some_content(&unnamed);
    assert_eq!(open(&unnamed).unwrap().owner(), None);
    let crashed = copy_of_open_store(directory.path(), 20);
    for (path, revision) in [(new, 0), (unnamed, 50), (crashed, 20)] {
        for _ in 0..2 {
            let store = RedbStore::open_owned(&path, "shard a", options()).unwrap();
            assert_eq!((store.owner(), store.revision()), (Some("shard a"), Revision(revision)));
        }
        let before = std::fs::read(&path).unwrap();
        let refused = RedbStore::open_owned(&path, "shard b", options()).unwrap_err().to_string();
        assert!(refused.ends_with("belongs to \"shard a\", not to \"shard b\""), "{refused}");
        assert!(before == std::fs::read(&path).unwrap(), "the file has changed");
        assert_eq!(open(&path).unwrap().owner(), Some("shard a"));
    }
}

/// The files of a store that is open, as a crash leaves them behind.
fn copy_of_open_store(directory: &Path, keys: u64) -> std::path::PathBuf {
    let (path, copy) = (directory.join("store.redb"), directory.join("crashed.redb"));
    let store = open(&path).unwrap();
    runtime().block_on(async {
        for key in 0..keys {
            put(&store, &format!("key-{key}"), &"v".repeat(500)).await;
        }
    });
    std::fs::copy(&path, &copy).unwrap();
    std::fs::copy(journal_of(&path), journal_of(&copy)).unwrap();
    copy
}

fn journal_of(path: &Path) -> std::path::PathBuf {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    journal.into()
}

#[test]
fn a_store_that_was_not_closed_continues_with_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy_of_open_store(directory.path(), 20);
    assert_eq!(std::fs::metadata(journal_of(&path)).unwrap().permissions().mode() & 0o777, 0o600);
    let store = open(&path).unwrap();
    assert_eq!(store.revision(), Revision(20));
    runtime().block_on(async {
        assert_eq!(take(&mut store.follow(Revision(0)).unwrap(), 20).await.len(), 20);
        assert_eq!(put(&store, "next", "1").await, Revision(21));
    });
    drop(store);
    assert!(!journal_of(&path).exists(), "a closed store is one file");
    assert_eq!(open(&path).unwrap().revision(), Revision(21));
}

#[test]
fn a_store_without_its_journal_is_refused_until_the_journal_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy_of_open_store(directory.path(), 5);
    let journal = journal_of(&path);
    let content = std::fs::read(&journal).unwrap();
    std::fs::remove_file(&journal).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("crashed.redb-journal is missing; restore"), "{error}");

    let mut damaged = content.clone();
    damaged[512 + 40] ^= 1;
    std::fs::write(&journal, &damaged).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, OpenError::Corrupt { path, .. } if *path == journal), "{error}");
    assert!(error.to_string().contains("it is damaged (a record is damaged)"), "{error}");
    assert!(std::fs::read(&journal).unwrap() == damaged, "the journal has changed");

    for length in [0, 5_000, 500_000] {
        std::fs::write(&journal, &content[..length]).unwrap();
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains("it is damaged (it is too short)"), "{length}: {error}");
    }

    std::fs::write(&journal, &content).unwrap();
    assert_eq!(open(&path).unwrap().revision(), Revision(5));
}

#[test]
fn a_journal_without_its_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy_of_open_store(directory.path(), 5);
    std::fs::remove_file(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("it is missing, although its journal"), "{error}");
    assert!(!path.exists(), "no empty store takes its place");
}

#[test]
fn a_closed_store_is_one_file_although_it_is_still_held() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = open(&path).unwrap();
    runtime().block_on(async {
        put(&store, "a", "1").await;
        store.close().await;
        let refused = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
    });
    assert!(!journal_of(&path).exists());
    assert_eq!(&store.get(b"a").unwrap().unwrap().value[..], b"1");
    assert_eq!(open(&path).unwrap().revision(), Revision(1));
}

#[test]
fn the_journal_of_another_time_is_not_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = copy_of_open_store(directory.path(), 5);
    let old_journal = std::fs::read(journal_of(&path)).unwrap();
    let store = open(&path).unwrap();
    runtime().block_on(async { put(&store, "key-0", "new").await });
    drop(store);
    std::fs::write(journal_of(&path), &old_journal).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.revision(), Revision(6));
    runtime().block_on(async { put(&store, "key-0", "newer").await });
    drop(store);
    assert_eq!(open(&path).unwrap().revision(), Revision(7));
}

#[test]
fn a_journal_that_was_exchanged_or_overwritten_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (own, other) = (directory.path().join("own"), directory.path().join("other"));
    std::fs::create_dir(&own).unwrap();
    std::fs::create_dir(&other).unwrap();
    let path = copy_of_open_store(&own, 5);
    let journal = std::fs::read(journal_of(&path)).unwrap();
    let foreign = std::fs::read(journal_of(&copy_of_open_store(&other, 5))).unwrap();
    for (what, content) in [
        ("another store's", foreign),
        ("zeros", vec![0; journal.len()]),
        ("garbage", (0..journal.len()).map(|at| (at * 31 % 251) as u8).collect()),
    ] {
        std::fs::write(journal_of(&path), content).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("it is of another store or of another time"), "{what}: {error}");
    }
    std::fs::write(journal_of(&path), journal).unwrap();
    assert_eq!(open(&path).unwrap().revision(), Revision(5));
}

/// A file of the first format has no row for a journal.
#[test]
fn files_of_earlier_formats_are_continued_in_the_newest_one() {
    const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
    for format in [1, 2] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        with_some_content(&path);
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let mut meta = transaction.open_table(META).unwrap();
            meta.insert("format", format).unwrap();
            if format == 1 {
                meta.remove("journal").unwrap();
            }
        }
        transaction.commit().unwrap();
        drop(database);
        let large = "a".repeat(10_000);
        let store = open(&path).unwrap();
        assert_eq!(store.revision(), Revision(50));
        runtime().block_on(async { put(&store, "next", &large).await });
        drop(store);
        let store = open(&path).unwrap();
        assert_eq!(store.revision(), Revision(51));
        assert_eq!(store.get(b"next").unwrap().unwrap().value, large);
        drop(store);
        let database = Database::open(&path).unwrap();
        let found = database.begin_read().unwrap();
        let found = found.open_table(META).unwrap().get("format").unwrap().unwrap().value();
        assert_eq!(found, 3, "an earlier program must refuse the file from now on");
    }
}
