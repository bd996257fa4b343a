//! The thread that writes the local copy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairlead_store::{Cause, Record, ReplicaWriter, ReplicatedCommit, Revision};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{SetOnce, mpsc, oneshot};

use crate::error::cause;

/// Responses of the watch that may wait for the thread.
pub(crate) const QUEUE: usize = 64;
/// Commits that are applied in one transaction.
const GROUP: usize = 1024;

/// A command for the thread.
pub(crate) enum Command {
    /// Applies the next commits.
    Apply(Vec<ReplicatedCommit>),
    /// Replaces the content; replies when it is visible. Nothing is changed if the pages end without [`Page::End`].
    Rebuild { pages: mpsc::Receiver<Page>, reply: oneshot::Sender<()> },
    /// Compacts the history below a revision and replies when its space is free.
    Compact { below: Revision, reply: oneshot::Sender<()> },
    /// Replies when everything before is visible.
    Flush { reply: oneshot::Sender<()> },
    /// Everything up to this revision has been sent before.
    Position(Revision),
    /// Makes the file durable.
    Checkpoint,
    /// The same, and ends the thread.
    Close { reply: oneshot::Sender<()> },
}

/// A part of a new content.
pub(crate) enum Page {
    Records(Vec<Record>),
    /// The content is complete, at a revision.
    End(Revision),
}

/// The failure that has ended the thread: the medium of the copy has failed or is full, and the store must be opened again.
pub(crate) type ViewFailure = Arc<SetOnce<Cause>>;

/// Starts the thread. It ends with [`Command::Close`], when all senders are dropped, or after a failure.
pub(crate) fn start(writer: ReplicaWriter, failure: ViewFailure) -> std::io::Result<mpsc::Sender<Command>> {
    let (queue, commands) = mpsc::channel(QUEUE);
    let thread = Thread { writer, compacting: Vec::new() };
    std::thread::Builder::new().name("etcd-view".to_owned()).spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| thread.run(commands)));
        if let Err(cause) = outcome.unwrap_or_else(|_| Err(cause("its thread has panicked"))) {
            tracing::error!(error = %cause, "the local copy of etcd has failed");
            // Only this thread sets it.
            drop(failure.set(cause));
        }
    })?;
    Ok(queue)
}

struct Thread {
    writer: ReplicaWriter,
    /// Callers that wait for the end of a compaction.
    compacting: Vec<oneshot::Sender<()>>,
}

impl Thread {
    fn run(mut self, mut queue: mpsc::Receiver<Command>) -> Result<(), Cause> {
        // A command that was taken while commits were gathered.
        let mut next = None;
        loop {
            let command = match next.take() {
                Some(command) => Some(command),
                None if self.writer.has_rows_to_sweep() => match queue.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => {
                        self.writer.sweep()?;
                        None
                    }
                    Err(TryRecvError::Disconnected) => break,
                },
                None => match queue.blocking_recv() {
                    Some(command) => Some(command),
                    None => break,
                },
            };
            match command {
                Some(Command::Apply(commits)) => {
                    let commits = gather(commits, &mut queue, &mut next);
                    self.writer.apply(commits)?;
                }
                Some(Command::Rebuild { pages, reply }) => self.rebuild(pages, reply)?,
                Some(Command::Compact { below, reply }) => {
                    self.writer.compact(below)?;
                    self.compacting.push(reply);
                }
                // A caller that has stopped waiting needs no reply; so for the others.
                Some(Command::Flush { reply }) => {
                    let _ = reply.send(());
                }
                Some(Command::Position(position)) => self.writer.set_position(position)?,
                Some(Command::Checkpoint) => self.writer.checkpoint()?,
                Some(Command::Close { reply }) => {
                    self.writer.checkpoint()?;
                    drop(self.writer);
                    let _ = reply.send(());
                    return Ok(());
                }
                None => {}
            }
            if !self.writer.has_rows_to_sweep() {
                for reply in self.compacting.drain(..) {
                    let _ = reply.send(());
                }
            }
        }
        self.writer.checkpoint()
    }

    fn rebuild(&mut self, mut pages: mpsc::Receiver<Page>, reply: oneshot::Sender<()>) -> Result<(), Cause> {
        let mut rebuild = self.writer.rebuild()?;
        while let Some(page) = pages.blocking_recv() {
            match page {
                Page::Records(records) => rebuild.add(&records)?,
                Page::End(revision) => {
                    rebuild.finish(revision)?;
                    let _ = reply.send(());
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Adds the commits that are queued already, so that one transaction serves all of them.
fn gather(
    mut commits: Vec<ReplicatedCommit>,
    queue: &mut mpsc::Receiver<Command>,
    next: &mut Option<Command>,
) -> Vec<ReplicatedCommit> {
    while commits.len() < GROUP {
        match queue.try_recv() {
            Ok(Command::Apply(more)) => commits.extend(more),
            Ok(other) => {
                *next = Some(other);
                break;
            }
            Err(_) => break,
        }
    }
    commits
}
