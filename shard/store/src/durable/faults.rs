//! The redb backend and its copies on a disk that fails and loses power: any operation may fail, and each sector that was written but
//! not synced may or may not survive. The disk has two files, the store and its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redb::{Builder, Database, StorageBackend};

use super::full_disk::is_full;
use super::intake::Intake;
use super::journal::JournalFile;
use super::open::{FileKind, initialize};
use super::replica::{Replica, ReplicaOptions, ReplicaWriter, ReplicatedCommit};
use super::store_file::StoreFile;
use super::writer::MAX_TRANSACTIONS;
use super::{RedbOptions, RedbStore};
use crate::{CommitError, CompactError, FollowError, Mutation, Range, ReadError, Revision, Store};

const SECTOR: usize = 512;
/// The unit in which the disk gives room to files.
const BLOCK: usize = 4096;
const CLIENTS: usize = 6;
const ROUNDS: usize = 80;
/// Only to fail instead of hanging.
const LONGEST_REPLY: Duration = Duration::from_secs(60);

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
fn a_full_disk_refuses_commits_until_there_is_room() {
    // The first growth of the journal, later ones, and checkpoints meet the end of the disk.
    for room in (0..=2_400).step_by(400) {
        for limit in [Limit::Disk, Limit::File] {
            let disk = Disk::formatted();
            disk.limit(limit, room << 10);
            runtime().block_on(refuse_and_recover(&disk, &format!("{limit:?} with {room} KiB")));
        }
    }
}

async fn refuse_and_recover(disk: &Disk, case: &str) {
    let store = start(disk).unwrap();
    let mut follower = store.follow(Revision(0)).unwrap();
    let mut acknowledged = AcknowledgedCommits::new();
    let mut number = 0;
    let commit = |number: u64| {
        let key = format!("{number:0200}");
        let own = Mutation::create(key.clone(), content(&key));
        (key.clone(), store.commit(vec![own, Mutation::put("shared", key)]))
    };
    for round in 0..3 {
        // Fills the disk; the last round has no limit.
        let (mut refusals, mut was_full) = (0, false);
        let end = number + if round < 2 { 400 } else { 100 };
        while refusals < 10 && number < end {
            let (key, committed) = commit(number);
            match committed.await {
                Ok(revision) => assert_eq!(acknowledged.insert(revision, key), None),
                Err(CommitError::Full { .. }) => {
                    refusals += 1;
                    was_full |= store.stats().is_full;
                }
                Err(other) => panic!("{case}: {other}"),
            }
            number += 1;
        }
        assert_eq!((refusals == 10, was_full), (round < 2, round < 2), "{case}");
        assert!(store.stats().unavailable >= refusals, "{case}: refusals are counted");
        assert_eq!(store.stats().failure, None, "{case}");
        // Reads and the feed go on, and a power cut loses nothing.
        for (revision, key) in &acknowledged {
            assert_eq!(store.get(key.as_bytes()).unwrap().unwrap().modified, *revision, "{case}");
        }
        while follower.position() < store.revision() {
            let batch = follower.next().await.unwrap();
            assert_eq!(
                acknowledged.get(&batch.revision).map(String::as_bytes),
                Some(&batch.events[0].key[..])
            );
        }
        assert_eq!(store.revision().0, acknowledged.len() as u64, "{case}: refused commits have no effect");
        check_on_its_own_thread(&disk.after_power_cut(number), &acknowledged);
        match round {
            // Not enough for all.
            0 => disk.limit_more(900 << 10),
            1 => {
                disk.limit_more(usize::MAX);
                // Compaction is not refused. It waits for room if a checkpoint does.
                store.compact(Revision(store.revision().0 / 2)).await.unwrap();
                while store.stats().is_full {
                    tokio::task::yield_now().await;
                }
            }
            _ => {}
        }
    }
    drop(store);
    check_on_its_own_thread(disk, &acknowledged);
}

/// [`check`] has a runtime of its own.
fn check_on_its_own_thread(disk: &Disk, acknowledged: &AcknowledgedCommits) {
    std::thread::scope(|scope| {
        scope.spawn(|| check(disk, acknowledged, 0)).join().unwrap();
    });
}

#[test]
fn a_store_on_a_full_disk_is_closed_without_room_and_loses_nothing() {
    for room in (0..=2_600).step_by(200) {
        let disk = Disk::formatted();
        disk.limit(Limit::Disk, room << 10);
        let store = start(&disk).unwrap();
        let mut acknowledged = AcknowledgedCommits::new();
        runtime().block_on(async {
            for number in 0.. {
                let key = format!("{number:0200}");
                let own = Mutation::create(key.clone(), content(&key));
                match store.commit(vec![own, Mutation::put("shared", key.clone())]).await {
                    Ok(revision) => drop(acknowledged.insert(revision, key)),
                    Err(error) => return assert!(matches!(error, CommitError::Full { .. }), "{error}"),
                }
            }
        });
        if room % 400 == 0 {
            runtime().block_on(store.close());
        }
        drop(store);
        disk.limit_more(usize::MAX);
        check(&disk, &acknowledged, room);
    }
}

#[test]
fn a_compaction_on_a_full_disk_ends_when_the_store_is_closed() {
    for room in (0..=2_400).step_by(400) {
        let disk = Disk::formatted();
        disk.limit(Limit::Disk, room << 10);
        let store = start(&disk).unwrap();
        runtime().block_on(async {
            for number in 0.. {
                let key = format!("{number:0200}");
                let written = store.commit(vec![Mutation::put("shared", content(&key))]).await;
                if let Err(error) = written {
                    assert!(matches!(error, CommitError::Full { .. }), "{error}");
                    break;
                }
            }
            // The writer may be in a checkpoint, which waits for room and does not compact.
            let ended = async { tokio::join!(store.compact(store.revision()), store.close()) };
            tokio::time::timeout(LONGEST_REPLY, ended)
                .await
                .expect("a caller gets no reply")
                .0
                .unwrap_or_else(|error| {
                    assert!(matches!(error, CompactError::Unavailable { .. }), "{error}");
                });
        });
    }
}

#[test]
fn a_failed_sync_is_final() {
    // A full disk that is found by the sync is no exception: the kernel may have dropped the data.
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let disk = Disk::formatted();
        let store = start(&disk).unwrap();
        runtime().block_on(refuse_after_a_failed_sync(&disk, &store, kind));
    }
}

async fn refuse_after_a_failed_sync(disk: &Disk, store: &RedbStore, kind: ErrorKind) {
    {
        let mut follower = store.follow(Revision(0)).unwrap();
        store.commit(vec![Mutation::put("a", "1")]).await.unwrap();
        disk.fail_next_sync(kind);
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
    }
}

#[test]
fn a_copy_on_a_full_disk_cannot_be_used_until_it_is_opened_again() {
    let mut refused = 0;
    for room in (0..=2_400).step_by(400) {
        for limit in [Limit::Disk, Limit::File] {
            let case = format!("{limit:?} with {room} KiB");
            let disk = Disk::formatted();
            disk.limit(limit, room << 10);
            let (replica, mut writer) = open_copy(&disk);
            let (end, failure) = (1..)
                .find_map(|revision| {
                    let written = writer.apply(vec![replicated(revision)]).and_then(|()| writer.checkpoint());
                    written.err().map(|failure| (revision, failure))
                })
                .unwrap();
            let system = failure.downcast_ref::<Error>();
            assert!(system.is_some_and(is_full), "{case}: the error of the system, but {failure}");
            drop(writer);
            // Some pages are in memory.
            for revision in 1..end {
                match replica.get(revision.to_string().as_bytes()) {
                    Ok(record) => assert_eq!(record.unwrap().modified, Revision(revision), "{case}"),
                    Err(ReadError::Unavailable(_)) => refused += 1,
                    Err(error) => panic!("{case}: {error}"),
                }
            }

            // With room it goes on after its last checkpoint.
            let disk = disk.after_power_cut(end);
            let (replica, mut writer) = open_copy(&disk);
            assert!(writer.position().0 + 1 >= end, "{case}: {} of {end}", writer.position());
            writer.apply((1..=end).map(replicated).collect()).unwrap();
            writer.checkpoint().unwrap();
            for revision in 1..=end {
                let record = replica.get(revision.to_string().as_bytes()).unwrap().unwrap();
                assert_eq!(record.modified, Revision(revision), "{case}");
            }
        }
    }
    assert!(refused > 0, "a page that is not in memory cannot be read");
}

/// A commit of the source of a copy, which writes a key of its own.
fn replicated(revision: u64) -> ReplicatedCommit {
    let key = format!("{revision:0200}");
    let changes = vec![(revision.to_string().into(), Some(content(&key).into()))];
    ReplicatedCommit { revision: Revision(revision), changes }
}

fn open_copy(disk: &Disk) -> (Replica, ReplicaWriter) {
    ReplicaWriter::start(open(disk).unwrap(), None, ReplicaOptions::default()).unwrap()
}

/// The value of a key, which cannot be compressed.
fn content(key: &str) -> Vec<u8> {
    let mut random = u64::from(crc32fast::hash(key.as_bytes()));
    // As in `Disk::after_power_cut`.
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    };
    (0..key.len() * 50).map(|_| next()).collect()
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
                    let own = Mutation::create(key.clone(), content(&key));
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
    // A checkpoint after the last acknowledgement may fail, too.
    assert!(store.stats().failure.is_some() || acknowledged.len() == CLIENTS * ROUNDS);
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
        assert_eq!((record.modified, &record.value[..]), (*revision, &content(key)[..]));
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
    let intake = Arc::new(Intake::default());
    let file = StoreFile::new(Box::new(disk.file(STORE)), Arc::clone(&intake));
    let database = Builder::new().set_cache_size(1 << 20).create_with_backend(file.clone())?;
    let options = RedbOptions { journal_bytes: JOURNAL_BYTES, ..RedbOptions::default() };
    let journal = Box::new(disk.file(JOURNAL));
    Ok(RedbStore::start(database, file, intake, Path::new("a disk that fails"), journal, options)?)
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
    fails_next_sync: Option<ErrorKind>,
    /// The size that the limited part of the disk may have.
    limit: Option<(Limit, usize)>,
}

/// The part of the disk whose size is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// The parts of all files that were written. Parts that were only made by a new length take no room.
    Disk,
    /// Each file.
    File,
}

#[derive(Debug, Default)]
struct FileState {
    /// The bytes that reads return.
    cached: Vec<u8>,
    /// The bytes that survive a crash for certain.
    durable: Vec<u8>,
    /// Changes that may survive a crash, in order.
    unsynced: Vec<Change>,
    /// Written blocks.
    blocks: BTreeSet<usize>,
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
        initialize(&open(&disk).unwrap(), FileKind::STORE).unwrap();
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

    fn fail_next_sync(&self, kind: ErrorKind) {
        self.0.lock().fails_next_sync = Some(kind);
    }

    /// Leaves so much room beyond the present size.
    fn limit(&self, limit: Limit, room: usize) {
        let mut state = self.0.lock();
        let size = match limit {
            Limit::Disk => state.written(),
            Limit::File => state.files[STORE].cached.len(),
        };
        state.limit = Some((limit, size + room));
    }

    /// Makes more room.
    fn limit_more(&self, more: usize) {
        if let Some((_, size)) = &mut self.0.lock().limit {
            *size = size.saturating_add(more);
        }
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
            FileState { cached: durable.clone(), durable, ..FileState::default() }
        });
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }
}

impl State {
    /// The size of the written blocks.
    fn written(&self) -> usize {
        self.files.iter().map(|file| file.blocks.len() * BLOCK).sum()
    }

    /// Takes room for a write; returns how much of it finds room.
    fn allocate(&mut self, number: FileNumber, offset: usize, length: usize) -> Result<(), (usize, Error)> {
        match self.limit {
            Some((Limit::File, size)) if offset + length > size => {
                return Err((size.saturating_sub(offset), ErrorKind::FileTooLarge.into()));
            }
            _ => {}
        }
        for block in offset / BLOCK..(offset + length).div_ceil(BLOCK) {
            let is_full = |state: &Self| {
                state.limit.is_some_and(|(limit, size)| limit == Limit::Disk && state.written() >= size)
            };
            if !self.files[number].blocks.contains(&block) && is_full(self) {
                return Err(((block * BLOCK).saturating_sub(offset), ErrorKind::StorageFull.into()));
            }
            self.files[number].blocks.insert(block);
        }
        Ok(())
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
        let length = usize::try_from(length).map_err(Error::other)?;
        if self.disk.0.lock().limit.is_some_and(|(limit, size)| limit == Limit::File && length > size) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.operate(|state| {
            state.blocks.split_off(&length.div_ceil(BLOCK));
            state.change(Change::Length(length));
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        if let Some(kind) = self.disk.0.lock().fails_next_sync.take() {
            return Err(Error::new(kind, "injected failure"));
        }
        self.operate(|state| {
            for change in std::mem::take(&mut state.unsynced) {
                change.apply(&mut state.durable, &mut || true);
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let offset = usize::try_from(offset).map_err(Error::other)?;
        let allocated = self.disk.0.lock().allocate(self.number, offset, data.len());
        let data = &data[..allocated.as_ref().map_or_else(|(part, _)| *part, |()| data.len())];
        self.operate(|state| {
            state.change(Change::Write { offset, data: data.to_vec() });
            Ok(())
        })?;
        allocated.map_err(|(_, error)| error)
    }
}
