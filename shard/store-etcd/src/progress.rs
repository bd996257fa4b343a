//! How current the local copy is, and what is known of etcd, as numbers for metrics.
//!
//! The copy is current to a moment if it has everything that etcd had then. Two things prove that: a barrier that was written
//! after it and delivered, and a linearizable read after it, once the copy has passed the revision of that read. The
//! heartbeat reads every 2 s, so the proof is rarely older than 4 s. Other users of the same etcd raise its revision without
//! events for this store: then only barriers prove it, once a minute.
//!
//! Everything is an atomic: a commit costs one `fetch_max` here, and so does a response of the watch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_store::{DatabaseStats, Replica, Revision};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The progress of a copy. Shared by the feed, which makes it, and the commits.
pub(crate) struct Progress {
    replica: Replica,
    start: Instant,
    /// The last revision that etcd is known to have for this store.
    known: AtomicU64,
    /// The watch has delivered everything up to this revision of etcd. The copy may not have applied it yet.
    delivered: AtomicU64,
    /// The moment to which the copy is proven to be current, in nanoseconds after `start`.
    proven: AtomicU64,
    connections: AtomicU64,
    reloads: AtomicU64,
    /// Written once a minute.
    database: Mutex<Option<DatabaseStats>>,
}

impl Progress {
    pub(crate) fn new(replica: Replica, position: Revision) -> Self {
        Self {
            known: AtomicU64::new(replica.revision().0),
            replica,
            start: Instant::now(),
            delivered: AtomicU64::new(position.0),
            proven: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            database: Mutex::new(None),
        }
    }

    /// The copy.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// etcd has this revision of this store.
    pub(crate) fn know(&self, revision: Revision) {
        self.known.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// The watch has delivered everything up to this revision. What is in it for this store is [known](Self::know) before.
    pub(crate) fn deliver(&self, position: Revision) {
        self.delivered.fetch_max(position.0, Ordering::AcqRel);
    }

    /// The whole copy was read at this revision.
    pub(crate) fn reload(&self, revision: Revision) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.know(revision);
        self.deliver(revision);
    }

    pub(crate) fn connect(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// The copy has everything that etcd had at `moment`.
    pub(crate) fn prove(&self, moment: Instant) {
        let since_start = moment.saturating_duration_since(self.start);
        self.proven.fetch_max(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Proves that the copy is current to a read of etcd, if it has applied everything up to the revision of that read.
    pub(crate) fn prove_read(&self, read: Read) -> bool {
        let is_current = self.applied() >= read.revision;
        if is_current {
            self.prove(read.at);
        }
        is_current
    }

    /// The copy has applied everything up to this revision of etcd.
    fn applied(&self) -> Revision {
        // In this order: everything of this store up to `delivered` is known.
        let delivered = self.delivered.load(Ordering::Acquire);
        let known = self.known.load(Ordering::Acquire);
        let copied = self.replica.revision();
        if copied.0 >= known { Revision(delivered).max(copied) } else { copied }
    }

    pub(crate) fn revisions_behind(&self) -> u64 {
        self.known.load(Ordering::Acquire).saturating_sub(self.replica.revision().0)
    }

    /// The age of the last proof; before the first one, the time since the store was opened.
    pub(crate) fn view_age(&self) -> Duration {
        let proven = Duration::from_nanos(self.proven.load(Ordering::Acquire));
        self.start.elapsed().saturating_sub(proven)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    pub(crate) fn set_database(&self, database: DatabaseStats) {
        *self.database.lock() = Some(database);
    }

    pub(crate) fn database(&self) -> Option<DatabaseStats> {
        *self.database.lock()
    }
}

/// A linearizable read of etcd.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// When it was sent.
    pub(crate) at: Instant,
    /// etcd's revision.
    pub(crate) revision: Revision,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlead_store::{Origin, ReplicaOptions, ReplicaWriter, ReplicatedCommit};

    use super::*;

    fn copy() -> (Progress, ReplicaWriter) {
        let origin = Origin { cluster: 1, part: 2 };
        let (replica, writer) = ReplicaWriter::open(None, origin, ReplicaOptions::default()).unwrap();
        (Progress::new(replica, Revision(0)), writer)
    }

    fn apply(writer: &mut ReplicaWriter, revision: u64) {
        let changes = vec![("a".into(), Some(revision.to_string().into()))];
        writer.apply(vec![ReplicatedCommit { revision: Revision(revision), changes }]).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_a_proof_once_the_copy_has_applied_its_revision() {
        let (progress, mut writer) = copy();
        tokio::time::advance(Duration::from_secs(10)).await;
        let read = Read { at: Instant::now(), revision: Revision(5) };
        assert!(!progress.prove_read(read), "nothing was delivered");

        progress.know(Revision(4));
        progress.deliver(Revision(5));
        assert!(!progress.prove_read(read), "what was delivered is not applied");
        assert_eq!(progress.revisions_behind(), 4);
        assert_eq!(progress.view_age(), Duration::from_secs(10));

        apply(&mut writer, 4);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(progress.prove_read(read), "revision 5 is a commit of another user of etcd");
        assert_eq!(progress.revisions_behind(), 0);
        assert_eq!(progress.view_age(), Duration::from_secs(3), "counted from the read");
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_proof_does_not_replace_a_newer_one() {
        let (progress, _writer) = copy();
        let early = Instant::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        progress.prove(Instant::now());
        progress.prove(early);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(progress.view_age(), Duration::from_secs(1));
    }

    #[tokio::test]
    async fn own_commits_count_until_they_are_in_the_copy() {
        let (progress, mut writer) = copy();
        progress.know(Revision(7));
        assert_eq!(progress.revisions_behind(), 7);
        apply(&mut writer, 7);
        assert_eq!(progress.revisions_behind(), 0);
    }
}
