//! What was found out a moment ago: bounded, and never for longer than it is true.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use parking_lot::RwLock;

/// So many parts, so that those who ask at the same time rarely wait for one another.
const PARTS: usize = 16;

/// Values by the digest of what they are about.
///
/// A look-up is one uncontended read lock and one probe, about 50 ns; what is full forgets what would be
/// forgotten first.
pub(crate) struct Remembered<V> {
    parts: [RwLock<HashMap<[u8; 32], Entry<V>>>; PARTS],
    most_per_part: usize,
}

struct Entry<V> {
    value: V,
    /// Believed only between these two, so that a clock that is set back makes nothing last longer.
    since: SystemTime,
    until: SystemTime,
}

impl<V: Clone> Remembered<V> {
    /// Room for about so many values.
    pub(crate) fn with_capacity(most: usize) -> Self {
        Self { parts: std::array::from_fn(|_| RwLock::default()), most_per_part: most.div_ceil(PARTS).max(1) }
    }

    pub(crate) fn get(&self, key: &[u8; 32], now: SystemTime) -> Option<V> {
        let part = self.part(key).read();
        let entry = part.get(key)?;
        entry.is_believed(now).then(|| entry.value.clone())
    }

    /// Remembers a value for a while, but not beyond `end`.
    pub(crate) fn put(
        &self,
        key: [u8; 32],
        value: V,
        now: SystemTime,
        at_most: Duration,
        end: Option<SystemTime>,
    ) {
        let Some(until) = now.checked_add(at_most).map(|until| end.map_or(until, |end| end.min(until)))
        else {
            return;
        };
        if until <= now {
            return;
        }
        let mut part = self.part(&key).write();
        if part.len() >= self.most_per_part && !part.contains_key(&key) {
            part.retain(|_, entry| entry.is_believed(now));
        }
        if part.len() >= self.most_per_part && !part.contains_key(&key) {
            let first = part.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key);
            if let Some(first) = first {
                part.remove(&first);
            }
        }
        part.insert(key, Entry { value, since: now, until });
    }

    fn part(&self, key: &[u8; 32]) -> &RwLock<HashMap<[u8; 32], Entry<V>>> {
        &self.parts[usize::from(key[0]) % PARTS]
    }
}

impl<V> Entry<V> {
    fn is_believed(&self, now: SystemTime) -> bool {
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
    fn values_are_believed_for_a_while_and_not_beyond_their_end() {
        let remembered = Remembered::with_capacity(16 * PARTS);
        remembered.put(key(1), "plain", at(100), 10 * SECOND, None);
        remembered.put(key(2), "ends", at(100), 10 * SECOND, Some(at(105)));
        remembered.put(key(3), "over", at(100), 10 * SECOND, Some(at(100)));
        let seen = |now| [1, 2, 3].map(|number| remembered.get(&key(number), at(now)));
        assert_eq!(seen(99), [None, None, None], "the clock was set back");
        assert_eq!(seen(100), [Some("plain"), Some("ends"), None]);
        assert_eq!(seen(105), [Some("plain"), None, None]);
        assert_eq!(seen(110), [None, None, None]);
    }

    #[test]
    fn what_is_full_forgets_what_ends_first() {
        let remembered = Remembered::with_capacity(PARTS * 3);
        for number in 0..100 {
            remembered.put(key(number), number, at(100 + u64::from(number)), 1000 * SECOND, None);
        }
        let known: Vec<_> = (0..100).filter_map(|number| remembered.get(&key(number), at(200))).collect();
        assert_eq!(known, [97, 98, 99]);
    }
}
