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
use crate::routing::table::{ShardEntry, ShardIndex, TableView};

/// Maximum time to open a watch before its reflector counts as out of date.
const OPENING_GRACE: Duration = Duration::from_secs(1);

/// State of the index.
#[derive(Debug, Default)]
pub(crate) struct IndexReport {
    shards: Mutex<FxHashMap<ShardIndex, ShardReflectors>>,
    /// The age of the snapshot from which the table was restored, and when that was.
    restored: Mutex<Option<(Duration, Instant)>>,
    /// The lag in microseconds.
    lag: AtomicU64,
}

/// State of one shard's reflectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardIndexReport {
    /// Maximum age of the shard's records in the table; `None` if the shard has never been read.
    pub(crate) age: Option<Duration>,
    /// Whether all watches are open.
    pub(crate) watching: bool,
    /// Completed lists, over both reflectors.
    pub(crate) relists: u64,
    /// Opened watches, over both reflectors.
    pub(crate) restarts: u64,
    /// The error of the last attempt, if it failed.
    pub(crate) last_error: Option<Arc<str>>,
}

/// One reflector of a shard.
#[derive(Clone, Debug)]
pub(super) struct ReflectorState {
    pub(super) status: watch::Receiver<ReflectorStatus>,
    /// Number of lists that have been applied to the table; compared with the number of lists read.
    pub(super) applied: Arc<AtomicU64>,
}

/// Both reflectors of a shard.
#[derive(Clone, Debug)]
pub(super) struct ShardReflectors {
    pub(super) clusters: ReflectorState,
    /// `workspaces` is `None` until the identity hash of the export is known.
    pub(super) workspaces: Arc<Mutex<Option<ReflectorState>>>,
}

impl ReflectorState {
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

impl ShardReflectors {
    fn are_watching(&self) -> bool {
        self.clusters.is_watching()
            && self.workspaces.lock().as_ref().is_some_and(ReflectorState::is_watching)
    }
}

impl IndexStatus for IndexReport {
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
        let shards = self.shards.lock();
        match shard {
            Some(shard) => shards.get(&shard).is_some_and(ShardReflectors::are_watching),
            None => shards.values().all(ShardReflectors::are_watching),
        }
    }
}

impl IndexReport {
    /// State of a shard's reflectors at `now`.
    pub(crate) fn of(&self, shard: ShardIndex, now: Instant) -> ShardIndexReport {
        let Some(reflectors) = self.shards.lock().get(&shard).cloned() else {
            return ShardIndexReport::default();
        };
        let clusters = reflectors.clusters.status.borrow().clone();
        let workspaces =
            reflectors.workspaces.lock().as_ref().map(|reflector| reflector.status.borrow().clone());
        let workspaces = workspaces.unwrap_or_default();
        let age = |status: &ReflectorStatus| status.staleness(now);
        let records_age =
            age(&clusters).zip(age(&workspaces)).map(|(clusters, workspaces)| clusters.max(workspaces));
        let restored = || self.restored.lock().map(|(age, at)| age + now.saturating_duration_since(at));
        ShardIndexReport {
            age: records_age.or_else(restored),
            watching: reflectors.are_watching(),
            relists: clusters.relists + workspaces.relists,
            restarts: clusters.restarts + workspaces.restarts,
            last_error: clusters.last_error.or(workspaces.last_error),
        }
    }

    /// Checks that the records of all shards are recent.
    ///
    /// # Errors
    /// The shards whose records are older than the limit, or that have never been read.
    pub(crate) fn check_age(&self, limit: Duration, view: &TableView) -> Result<(), String> {
        let now = Instant::now();
        let is_outdated = |shard: &&ShardEntry| self.of(shard.index, now).age.is_none_or(|age| age > limit);
        let outdated: Vec<&str> = view.shards().filter(is_outdated).map(|shard| &*shard.spec.name).collect();
        if outdated.is_empty() {
            Ok(())
        } else {
            Err(format!("no update for too long from: {}", outdated.join(", ")))
        }
    }

    pub(super) fn insert(&self, shard: ShardIndex, reflectors: ShardReflectors) {
        self.shards.lock().insert(shard, reflectors);
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
