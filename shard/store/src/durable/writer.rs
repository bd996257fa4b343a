//! The writer thread: the only one that changes the file.
//!
//! The writer takes the queued commits, applies them one by one, each with its own expectations and revision, and makes all of them
//! durable with one record of the [journal](super::journal). No outcome is sent before that, not even a conflict: a conflict may be
//! with a commit of the same group, and commits that are not durable must not be visible.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redb::{Database, Durability, WriteTransaction};
use tokio::sync::watch;

use super::command::{CloseReply, Command, CompactReply, PendingCommit};
use super::full_disk::is_full;
use super::intake::{self, Intake, ReceiveResult, WaitLimit};
use super::journal::{Journal, JournalFile};
use super::layout::{FORMAT, meta};
use super::store_file::StoreFile;
use super::sweep::sweep;
use super::tables::{CommitOutcome, Tables, set_meta};
use super::view::View;
use super::{RedbOptions, Shared, writer_stopped};
use crate::error::{Cause, CommitError, CompactError};
use crate::follow::Batch;
use crate::record::Revision;

/// Log rows that one durable write sweeps: at least `SWEEP_ROWS`, and `SWEEP_ROWS_PER_EVENT` for each event that it adds.
/// Enough to keep up with any writer; delays a commit by few milliseconds.
const SWEEP_ROWS: usize = 256;
const SWEEP_ROWS_PER_EVENT: usize = 2;

/// Transactions after which there is a checkpoint, however small the journal is: the pages of the last durable transaction
/// cannot be reused before that.
pub(super) const MAX_TRANSACTIONS: u32 = 4096;

/// The size of the journal from which on there is a checkpoint when no commits queue up. A checkpoint of 1 MiB delays a commit by up
/// to 15 ms, one of 16 MiB by up to 130 ms. While commits queue up, fewer checkpoints are better: pages that change often are written once.
const IDLE_JOURNAL_BYTES: u64 = 1 << 20;

/// The files of a store.
pub(super) struct WriterFiles {
    pub(super) database: Database,
    /// The file of the database.
    pub(super) file: StoreFile,
    /// `None` until the first commit.
    pub(super) journal: Option<Journal>,
    pub(super) journal_file: Box<dyn JournalFile>,
}

/// The error of a durable write.
enum WriteError {
    /// There is no room. Nothing has changed, so the writer goes on.
    Full(std::io::Error),
    /// The state of the files is unknown.
    Failed(redb::Error),
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        if is_full(&error) { Self::Full(error) } else { Self::Failed(error.into()) }
    }
}

impl From<redb::Error> for WriteError {
    fn from(error: redb::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) struct Writer {
    files: WriterFiles,
    intake: Arc<Intake>,
    /// Transactions since the last checkpoint.
    transactions: u32,
    shared: Arc<Shared>,
    /// Announces the last published revision. Dropped when no more batches will come, which closes the followers.
    latest_revision: Option<watch::Sender<Revision>>,
    options: RedbOptions,
    revision: Revision,
    compacted: Revision,
    /// The revision up to which callers want the history to be compacted.
    compaction_goal: Revision,
    /// Whether compacted rows are still in the file.
    has_rows_to_sweep: bool,
    /// Callers that wait for the end of the compaction.
    waiting: Vec<CompactReply>,
}

/// The effect of a group on the tables.
struct Changes {
    batches: Vec<Arc<Batch>>,
    conflicts: u64,
    revision: Revision,
    compacted: Revision,
    /// Whether compacted rows were deleted, and whether there are more.
    has_swept: bool,
    has_rows_to_sweep: bool,
}

impl Writer {
    /// A writer that takes its commands from `intake`, which is open.
    pub(super) fn new(
        files: WriterFiles,
        intake: Arc<Intake>,
        shared: Arc<Shared>,
        latest_revision: watch::Sender<Revision>,
        options: RedbOptions,
    ) -> Self {
        let view = shared.view();
        // Resumes a compaction that a crash interrupted. A read error is ignored here: the sweep meets it again.
        let has_rows_to_sweep = view.has_rows_to_sweep().unwrap_or(true);
        let (revision, compacted) = (view.revision(), view.compacted());
        Self {
            files,
            intake,
            transactions: 0,
            shared,
            latest_revision: Some(latest_revision),
            options,
            revision,
            compacted,
            compaction_goal: compacted,
            has_rows_to_sweep,
            waiting: Vec::new(),
        }
    }

    /// Runs until the queue is closed or the store is. After a failure of the medium it only refuses commands.
    pub(super) fn run(mut self) {
        while let Some(mut group) = self.gather() {
            let is_idle = group.commits.len() <= 1;
            let written = self.write(&mut group).or_else(|error| self.refuse(error, &mut group));
            match written {
                Ok(()) => {
                    group.commits.into_iter().for_each(|commit| commit.reply(&self.shared.counters.timer))
                }
                Err(error) => return self.fail(&Arc::new(error), group),
            }
            if let Some(reply) = group.close {
                drop(self.intake.close());
                self.close();
                // A caller that has stopped waiting needs no reply.
                let _ = reply.send(());
                return;
            }
            if self.needs_checkpoint(is_idle)
                && let Err(error) = self.checkpoint()
            {
                return self.fail(&Arc::new(error), Group::default());
            }
        }
        drop(self.intake.close());
        self.close();
    }

    /// Waits for a command unless there are rows to sweep, then takes the queued ones. While the disk is full, it waits for a limited
    /// time only. `None`: the store is being closed.
    fn gather(&self) -> Option<Group> {
        let mut group = Group::default();
        let wait = match (self.intake.is_full(), self.has_rows_to_sweep) {
            (false, false) => WaitLimit::Unlimited,
            (false, true) => WaitLimit::Not,
            // Compaction needs no room outside of a checkpoint.
            (true, true) if self.files.file.catch_up().is_ok() => WaitLimit::Not,
            (true, _) => WaitLimit::UntilRetry,
        };
        match self.intake.receive(wait) {
            ReceiveResult::Command(command) => group.add(command),
            ReceiveResult::Nothing => return Some(group),
            ReceiveResult::Closed => return None,
        }
        let is_full = |group: &Group| {
            group.commits.len() >= self.options.group_commits || group.bytes >= self.options.group_bytes
        };
        while group.close.is_none() && !is_full(&group) {
            let ReceiveResult::Command(command) = self.intake.receive(WaitLimit::Not) else { break };
            group.add(command);
        }
        Some(group)
    }

    /// Applies the group, makes it durable, publishes it.
    fn write(&mut self, group: &mut Group) -> Result<(), WriteError> {
        for (below, reply) in group.compactions.drain(..) {
            self.compaction_goal = self.compaction_goal.max(below);
            self.waiting.push(reply);
        }
        self.files.file.catch_up()?;
        if self.files.journal.is_none() && !group.commits.is_empty() {
            // The checkpoint that begins the journal waits while the disk is full.
            self.intake.hold(std::mem::take(&mut group.commits));
            let started = self.start_journal();
            group.commits = self.intake.release();
            started?;
        } else if group.commits.is_empty() && self.intake.is_full() && !self.has_rows_to_sweep {
            match self.probe() {
                Err(WriteError::Full(error)) => drop(self.intake.refused(error)),
                outcome => outcome?,
            }
        }
        let taken = Instant::now();
        for pending in &group.commits {
            let waited = taken.saturating_duration_since(pending.queued);
            self.shared.counters.timer.queue.observe(waited, 1);
        }
        let transaction = self.begin(Durability::None)?;
        let changes = self.change(&transaction, group)?;
        let compacted = changes.compacted;
        self.shared.counters.conflicts.fetch_add(changes.conflicts, Ordering::Relaxed);
        if changes.batches.is_empty() && !changes.has_swept {
            transaction.abort().map_err(redb::Error::from)?;
        } else {
            // A sweep alone may be lost in a crash: it is repeated.
            let count = changes.batches.len() as u64;
            if count > 0 {
                self.shared.counters.timer.apply.observe(taken.elapsed(), count);
                self.append(changes.compacted, &changes.batches)?;
            }
            let durable = Instant::now();
            transaction.commit().map_err(redb::Error::from)?;
            self.transactions += 1;
            (self.revision, self.compacted) = (changes.revision, changes.compacted);
            self.has_rows_to_sweep = changes.has_rows_to_sweep;
            self.publish(changes.batches)?;
            self.shared.counters.timer.visible.observe(durable.elapsed(), count);
        }
        self.compaction_goal = compacted;
        if !self.has_rows_to_sweep {
            // A caller that has stopped waiting needs no reply; the same holds for every reply below.
            self.waiting.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
        }
        Ok(())
    }

    fn begin(&self, durability: Durability) -> Result<WriteTransaction, redb::Error> {
        let mut transaction = self.files.database.begin_write()?;
        transaction.set_durability(durability)?;
        Ok(transaction)
    }

    /// Applies the group in a transaction and sets the outcome of each of its commits.
    fn change(&self, transaction: &WriteTransaction, group: &mut Group) -> Result<Changes, redb::Error> {
        let mut tables = Tables::open(transaction)?;
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

        let compacted = self.compacted.max(self.compaction_goal.min(revision));
        let has_swept = self.has_rows_to_sweep || compacted > self.compacted;
        let mut has_rows_to_sweep = false;
        if has_swept {
            let events: usize = batches.iter().map(|batch| batch.events.len()).sum();
            let rows = SWEEP_ROWS.max(events.saturating_mul(SWEEP_ROWS_PER_EVENT));
            let deleted = sweep(&mut tables.log, &mut tables.history, compacted, rows)?;
            has_rows_to_sweep = deleted == rows;
            self.shared.counters.compacted_rows.fetch_add(deleted as u64, Ordering::Relaxed);
        }
        drop(tables);
        if !batches.is_empty() || has_swept {
            set_meta(transaction, meta::REVISION, revision.0)?;
            set_meta(transaction, meta::COMPACTED, compacted.0)?;
        }
        Ok(Changes { batches, conflicts, revision, compacted, has_swept, has_rows_to_sweep })
    }

    /// Makes the commits durable.
    fn append(&mut self, compacted: Revision, batches: &[Arc<Batch>]) -> Result<(), WriteError> {
        let Some(journal) = &mut self.files.journal else { return Ok(()) };
        let started = Instant::now();
        journal.append(compacted, batches)?;
        let took = started.elapsed();
        self.shared.counters.timer.durable.observe(took, batches.len() as u64);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.shared.counters.durable_writes.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.durable_write_nanoseconds.fetch_add(took, Ordering::Relaxed);
        self.intake.accepted();
        Ok(())
    }

    /// Refuses the commits of a group if there is no room for them, and makes room in the journal by a checkpoint, which may find pages
    /// in the store file that are free. `Err`: the error is another one.
    fn refuse(&mut self, error: WriteError, group: &mut Group) -> Result<(), redb::Error> {
        let error = match error {
            WriteError::Full(error) => error,
            WriteError::Failed(error) => return Err(error),
        };
        // Revisions of the future are not compacted.
        self.compaction_goal = self.compaction_goal.min(self.revision);
        let cause = self.intake.refused(error);
        intake::refuse(std::mem::take(&mut group.commits), &cause);
        if group.close.is_none() && self.files.journal.as_ref().is_some_and(|journal| journal.bytes() > 0) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Whether there is room again.
    fn probe(&mut self) -> Result<(), WriteError> {
        match &mut self.files.journal {
            Some(journal) => journal.probe()?,
            None => self.start_journal()?,
        }
        self.intake.accepted();
        Ok(())
    }

    /// The file exists before the store file names it.
    fn start_journal(&mut self) -> Result<(), WriteError> {
        let file = self.files.journal_file.create()?;
        let nonce = random_nonce()?;
        let journal = Journal::start(file, nonce)?;
        self.write_all(Some(nonce))?;
        self.files.journal = Some(journal);
        Ok(())
    }

    fn needs_checkpoint(&self, is_idle: bool) -> bool {
        let journal_bytes = self.files.journal.as_ref().map_or(0, Journal::bytes);
        journal_bytes >= self.options.journal_bytes
            || (is_idle && journal_bytes >= IDLE_JOURNAL_BYTES)
            || self.transactions >= MAX_TRANSACTIONS
    }

    /// Makes the store file durable, so that the journal starts again.
    ///
    /// Costs the time to write the changed pages, up to 15 ms for a journal of 1 MiB and 130 ms for one of 16 MiB; commits wait meanwhile.
    /// If the disk is full it takes until there is room, and commits are refused meanwhile.
    fn checkpoint(&mut self) -> Result<(), redb::Error> {
        let nonce = match &self.files.journal {
            None => Some(meta::NO_JOURNAL),
            // Since the last checkpoint there were only compactions.
            Some(journal) if journal.bytes() == 0 => None,
            Some(_) => Some(random_nonce()?),
        };
        self.write_all(nonce)?;
        if let (Some(journal), Some(nonce)) = (&mut self.files.journal, nonce) {
            journal.restart(nonce);
        }
        Ok(())
    }

    /// Makes all that was committed durable in the store file, whose journal is `nonce` from now on. `None`: the journal has no record
    /// of its own yet, and begins with one of the journal before, so the file goes on naming these two.
    fn write_all(&mut self, nonce: Option<u64>) -> Result<(), redb::Error> {
        let mut transaction = self.begin(Durability::Immediate)?;
        // After a crash the file is opened in milliseconds, whatever its size.
        transaction.set_quick_repair(true);
        set_meta(&transaction, meta::FORMAT, FORMAT)?;
        if let Some(nonce) = nonce {
            let previous = self.files.journal.as_ref().map_or(meta::NO_JOURNAL, Journal::nonce);
            set_meta(&transaction, meta::JOURNAL, nonce)?;
            set_meta(&transaction, meta::PREVIOUS_JOURNAL, previous)?;
        }
        transaction.commit()?;
        self.transactions = 0;
        Ok(())
    }

    /// Leaves one complete file behind.
    fn close(mut self) {
        if self.files.journal.is_none() {
            return;
        }
        let closed = self.write_all(Some(meta::NO_JOURNAL));
        self.files.journal = None;
        if let Err(error) = closed {
            return tracing::warn!(%error, "the store could not be closed; the next start replays its journal");
        }
        if let Err(error) = self.files.journal_file.remove() {
            tracing::warn!(%error, "the journal of the closed store could not be removed; it is not needed");
        }
    }

    /// Publishes the durable commits: first to readers, then to followers. Replies are sent afterwards.
    fn publish(&self, batches: Vec<Arc<Batch>>) -> Result<(), redb::Error> {
        let view = Arc::new(View::open(&self.files.database)?);
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
    fn fail(mut self, cause: &Arc<redb::Error>, group: Group) {
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
        let Some(mut queue) = self.intake.close() else { return };
        while let Some(command) = queue.blocking_recv() {
            let cause = cause.clone();
            match command {
                Command::Commit { reply, .. } => drop(reply.send(Err(CommitError::Unavailable { cause }))),
                Command::Compact { reply, .. } => drop(reply.send(Err(CompactError::Unavailable { cause }))),
                Command::Close { reply } => drop(reply),
            }
        }
    }
}

/// A number that no earlier journal has had.
fn random_nonce() -> Result<u64, redb::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// The commits and compactions of one durable write.
#[derive(Debug, Default)]
struct Group {
    commits: Vec<PendingCommit>,
    compactions: Vec<(Revision, CompactReply)>,
    /// The store is closed after this group.
    close: Option<CloseReply>,
    bytes: usize,
}

impl Group {
    fn add(&mut self, command: Command) {
        match command {
            Command::Commit { mutations, bytes, queued, reply } => {
                self.bytes += bytes;
                let outcome = Err(CommitError::Unavailable { cause: writer_stopped() });
                self.commits.push(PendingCommit { mutations, queued, reply, outcome });
            }
            Command::Compact { below, reply } => self.compactions.push((below, reply)),
            Command::Close { reply } => self.close = Some(reply),
        }
    }
}
