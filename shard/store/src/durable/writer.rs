//! The writer thread: the only one that changes the file.
//!
//! The writer takes the queued commits, applies them one by one, each with its own expectations and revision, and makes all of them
//! durable with one write. No outcome is sent before that, not even a conflict: a conflict may be with a commit of the same group,
//! and commits that are not durable must not be visible.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use redb::{Database, Durability, ReadableTable, Table, WriteTransaction};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};

use super::layout::{
    CURRENT, EventKind, HISTORY, HistoryKey, LOG, LogEntry, LogKey, META, StoredValue, meta,
};
use super::sweep::sweep;
use super::view::View;
use super::{RedbOptions, Shared, writer_stopped};
use crate::error::{Cause, CommitError, CompactError};
use crate::follow::{Batch, Event};
use crate::mutation::{Change, Mutation};
use crate::record::{Record, Revision};

/// Log rows that one durable write sweeps: at least `SWEEP_ROWS`, and `SWEEP_ROWS_PER_EVENT` for each event that it adds.
/// Enough to keep up with any writer; delays a commit by few milliseconds.
const SWEEP_ROWS: usize = 256;
const SWEEP_ROWS_PER_EVENT: usize = 2;

pub(super) type CommitReply = oneshot::Sender<Result<Revision, CommitError>>;
pub(super) type CompactReply = oneshot::Sender<Result<(), CompactError>>;

/// A command for the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// Applies `mutations`, which have passed `check_shape` and are `bytes` large, and replies with the revision.
    Commit { mutations: Vec<Mutation>, bytes: usize, reply: CommitReply },
    /// Compacts the history below `below` and replies when its rows are deleted.
    Compact { below: Revision, reply: CompactReply },
}

pub(super) struct Writer {
    database: Database,
    shared: Arc<Shared>,
    /// Announces the last published revision. Dropped when no more batches will come, which closes the followers.
    latest_revision: Option<watch::Sender<Revision>>,
    options: RedbOptions,
    revision: Revision,
    compacted: Revision,
    /// Whether compacted rows are still in the file.
    has_rows_to_sweep: bool,
    /// Callers that wait for the end of the compaction.
    waiting: Vec<CompactReply>,
}

impl Writer {
    pub(super) fn new(
        database: Database,
        shared: Arc<Shared>,
        latest_revision: watch::Sender<Revision>,
        options: RedbOptions,
    ) -> Self {
        let view = shared.view();
        // Resumes a compaction that a crash interrupted. A read error is ignored here: the sweep meets it again.
        let has_rows_to_sweep = view.has_rows_to_sweep().unwrap_or(true);
        let (revision, compacted) = (view.revision(), view.compacted());
        let latest_revision = Some(latest_revision);
        Self {
            database,
            shared,
            latest_revision,
            options,
            revision,
            compacted,
            has_rows_to_sweep,
            waiting: Vec::new(),
        }
    }

    /// Runs until the queue is closed. After a failure of the medium it only refuses commands.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Some(mut group) = self.gather(&mut queue) {
            match self.write(&mut group) {
                Ok(()) => group.commits.into_iter().for_each(PendingCommit::reply),
                Err(error) => return self.fail(&Arc::new(error), group, queue),
            }
        }
    }

    /// Waits for a command unless there are rows to sweep, then takes the queued ones. `None`: the store is being closed.
    fn gather(&self, queue: &mut mpsc::Receiver<Command>) -> Option<Group> {
        let mut group = Group::default();
        if self.has_rows_to_sweep {
            match queue.try_recv() {
                Ok(command) => group.add(command),
                Err(TryRecvError::Empty) => return Some(group),
                Err(TryRecvError::Disconnected) => return None,
            }
        } else {
            group.add(queue.blocking_recv()?);
        }
        while group.commits.len() < self.options.group_commits && group.bytes < self.options.group_bytes {
            let Ok(command) = queue.try_recv() else { break };
            group.add(command);
        }
        Some(group)
    }

    /// Applies the group, makes it durable, publishes it. After an error the state of the file is unknown.
    fn write(&mut self, group: &mut Group) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);

        let mut tables = Tables::open(&transaction)?;
        let mut revision = self.revision;
        let mut batches = Vec::with_capacity(group.commits.len());
        let mut conflicts = 0;
        for pending in &mut group.commits {
            let mutations = std::mem::take(&mut pending.mutations);
            pending.outcome = match tables.apply(mutations, Revision(revision.0 + 1))? {
                CommitOutcome::Changed(batch) => {
                    revision = batch.revision;
                    batches.push(Arc::new(batch));
                    Ok(revision)
                }
                CommitOutcome::Unchanged => Ok(revision),
                CommitOutcome::Conflict { index, current } => {
                    conflicts += 1;
                    Err(CommitError::Conflict { index, current })
                }
            };
        }

        let mut compacted = self.compacted;
        for (below, reply) in group.compactions.drain(..) {
            compacted = compacted.max(below.min(revision));
            self.waiting.push(reply);
        }
        self.has_rows_to_sweep |= compacted > self.compacted;
        let swept = self.has_rows_to_sweep;
        if swept {
            let events: usize = batches.iter().map(|batch| batch.events.len()).sum();
            let rows = SWEEP_ROWS.max(events.saturating_mul(SWEEP_ROWS_PER_EVENT));
            self.has_rows_to_sweep = !sweep(&mut tables.log, &mut tables.history, compacted, rows)?;
        }
        drop(tables);

        self.shared.counters.conflicts.fetch_add(conflicts, Ordering::Relaxed);
        if batches.is_empty() && !swept {
            transaction.abort()?;
        } else {
            set_meta(&transaction, meta::REVISION, revision)?;
            set_meta(&transaction, meta::COMPACTED, compacted)?;
            self.commit(transaction)?;
            (self.revision, self.compacted) = (revision, compacted);
            self.publish(batches)?;
        }
        if !self.has_rows_to_sweep {
            // A caller that has stopped waiting needs no reply; the same holds for every reply below.
            self.waiting.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
        }
        Ok(())
    }

    fn commit(&self, transaction: WriteTransaction) -> Result<(), redb::Error> {
        let started = Instant::now();
        transaction.commit()?;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.counters.durable_writes.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.durable_write_nanoseconds.fetch_add(took, Ordering::Relaxed);
        Ok(())
    }

    /// Publishes the durable commits: first to readers, then to followers. Replies are sent afterwards.
    fn publish(&self, batches: Vec<Arc<Batch>>) -> Result<(), redb::Error> {
        let view = Arc::new(View::open(&self.database)?);
        let before = std::mem::replace(&mut *self.shared.view.write(), view);
        drop(before);
        if !batches.is_empty() {
            self.shared.counters.commits.fetch_add(batches.len() as u64, Ordering::Relaxed);
            self.shared.ring.push(batches);
            if let Some(latest_revision) = &self.latest_revision {
                latest_revision.send_replace(self.revision);
            }
        }
        Ok(())
    }

    /// Refuses all commands from now on. After a failed write or fsync the kernel may have dropped the data, and a
    /// second fsync that succeeds proves nothing, so there is no retry.
    fn fail(mut self, cause: &Arc<redb::Error>, group: Group, mut queue: mpsc::Receiver<Command>) {
        tracing::error!(error = %cause, "the store has failed and accepts no more commits");
        let cause: Cause = Arc::clone(cause) as _;
        // Set before any reply is sent, so that a caller that got its reply finds the failure in the statistics.
        let cause = self.shared.failure.get_or_init(|| cause).clone();
        self.latest_revision = None;
        for pending in group.commits {
            drop(pending.reply.send(Err(CommitError::Unavailable { cause: cause.clone() })));
        }
        for reply in self.waiting.drain(..).chain(group.compactions.into_iter().map(|(_, reply)| reply)) {
            drop(reply.send(Err(CompactError::Unavailable { cause: cause.clone() })));
        }
        while let Some(command) = queue.blocking_recv() {
            let cause = cause.clone();
            match command {
                Command::Commit { reply, .. } => drop(reply.send(Err(CommitError::Unavailable { cause }))),
                Command::Compact { reply, .. } => drop(reply.send(Err(CompactError::Unavailable { cause }))),
            }
        }
    }
}

fn set_meta(transaction: &WriteTransaction, name: &'static str, value: Revision) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert(name, value.0)?;
    Ok(())
}

/// The commits and compactions of one durable write.
#[derive(Debug, Default)]
struct Group {
    commits: Vec<PendingCommit>,
    compactions: Vec<(Revision, CompactReply)>,
    bytes: usize,
}

impl Group {
    fn add(&mut self, command: Command) {
        match command {
            Command::Commit { mutations, bytes, reply } => {
                self.bytes += bytes;
                let outcome = Err(CommitError::Unavailable { cause: writer_stopped() });
                self.commits.push(PendingCommit { mutations, reply, outcome });
            }
            Command::Compact { below, reply } => self.compactions.push((below, reply)),
        }
    }
}

/// A commit that has no reply yet.
#[derive(Debug)]
struct PendingCommit {
    mutations: Vec<Mutation>,
    reply: CommitReply,
    outcome: Result<Revision, CommitError>,
}

impl PendingCommit {
    fn reply(self) {
        drop(self.reply.send(self.outcome));
    }
}

/// The outcome of one commit inside the group.
enum CommitOutcome {
    Changed(Batch),
    Unchanged,
    Conflict { index: usize, current: Option<Record> },
}

/// The tables of the transaction under way.
struct Tables<'transaction> {
    current: Table<'transaction, &'static [u8], StoredValue>,
    history: Table<'transaction, HistoryKey, StoredValue>,
    log: Table<'transaction, LogKey, LogEntry>,
}

impl<'transaction> Tables<'transaction> {
    fn open(transaction: &'transaction WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            current: transaction.open_table(CURRENT)?,
            history: transaction.open_table(HISTORY)?,
            log: transaction.open_table(LOG)?,
        })
    }

    /// Checks every expectation before the first change, because a conflict must leave no trace.
    fn apply(&mut self, mutations: Vec<Mutation>, revision: Revision) -> Result<CommitOutcome, redb::Error> {
        let mut events = Vec::with_capacity(mutations.len());
        for (index, mutation) in mutations.into_iter().enumerate() {
            let previous = self.record(&mutation.key)?;
            if !mutation.expect.admits(previous.as_ref().map(|record| record.modified)) {
                return Ok(CommitOutcome::Conflict { index, current: previous });
            }
            let value = match mutation.change {
                Change::Put(value) => Some(value),
                Change::Delete if previous.is_some() => None,
                Change::Delete | Change::Keep => continue,
            };
            events.push(Event { key: mutation.key, value, previous });
        }
        if events.is_empty() {
            return Ok(CommitOutcome::Unchanged);
        }
        for (index, event) in (0..).zip(&events) {
            self.write(event, revision, index)?;
        }
        Ok(CommitOutcome::Changed(Batch { revision, events }))
    }

    fn record(&self, key: &Bytes) -> Result<Option<Record>, redb::Error> {
        let Some(row) = self.current.get(&key[..])? else {
            return Ok(None);
        };
        let (created, modified, value) = row.value();
        Ok(Some(Record {
            key: key.clone(),
            value: Bytes::copy_from_slice(value),
            created: Revision(created),
            modified: Revision(modified),
        }))
    }

    fn write(&mut self, event: &Event, revision: Revision, index: u32) -> Result<(), redb::Error> {
        let key = &event.key[..];
        let kind = match (&event.previous, &event.value) {
            (None, _) => EventKind::Created,
            (Some(_), Some(_)) => EventKind::Updated,
            (Some(_), None) => EventKind::Deleted,
        };
        if let Some(previous) = &event.previous {
            let superseded = (previous.created.0, previous.modified.0, &previous.value[..]);
            self.history.insert((key, revision.0), superseded)?;
        }
        match &event.value {
            Some(value) => {
                let created = event.previous.as_ref().map_or(revision, |previous| previous.created);
                self.current.insert(key, (created.0, revision.0, &value[..]))?;
            }
            None => {
                self.current.remove(key)?;
            }
        }
        self.log.insert((revision.0, index), (kind as u8, key))?;
        Ok(())
    }
}
