//! The numbers that stores count: durations of commits by phase, and the state of a server behind a store.
//!
//! Counting takes no lock: an observation is a search in [`DURATION_BOUNDS`] and two relaxed additions, some 25 ns. A commit
//! alone costs five of them and eight reads of the clock, some 0.4 µs, most of which the commits of a durable write share.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of [`Durations`]; one more bucket has what is longer.
pub const DURATION_BOUNDS: [Duration; 16] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Buckets of a histogram.
const BUCKETS: usize = DURATION_BOUNDS.len() + 1;

/// Counts durations.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    counts: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl DurationHistogram {
    /// Counts a duration `times` times: once for each commit that it delayed.
    pub fn observe(&self, duration: Duration, times: u64) {
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < duration);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(times, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds.saturating_mul(times), Ordering::Relaxed);
    }

    /// The durations until now.
    pub fn snapshot(&self) -> Durations {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Durations {
            counts: array::from_fn(|bucket| self.counts.get(bucket).map_or(0, load)),
            sum: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

/// The distribution of durations since a store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// The number in each bucket: those up to each of [`DURATION_BOUNDS`], and longer ones.
    pub counts: [u64; BUCKETS],
    /// Their sum.
    pub sum: Duration,
}

impl Durations {
    /// Their number.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Counts the durations of commits, by phase.
#[derive(Debug, Default)]
pub struct CommitTimer {
    /// As [`CommitDurations::queue`]; so for the others.
    pub queue: DurationHistogram,
    /// See there.
    pub apply: DurationHistogram,
    /// See there.
    pub durable: DurationHistogram,
    /// See there.
    pub visible: DurationHistogram,
    /// See there.
    pub total: DurationHistogram,
}

impl CommitTimer {
    /// The durations until now.
    pub fn snapshot(&self) -> CommitDurations {
        CommitDurations {
            queue: self.queue.snapshot(),
            apply: self.apply.snapshot(),
            durable: self.durable.snapshot(),
            visible: self.visible.snapshot(),
            total: self.total.snapshot(),
        }
    }
}

/// Durations of commits, by phase. Commits that share a durable write are counted one by one. The memory backend counts none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitDurations {
    /// Until the writer takes the commit, or until there is a connection to the server.
    pub queue: Durations,
    /// The changes of the file before the durable write. Not on a server.
    pub apply: Durations,
    /// The durable write: the journal with its sync, or the transaction of the server.
    pub durable: Durations,
    /// From then until the commit can be read.
    pub visible: Durations,
    /// From the call until the acknowledgement.
    pub total: Durations,
}

/// Space of the file system with the file of a store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Available to the process.
    pub available: u64,
    /// The whole file system.
    pub total: u64,
}

/// The server behind a store, and the copy that the store has of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// The addresses of the server.
    pub endpoints: Vec<String>,
    /// The address that is in use; `None`: there is no connection.
    pub connected: Option<String>,
    /// The time since the connection was lost; zero while there is one.
    pub disconnected: Duration,
    /// Connections that were established.
    pub connections: u64,
    /// Times that the whole copy was read from the server, because it was empty or what it lacked was compacted.
    pub reloads: u64,
    /// The number of revisions from the last one that can be read to the last one that the server is known to have for this
    /// store. Those of others on the same server do not count.
    pub revisions_behind: u64,
    /// The age of the last proof that the copy had everything that the server had. Up to about two heartbeats on a server
    /// of its own, up to the interval of barriers on one that others write to.
    pub view_age: Duration,
    /// The server's database, as far as it is known.
    pub database: Option<DatabaseStats>,
}

/// The database of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseStats {
    /// Its size on the disk, in bytes.
    pub bytes: u64,
    /// The part that is in use, in bytes: the rest is free after defragmentation.
    pub used_bytes: u64,
    /// Its limit, in bytes; 0: not known.
    pub quota_bytes: u64,
    /// Whether the server refuses writes because the limit is reached.
    pub is_exhausted: bool,
}

impl DatabaseStats {
    /// A database with these numbers, in this order.
    pub fn new(bytes: u64, used_bytes: u64, quota_bytes: u64, is_exhausted: bool) -> Self {
        Self { bytes, used_bytes, quota_bytes, is_exhausted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let histogram = DurationHistogram::default();
        for (duration, times, bucket) in [
            (Duration::ZERO, 1, 0),
            (Duration::from_micros(100), 2, 0),
            (Duration::from_micros(101), 1, 1),
            (Duration::from_millis(3), 4, 5),
            (Duration::from_secs(10), 1, 15),
            (Duration::from_secs(60), 3, 16),
        ] {
            let before = histogram.snapshot();
            histogram.observe(duration, times);
            let after = histogram.snapshot();
            assert_eq!(after.counts[bucket], before.counts[bucket] + times, "{duration:?}");
            assert_eq!(after.count(), before.count() + times, "{duration:?}");
            assert_eq!(after.sum, before.sum + duration * u32::try_from(times).unwrap(), "{duration:?}");
        }
    }

    #[test]
    fn bounds_rise() {
        assert!(DURATION_BOUNDS.is_sorted());
    }
}
