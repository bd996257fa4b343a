//! State of the index, for readiness, metrics and the status endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_client::{Phase, ReflectorStatus};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::routing::resolver::IndexStatus;
use crate::routing::table::{Root, ShardEntry, ShardIndex};

/// Maximum time to open a watch before its mirror counts as out of date.
const OPENING_GRACE: Duration = Duration::from_secs(1);

/// State of the index.
#[derive(Debug, Default)]
pub(crate) struct IndexReport {
    shards: Mutex<FxHashMap<ShardIndex, Mirrors>>,
    /// The age of the snapshot from which the table was restored, and when that was.
    restored: Mutex<Option<(Duration, Instant)>>,
    /// In microseconds.
    lag: AtomicU64,
}

/// State of one shard's mirrors.
#[derive(Clone, Debug, Default)]
pub(crate) struct MirrorReport {
    /// Maximum age of the shard's records in the table; `None` if the shard has never been read.
    pub(crate) age: Option<Duration>,
    /// Whether all watches are open.
    pub(crate) watching: bool,
    /// Completed lists, over both mirrors.
    pub(crate) relists: u64,
    /// Opened watches, over both mirrors.
    pub(crate) restarts: u64,
    /// The error of the last attempt, if it failed.
    pub(crate) last_error: Option<Arc<str>>,
}

/// One mirror of a shard.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub(super) status: watch::Receiver<ReflectorStatus>,
    /// Number of lists that have been applied to the table; compared with the number of lists read.
    pub(super) applied: Arc<AtomicU64>,
}

/// Both mirrors of a shard.
#[derive(Clone, Debug)]
pub(super) struct Mirrors {
    pub(super) clusters: Mirror,
    /// `workspaces` is `None` until the identity hash of the export is known.
    pub(super) workspaces: Arc<Mutex<Option<Mirror>>>,
}

impl Mirror {
    pub(super) fn new(status: watch::Receiver<ReflectorStatus>) -> Self {
        Self { status, applied: Arc::default() }
    }

    /// Whether the watch is open, or is being opened right after the list, and the table has the list.
    fn is_watching(&self) -> bool {
        let status = self.status.borrow();
        let is_open = match status.phase {
            Phase::Watching => true,
            Phase::Connecting => {
                status.last_error.is_none()
                    && status.last_contact.is_some_and(|at| at.elapsed() < OPENING_GRACE)
            }
            Phase::Listing => false,
        };
        is_open && status.relists <= self.applied.load(Ordering::Acquire)
    }
}

impl Mirrors {
    fn are_watching(&self) -> bool {
        self.clusters.is_watching() && self.workspaces.lock().as_ref().is_some_and(Mirror::is_watching)
    }
}

impl IndexStatus for IndexReport {
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
        let shards = self.shards.lock();
        match shard {
            Some(shard) => shards.get(&shard).is_some_and(Mirrors::are_watching),
            None => shards.values().all(Mirrors::are_watching),
        }
    }
}

impl IndexReport {
    /// State of a shard's mirrors at `now`.
    pub(crate) fn of(&self, shard: ShardIndex, now: Instant) -> MirrorReport {
        let Some(mirrors) = self.shards.lock().get(&shard).cloned() else {
            return MirrorReport::default();
        };
        let clusters = mirrors.clusters.status.borrow().clone();
        let workspaces = mirrors.workspaces.lock().as_ref().map(|mirror| mirror.status.borrow().clone());
        let workspaces = workspaces.unwrap_or_default();
        let age = |status: &ReflectorStatus| status.staleness(now);
        let heard =
            age(&clusters).zip(age(&workspaces)).map(|(clusters, workspaces)| clusters.max(workspaces));
        let restored = || self.restored.lock().map(|(age, at)| age + now.saturating_duration_since(at));
        MirrorReport {
            age: heard.or_else(restored),
            watching: mirrors.are_watching(),
            relists: clusters.relists + workspaces.relists,
            restarts: clusters.restarts + workspaces.restarts,
            last_error: clusters.last_error.or(workspaces.last_error),
        }
    }

    /// # Errors
    /// The shards whose records are older than the limit, or that have never been read.
    pub(crate) fn check_age(&self, limit: Duration, view: &Root) -> Result<(), String> {
        let now = Instant::now();
        let is_outdated = |shard: &&ShardEntry| self.of(shard.index, now).age.is_none_or(|age| age > limit);
        let outdated: Vec<&str> = view.shards().filter(is_outdated).map(|shard| &*shard.spec.name).collect();
        if outdated.is_empty() {
            Ok(())
        } else {
            Err(format!("no update for too long from: {}", outdated.join(", ")))
        }
    }

    pub(super) fn insert(&self, shard: ShardIndex, mirrors: Mirrors) {
        self.shards.lock().insert(shard, mirrors);
    }

    pub(super) fn remove(&self, shard: ShardIndex) {
        self.shards.lock().remove(&shard);
    }

    /// Time from reading the latest changes to applying them to the table.
    pub(crate) fn lag(&self) -> Duration {
        Duration::from_micros(self.lag.load(Ordering::Relaxed))
    }

    pub(super) fn applied(&self, lag: Duration) {
        self.lag.store(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn restored(&self, age: Duration) {
        *self.restored.lock() = Some((age, Instant::now()));
    }
}
