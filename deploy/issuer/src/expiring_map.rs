//! A bounded map whose entries expire.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;

/// Values by secret keys. An entry is removed when it expires, and the oldest one when the map is full. A search is linear,
/// which is cheap for a few hundred entries.
pub(crate) struct ExpiringMap<V> {
    entries: VecDeque<Entry<V>>,
    lifetime: Duration,
    capacity: usize,
}

struct Entry<V> {
    key: String,
    inserted: Time,
    value: V,
}

impl<V> ExpiringMap<V> {
    pub(crate) fn new(lifetime: Duration, capacity: usize) -> Self {
        Self { entries: VecDeque::new(), lifetime, capacity }
    }

    pub(crate) fn insert(&mut self, now: Time, key: String, value: V) {
        self.remove_expired(now);
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { key, inserted: now, value });
    }

    /// Removes and returns a value, so that it is used once.
    pub(crate) fn take(&mut self, now: Time, key: &str) -> Option<V> {
        self.remove_expired(now);
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        self.entries.remove(index).map(|entry| entry.value)
    }

    pub(crate) fn get_mut(&mut self, now: Time, key: &str) -> Option<&mut V> {
        self.remove_expired(now);
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
    }

    /// The first value that matches.
    pub(crate) fn find_mut(&mut self, now: Time, matches: impl Fn(&V) -> bool) -> Option<&mut V> {
        self.remove_expired(now);
        self.entries.iter_mut().map(|entry| &mut entry.value).find(|value| matches(value))
    }

    fn remove_expired(&mut self, now: Time) {
        let is_expired =
            |entry: &Entry<V>| now.instant.saturating_duration_since(entry.inserted.instant) >= self.lifetime;
        while self.entries.front().is_some_and(is_expired) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_and_the_oldest_is_removed_when_the_map_is_full() {
        let now = Time::now();
        let later = |seconds| now.after(Duration::from_secs(seconds));
        let mut map = ExpiringMap::new(Duration::from_secs(10), 2);
        map.insert(now, "a".to_owned(), 1);
        assert_eq!(map.get_mut(later(9), "a"), Some(&mut 1));
        assert_eq!(map.get_mut(later(10), "a"), None, "expired");
        for (second, key) in [(11, "b"), (12, "c"), (13, "d")] {
            map.insert(later(second), key.to_owned(), second);
        }
        assert_eq!(map.take(later(14), "b"), None, "the oldest of three");
        assert_eq!(map.take(later(14), "c"), Some(12));
        assert_eq!(map.take(later(14), "c"), None, "taken once");
        assert_eq!(map.find_mut(later(14), |value| *value == 13), Some(&mut 13));
        assert_eq!(map.find_mut(later(23), |_| true), None);
    }
}
