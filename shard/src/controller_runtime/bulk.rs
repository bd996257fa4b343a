//! Keys that one change queues for many objects, such as a new schema of an export for all its bindings.
//!
//! They are taken in turns of a few keys, whose writes share a commit. The pause after a turn is as long as the turn computed, so their
//! controller computes on half of a core at most. What their commits cause elsewhere is not counted.

use core::hash::Hash;
use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashSet;
use tokio::time::Instant;

/// The keys of a turn.
const TURN: usize = 16;
/// The pause after a turn, in multiples of its computing time.
const PAUSE: u32 = 1;
/// Number of other keys after which a bulk key is taken in any case, so that a steady stream of them does not stop the bulk.
const PATIENCE: usize = 16;

/// Bulk keys that wait or are processed.
pub(super) struct Bulk<K> {
    /// The order of the keys. Those that are not in `waiting` anymore were added as other keys meanwhile.
    order: VecDeque<K>,
    waiting: FxHashSet<K>,
    processing: FxHashSet<K>,
    /// The keys that the present turn may still take.
    left: usize,
    /// The computing time of the present turn.
    busy: Duration,
    /// The earliest begin of the next turn.
    resume: Option<Instant>,
    /// Number of other keys that were taken since the last bulk key.
    passed: usize,
}

/// The next bulk key.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum NextBulk<K> {
    Key(K),
    /// The next turn begins at this time.
    At(Instant),
    /// There is no key, or it waits for the end of the present turn.
    None,
}

impl<K> Default for Bulk<K> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            waiting: FxHashSet::default(),
            processing: FxHashSet::default(),
            left: 0,
            busy: Duration::ZERO,
            resume: None,
            passed: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> Bulk<K> {
    pub(super) fn add(&mut self, key: K) {
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    /// Removes a key that was added as another one.
    pub(super) fn remove(&mut self, key: &K) {
        self.waiting.remove(key);
        if self.waiting.is_empty() {
            self.order.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Records that another key was taken.
    pub(super) fn passed(&mut self) {
        self.passed += 1;
    }

    /// Whether many other keys were taken before the next bulk key.
    pub(super) fn is_overdue(&self) -> bool {
        self.passed >= PATIENCE && !self.is_empty()
    }

    pub(super) fn take(&mut self, now: Instant) -> NextBulk<K> {
        if self.is_empty() {
            return NextBulk::None;
        }
        if self.left == 0 {
            if !self.processing.is_empty() {
                return NextBulk::None;
            }
            if let Some(resume) = self.resume.filter(|resume| *resume > now) {
                return NextBulk::At(resume);
            }
            self.left = TURN;
        }
        while let Some(key) = self.order.pop_front() {
            if self.waiting.remove(&key) {
                self.left -= 1;
                self.passed = 0;
                self.processing.insert(key.clone());
                return NextBulk::Key(key);
            }
        }
        NextBulk::None
    }

    /// Records the end of a reconciliation, of a bulk key or another one.
    pub(super) fn done(&mut self, key: &K, busy: Duration, now: Instant) {
        if !self.processing.remove(key) {
            return;
        }
        self.busy += busy;
        if self.processing.is_empty() && (self.left == 0 || self.is_empty()) {
            self.left = 0;
            self.resume = Some(now + PAUSE * core::mem::take(&mut self.busy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_followed_by_a_pause() {
        let mut bulk = Bulk::default();
        let start = Instant::now();
        (0..TURN + 1).for_each(|key| bulk.add(key));
        let first: Vec<_> = (0..TURN).map(|_| bulk.take(start)).collect();
        assert!(first.iter().all(|next| matches!(next, NextBulk::Key(_))));
        assert_eq!(bulk.take(start), NextBulk::None, "the turn is under way");
        let busy = Duration::from_millis(1);
        (0..TURN).for_each(|key| bulk.done(&key, busy, start));
        let resume = start + PAUSE * TURN as u32 * busy;
        assert_eq!(bulk.take(start), NextBulk::At(resume));
        assert_eq!(bulk.take(resume), NextBulk::Key(TURN));
        assert!(bulk.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_otherwise_is_taken_once() {
        let mut bulk = Bulk::default();
        bulk.add("a");
        bulk.add("b");
        bulk.add("b");
        bulk.remove(&"a");
        assert_eq!((bulk.len(), bulk.take(Instant::now())), (1, NextBulk::Key("b")));
        assert_eq!(bulk.take(Instant::now()), NextBulk::None);
    }
}
