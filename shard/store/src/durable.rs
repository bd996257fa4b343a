//! The redb backend: a file with a journal, one writer thread, readers on immutable snapshots of the last commit.
//!
//! A commit goes `commit` → queue → writer ([`writer`]) → one record of the [`journal`] for everything queued → the new
//! [`view`] is published → the [`ring`] and its followers → acknowledgements. So every acknowledged commit can be read.

mod changes;
mod command;
mod directory;
mod dry_run;
mod full_disk;
mod intake;
mod journal;
mod journal_path;
mod layout;
mod open;
mod owner;
mod packing;
mod recovery;
mod replica;
mod restore;
mod ring;
mod store_file;
mod sweep;
mod tables;
mod view;
mod writer;

#[cfg(test)]
mod faults;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Cause, CommitError, CompactError, FollowError, OpenError, ReadError};
use crate::follow::{Batch, Changes, Follower, Log};
use crate::mutation::{Limits, Mutation};
use crate::record::{Range, Record, RecordRef, Revision};
use crate::stats::{CommitTimer, DiskSpace, DurationHistogram};
use crate::store::{Stats, Store};
use command::Command;
use intake::Intake;
use journal::JournalFile;
use journal_path::JournalPath;
use open::FileKind;
use recovery::recover;
use ring::Ring;
use store_file::StoreFile;
use view::View;
use writer::{Writer, WriterFiles};

pub use layout::Origin;
pub use replica::{Rebuild, Replica, ReplicaOptions, ReplicaWriter, ReplicatedCommit};
pub use restore::{ExistingStore, RestoreError, RestoreSummary};

/// Memory and group-commit limits of a [`RedbStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedbOptions {
    /// Pages kept in memory, in bytes. Default 32 MiB.
    pub cache_bytes: usize,
    /// Recent batches kept in memory for followers, in bytes. Older ones are read back from the file. Default 8 MiB.
    pub ring_bytes: usize,
    /// Maximum number of these batches. Default 4,096.
    pub ring_batches: usize,
    /// Maximum number of commits in one durable write. Default 1,024.
    pub group_commits: usize,
    /// Maximum size of the commits in one durable write, in bytes; one commit may exceed it. Default 8 MiB.
    pub group_bytes: usize,
    /// Size of the journal, in bytes, at which it is written into the store file. Default 16 MiB; one group may exceed it.
    pub journal_bytes: u64,
    /// Whether opening reads the whole file and compares every page with its checksum. Default true.
    pub verify: bool,
}

impl Default for RedbOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 32 << 20,
            ring_bytes: 8 << 20,
            ring_batches: 4096,
            group_commits: 1024,
            group_bytes: 8 << 20,
            journal_bytes: 16 << 20,
            verify: true,
        }
    }
}

/// A store in a redb file with a journal beside it. Dropping it waits until the queued commits are written, then closes the
/// file and removes the journal.
#[derive(Debug)]
pub struct RedbStore {
    shared: Arc<Shared>,
    /// Taken only by `drop`.
    queue: Option<mpsc::Sender<Command>>,
    /// Taken only by `drop`.
    writer: Option<JoinHandle<()>>,
    latest_revision: watch::Receiver<Revision>,
    intake: Arc<Intake>,
    path: PathBuf,
    journal: PathBuf,
    owner: Option<String>,
}

impl RedbStore {
    /// Opens the store in the file `path`, or makes a new one if there is no such file. Its journal is `<path>-journal`.
    ///
    /// Blocks for milliseconds, also after a crash; with [`RedbOptions::verify`], also for the time to read the whole
    /// file. A new file has mode 0600 and gets its name only when it is complete.
    pub fn open(path: impl AsRef<Path>, options: RedbOptions) -> Result<Self, OpenError> {
        Self::open_kind(path.as_ref(), FileKind::STORE, options)
    }

    /// As [`open`](Self::open) for the server with the name `owner`, which is recorded in the file. A file without a record gets it.
    ///
    /// # Errors
    /// [`OpenError::OtherOwner`] if the file has another one, besides those of [`open`](Self::open).
    pub fn open_owned(path: impl AsRef<Path>, owner: &str, options: RedbOptions) -> Result<Self, OpenError> {
        let (path, kind) = (path.as_ref(), FileKind::Store { owner: Some(owner) });
        let store = Self::open_kind(path, kind, options)?;
        if store.owner.is_some() {
            return Ok(store);
        }
        drop(store);
        // Not through `StoreFile`, which waits while the disk is full.
        let database = open::open(path, kind, options.cache_bytes, false)?;
        if let Err(error) = owner::record(&database, owner) {
            tracing::warn!(%error, path = %path.display(), "the owner of the store was not recorded; the next start does it");
        }
        drop(database);
        Self::open_kind(path, kind, RedbOptions { verify: false, ..options })
    }

    fn open_kind(path: &Path, kind: FileKind<'_>, options: RedbOptions) -> Result<Self, OpenError> {
        let intake = Arc::new(Intake::default());
        let mut store_file = None;
        let database = open::open_through(path, kind, options.cache_bytes, options.verify, |file| {
            store_file.insert(StoreFile::new(Box::new(file), Arc::clone(&intake))).clone()
        })?;
        let Some(file) = store_file else { return Err(OpenError::InUse { path: path.to_owned() }) };
        let journal = JournalPath::of(path);
        Self::start(database, file, intake, path, Box::new(journal), options)
    }

    fn start(
        database: redb::Database,
        file: StoreFile,
        intake: Arc<Intake>,
        path: &Path,
        journal_file: Box<dyn JournalFile>,
        options: RedbOptions,
    ) -> Result<Self, OpenError> {
        let journal_path = JournalPath::of(path).as_path().to_owned();
        let journal = recover(&database, &*journal_file)
            .map_err(|error| open::recovery_error(path, &journal_path, error))?;
        let damaged = |error: redb::Error| open::damaged(path, FileKind::STORE, &error);
        let view = View::open(&database).map_err(damaged)?;
        let owner = owner::read(&database).map_err(damaged)?;
        let revision = view.revision();
        let shared = Arc::new(Shared {
            view: RwLock::new(Arc::new(view)),
            ring: Ring::new(revision, options.ring_bytes, options.ring_batches),
            counters: Counters::default(),
            failure: OnceLock::new(),
        });
        let (publish_revision, latest_revision) = watch::channel(revision);
        let (queue, commands) = mpsc::channel(options.group_commits.max(1));
        intake.open(commands);
        let files = WriterFiles { database, file, journal, journal_file };
        let writer = Writer::new(files, Arc::clone(&intake), Arc::clone(&shared), publish_revision, options);
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self {
            shared,
            queue: Some(queue),
            writer: Some(writer),
            latest_revision,
            intake,
            path: path.to_owned(),
            journal: journal_path,
            owner,
        })
    }

    /// The server whose store it is, as the file had it when it was opened.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Waits until the queued commits are written, closes the file and removes the journal, although others may still hold
    /// the store. Reads go on; commits are refused from now on. Does nothing if the store has failed.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.send(Command::Close { reply }).await.is_ok() {
            // No reply: the writer has failed, and the journal stays.
            let _ = closed.await;
        }
    }

    /// Sends a command to the writer; `Err` with the cause when the writer has stopped.
    async fn send(&self, command: Command) -> Result<(), Cause> {
        let stop_cause = || self.shared.failure.get().cloned().unwrap_or_else(writer_stopped);
        let Some(queue) = &self.queue else {
            return Err(stop_cause());
        };
        queue.send(command).await.map_err(|_| stop_cause())
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.queue = None;
        let Some(writer) = self.writer.take() else { return };
        if writer.join().is_err() {
            tracing::error!(path = %self.path.display(), "the store's writer had panicked");
        }
    }
}

#[async_trait]
impl Store for RedbStore {
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        let bytes = Limits::default().check(&mutations)?;
        let (reply, outcome) = oneshot::channel();
        let refuse = |error| {
            self.shared.counters.unavailable.fetch_add(1, Ordering::Relaxed);
            Err(error)
        };
        let sent = self.send(Command::Commit { mutations, bytes, queued: Instant::now(), reply }).await;
        match sent {
            Ok(()) => match outcome.await {
                Ok(Err(error @ (CommitError::Unavailable { .. } | CommitError::Full { .. }))) => {
                    refuse(error)
                }
                Ok(outcome) => outcome,
                Err(_) => refuse(CommitError::Unavailable { cause: writer_stopped() }),
            },
            Err(cause) => refuse(CommitError::Unavailable { cause }),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.shared.view().get(key)
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.shared.view().scan(range, at, visit)
    }

    fn revision(&self) -> Revision {
        self.shared.view.read().revision()
    }

    fn compacted(&self) -> Revision {
        self.shared.view.read().compacted()
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.shared.follow(after, &self.latest_revision)
    }

    fn changes(&self, range: &Range, after: Revision, max_rows: usize) -> Result<Option<Changes>, ReadError> {
        self.shared.view().changes(range, after, max_rows)
    }

    async fn compact(&self, below: Revision) -> Result<(), CompactError> {
        let started = Instant::now();
        let (reply, outcome) = oneshot::channel();
        let sent = self.send(Command::Compact { below, reply }).await;
        sent.map_err(|cause| CompactError::Unavailable { cause })?;
        outcome.await.unwrap_or_else(|_| Err(CompactError::Unavailable { cause: writer_stopped() }))?;
        self.shared.counters.compactions.observe(started.elapsed(), 1);
        Ok(())
    }

    fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let stopped = || self.writer.as_ref().is_none_or(JoinHandle::is_finished).then(writer_stopped);
        let failure = self.shared.failure.get().cloned().or_else(stopped);
        Stats {
            backend: "file",
            unavailable: counters.unavailable.load(Ordering::Relaxed),
            commit_durations: counters.timer.snapshot(),
            compaction_durations: counters.compactions.snapshot(),
            disk: disk_space(&self.path),
            file_bytes: file_bytes(&self.path) + file_bytes(&self.journal),
            conflicts: counters.conflicts.load(Ordering::Relaxed),
            durable_writes: counters.durable_writes.load(Ordering::Relaxed),
            durable_write_nanoseconds: counters.durable_write_nanoseconds.load(Ordering::Relaxed),
            is_full: self.intake.is_full(),
            failure: failure.map(|cause| cause.to_string()),
            ..self.shared.stats()
        }
    }
}

/// State shared by the store, its writer and its followers. Followers may outlive the store.
#[derive(Debug)]
struct Shared {
    /// The last commit. The lock is held to copy or replace the pointer, never while reading.
    view: RwLock<Arc<View>>,
    ring: Ring,
    counters: Counters,
    /// Set once, by the writer, when a durable write fails. Not used by a replica.
    failure: OnceLock<Cause>,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    conflicts: AtomicU64,
    durable_writes: AtomicU64,
    durable_write_nanoseconds: AtomicU64,
    unavailable: AtomicU64,
    compacted_rows: AtomicU64,
    timer: CommitTimer,
    compactions: DurationHistogram,
}

impl Shared {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    fn follow(
        self: &Arc<Self>,
        after: Revision,
        latest_revision: &watch::Receiver<Revision>,
    ) -> Result<Follower, ReadError> {
        self.view().check_readable(after)?;
        let log: Arc<dyn Log> = Arc::clone(self) as _;
        Ok(Follower::new(log, after, latest_revision.clone()))
    }

    /// Statistics of what is read, and the number of commits.
    fn stats(&self) -> Stats {
        let view = self.view();
        let (keys, history, log) = view.counts();
        let (ring_batches, ring_bytes) = self.ring.size();
        Stats {
            revision: view.revision(),
            compacted: view.compacted(),
            keys,
            history,
            log,
            ring_batches: ring_batches as u64,
            ring_bytes: ring_bytes as u64,
            commits: self.counters.commits.load(Ordering::Relaxed),
            compacted_rows: self.counters.compacted_rows.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Space of the file system of a file. Costs a system call.
fn disk_space(path: &Path) -> Option<DiskSpace> {
    let space = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    Some(DiskSpace { available: bytes(space.f_bavail), total: bytes(space.f_blocks) })
}

impl Log for Shared {
    fn batches(&self, after: Revision) -> Result<VecDeque<Arc<Batch>>, FollowError> {
        let oldest = self.view.read().compacted();
        if after < oldest {
            return Err(FollowError::Compacted { oldest });
        }
        if let Some(recent) = self.ring.after(after) {
            return Ok(recent);
        }
        // The view is read after the ring, so its log has at least the batches that the ring had dropped.
        Ok(self.view().batches(after)?)
    }
}

fn writer_stopped() -> Cause {
    #[derive(Debug, thiserror::Error)]
    #[error("the writer has stopped")]
    struct WriterStopped;
    Arc::new(WriterStopped)
}
