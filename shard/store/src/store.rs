//! The contract of every backend.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use async_trait::async_trait;

use crate::error::{CommitError, CompactError, ReadError};
use crate::follow::{Changes, Follower};
use crate::mutation::{Limits, Mutation};
use crate::record::{Page, Range, Record, RecordRef, Revision};
use crate::stats::{CommitDurations, DiskSpace, Durations, ServerStats};

/// A revisioned key-value log with a view. See the crate's documentation for the guarantees.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies all mutations, or none, under one revision, and returns once the commit is durable.
    ///
    /// The keys must be distinct. When no mutation changes anything (only [`Change::Keep`], or deletions of absent
    /// keys), no revision is used: the result is the latest revision, at which the expectations held.
    ///
    /// A commit that has been started cannot be cancelled: dropping the future drops only the result.
    ///
    /// Cost on redb: one write and one fsync of the journal, shared by all commits that wait at that time, and some
    /// 30 µs of the one writer thread per mutation of 1 KiB, which bounds a store to about 30,000 of them per second
    /// (`examples/commit_throughput.rs` measures both).
    ///
    /// [`Change::Keep`]: crate::Change::Keep
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError>;

    /// The largest commit that this store accepts. A cheap call.
    ///
    /// Memory and redb accept [`MAX_COMMIT_BYTES`](crate::MAX_COMMIT_BYTES) in any number of mutations; etcd, by its
    /// defaults, 128 mutations and less than 1.5 MiB.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The latest record of `key`.
    ///
    /// Cost on redb: one tree descent and a copy of the value, 1 to 4 µs while the pages are in memory; other pages
    /// are read from the file, on the caller's thread.
    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError>;

    /// Visits the records of `range` in key order, as they were at revision `at` (`None`: the latest), until `visit`
    /// breaks; returns the revision read. Nothing is copied, so records that the caller ignores cost nothing.
    ///
    /// `visit` must be short: the memory backend blocks writers meanwhile, redb cannot reuse old pages.
    ///
    /// Cost on redb: one tree descent, then the pages of the range: 15 to 110 µs for 100 records of 1 KiB, depending on
    /// the cache. Reading at an older revision adds the history rows of the range.
    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError>;

    /// Copies up to `limit` records (`None`: all) of `range` at revision `at` (`None`: the latest).
    ///
    /// The next page is `list(&range.after(last_key), limit, Some(page.revision))`.
    fn list(
        &self,
        range: &Range,
        limit: Option<NonZeroUsize>,
        at: Option<Revision>,
    ) -> Result<Page, ReadError> {
        let limit = limit.map_or(usize::MAX, NonZeroUsize::get);
        let mut records = Vec::new();
        let mut has_more = false;
        let revision = self.scan(range, at, &mut |record| {
            if records.len() == limit {
                has_more = true;
                return ControlFlow::Break(());
            }
            records.push(record.to_record());
            ControlFlow::Continue(())
        })?;
        Ok(Page { records, revision, has_more })
    }

    /// The last commit that is durable and visible; where the counter is shared with others, as on etcd, it may be a later
    /// revision, up to which there is no further commit of this store. A cheap call.
    fn revision(&self) -> Revision;

    /// Whether other processes commit to it as well. Then a client may know a later revision than this process.
    fn is_shared(&self) -> bool {
        false
    }

    /// The oldest revision that can be read or followed after: history below it is gone. A cheap call.
    fn compacted(&self) -> Revision;

    /// A follower of every batch with a revision greater than `after`.
    ///
    /// Creating one is cheap. Each follower reads the log itself, so a process normally has one and distributes its
    /// batches.
    fn follow(&self, after: Revision) -> Result<Follower, ReadError>;

    /// The events of `range` after a revision, read from the range instead of from the log. `None` if that would visit
    /// more than `max_rows` rows, or if the backend can only read its log.
    ///
    /// Cost on redb: 0.2 to 0.5 µs per record and per superseded value in the range.
    ///
    /// # Errors
    /// [`ReadError::Compacted`] as for [`follow`](Self::follow).
    fn changes(
        &self,
        _range: &Range,
        _after: Revision,
        _max_rows: usize,
    ) -> Result<Option<Changes>, ReadError> {
        Ok(None)
    }

    /// Discards the history below `below` (at most the latest revision; a revision that is already compacted is a no-op)
    /// and returns when the space has been freed for reuse. Reads below it get [`ReadError::Compacted`] before that.
    ///
    /// Cost on redb: done in small steps between commits, so that writers are not stalled.
    async fn compact(&self, below: Revision) -> Result<(), CompactError>;

    /// Statistics for metrics and health. Cheap enough for every scrape.
    fn stats(&self) -> Stats;
}

/// Statistics of a store. Counters start at zero when it is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The kind of store: `memory`, `file` or `etcd`.
    pub backend: &'static str,
    /// The last durable commit.
    pub revision: Revision,
    /// The oldest readable revision.
    pub compacted: Revision,
    /// Keys that exist.
    pub keys: u64,
    /// Superseded values that are kept for readers of older revisions.
    pub history: u64,
    /// Events in the log.
    pub log: u64,
    /// Size of the file and its journal; 0 in memory.
    pub file_bytes: u64,
    /// Batches that are kept in memory for followers.
    pub ring_batches: u64,
    /// Memory of these batches, in bytes.
    pub ring_bytes: u64,
    /// Acknowledged commits that had an effect.
    pub commits: u64,
    /// Commits refused because an expectation did not hold.
    pub conflicts: u64,
    /// Durable writes; `commits / durable_writes` is the mean size of a group.
    pub durable_writes: u64,
    /// Time spent in durable writes, in nanoseconds (the writer thread's, so at most wall time).
    pub durable_write_nanoseconds: u64,
    /// Commits refused because the store accepts none at that time, also for a full disk.
    pub unavailable: u64,
    /// Commits whose callers were not told whether they happened.
    pub unknown_outcomes: u64,
    /// Durations of commits, by phase.
    pub commit_durations: CommitDurations,
    /// Durations of compactions, until their space was free.
    pub compaction_durations: Durations,
    /// Log rows that compactions have deleted.
    pub compacted_rows: u64,
    /// Space where the file is; `None` in memory, or if the system does not say.
    pub disk: Option<DiskSpace>,
    /// The server that has the data; `None` for a file and in memory.
    pub server: Option<ServerStats>,
    /// Whether the last commit was refused because the disk of the store is full and there is no room yet. Reads go on, so a server with
    /// such a store stays ready. Only on redb.
    pub is_full: bool,
    /// The error after which the store stopped accepting commits. A server with such a store is not ready.
    /// On redb it is final.
    pub failure: Option<String>,
}
