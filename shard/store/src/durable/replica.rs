//! A replica: a disposable copy of the log and view of another store, in a redb file with the tables of a store.
//!
//! [`ReplicaWriter`] applies the commits of the source in their order, each with the revision that the source gave it.
//! [`Replica`] reads them, as `RedbStore` does. The file has no journal: after a crash it is at its last checkpoint, and
//! the source delivers what came later.

#[cfg(test)]
mod tree_pages;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;
use redb::{Database, Durability, ReadableDatabase, WriteTransaction};
use tokio::sync::watch;

use super::layout::{CURRENT, FORMAT, HISTORY, LOG, META, Origin, meta};
use super::open::{self, FileKind};
use super::packing::pack;
use super::ring::Ring;
use super::sweep::sweep;
use super::tables::{CommitOutcome, Tables, set_meta};
use super::view::View;
use super::{Counters, Shared, disk_space, file_bytes};
use crate::error::{Cause, OpenError, ReadError};
use crate::follow::{Batch, Changes, Follower};
use crate::mutation::{Change, Expect, Mutation};
use crate::record::{Range, Record, RecordRef, Revision};
use crate::store::Stats;

/// Transactions after which there is a checkpoint: the pages of the last durable transaction cannot be reused before that,
/// and after a crash the source has to deliver what came later.
const MAX_TRANSACTIONS: u32 = 4096;

/// Log rows that one transaction sweeps, as of a store.
const SWEEP_ROWS: usize = 256;
const SWEEP_ROWS_PER_EVENT: usize = 2;

/// Memory limits of a [`Replica`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// Pages kept in memory, in bytes. Default 32 MiB.
    pub cache_bytes: usize,
    /// Recent batches kept in memory for followers, in bytes. Older ones are read back from the file. Default 8 MiB.
    pub ring_bytes: usize,
    /// Maximum number of these batches. Default 4,096.
    pub ring_batches: usize,
    /// Whether opening reads the whole file and compares every page with its checksum. Default true.
    pub verify: bool,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, ring_bytes: 8 << 20, ring_batches: 4096, verify: true }
    }
}

/// A commit of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedCommit {
    /// Greater than that of the commit before.
    pub revision: Revision,
    /// Keys with their new values, in the order of the commit; `None`: the key was deleted.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
}

/// The readers' side of a replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Replica {
    shared: Arc<Shared>,
    latest_revision: watch::Receiver<Revision>,
    path: Option<Arc<Path>>,
}

impl Replica {
    /// As [`Store::get`](crate::Store::get).
    ///
    /// # Errors
    /// As there; so for the others.
    pub fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.shared.view().get(key)
    }

    /// As [`Store::scan`](crate::Store::scan).
    pub fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.shared.view().scan(range, at, visit)
    }

    /// The last commit that was applied, or a later [position](ReplicaWriter::set_position); 0 while nothing has been copied
    /// from the source.
    pub fn revision(&self) -> Revision {
        self.shared.view.read().revision()
    }

    /// As [`Store::compacted`](crate::Store::compacted).
    pub fn compacted(&self) -> Revision {
        self.shared.view.read().compacted()
    }

    /// As [`Store::follow`](crate::Store::follow).
    pub fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.shared.follow(after, &self.latest_revision)
    }

    /// As [`Store::changes`](crate::Store::changes).
    pub fn changes(
        &self,
        range: &Range,
        after: Revision,
        max_rows: usize,
    ) -> Result<Option<Changes>, ReadError> {
        self.shared.view().changes(range, after, max_rows)
    }

    /// Announces every revision after it has become readable. Closed when the writer has ended.
    pub fn latest_revision(&self) -> watch::Receiver<Revision> {
        self.latest_revision.clone()
    }

    /// Statistics of the copy; its commits are those that were applied.
    pub fn stats(&self) -> Stats {
        let file_bytes = self.path.as_deref().map_or(0, file_bytes);
        Stats { file_bytes, disk: self.path.as_deref().and_then(disk_space), ..self.shared.stats() }
    }
}

/// The writer of a replica. Its methods block for the time of a transaction in memory, and for that of a durable one at a
/// checkpoint. After an error the writer must not be used any more, and reads get [`ReadError::Unavailable`]; the file is still
/// sound.
pub struct ReplicaWriter {
    database: Database,
    shared: Arc<Shared>,
    /// Dropped with the writer, which closes the followers.
    latest_revision: watch::Sender<Revision>,
    revision: Revision,
    compacted: Revision,
    /// See [`ReplicaWriter::position`]; and as it is in the file.
    position: Revision,
    durable_position: Revision,
    has_rows_to_sweep: bool,
    /// Transactions since the last checkpoint.
    transactions: u32,
}

impl std::fmt::Debug for ReplicaWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReplicaWriter").field("revision", &self.revision.0).finish_non_exhaustive()
    }
}

impl ReplicaWriter {
    /// Opens the replica in the file `path`, or makes an empty one; `None`: in memory. Blocks as `RedbStore::open` does.
    ///
    /// # Errors
    /// [`OpenError`]: the file is no replica, is damaged or in use, or has another origin. The file is not changed.
    pub fn open(
        path: Option<&Path>,
        origin: Origin,
        options: ReplicaOptions,
    ) -> Result<(Replica, Self), OpenError> {
        let database = match path {
            Some(path) => open::open(path, FileKind::Replica(origin), options.cache_bytes, options.verify)?,
            None => in_memory(origin, options.cache_bytes)?,
        };
        let at = path.unwrap_or(Path::new("memory"));
        let damaged = |error: redb::Error| open::damaged(at, FileKind::Replica(origin), &error);
        Self::start(database, path, options).map_err(damaged)
    }

    /// The replica in an open database.
    pub(super) fn start(
        database: Database,
        path: Option<&Path>,
        options: ReplicaOptions,
    ) -> Result<(Replica, Self), redb::Error> {
        let view = View::open(&database)?;
        let (revision, compacted) = (view.revision(), view.compacted());
        let position = read_position(&database)?.max(revision);
        let has_rows_to_sweep = view.has_rows_to_sweep().unwrap_or(true);
        let shared = Arc::new(Shared {
            view: RwLock::new(Arc::new(view)),
            ring: Ring::new(revision, options.ring_bytes, options.ring_batches),
            counters: Counters::default(),
            failure: OnceLock::new(),
        });
        let (latest_revision, receiver) = watch::channel(revision);
        let replica =
            Replica { shared: shared.clone(), latest_revision: receiver, path: path.map(Arc::from) };
        let writer = Self {
            database,
            shared,
            latest_revision,
            revision,
            compacted,
            position,
            durable_position: position,
            has_rows_to_sweep,
            transactions: 0,
        };
        Ok((replica, writer))
    }

    /// Applies the next commits of the source and makes them readable; then the followers get them. Commits up to the
    /// current revision are skipped.
    ///
    /// # Errors
    /// The medium failed; so for the others.
    pub fn apply(&mut self, commits: Vec<ReplicatedCommit>) -> Result<(), Cause> {
        self.write(commits, Revision(0)).map_err(cause)
    }

    /// Compacts the history below `below`. The space is freed by [`sweep`](Self::sweep) and later commits.
    pub fn compact(&mut self, below: Revision) -> Result<(), Cause> {
        self.write(Vec::new(), below).map_err(cause)
    }

    /// Whether rows of compacted history are still in the file.
    pub fn has_rows_to_sweep(&self) -> bool {
        self.has_rows_to_sweep
    }

    /// Frees some of these rows; takes few milliseconds.
    pub fn sweep(&mut self) -> Result<(), Cause> {
        self.write(Vec::new(), Revision(0)).map_err(cause)
    }

    /// Replaces the content by that of the source at one revision. Readers keep the old content until
    /// [`Rebuild::finish`].
    pub fn rebuild(&mut self) -> Result<Rebuild<'_>, Cause> {
        Rebuild::start(self).map_err(cause)
    }

    /// The source has nothing newer for this copy up to this revision, so a copy that is opened again continues after it. It
    /// exceeds the revision of the last commit if the source counts the commits of others, too.
    pub fn position(&self) -> Revision {
        self.position.max(self.revision)
    }

    /// Sets the [`position`](Self::position), after everything up to it was applied. It becomes the revision of the copy,
    /// without a batch, so that readers who have seen it in another copy find it here. The next checkpoint makes it durable.
    ///
    /// Cost: a transaction in memory, as of a commit.
    pub fn set_position(&mut self, position: Revision) -> Result<(), Cause> {
        self.position = self.position.max(position);
        if position <= self.revision {
            return Ok(());
        }
        self.write_position(position).map_err(cause)
    }

    fn write_position(&mut self, position: Revision) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        set_meta(&transaction, meta::REVISION, position.0)?;
        transaction.commit()?;
        self.transactions += 1;
        self.revision = position;
        self.publish(Vec::new())?;
        if self.transactions >= MAX_TRANSACTIONS { self.write_all() } else { Ok(()) }
    }

    /// Makes what was applied, and the position, durable in the file, unless they are.
    pub fn checkpoint(&mut self) -> Result<(), Cause> {
        let is_durable = self.transactions == 0 && self.position <= self.durable_position;
        if is_durable { Ok(()) } else { self.write_all().map_err(cause) }
    }

    fn write(&mut self, commits: Vec<ReplicatedCommit>, compact: Revision) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let mut tables = Tables::open(&transaction)?;
        let mut revision = self.revision;
        let mut batches = Vec::with_capacity(commits.len());
        for commit in commits.into_iter().filter(|commit| commit.revision > self.revision) {
            revision = commit.revision;
            match tables.apply(mutations(commit.changes), revision)? {
                CommitOutcome::Changed(batch) => batches.push(Arc::new(batch)),
                // A key that was deleted without having existed here.
                CommitOutcome::Unchanged | CommitOutcome::Conflict { .. } => {
                    tracing::warn!(%revision, "a commit of the source changes nothing in its copy");
                }
            }
        }
        let compacted = self.compacted.max(compact.min(revision));
        let sweeps = self.has_rows_to_sweep || compacted > self.compacted;
        if sweeps {
            let events: usize = batches.iter().map(|batch| batch.events.len()).sum();
            let rows = SWEEP_ROWS.max(events.saturating_mul(SWEEP_ROWS_PER_EVENT));
            let deleted = sweep(&mut tables.log, &mut tables.history, compacted, rows)?;
            self.has_rows_to_sweep = deleted == rows;
            self.shared.counters.compacted_rows.fetch_add(deleted as u64, Ordering::Relaxed);
        }
        drop(tables);
        if revision == self.revision && !sweeps {
            transaction.abort()?;
            return Ok(());
        }
        set_meta(&transaction, meta::REVISION, revision.0)?;
        set_meta(&transaction, meta::COMPACTED, compacted.0)?;
        transaction.commit()?;
        self.transactions += 1;
        (self.revision, self.compacted) = (revision, compacted);
        self.publish(batches)?;
        if self.transactions >= MAX_TRANSACTIONS {
            self.write_all()?;
        }
        Ok(())
    }

    /// First to readers, then to followers.
    fn publish(&self, batches: Vec<Arc<Batch>>) -> Result<(), redb::Error> {
        let view = Arc::new(View::open(&self.database)?);
        drop(std::mem::replace(&mut *self.shared.view.write(), view));
        self.shared.counters.commits.fetch_add(batches.len() as u64, Ordering::Relaxed);
        self.shared.ring.push(batches);
        let revision = self.revision;
        self.latest_revision.send_if_modified(|latest| std::mem::replace(latest, revision) != revision);
        Ok(())
    }

    fn write_all(&mut self) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        // After a crash the file is opened in milliseconds, whatever its size.
        transaction.set_quick_repair(true);
        let position = self.position();
        set_meta(&transaction, meta::FORMAT, FORMAT)?;
        set_meta(&transaction, meta::POSITION, position.0)?;
        transaction.commit()?;
        self.durable_position = position;
        self.transactions = 0;
        Ok(())
    }
}

/// A replacement of the whole content, in one transaction. Dropping it leaves the old content.
pub struct Rebuild<'w> {
    writer: &'w mut ReplicaWriter,
    transaction: WriteTransaction,
}

impl std::fmt::Debug for Rebuild<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Rebuild").finish_non_exhaustive()
    }
}

impl<'w> Rebuild<'w> {
    fn start(writer: &'w mut ReplicaWriter) -> Result<Self, redb::Error> {
        let mut transaction = writer.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);
        transaction.delete_table(CURRENT)?;
        transaction.delete_table(HISTORY)?;
        transaction.delete_table(LOG)?;
        drop(Tables::open(&transaction)?);
        Ok(Self { writer, transaction })
    }

    /// Adds records. In key order this is fastest: some 2 µs for each.
    pub fn add(&mut self, records: &[Record]) -> Result<(), Cause> {
        self.insert(records).map_err(cause)
    }

    fn insert(&self, records: &[Record]) -> Result<(), redb::Error> {
        let mut current = self.transaction.open_table(CURRENT)?;
        let mut packed = Vec::new();
        for record in records {
            let row = pack(record.created, record.modified, &record.value, &mut packed);
            current.insert(&record.key[..], row)?;
        }
        Ok(())
    }

    /// Publishes the new content as that of revision `at`. Earlier revisions count as compacted, so followers that have not
    /// reached `at` get an error.
    pub fn finish(self, at: Revision) -> Result<(), Cause> {
        self.commit(at).map_err(cause)
    }

    fn commit(self, at: Revision) -> Result<(), redb::Error> {
        let Self { writer, transaction } = self;
        set_meta(&transaction, meta::FORMAT, FORMAT)?;
        set_meta(&transaction, meta::REVISION, at.0)?;
        set_meta(&transaction, meta::COMPACTED, at.0)?;
        set_meta(&transaction, meta::POSITION, at.0)?;
        transaction.commit()?;
        (writer.revision, writer.compacted) = (at, at);
        (writer.position, writer.durable_position) = (at, at);
        (writer.transactions, writer.has_rows_to_sweep) = (0, false);
        // A reader of the ring has checked the revision against the view before, or does so again after this.
        writer.publish(Vec::new())?;
        writer.shared.ring.restart(at);
        writer.latest_revision.send_replace(at);
        Ok(())
    }
}

fn read_position(database: &Database) -> Result<Revision, redb::Error> {
    let table = database.begin_read()?.open_table(META)?;
    // A file that has never had a checkpoint has none.
    Ok(Revision(table.get(meta::POSITION)?.map_or(0, |row| row.value())))
}

fn mutations(changes: Vec<(Bytes, Option<Bytes>)>) -> Vec<Mutation> {
    let mutation = |(key, value): (Bytes, Option<Bytes>)| Mutation {
        key,
        expect: Expect::Any,
        change: value.map_or(Change::Delete, Change::Put),
    };
    changes.into_iter().map(mutation).collect()
}

fn in_memory(origin: Origin, cache_bytes: usize) -> Result<Database, OpenError> {
    let fail = |error: redb::Error| OpenError::Io {
        path: PathBuf::from("memory"),
        source: std::io::Error::other(error),
    };
    let backend = redb::backends::InMemoryBackend::new();
    let database = redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(backend);
    let database = database.map_err(|error| fail(error.into()))?;
    open::initialize(&database, FileKind::Replica(origin)).map_err(fail)?;
    Ok(database)
}

fn cause(error: redb::Error) -> Cause {
    match error {
        // Its message is all that the operator needs.
        redb::Error::Io(error) => Arc::new(error),
        error => Arc::new(error),
    }
}
