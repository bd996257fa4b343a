//! The commands for the writer thread, and their replies.

use std::time::Instant;

use tokio::sync::oneshot;

use crate::error::{CommitError, CompactError};
use crate::mutation::Mutation;
use crate::record::Revision;
use crate::stats::CommitTimer;

pub(super) type CommitReply = oneshot::Sender<Result<Revision, CommitError>>;
pub(super) type CompactReply = oneshot::Sender<Result<(), CompactError>>;
pub(super) type CloseReply = oneshot::Sender<()>;

/// A command for the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// Applies `mutations`, which have passed `Limits::check` and are `bytes` large, and replies with the revision. The
    /// caller sent it at `queued`.
    Commit { mutations: Vec<Mutation>, bytes: usize, queued: Instant, reply: CommitReply },
    /// Compacts the history below `below` and replies when its rows are deleted.
    Compact { below: Revision, reply: CompactReply },
    /// Closes the file when everything before is written, and replies. Later commands are not read.
    Close { reply: CloseReply },
}

/// A commit that has no reply yet.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pub(super) mutations: Vec<Mutation>,
    pub(super) queued: Instant,
    pub(super) reply: CommitReply,
    pub(super) outcome: Result<Revision, CommitError>,
}

impl PendingCommit {
    pub(super) fn reply(self, timer: &CommitTimer) {
        if self.outcome.is_ok() {
            timer.total.observe(self.queued.elapsed(), 1);
        }
        drop(self.reply.send(self.outcome));
    }
}
