//! The contract that every backend keeps.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use async_trait::async_trait;

use crate::error::{CommitError, CompactError, ReadError};
use crate::follow::Follower;
use crate::mutation::Mutation;
use crate::record::{Page, Range, Record, RecordRef, Revision};

/// A revisioned key-value log with a view. See the crate's documentation for the guarantees.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies all mutations, or none, under one revision, and returns once that is durable.
    ///
    /// The keys must be distinct. When no mutation changes anything (only [`Change::Keep`], or deletions of absent
    /// keys), no revision is used: the result is the latest revision, at which the expectations held.
    ///
    /// A started commit cannot be cancelled: dropping the future drops only the result.
    ///
    /// Cost on redb: one durable write of the file (two fsyncs), shared by all commits that wait at that time, and some
    /// 30 µs of the one writer thread per mutation of 1 KiB, which bounds a store to about 30,000 of them per second
    /// (`examples/commit_throughput.rs` measures both).
    ///
    /// [`Change::Keep`]: crate::Change::Keep
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError>;

    /// The latest record of `key`.
    ///
    /// Cost on redb: one tree descent and a copy of the value, 1 to 4 µs while the pages are in memory; a page that is
    /// not is read from the file, on the caller's thread.
    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError>;

    /// Visits the records of `range` in key order, as they were at revision `at` (`None`: the latest), until `visit`
    /// breaks; returns the revision read. Nothing is copied, so records that the caller ignores cost nothing.
    ///
    /// `visit` must be short: on the memory backend it holds up writers, on redb it keeps old pages from reuse.
    ///
    /// Cost on redb: one tree descent, then the pages of the range: 15 to 110 µs for 100 records of 1 KiB, by how much
    /// of it is cached. Reading at an older revision adds the history rows of the range.
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
        let mut more = false;
        let revision = self.scan(range, at, &mut |record| {
            if records.len() == limit {
                more = true;
                return ControlFlow::Break(());
            }
            records.push(record.to_record());
            ControlFlow::Continue(())
        })?;
        Ok(Page { records, revision, more })
    }

    /// The last commit that is durable and visible. Cheap.
    fn revision(&self) -> Revision;

    /// The oldest revision that can be read or followed after: history below it is gone. Cheap.
    fn compacted(&self) -> Revision;

    /// A follower of every batch with a revision greater than `after`.
    ///
    /// Cheap to make; many may exist, but each reads on its own, so a process normally has one and distributes.
    fn follow(&self, after: Revision) -> Result<Follower, ReadError>;

    /// Forgets the history below `below` (at most the latest revision; going back is a no-op) and returns when its
    /// space has been freed for reuse. Readers get [`ReadError::Compacted`] from the moment it is decided.
    ///
    /// Cost on redb: done in small steps between commits, so that writers are not stalled.
    async fn compact(&self, below: Revision) -> Result<(), CompactError>;

    /// Figures for metrics and health. Cheap enough for every scrape.
    fn stats(&self) -> Stats;
}

/// Figures about a store. Counters count from its opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The last durable commit.
    pub revision: Revision,
    /// The oldest readable revision.
    pub compacted: Revision,
    /// Keys that exist.
    pub keys: u64,
    /// SupersededRows values that are kept for readers of older revisions.
    pub history: u64,
    /// Events in the log.
    pub log: u64,
    /// Size of the file; 0 in memory.
    pub file_bytes: u64,
    /// Batches that are kept in memory for followers.
    pub ring_batches: u64,
    /// Memory of these batches, in bytes.
    pub ring_bytes: u64,
    /// Acknowledged commits that had an effect.
    pub commits: u64,
    /// Commits refused because an expectation did not hold.
    pub conflicts: u64,
    /// Durable writes; `commits / durable_writes` is how well commits are grouped.
    pub durable_writes: u64,
    /// Time spent in durable writes, in nanoseconds (the writer thread's, so at most wall time).
    pub durable_write_nanoseconds: u64,
    /// Why the store stopped accepting commits, if it did. A server that sees this is no longer ready.
    pub failure: Option<String>,
}
