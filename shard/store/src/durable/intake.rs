//! The queue of the writer, and its commands while it waits for room on a full disk.
//!
//! The writer waits in two places: in its loop, where it tries every commit, and inside a checkpoint, where redb is in the middle of a
//! durable transaction. There it can try nothing, so the commands that come meanwhile are refused in its stead.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::command::{CloseReply, Command, CompactReply, PendingCommit};
use crate::error::{Cause, CommitError};
use crate::record::Revision;

/// Time between two attempts to write what a full disk has refused.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1_000 });

/// The queue of the writer, and whether the disk is full.
#[derive(Debug, Default)]
pub(super) struct Intake {
    waiting: Mutex<WaitingCommands>,
    /// The last refusal of the disk; `None` as soon as something could be written again.
    refusal: Mutex<Option<Cause>>,
}

/// Commands that the writer has not executed.
#[derive(Debug, Default)]
struct WaitingCommands {
    queue: Option<mpsc::Receiver<Command>>,
    /// Commits that the writer holds while it makes a checkpoint.
    held: Vec<PendingCommit>,
    compactions: Vec<(Revision, CompactReply)>,
    close: Option<CloseReply>,
}

/// A command, or none.
#[derive(Debug)]
pub(super) enum ReceiveResult {
    Command(Command),
    /// Nothing came in time.
    Nothing,
    /// No command will come any more.
    Closed,
}

/// The time that a receiver waits for a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitLimit {
    Not,
    UntilRetry,
    Unlimited,
}

impl Intake {
    /// The writer takes commands from `queue` from now on.
    pub(super) fn open(&self, queue: mpsc::Receiver<Command>) {
        self.waiting.lock().queue = Some(queue);
    }

    /// No more commands are taken; the caller may refuse what is in the queue.
    pub(super) fn close(&self) -> Option<mpsc::Receiver<Command>> {
        let mut waiting = self.waiting.lock();
        // Without a reply their callers are told that the writer has stopped.
        (waiting.close, waiting.compactions) = (None, Vec::new());
        waiting.queue.take()
    }

    /// The next command.
    pub(super) fn receive(&self, wait: WaitLimit) -> ReceiveResult {
        let mut waiting = self.waiting.lock();
        if let Some((below, reply)) = waiting.compactions.pop() {
            return ReceiveResult::Command(Command::Compact { below, reply });
        }
        let Some(queue) = &mut waiting.queue else { return ReceiveResult::Closed };
        match wait {
            WaitLimit::Not => match queue.try_recv() {
                Ok(command) => ReceiveResult::Command(command),
                Err(TryRecvError::Empty) => ReceiveResult::Nothing,
                Err(TryRecvError::Disconnected) => ReceiveResult::Closed,
            },
            WaitLimit::UntilRetry => receive_until(queue, Instant::now() + RETRY_INTERVAL),
            WaitLimit::Unlimited => {
                queue.blocking_recv().map_or(ReceiveResult::Closed, ReceiveResult::Command)
            }
        }
    }

    /// Keeps commits that are refused if the disk is full meanwhile.
    pub(super) fn hold(&self, commits: Vec<PendingCommit>) {
        self.waiting.lock().held = commits;
    }

    /// The commits that were not refused.
    pub(super) fn release(&self) -> Vec<PendingCommit> {
        std::mem::take(&mut self.waiting.lock().held)
    }

    /// Whether the disk is full, as far as is known.
    pub(super) fn is_full(&self) -> bool {
        self.refusal.lock().is_some()
    }

    /// The disk has refused something.
    pub(super) fn refused(&self, error: io::Error) -> Cause {
        let cause: Cause = Arc::new(error);
        if self.refusal.lock().replace(Arc::clone(&cause)).is_none() {
            tracing::warn!(error = %cause, "the disk of the store is full; commits are refused until there is room, reads go on");
        }
        cause
    }

    /// Something could be written again.
    pub(super) fn accepted(&self) {
        if self.refusal.lock().take().is_some() {
            tracing::info!("the disk of the store has room again");
        }
    }

    /// Waits for [`RETRY_INTERVAL`] in the middle of a checkpoint and refuses commits meanwhile. `false`: the store is being closed, so
    /// there is no other attempt.
    pub(super) fn wait_for_room(&self, error: io::Error) -> bool {
        let cause = self.refused(error);
        let mut waiting = self.waiting.lock();
        let WaitingCommands { queue, held, compactions, close } = &mut *waiting;
        refuse(std::mem::take(held), &cause);
        let Some(queue) = queue.as_mut().filter(|_| close.is_none()) else { return false };
        let deadline = Instant::now() + RETRY_INTERVAL;
        loop {
            match receive_until(queue, deadline) {
                ReceiveResult::Nothing => return true,
                ReceiveResult::Closed => return false,
                ReceiveResult::Command(Command::Commit { reply, .. }) => {
                    drop(reply.send(Err(CommitError::Full { cause: cause.clone() })));
                }
                ReceiveResult::Command(Command::Compact { below, reply }) => compactions.push((below, reply)),
                ReceiveResult::Command(Command::Close { reply }) => {
                    *close = Some(reply);
                    return false;
                }
            }
        }
    }
}

/// Refuses commits because the disk is full.
pub(super) fn refuse(commits: Vec<PendingCommit>, cause: &Cause) {
    for pending in commits {
        drop(pending.reply.send(Err(CommitError::Full { cause: cause.clone() })));
    }
}

/// Waits for a command until `deadline`. The channel itself has no such function for threads.
fn receive_until(queue: &mut mpsc::Receiver<Command>, deadline: Instant) -> ReceiveResult {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match queue.poll_recv(&mut context) {
            Poll::Ready(Some(command)) => return ReceiveResult::Command(command),
            Poll::Ready(None) => return ReceiveResult::Closed,
            Poll::Pending => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return ReceiveResult::Nothing;
        }
        thread::park_timeout(left);
    }
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
