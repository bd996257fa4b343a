//! The feed: batches of events, and the follower that waits for them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::FollowError;
use crate::record::{Record, Revision};

/// All events of one commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// The commit.
    pub revision: Revision,
    /// In the order of the commit's mutations; never empty; keys are distinct.
    pub events: Vec<Event>,
}

impl Batch {
    /// Approximate memory of the batch, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.events.iter().map(Event::bytes).sum::<usize>() + size_of::<Self>()
    }
}

/// The effect of a commit on one key.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Bytes,
    /// The new value; `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// The previous record of the key; `None`: the key did not exist.
    pub previous: Option<Record>,
}

impl Event {
    /// The record that the commit `revision` left behind; `None`: the key was deleted.
    pub fn record(&self, revision: Revision) -> Option<Record> {
        self.value.as_ref().map(|value| Record {
            key: self.key.clone(),
            value: value.clone(),
            created: self.previous.as_ref().map_or(revision, |previous| previous.created),
            modified: revision,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.key.len()
            + self.value.as_ref().map_or(0, Bytes::len)
            + self.previous.as_ref().map_or(0, |previous| previous.value.len())
            + size_of::<Self>()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, previous) = (self.value.as_ref().map(Bytes::len), &self.previous);
        write!(formatter, "Event(\"{}\", bytes: {value:?}, previous: {previous:?})", self.key.escape_ascii())
    }
}

/// The events of a range of keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Changes {
    /// In the order of their revisions; within a commit in any order.
    pub events: Vec<(Revision, Event)>,
    /// The last revision that was read.
    pub up_to: Revision,
}

/// The log of a backend, which followers read.
pub trait Log: Send + Sync + 'static {
    /// Some of the batches with a revision greater than `after`: the first ones, in order, without gap. Empty exactly
    /// when there is none yet. Bounded in size, and short, because it is called on the follower's task.
    fn batches(&self, after: Revision) -> Result<VecDeque<Arc<Batch>>, FollowError>;
}

/// A step of a [`Follower`].
#[derive(Debug, PartialEq, Eq)]
pub enum Advance {
    /// The next batch.
    Batch(Arc<Batch>),
    /// The log has passed this revision without a further batch: its counter is shared with others, as on etcd.
    Position(Revision),
}

/// Delivers every batch after a revision, in order, without gap or duplicate. A slow reader misses nothing, unless the log
/// is compacted beyond its position.
pub struct Follower {
    log: Arc<dyn Log>,
    /// The latest revision in the log. The sender lives as long as the store accepts commits.
    latest_revision: watch::Receiver<Revision>,
    /// Every batch up to this revision has been delivered.
    position: Revision,
    /// Read, but not delivered yet.
    pending: VecDeque<Arc<Batch>>,
    delay: Option<RandomDelay>,
}

impl Follower {
    /// Follows `log` after revision `after`. The backend updates `latest_revision` after it has appended to the log and
    /// drops the sender when the log is closed.
    pub fn new(log: Arc<dyn Log>, after: Revision, latest_revision: watch::Receiver<Revision>) -> Self {
        Self { log, latest_revision, position: after, pending: VecDeque::new(), delay: None }
    }

    /// The same, with random delays (for tests).
    pub(crate) fn with_random_delay(mut self, seed: u64) -> Self {
        self.delay = Some(RandomDelay { state: seed });
        self
    }

    /// The revision up to which every batch has been delivered, at first the one to follow from.
    pub fn position(&self) -> Revision {
        self.position
    }

    /// Waits for the next batch. Cancel-safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Batch>, FollowError> {
        loop {
            if let Advance::Batch(batch) = self.advance().await? {
                return Ok(batch);
            }
        }
    }

    /// Waits for the next batch, or for a later revision that has none. A reader that has to reach a revision uses this one:
    /// a revision of the store may be without a batch. Cancel-safe as [`next`](Self::next).
    pub async fn advance(&mut self) -> Result<Advance, FollowError> {
        loop {
            if let Some(batch) = self.pending.pop_front() {
                self.position = batch.revision;
                return Ok(Advance::Batch(batch));
            }
            // The log is read below; only revisions after that have to wake this task.
            let latest = *self.latest_revision.borrow_and_update();
            if let Some(delay) = &mut self.delay {
                delay.stall().await;
            }
            self.pending = self.log.batches(self.position)?;
            if let Some(delay) = &mut self.delay {
                delay.hold_back(&mut self.pending);
            }
            if self.pending.is_empty() && latest > self.position {
                // Announced before the log was read, so no batch up to there is missing.
                self.position = latest;
                return Ok(Advance::Position(latest));
            }
            if self.pending.is_empty() {
                self.latest_revision.changed().await.map_err(|_| FollowError::Closed)?;
            }
        }
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Follower").field("position", &self.position.0).finish_non_exhaustive()
    }
}

/// Delays a follower and splits its batches, reproducibly by seed.
struct RandomDelay {
    state: u64,
}

impl RandomDelay {
    /// Waits up to three milliseconds; in half of the calls it does not wait.
    async fn stall(&mut self) {
        match self.random_below(8) {
            0..4 => {}
            4 => tokio::task::yield_now().await,
            milliseconds => tokio::time::sleep(Duration::from_millis(milliseconds - 4)).await,
        }
    }

    /// Truncates the batches to a random, non-empty prefix; the next round reads the rest, after another delay.
    fn hold_back(&mut self, batches: &mut VecDeque<Arc<Batch>>) {
        if batches.len() > 1 {
            let keep = 1 + self.random_below(batches.len() as u64);
            batches.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        }
    }

    /// A random number below `bound`, by splitmix64 (Steele, Lea, Flood 2014).
    fn random_below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
