//! Usage counters per key, such as a user or an address.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::rate::{Counting, RateState};

/// The usage of one key: rates of requests and bytes, and open items. 24 bytes.
#[derive(Debug, Default)]
pub struct Meter {
    /// Rate of requests.
    pub requests: RateState,
    /// Rate of bytes, or of another unit that has a rate.
    pub bytes: RateState,
    /// Number of open items by kind.
    pub open: [AtomicU32; 3],
}

impl Meter {
    /// Counts one more open item of a kind if there are fewer than `limit`.
    pub fn open(&self, kind: usize, limit: Option<u32>, counting: Counting) -> bool {
        let limit = limit.unwrap_or(u32::MAX);
        let one = u32::from(counting == Counting::Real);
        let more = |open: u32| (open < limit).then_some(open + one);
        self.open[kind].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one less open item of a kind.
    pub fn close(&self, kind: usize) {
        self.open[kind].fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the meter equals a new one, so that it can be dropped.
    fn is_idle(&self, now: u64) -> bool {
        self.open.iter().all(|open| open.load(Ordering::Relaxed) == 0)
            && self.requests.is_paid(now)
            && self.bytes.is_paid(now)
    }
}

/// Meters by key. Idle meters are dropped when a partition is full, so memory is bounded by the meters in use, and by
/// [`MAX_METERS`] per partition. Further keys share one meter per partition.
#[derive(Debug)]
pub struct Meters {
    partitions: Box<[Mutex<Partition>]>,
    /// Randomly seeded, so that a client cannot choose a name that shares the meter of another one.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Partition {
    meters: FxHashMap<u64, Arc<Meter>>,
    /// Number of meters from which idle ones are dropped when a key is added.
    sweep_at: usize,
    shared: Arc<Meter>,
}

const PARTITIONS: usize = 64;
/// Meters per partition: about 130,000 in all, 16 MB.
const MAX_METERS: usize = 2_048;
/// Number of meters below which a partition is never swept.
const SWEEP_FROM: usize = 64;

impl Default for Meters {
    fn default() -> Self {
        Self { partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Meters {
    /// The meter of a key. Keys with equal hashes share one, which happens once in billions.
    pub fn of(&self, key: &(impl Hash + ?Sized), now: u64) -> Arc<Meter> {
        let hash = self.hasher.hash_one(key);
        let partition = &self.partitions[(hash >> 32) as usize % PARTITIONS];
        let mut partition = partition.lock();
        if let Some(known) = partition.meters.get(&hash) {
            return Arc::clone(known);
        }
        if partition.meters.len() >= partition.sweep_at.max(SWEEP_FROM) {
            partition.meters.retain(|_, meter| Arc::strong_count(meter) > 1 || !meter.is_idle(now));
            partition.meters.shrink_to(SWEEP_FROM);
            // Doubling keeps the amortised cost per added key at a few look-ups.
            partition.sweep_at = (partition.meters.len() * 2).min(MAX_METERS);
        }
        if partition.meters.len() >= MAX_METERS {
            return Arc::clone(&partition.shared);
        }
        Arc::clone(partition.meters.entry(hash).or_default())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.partitions.iter().map(|partition| partition.lock().meters.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::rate::Rate;

    #[test]
    fn idle_meters_are_dropped() {
        let meters = Meters::default();
        let rate = Rate::new(1, 1);
        let busy = meters.of("busy", 0);
        assert!(busy.open(0, None, Counting::Real));
        for key in 0..50_000_u64 {
            assert!(
                meters
                    .of(&key.to_string(), key)
                    .requests
                    .take(rate, 2_000_000_000 * key, Counting::Real)
                    .is_ok()
            );
        }
        assert!(meters.len() > 10_000, "they are in use");
        let later = u64::MAX >> 2;
        for key in 0..150_000_u64 {
            drop(meters.of(&format!("later {key}"), later));
        }
        assert!(meters.len() < 30_000, "{}", meters.len());
        assert!(Arc::ptr_eq(&busy, &meters.of("busy", later)), "a meter with open items stays");
    }

    #[test]
    fn keys_beyond_the_maximum_share_a_meter() {
        let meters = Meters::default();
        let held: Vec<_> = (0..200_000).map(|key| meters.of(&format!("{key}"), 0)).collect();
        assert!(meters.len() <= PARTITIONS * MAX_METERS);
        let shared = held.iter().filter(|meter| Arc::strong_count(meter) > 100).count();
        assert!(shared > 50_000, "{shared}");
    }

    #[test]
    fn open_items_are_counted_up_to_the_limit() {
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
