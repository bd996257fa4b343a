//! The redb backend on a disk that fails and loses power: any operation may fail, and each sector that was written but
//! not synced may or may not survive. The disk has two files, the store and its journal.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redb::{Builder, Database, StorageBackend};

use super::journal::JournalFile;
use super::open::{FileKind, initialize};
use super::writer::MAX_TRANSACTIONS;
use super::{RedbOptions, RedbStore};
use crate::{CommitError, CompactError, FollowError, Mutation, Range, Revision, Store};

const SECTOR: usize = 512;
const CLIENTS: usize = 6;
const ROUNDS: usize = 80;

/// So small that there are many checkpoints.
const JOURNAL_BYTES: u64 = 8 << 10;

/// Cut points are tried at this distance: a prime, so that they fall into every phase of a commit.
const STRIDE: usize = 7;

#[test]
fn an_acknowledged_commit_survives_a_failure_at_any_operation_and_a_power_cut() {
    let healthy = Disk::formatted();
    let begin = healthy.operations();
    let all = write_until_it_fails(&healthy);
    assert_eq!(all.len(), CLIENTS * ROUNDS, "a healthy disk acknowledges everything");
    let end = healthy.operations();
    assert!(end - begin > 500, "too few operations to choose from: {}", end - begin);

    let mut survivors = 0;
    for cut in (begin..end).step_by(STRIDE) {
        let disk = Disk::formatted();
        disk.fail_at(cut);
        let acknowledged = write_until_it_fails(&disk);
        survivors += acknowledged.len();
        for seed in 0..3 {
            let disk = disk.after_power_cut(cut as u64 * 3 + seed);
            // A second crash, while the first is being recovered from, must not lose anything either.
            let disk = match seed {
                0 => disk,
                _ => crash_while_opening(disk, seed as usize * 5),
            };
            check(&disk, &acknowledged, cut);
        }
    }
    assert!(survivors > 0, "no cut came after the first acknowledgement");
}

#[test]
fn a_crash_loses_nothing_after_checkpoints_without_commits_between_them() {
    let disk = Disk::formatted();
    let store = start(&disk).unwrap();
    let commits = 3 * u64::from(MAX_TRANSACTIONS);
    runtime().block_on(async {
        let written = (0..commits).map(|n| store.commit(vec![Mutation::put("a", n.to_string())]));
        assert!(join_all(written).await.iter().all(Result::is_ok));
        // Each compaction is a transaction, and so many transactions are followed by a checkpoint.
        for below in 1..commits {
            store.compact(Revision(below)).await.unwrap();
        }
    });
    for seed in 0..3 {
        let disk = disk.after_power_cut(seed);
        let store = start(&disk).unwrap();
        assert_eq!(store.revision(), Revision(commits));
        let next = runtime().block_on(store.commit(vec![Mutation::put("a", "after the crash")]));
        assert_eq!(next.unwrap(), Revision(commits + 1));
        let store = start(&disk.after_power_cut(seed)).unwrap();
        assert_eq!(store.get(b"a").unwrap().unwrap().value, "after the crash");
    }
}

#[test]
fn a_failed_sync_is_final() {
    let disk = Disk::formatted();
    let store = start(&disk).unwrap();
    runtime().block_on(async {
        let mut follower = store.follow(Revision(0)).unwrap();
        store.commit(vec![Mutation::put("a", "1")]).await.unwrap();
        disk.fail_next_sync();
        let failed = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(failed, Err(CommitError::Unavailable { .. })), "{failed:?}");
        let failure = store.stats().failure.unwrap();
        assert!(failure.contains("injected"), "{failure}");

        // The disk works again, but its content is unknown, so the store does not retry.
        for _ in 0..3 {
            let refused = store.commit(vec![Mutation::put("a", "3")]).await;
            assert!(
                matches!(&refused, Err(CommitError::Unavailable { cause }) if cause.to_string() == failure),
                "{refused:?}"
            );
        }
        let refused = store.compact(Revision(1)).await;
        assert!(matches!(refused, Err(CompactError::Unavailable { .. })), "{refused:?}");
        assert_eq!(store.revision(), Revision(1));
        assert_eq!(follower.next().await.unwrap().revision, Revision(1));
        let end = follower.next().await;
        assert!(matches!(end, Err(FollowError::Closed)), "{end:?}");
    });
}

/// Acknowledged commits: revision to key. Every commit writes a key of its own and a shared one.
type AcknowledgedCommits = BTreeMap<Revision, String>;

fn write_until_it_fails(disk: &Disk) -> AcknowledgedCommits {
    let Ok(store) = start(disk) else {
        return AcknowledgedCommits::new();
    };
    let store = Arc::new(store);
    let acknowledged = runtime().block_on(async {
        let clients = (0..CLIENTS).map(|client| {
            let store = Arc::clone(&store);
            async move {
                let mut acknowledged = Vec::new();
                for round in 0..ROUNDS {
                    let key = format!("{client}/{round}");
                    let own = Mutation::create(key.clone(), key.repeat(50));
                    match store.commit(vec![own, Mutation::put("shared", key.clone())]).await {
                        Ok(revision) => acknowledged.push((revision, key)),
                        Err(CommitError::Unavailable { .. }) => break,
                        Err(other) => panic!("{other}"),
                    }
                    if client == 0 && round % 3 == 2 {
                        let compacted = store.compact(Revision(store.revision().0.saturating_sub(10))).await;
                        assert!(matches!(compacted, Ok(()) | Err(CompactError::Unavailable { .. })));
                    }
                }
                acknowledged
            }
        });
        join_all(clients).await.into_iter().flatten().collect::<AcknowledgedCommits>()
    });
    let last = acknowledged.keys().next_back().copied().unwrap_or_default();
    assert!(store.revision() >= last);
    assert_eq!(store.stats().failure.is_some(), acknowledged.len() < CLIENTS * ROUNDS);
    acknowledged
}

fn crash_while_opening(disk: Disk, operations: usize) -> Disk {
    disk.fail_at(disk.operations() + operations);
    drop(start(&disk));
    disk.after_power_cut(operations as u64)
}

fn check(disk: &Disk, acknowledged: &AcknowledgedCommits, cut: usize) {
    let store = start(disk).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
    let last = acknowledged.keys().next_back().copied().unwrap_or_default();
    assert!(store.revision() >= last, "cut at {cut}: revision {last} was acknowledged");
    for (revision, key) in acknowledged {
        let record = store.get(key.as_bytes()).unwrap();
        let record = record.unwrap_or_else(|| panic!("cut at {cut}: {key} of revision {revision} is lost"));
        assert_eq!((record.modified, &record.value[..]), (*revision, key.repeat(50).as_bytes()));
    }
    // No commit is partly applied, and the log agrees with the view.
    let mut records = 0;
    let scanned = store.scan(&Range::all(), None, &mut |_| {
        records += 1;
        ControlFlow::Continue(())
    });
    let revision = scanned.unwrap();
    assert_eq!(records, if revision.0 == 0 { 0 } else { revision.0 + 1 });
    runtime().block_on(async {
        let mut follower = store.follow(store.compacted()).unwrap();
        while follower.position() < revision {
            let batch = follower.next().await.unwrap();
            let record = store.get(&batch.events[0].key).unwrap().unwrap();
            assert_eq!((batch.events.len(), record.modified), (2, batch.revision));
        }
        let next = store.commit(vec![Mutation::put("after", "the crash")]).await.unwrap();
        assert_eq!(next.0, revision.0 + 1);
    });
}

fn start(disk: &Disk) -> Result<RedbStore, Box<dyn std::error::Error>> {
    let database = open(disk)?;
    let options = RedbOptions { journal_bytes: JOURNAL_BYTES, ..RedbOptions::default() };
    let journal = Box::new(disk.file(JOURNAL));
    Ok(RedbStore::start(database, Path::new("a disk that fails"), journal, options)?)
}

fn open(disk: &Disk) -> Result<Database, redb::DatabaseError> {
    Builder::new().set_cache_size(1 << 20).create_with_backend(disk.file(STORE))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The number of a file on the disk.
type FileNumber = usize;
const STORE: FileNumber = 0;
const JOURNAL: FileNumber = 1;

/// Clones share the disk.
#[derive(Clone, Debug)]
struct Disk(Arc<Mutex<State>>);

/// A file of a disk.
#[derive(Clone, Debug)]
struct DiskFile {
    disk: Disk,
    number: FileNumber,
}

#[derive(Debug, Default)]
struct State {
    files: [FileState; 2],
    operations: usize,
    /// From this operation on everything fails.
    fails_at: Option<usize>,
    fails_next_sync: bool,
}

#[derive(Debug, Default)]
struct FileState {
    /// The bytes that reads return.
    cached: Vec<u8>,
    /// The bytes that survive a crash for certain.
    durable: Vec<u8>,
    /// Changes that may survive a crash, in order.
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Length(usize),
    Write { offset: usize, data: Vec<u8> },
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>, survives: &mut dyn FnMut() -> bool) {
        match self {
            Change::Length(length) => {
                if survives() {
                    image.resize(*length, 0);
                }
            }
            Change::Write { offset, data } => {
                for (sector, part) in (0..).zip(data.chunks(SECTOR)) {
                    let (start, end) = (offset + sector * SECTOR, offset + sector * SECTOR + part.len());
                    if survives() {
                        if image.len() < end {
                            image.resize(end, 0);
                        }
                        image[start..end].copy_from_slice(part);
                    }
                }
            }
        }
    }
}

impl Disk {
    /// A disk with an empty store.
    fn formatted() -> Self {
        let disk = Self(Arc::default());
        initialize(&open(&disk).unwrap(), FileKind::Store).unwrap();
        disk
    }

    fn file(&self, number: FileNumber) -> DiskFile {
        DiskFile { disk: self.clone(), number }
    }

    fn operations(&self) -> usize {
        self.0.lock().operations
    }

    fn fail_at(&self, operation: usize) {
        self.0.lock().fails_at = Some(operation);
    }

    fn fail_next_sync(&self) {
        self.0.lock().fails_next_sync = true;
    }

    /// A healthy disk with all synced data and a random subset of the unsynced sectors.
    fn after_power_cut(&self, seed: u64) -> Self {
        let state = self.0.lock();
        let mut random = seed;
        // A linear congruential generator is random enough here (Knuth, MMIX).
        let mut survives = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 63 == 1
        };
        let files = state.files.each_ref().map(|file| {
            let mut durable = file.durable.clone();
            for change in &file.unsynced {
                change.apply(&mut durable, &mut survives);
            }
            FileState { cached: durable.clone(), durable, unsynced: Vec::new() }
        });
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }
}

impl DiskFile {
    fn operate<T>(&self, work: impl FnOnce(&mut FileState) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.disk.0.lock();
        state.operations += 1;
        if state.fails_at.is_some_and(|at| state.operations > at) {
            return Err(Error::other("injected failure"));
        }
        work(&mut state.files[self.number])
    }
}

impl FileState {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached, &mut || true);
        self.unsynced.push(change);
    }
}

/// The names of both files are durable from the start: only their content is at stake.
impl JournalFile for DiskFile {
    fn open(&self) -> Result<Option<Box<dyn StorageBackend>>, Error> {
        self.create().map(Some)
    }

    fn create(&self) -> Result<Box<dyn StorageBackend>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn remove(&self) -> Result<(), Error> {
        self.operate(|_| Ok(()))
    }
}

impl StorageBackend for DiskFile {
    fn len(&self) -> Result<u64, Error> {
        self.operate(|state| Ok(state.cached.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.operate(|state| {
            let start = usize::try_from(offset).map_err(Error::other)?;
            let bytes = state.cached.get(start..start + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> Result<(), Error> {
        self.operate(|state| {
            state.change(Change::Length(usize::try_from(length).map_err(Error::other)?));
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        if std::mem::take(&mut self.disk.0.lock().fails_next_sync) {
            return Err(Error::other("injected failure"));
        }
        self.operate(|state| {
            for change in std::mem::take(&mut state.unsynced) {
                change.apply(&mut state.durable, &mut || true);
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.operate(|state| {
            let offset = usize::try_from(offset).map_err(Error::other)?;
            state.change(Change::Write { offset, data: data.to_vec() });
            Ok(())
        })
    }
}
