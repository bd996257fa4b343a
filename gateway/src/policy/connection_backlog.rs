//! Slow-reader protection: gives up streams whose buffered data the peer does not read (CVE-2019-9511, CVE-2019-9517).
//!
//! A shard sends ahead on every stream, up to its window, and that data waits here while the client does not read. One
//! response may wait for as long as `slowClients.responseStallTimeout` says; hundreds on one connection would be tens of
//! MiB. So a connection with more than [`ALLOWED_BACKLOG`] waiting must drain at a rate that would empty it within
//! [`MAX_DRAIN_TIME`]: a slow network connection with many long lists keeps them, and so do the other clients on a CDN's
//! connection. Networks pause now and then, so only [`MAX_STALLED_SAMPLES`] samples in a row below that rate are too many,
//! unless more than [`HARD_LIMIT`] waits.
//!
//! Uploads are treated alike: data that a client sends ahead waits while a shard does not read it, and a connection with more
//! than that waiting loses the uploads of which nothing is read for as long. A client's connection has a window of
//! [`CLIENT_UPLOAD_WINDOW`] for all its uploads. When three quarters of it wait, one sample is enough, so that its uploads to other
//! shards are not blocked for longer.
//!
//! All connections of the process share a [`BacklogBudget`]. Above half of it the allowances of every connection shrink, in
//! proportion to what is left, so that many connections together hold no more than the budget. Many connections fill it within
//! moments, so the first sample is early, and counts only then.
//!
//! Cost: one addition per part of a body. The rest only happens on streams of which nothing was read for [`SAMPLE_INTERVAL`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Bytes that may wait on one connection whatever its peer does, while the budget is not under pressure.
const ALLOWED_BACKLOG: usize = 1 << 20;
/// [`ALLOWED_BACKLOG`] when the budget is used up: the window of one stream.
const MIN_ALLOWED_BACKLOG: usize = 64 << 10;
/// A connection that would drain within this time is only slow.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(32);
/// Time between two samples of a stalled stream.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the first sample. Networks pause for longer, so it counts only while the budget is under pressure.
const FIRST_SAMPLE: Duration = Duration::from_millis(100);
/// Number of consecutive samples that may find the connection too slow: networks and shards pause for a while.
const MAX_STALLED_SAMPLES: u32 = 8;
/// With more bytes than this waiting, one sample is enough, while the budget is not under pressure.
const HARD_LIMIT: usize = 8 << 20;
/// Window for the uploads of a client's connection, in bytes: room for 250 objects of 8 KiB to a shard that stalls.
pub(crate) const CLIENT_UPLOAD_WINDOW: u32 = 2 << 20;
/// [`HARD_LIMIT`] for the uploads of a client's connection.
const CLIENT_UPLOAD_HARD_LIMIT: usize = CLIENT_UPLOAD_WINDOW as usize / 4 * 3;

/// Bytes that may wait on stalled streams of all connections of the process.
#[derive(Debug)]
pub(crate) struct BacklogBudget {
    limit: AtomicUsize,
    waiting: AtomicUsize,
}

impl BacklogBudget {
    /// A budget of this many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), waiting: AtomicUsize::new(0) }
    }

    /// Changes the limit from now on.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes that wait now on stalled streams.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The current allowance of one connection: the maximum while less than half of the budget is used, then in proportion to the
    /// rest.
    fn allowance(&self) -> Allowance {
        let (limit, waiting) = (self.limit.load(Ordering::Relaxed), self.waiting());
        let half = (limit / 2).max(1);
        let left = limit.saturating_sub(waiting).min(half);
        let scaled = |all: usize| (all as u128 * left as u128 / half as u128) as usize;
        Allowance {
            backlog: scaled(ALLOWED_BACKLOG).max(MIN_ALLOWED_BACKLOG),
            stalled_samples: (scaled(MAX_STALLED_SAMPLES as usize) as u32).max(1),
        }
    }
}

/// The backlog that one connection may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Allowance {
    /// Buffered bytes.
    backlog: usize,
    /// Number of consecutive samples that may find the connection too slow.
    stalled_samples: u32,
}

impl Allowance {
    /// Whether the budget is under pressure.
    fn is_reduced(self) -> bool {
        self.backlog < ALLOWED_BACKLOG
    }

    /// A limit in the same proportion.
    fn scaled(self, limit: usize) -> usize {
        (limit as u128 * self.backlog as u128 / ALLOWED_BACKLOG as u128) as usize
    }
}

/// Bytes that wait on the stalled streams of one connection, in one direction.
#[derive(Debug)]
pub(crate) struct ConnectionBacklog {
    budget: Arc<BacklogBudget>,
    /// Size, in bytes, above which one sample is enough, while the budget is not under pressure.
    hard_limit: usize,
    /// Bytes of the stalled streams, as of their last samples.
    waiting: AtomicUsize,
    /// Bytes read by the peer, on all streams, since the connection began.
    drained: AtomicU64,
}

impl ConnectionBacklog {
    /// The backlog of a new connection.
    pub(crate) fn new(budget: Arc<BacklogBudget>) -> Self {
        Self::with_hard_limit(budget, HARD_LIMIT)
    }

    /// The backlog for the uploads of a client, whose connection has a window of [`CLIENT_UPLOAD_WINDOW`].
    pub(crate) fn of_client_uploads(budget: Arc<BacklogBudget>) -> Self {
        Self::with_hard_limit(budget, CLIENT_UPLOAD_HARD_LIMIT)
    }

    fn with_hard_limit(budget: Arc<BacklogBudget>, hard_limit: usize) -> Self {
        Self { budget, hard_limit, waiting: AtomicUsize::new(0), drained: AtomicU64::new(0) }
    }

    /// Counts bytes that the peer has read.
    pub(crate) fn drained(&self, bytes: usize) {
        self.drained.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns when a stream has to be aborted because its peer reads nothing: after `max_stall`, or as soon as too much waits on
    /// its connection. To be dropped when the peer reads. `waiting` returns the bytes that wait on this stream.
    pub(crate) async fn stalled(&self, max_stall: Duration, mut waiting: impl FnMut() -> usize) {
        let end = Instant::now() + max_stall;
        let mut drained = self.drained.load(Ordering::Relaxed);
        let mut stalled_samples = 0;
        let mut interval = FIRST_SAMPLE;
        let mut stream = StalledStream { connection: self, bytes: 0 };
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let began = Instant::now();
            sleep(rest.min(interval)).await;
            let is_first = std::mem::replace(&mut interval, SAMPLE_INTERVAL) == FIRST_SAMPLE;
            let backlog = stream.update(waiting());
            let before = std::mem::replace(&mut drained, self.drained.load(Ordering::Relaxed));
            let allowance = self.budget.allowance();
            let is_stalled = backlog > allowance.backlog
                && !drains_in_time(backlog, drained.wrapping_sub(before), began.elapsed());
            let exceeds_hard_limit = is_stalled && backlog > allowance.scaled(self.hard_limit);
            if is_first && !allowance.is_reduced() {
                continue;
            }
            stalled_samples = if is_stalled && !is_first { stalled_samples + 1 } else { 0 };
            if exceeds_hard_limit || stalled_samples >= allowance.stalled_samples {
                return;
            }
        }
    }
}

/// Whether a backlog would be empty within [`MAX_DRAIN_TIME`], at the rate of the last sample.
fn drains_in_time(backlog: usize, drained: u64, during: Duration) -> bool {
    u128::from(drained) * MAX_DRAIN_TIME.as_millis() >= backlog as u128 * during.as_millis()
}

/// The part of one stream in its connection's backlog, subtracted on drop.
struct StalledStream<'c> {
    connection: &'c ConnectionBacklog,
    bytes: usize,
}

impl StalledStream<'_> {
    /// Sets the bytes of this stream; returns those of its connection.
    fn update(&mut self, bytes: usize) -> usize {
        let before = std::mem::replace(&mut self.bytes, bytes);
        // The sum over all streams is never less than the part of one, so wrapping additions give the right sum.
        let change = bytes.wrapping_sub(before);
        self.connection.budget.waiting.fetch_add(change, Ordering::Relaxed);
        self.connection.waiting.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

impl Drop for StalledStream<'_> {
    fn drop(&mut self) {
        self.connection.budget.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
        self.connection.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 256 << 10;
    const PATIENCE: Duration = Duration::from_secs(60);
    const MIB: usize = 1 << 20;

    /// Opens streams with a full window each of which nothing is read, while the connection drains `rate(second)` bytes in each
    /// second. Returns how many streams are left after two seconds, after ten, and when `max_stall` is over.
    async fn remaining(streams: usize, rate: impl Fn(usize) -> usize + Send + 'static) -> [usize; 3] {
        let budget = Arc::new(BacklogBudget::new(1 << 40));
        remaining_of(ConnectionBacklog::new(budget), streams, rate).await
    }

    /// As [`remaining`], on this connection.
    async fn remaining_of(
        connection: ConnectionBacklog,
        streams: usize,
        rate: impl Fn(usize) -> usize + Send + 'static,
    ) -> [usize; 3] {
        let connection = Arc::new(connection);
        let others = Arc::clone(&connection);
        tokio::spawn(async move {
            for tenth in 0.. {
                sleep(SAMPLE_INTERVAL / 10).await;
                others.drained(rate(tenth / 10) / 10);
            }
        });
        let mut stalled = stall(&connection, streams);
        let mut counts = [0; 3];
        let waits = [2 * SAMPLE_INTERVAL + SAMPLE_INTERVAL / 2, 8 * SAMPLE_INTERVAL, PATIENCE];
        for (count, wait) in counts.iter_mut().zip(waits) {
            sleep(wait).await;
            stalled.retain(|stream| !stream.is_finished());
            *count = stalled.len();
        }
        assert_eq!(connection.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(connection.budget.waiting(), 0);
        counts
    }

    fn stall(connection: &Arc<ConnectionBacklog>, streams: usize) -> Vec<tokio::task::JoinHandle<()>> {
        let stream = || {
            let connection = Arc::clone(connection);
            tokio::spawn(async move { connection.stalled(PATIENCE, || WINDOW).await })
        };
        (0..streams).map(|_| stream()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_backlog_must_drain() {
        assert_eq!(remaining(1, |_| 0).await, [1, 1, 0], "one stream may wait for a minute");
        assert_eq!(remaining(4, |_| 0).await, [4, 4, 0], "so may a MiB");
        assert_eq!(remaining(20, |_| 0).await, [20, 4, 0], "more only for a moment");
        assert_eq!(remaining(250, |_| 0).await, [32, 4, 0], "and very much not even that long");
        assert_eq!(remaining(250, |_| 1 << 10).await, [32, 4, 0], "not if it drains slowly either");
        assert_eq!(remaining(20, |_| 256 << 10).await, [20, 20, 0], "a slow line with twenty lists");
        assert_eq!(remaining(250, |_| 4 << 20).await, [250, 250, 0], "many people on one connection");
        let with_pauses = |second: usize| if second % 8 < 5 { 0 } else { 4 << 20 };
        assert_eq!(remaining(30, with_pauses).await, [30, 30, 0], "a line that pauses now and then");
    }

    #[tokio::test(start_paused = true)]
    async fn under_pressure_the_first_sample_is_enough_for_far_too_much() {
        let budget = Arc::new(BacklogBudget::new(64 * MIB));
        let hostile: Vec<_> =
            (0..8).flat_map(|_| stall(&Arc::new(ConnectionBacklog::new(Arc::clone(&budget))), 250)).collect();
        let slow = stall(&Arc::new(ConnectionBacklog::new(Arc::clone(&budget))), 2);
        sleep(2 * FIRST_SAMPLE).await;
        let remaining = hostile.iter().filter(|stream| !stream.is_finished()).count();
        assert!(remaining <= 256, "{remaining} streams with a window of 256 KiB each");
        assert!(slow.iter().all(|stream| !stream.is_finished()), "a slow client keeps its streams");
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_uploads_of_a_client_soon_leave_room_in_its_window() {
        let uploads = || ConnectionBacklog::of_client_uploads(Arc::new(BacklogBudget::new(1 << 40)));
        assert_eq!(remaining_of(uploads(), 5, |_| 0).await, [5, 4, 0], "a window with room waits");
        assert_eq!(
            remaining_of(uploads(), 8, |_| 0).await,
            [6, 4, 0],
            "a full window loses a quarter at once"
        );
    }

    #[test]
    fn the_allowance_shrinks_in_the_upper_half_of_the_budget() {
        let budget = BacklogBudget::new(64 * MIB);
        for (waiting, backlog, stalled_samples) in [
            (0, ALLOWED_BACKLOG, 8),
            (32 * MIB, ALLOWED_BACKLOG, 8),
            (48 * MIB, ALLOWED_BACKLOG / 2, 4),
            (60 * MIB, ALLOWED_BACKLOG / 8, 1),
            (64 * MIB, MIN_ALLOWED_BACKLOG, 1),
            (usize::MAX, MIN_ALLOWED_BACKLOG, 1),
        ] {
            budget.waiting.store(waiting, Ordering::Relaxed);
            assert_eq!(budget.allowance(), Allowance { backlog, stalled_samples }, "{waiting}");
        }
        assert_eq!(BacklogBudget::new(0).allowance().backlog, MIN_ALLOWED_BACKLOG);
    }

    #[tokio::test(start_paused = true)]
    async fn many_connections_together_stay_within_the_budget() {
        let budget = Arc::new(BacklogBudget::new(64 * MIB));
        // Each is within its own allowance; together they have 200 MiB waiting.
        let mut streams = Vec::new();
        for _ in 0..200 {
            streams.extend(stall(&Arc::new(ConnectionBacklog::new(Arc::clone(&budget))), 4));
        }
        let modest = Arc::new(ConnectionBacklog::new(Arc::clone(&budget)));
        let one = tokio::spawn(async move { modest.stalled(PATIENCE, || MIN_ALLOWED_BACKLOG).await });
        sleep(4 * SAMPLE_INTERVAL).await;
        let waiting = budget.waiting();
        assert!(waiting <= 64 * MIB, "{} MiB wait", waiting / MIB);
        assert!(waiting >= 16 * MIB, "only what is too much is given up: {} MiB wait", waiting / MIB);
        assert!(!one.is_finished(), "a connection within the smallest allowance keeps its stream");
    }
}
