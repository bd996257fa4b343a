//! The memory backend: the simplest implementation of the contract, for tests, for state that is read again after a restart, and as a
//! model of other backends.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::error::{CommitError, CompactError, FollowError, ReadError};
use crate::follow::{Batch, Event, Follower, Log};
use crate::mutation::{Change, Limits, Mutation};
use crate::record::{Range, Record, RecordRef, Revision};
use crate::store::{Stats, Store};

/// Batches that a follower reads at once.
const CHUNK: usize = 64;

/// Keeps everything in memory until it is compacted; nothing survives the process. In tests its followers are delayed at random, and
/// need a Tokio runtime with its timer enabled.
#[derive(Debug)]
pub struct MemoryStore {
    state: Arc<RwLock<State>>,
    latest_revision: watch::Sender<Revision>,
    /// The seed of the delays; `None`: followers are not delayed.
    seed: Option<u64>,
    is_shared: bool,
    followers: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
}

impl MemoryStore {
    /// An empty store whose delay differs from run to run.
    pub fn new() -> Self {
        let seed = RandomState::new().hash_one("delay");
        tracing::debug!(seed, "followers of this memory store are delayed at random");
        Self::with_seed(seed)
    }

    /// An empty store whose delay is derived from `seed`.
    pub fn with_seed(seed: u64) -> Self {
        Self::at(Revision(0), Some(seed))
    }

    /// An empty store without delays that is at a revision already: earlier ones count as compacted. With a revision that
    /// increases from process to process, no reader takes a revision of an earlier process for one of this store.
    pub fn starting_at(revision: Revision) -> Self {
        Self::at(revision, None)
    }

    /// The same store, as if other processes committed to it as well. In tests, other tasks are these processes.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    fn at(revision: Revision, seed: Option<u64>) -> Self {
        let state = State { revision, compacted: revision, ..State::default() };
        Self {
            state: Arc::new(RwLock::new(state)),
            latest_revision: watch::Sender::new(revision),
            seed,
            is_shared: false,
            followers: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        Limits::default().check(&mutations)?;
        let mut state = self.state.write();
        let before = state.revision;
        let committed = state.commit(mutations);
        match &committed {
            Ok(revision) if *revision > before => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                self.latest_revision.send_replace(*revision);
            }
            Ok(_) => {}
            Err(_) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
            }
        }
        committed
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        Ok(self.state.read_recursive().latest(key))
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        // Recursive, because `visit` may read too: a plain read lock would wait behind a waiting writer.
        let state = self.state.read_recursive();
        let at = at.unwrap_or(state.revision);
        state.check_readable(at)?;
        if range.is_empty() {
            return Ok(at);
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for (key, versions) in state.keys.range::<[u8], _>((Bound::Included(&range.start[..]), end)) {
            let record = version_at(versions, at).and_then(|version| version.as_record(key));
            if record.is_some_and(|record| visit(record).is_break()) {
                break;
            }
        }
        Ok(at)
    }

    fn revision(&self) -> Revision {
        self.state.read_recursive().revision
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn compacted(&self) -> Revision {
        self.state.read_recursive().compacted
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.state.read_recursive().check_readable(after)?;
        let nth = self.followers.fetch_add(1, Ordering::Relaxed);
        let log: Arc<dyn Log> = Arc::clone(&self.state) as _;
        let follower = Follower::new(log, after, self.latest_revision.subscribe());
        Ok(match self.seed {
            Some(seed) => follower.with_random_delay(seed.wrapping_add(nth)),
            None => follower,
        })
    }

    async fn compact(&self, below: Revision) -> Result<(), CompactError> {
        self.state.write().compact(below);
        Ok(())
    }

    fn stats(&self) -> Stats {
        let state = self.state.read_recursive();
        let is_live = |versions: &Versions| versions.back().is_some_and(|version| version.value.is_some());
        let keys = state.keys.values().filter(|versions| is_live(versions)).count();
        let values: usize = state
            .keys
            .values()
            .map(|versions| versions.iter().filter(|version| version.value.is_some()).count())
            .sum();
        Stats {
            backend: "memory",
            revision: state.revision,
            compacted: state.compacted,
            keys: keys as u64,
            history: (values - keys) as u64,
            log: state.log.values().map(|batch| batch.events.len() as u64).sum(),
            ring_batches: state.log.len() as u64,
            ring_bytes: state.log.values().map(|batch| batch.bytes() as u64).sum(),
            commits: self.commits.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }
}

/// The versions of a key, oldest first. A deletion is a version without a value.
type Versions = VecDeque<Version>;

#[derive(Debug)]
struct Version {
    created: Revision,
    modified: Revision,
    value: Option<Bytes>,
}

impl Version {
    fn as_record<'a>(&'a self, key: &'a [u8]) -> Option<RecordRef<'a>> {
        let value = self.value.as_deref()?;
        Some(RecordRef { key, value, created: self.created, modified: self.modified })
    }
}

/// The version of a key at revision `at`; it may be a deletion.
fn version_at(versions: &Versions, at: Revision) -> Option<&Version> {
    let newer = versions.partition_point(|version| version.modified <= at);
    newer.checked_sub(1).and_then(|index| versions.get(index))
}

#[derive(Debug, Default)]
struct State {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Bytes, Versions>,
    log: BTreeMap<Revision, Arc<Batch>>,
}

impl State {
    fn latest(&self, key: &[u8]) -> Option<Record> {
        let (key, versions) = self.keys.get_key_value(key)?;
        let version = versions.back()?;
        let value = version.value.clone()?;
        Some(Record { key: key.clone(), value, created: version.created, modified: version.modified })
    }

    fn check_readable(&self, at: Revision) -> Result<(), ReadError> {
        if at < self.compacted {
            return Err(ReadError::Compacted { oldest: self.compacted });
        }
        if at > self.revision {
            return Err(ReadError::Future { current: self.revision });
        }
        Ok(())
    }

    fn commit(&mut self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        let mut events = Vec::with_capacity(mutations.len());
        for (index, mutation) in mutations.into_iter().enumerate() {
            let previous = self.latest(&mutation.key);
            if !mutation.expect.admits(previous.as_ref().map(|record| record.modified)) {
                return Err(CommitError::Conflict { index, current: previous });
            }
            let value = match mutation.change {
                Change::Put(value) => Some(value),
                Change::Delete if previous.is_some() => None,
                Change::Delete | Change::Keep => continue,
            };
            events.push(Event { key: mutation.key, value, previous });
        }
        if events.is_empty() {
            return Ok(self.revision);
        }
        let revision = Revision(self.revision.0 + 1);
        for event in &events {
            let created = event.previous.as_ref().map_or(revision, |previous| previous.created);
            let version = Version { created, modified: revision, value: event.value.clone() };
            self.keys.entry(event.key.clone()).or_default().push_back(version);
        }
        self.log.insert(revision, Arc::new(Batch { revision, events }));
        self.revision = revision;
        Ok(revision)
    }

    fn compact(&mut self, below: Revision) {
        let below = below.min(self.revision);
        if below <= self.compacted {
            return;
        }
        self.compacted = below;
        let remaining = self.log.split_off(&Revision(below.0 + 1));
        let compacted_log = std::mem::replace(&mut self.log, remaining);
        for event in compacted_log.values().flat_map(|batch| &batch.events) {
            let Some(versions) = self.keys.get_mut(&event.key) else {
                continue;
            };
            // Of the versions up to `below` only the last can still be read, and only if it is not a deletion.
            let old = versions.partition_point(|version| version.modified <= below);
            versions.drain(..old.saturating_sub(1));
            if old > 0 && versions.front().is_some_and(|version| version.value.is_none()) {
                versions.pop_front();
            }
            if versions.is_empty() {
                self.keys.remove(&event.key);
            }
        }
    }
}

impl Log for RwLock<State> {
    fn batches(&self, after: Revision) -> Result<VecDeque<Arc<Batch>>, FollowError> {
        let state = self.read_recursive();
        if after < state.compacted {
            return Err(FollowError::Compacted { oldest: state.compacted });
        }
        let newer = state.log.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(newer.take(CHUNK).map(|(_, batch)| Arc::clone(batch)).collect())
    }
}
