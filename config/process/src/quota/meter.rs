//! What each of many has asked, as long as it matters.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::rate::{Counting, Debt};

/// What somebody has asked and what of it is open. 24 bytes.
#[derive(Debug, Default)]
pub struct Meter {
    /// When its requests will be paid.
    pub requests: Debt,
    /// The same of bytes, or of whatever else there is a pace for.
    pub bytes: Debt,
    /// How much is open, by kind.
    pub open: [AtomicU32; 3],
}

impl Meter {
    /// One more of a kind, if there are fewer than `most`.
    pub fn open(&self, kind: usize, most: Option<u32>, counting: Counting) -> bool {
        let most = most.unwrap_or(u32::MAX);
        let one = u32::from(counting == Counting::Real);
        let more = |open: u32| (open < most).then_some(open + one);
        self.open[kind].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One less.
    pub fn close(&self, kind: usize) {
        self.open[kind].fetch_sub(1, Ordering::Relaxed);
    }

    /// Forgetting it changes nothing.
    fn is_idle(&self, now: u64) -> bool {
        self.open.iter().all(|open| open.load(Ordering::Relaxed) == 0)
            && self.requests.is_paid(now)
            && self.bytes.is_paid(now)
    }
}

/// Meters by key. Those that do not matter any more are forgotten when a part is full, so memory is bounded by what
/// matters, and by [`MOST`] of them: who comes then shares one meter with others that came then.
#[derive(Debug)]
pub struct Meters {
    parts: Box<[Mutex<Part>]>,
    /// Of its own, so that nobody can choose a name that shares somebody's meter.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Part {
    meters: FxHashMap<u64, Arc<Meter>>,
    /// Meters that are looked through when one more comes.
    sweep_at: usize,
    shared: Arc<Meter>,
}

const PARTS: usize = 64;
/// Meters per part. In all some 130,000 at a time, 16 MB.
const MOST: usize = 2_048;
const SWEEP_FROM: usize = 64;

impl Default for Meters {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Meters {
    /// That of a key. Keys whose hashes are equal have one; that happens once in billions.
    pub fn of(&self, key: &(impl Hash + ?Sized), now: u64) -> Arc<Meter> {
        let hash = self.hasher.hash_one(key);
        let part = &self.parts[(hash >> 32) as usize % PARTS];
        let mut part = part.lock();
        if let Some(known) = part.meters.get(&hash) {
            return Arc::clone(known);
        }
        if part.meters.len() >= part.sweep_at.max(SWEEP_FROM) {
            part.meters.retain(|_, meter| Arc::strong_count(meter) > 1 || !meter.is_idle(now));
            part.meters.shrink_to(SWEEP_FROM);
            // So that looking through them costs each newcomer as much as a few look-ups.
            part.sweep_at = (part.meters.len() * 2).min(MOST);
        }
        if part.meters.len() >= MOST {
            return Arc::clone(&part.shared);
        }
        Arc::clone(part.meters.entry(hash).or_default())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().meters.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::rate::Pace;

    #[test]
    fn meters_that_do_not_matter_any_more_are_forgotten() {
        let meters = Meters::default();
        let pace = Pace::new(1, 1);
        let busy = meters.of("busy", 0);
        assert!(busy.open(0, None, Counting::Real));
        for key in 0..50_000_u64 {
            assert!(
                meters
                    .of(&key.to_string(), key)
                    .requests
                    .take(pace, 2_000_000_000 * key, Counting::Real)
                    .is_ok()
            );
        }
        assert!(meters.len() > 10_000, "they owe something");
        let later = u64::MAX >> 2;
        for key in 0..150_000_u64 {
            drop(meters.of(&format!("later {key}"), later));
        }
        assert!(meters.len() < 30_000, "{}", meters.len());
        assert!(Arc::ptr_eq(&busy, &meters.of("busy", later)), "what is open counts");
    }

    #[test]
    fn who_comes_when_there_are_too_many_shares_a_meter() {
        let meters = Meters::default();
        let held: Vec<_> = (0..200_000).map(|key| meters.of(&format!("{key}"), 0)).collect();
        assert!(meters.len() <= PARTS * MOST);
        let shared = held.iter().filter(|meter| Arc::strong_count(meter) > 100).count();
        assert!(shared > 50_000, "{shared}");
    }

    #[test]
    fn what_is_open_is_counted_up_to_the_limit() {
        let meter = Meter::default();
        assert_eq!((0..5).filter(|_| meter.open(1, Some(3), Counting::Real)).count(), 3);
        meter.close(1);
        assert!(
            meter.open(1, Some(3), Counting::Real)
                && !meter.open(1, Some(3), Counting::Real)
                && meter.open(2, Some(1), Counting::Real)
        );
    }
}
