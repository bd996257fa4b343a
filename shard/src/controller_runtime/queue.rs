//! The work queue of a controller: never processes a key concurrently, and retries failures with exponential back-off.
//!
//! Keys belong to groups, such as logical clusters, which take turns: thousands of keys of one group delay the next key of
//! another one by one key. By default all keys are of one group.
//!
//! Keys that one change queues for many objects are *bulk*: they wait for the others, and are paced
//! ([`bulk`](super::bulk)).

use core::hash::Hash;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::bulk::{Bulk, NextBulk};

/// The pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A queue of keys. A key that is added while it is processed is processed again afterwards.
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    ready: ReadyKeys<K>,
    bulk: Bulk<K>,
    queued: FxHashSet<K>,
    processing: FxHashSet<K>,
    /// Keys that were added while they are processed.
    requeued: FxHashSet<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    failures: FxHashMap<K, u32>,
    /// Time at which a delayed key becomes ready. A later requeue replaces it. Otherwise every event would add a
    /// timer, and the number of timers of a key would grow without limit.
    due: FxHashMap<K, (Instant, u64)>,
    sequence: u64,
}

/// Result of a reconciliation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReconcileOutcome {
    /// The key is not requeued until it is added again.
    Done,
    /// The key is requeued after this time.
    RequeueAfter(Duration),
    /// The reconciliation failed; the key is requeued after a growing pause.
    Retry,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new() -> Self {
        Self::with_groups(|_| "")
    }

    /// A queue whose groups take turns.
    pub(crate) fn with_groups(group_of: fn(&K) -> &str) -> Self {
        Self {
            state: Mutex::new(State {
                ready: ReadyKeys { group_of, turns: VecDeque::new(), keys: FxHashMap::default() },
                bulk: Bulk::default(),
                queued: FxHashSet::default(),
                processing: FxHashSet::default(),
                requeued: FxHashSet::default(),
                delayed: BTreeMap::new(),
                due: FxHashMap::default(),
                failures: FxHashMap::default(),
                sequence: 0,
            }),
            changed: Notify::new(),
        }
    }

    /// Adds a key, unless it is queued already.
    pub(crate) fn add(&self, key: K) {
        {
            let mut state = self.state.lock();
            if state.processing.contains(&key) {
                state.requeued.insert(key);
                return;
            }
            if !state.queued.insert(key.clone()) {
                return;
            }
            state.bulk.remove(&key);
            state.ready.push_back(key);
        }
        self.changed.notify_one();
    }

    /// Adds keys that one change concerns, unless they are queued already. They wait for other keys, and are paced.
    pub(crate) fn add_bulk(&self, keys: impl IntoIterator<Item = K>) {
        {
            let mut state = self.state.lock();
            for key in keys {
                if state.processing.contains(&key) {
                    state.requeued.insert(key);
                } else if !state.queued.contains(&key) {
                    state.bulk.add(key);
                }
            }
        }
        self.changed.notify_one();
    }

    /// Adds a key after a pause, unless it is queued or becomes ready earlier. Events that come often then cause one reconciliation for
    /// each pause.
    pub(crate) fn add_later(&self, key: K, pause: Duration) {
        {
            let mut state = self.state.lock();
            if state.queued.contains(&key) || state.due.contains_key(&key) {
                return;
            }
            state.sequence += 1;
            let at = (Instant::now() + pause, state.sequence);
            state.due.insert(key.clone(), at);
            state.delayed.insert(at, key);
        }
        self.changed.notify_one();
    }

    /// Takes the next key. The caller must return it with [`done`](Self::done).
    pub(crate) async fn take(&self) -> K {
        loop {
            let until = {
                let mut state = self.state.lock();
                let now = Instant::now();
                state.release_due(now);
                let (key, paced) = state.next(now);
                if let Some(key) = key {
                    state.processing.insert(key.clone());
                    if !state.ready.is_empty() || !state.bulk.is_empty() {
                        // Another worker may be waiting for the rest.
                        self.changed.notify_one();
                    }
                    return key;
                }
                let delayed = state.delayed.first_key_value().map(|((at, _), _)| *at);
                delayed.into_iter().chain(paced).min()
            };
            match until {
                Some(until) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = sleep_until(until) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Returns a key that [`take`](Self::take) has handed out. `busy` is the time that its reconciliation computed.
    pub(crate) fn done(&self, key: K, next: ReconcileOutcome, busy: Duration) {
        {
            let mut state = self.state.lock();
            state.processing.remove(&key);
            state.bulk.done(&key, busy, Instant::now());
            if next != ReconcileOutcome::Retry {
                state.failures.remove(&key);
            }
            if state.requeued.remove(&key) {
                if state.queued.insert(key.clone()) {
                    state.ready.push_back(key);
                }
            } else {
                let pause = match next {
                    ReconcileOutcome::Done => {
                        if !state.bulk.is_empty() {
                            self.changed.notify_one();
                        }
                        return;
                    }
                    ReconcileOutcome::RequeueAfter(pause) => pause,
                    ReconcileOutcome::Retry => {
                        let failures = state.failures.entry(key.clone()).or_default();
                        *failures += 1;
                        (FIRST_PAUSE * 2_u32.saturating_pow((*failures - 1).min(16))).min(LONGEST_PAUSE)
                    }
                };
                state.sequence += 1;
                let at = (Instant::now() + pause, state.sequence);
                if let Some(superseded) = state.due.insert(key.clone(), at) {
                    state.delayed.remove(&superseded);
                }
                state.delayed.insert(at, key);
            }
        }
        self.changed.notify_one();
    }

    /// Makes the keys ready again that a driver had taken when it was aborted. For the next driver of the queue.
    pub(crate) fn resume(&self) {
        let taken: Vec<K> = self.state.lock().processing.iter().cloned().collect();
        for key in taken {
            self.done(key.clone(), ReconcileOutcome::Done, Duration::ZERO);
            self.add(key);
        }
    }

    /// Number of keys that are ready, being processed, or wait for their time, as after a failure. Costs a step per group.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.bulk.len() + state.processing.len() + state.due.len()
    }
}

/// Keys that wait for a worker, by group.
struct ReadyKeys<K> {
    group_of: fn(&K) -> &str,
    /// The groups with keys, the next one first.
    turns: VecDeque<Box<str>>,
    keys: FxHashMap<Box<str>, VecDeque<K>>,
}

impl<K> ReadyKeys<K> {
    fn push_back(&mut self, key: K) {
        let group = (self.group_of)(&key);
        if let Some(keys) = self.keys.get_mut(group) {
            return keys.push_back(key);
        }
        let group: Box<str> = group.into();
        self.turns.push_back(group.clone());
        self.keys.insert(group, VecDeque::from([key]));
    }

    fn pop_front(&mut self) -> Option<K> {
        let group = self.turns.pop_front()?;
        let keys = self.keys.get_mut(&group)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            self.keys.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        key
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn len(&self) -> usize {
        self.keys.values().map(VecDeque::len).sum()
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// The next key; without one, the time at which a bulk key may be taken.
    fn next(&mut self, now: Instant) -> (Option<K>, Option<Instant>) {
        if self.bulk.is_overdue()
            && let NextBulk::Key(key) = self.bulk.take(now)
        {
            return (Some(key), None);
        }
        if let Some(key) = self.ready.pop_front() {
            self.queued.remove(&key);
            self.bulk.passed();
            return (Some(key), None);
        }
        match self.bulk.take(now) {
            NextBulk::Key(key) => (Some(key), None),
            NextBulk::At(time) => (None, Some(time)),
            NextBulk::None => (None, None),
        }
    }

    fn release_due(&mut self, now: Instant) {
        while let Some(((at, _), _)) = self.delayed.first_key_value()
            && *at <= now
        {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                if self.processing.contains(&key) {
                    self.requeued.insert(key);
                } else if self.queued.insert(key.clone()) {
                    self.bulk.remove(&key);
                    self.ready.push_back(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_added_later_are_taken_once_after_the_pause() {
        let queue = Queue::new();
        let start = Instant::now();
        for _ in 0..3 {
            queue.add_later("a", Duration::from_secs(2));
        }
        queue.add("b");
        queue.add_later("b", Duration::from_secs(1));
        assert_eq!(queue.take().await, "b");
        assert_eq!(start.elapsed(), Duration::ZERO);
        queue.done("b", ReconcileOutcome::Done, Duration::ZERO);
        assert_eq!(queue.take().await, "a");
        assert_eq!((start.elapsed(), queue.len()), (Duration::from_secs(2), 1));
    }

    #[tokio::test]
    async fn keys_of_an_aborted_driver_are_taken_again() {
        let queue = Queue::new();
        queue.add("a");
        assert_eq!(queue.take().await, "a");
        queue.add("a");
        queue.resume();
        assert_eq!(queue.take().await, "a");
        queue.done("a", ReconcileOutcome::Done, Duration::ZERO);
        assert_eq!(queue.len(), 0);
    }

    #[tokio::test]
    async fn groups_take_turns() {
        let queue = Queue::with_groups(|key: &&str| &key[..1]);
        for key in ["a1", "a2", "a3", "b1", "c1", "c2"] {
            queue.add(key);
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(queue.take().await);
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
        assert_eq!(queue.len(), 6, "all are being processed");
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_requeue_replaces_earlier_ones() {
        let queue = Queue::new();
        for seconds in [1, 2, 3] {
            queue.add("a");
            queue.done(
                queue.take().await,
                ReconcileOutcome::RequeueAfter(Duration::from_secs(seconds)),
                Duration::ZERO,
            );
        }
        let begin = Instant::now();
        queue.done(queue.take().await, ReconcileOutcome::Done, Duration::ZERO);
        assert_eq!(begin.elapsed().as_secs(), 3);
        tokio::select! {
            biased;
            _ = queue.take() => panic!("an earlier timer still exists"),
            () = sleep_until(Instant::now() + Duration::from_secs(60)) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_processed_concurrently_but_again_if_added_meanwhile() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!((queue.take().await, queue.take().await), ("a", "b"));
        queue.add("a");
        assert_eq!(queue.len(), 2);
        queue.done("b", ReconcileOutcome::Done, Duration::ZERO);
        queue.done("a", ReconcileOutcome::Done, Duration::ZERO);
        assert_eq!(queue.take().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_pause_longer_each_time() {
        let queue = Queue::new();
        queue.add("a");
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let key = queue.take().await;
            let failed = Instant::now();
            queue.done(key, ReconcileOutcome::Retry, Duration::ZERO);
            let key = queue.take().await;
            pauses.push(failed.elapsed().as_millis());
            queue.done(key, ReconcileOutcome::Retry, Duration::ZERO);
        }
        assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]), "{pauses:?}");
    }
}
