//! Things that are remembered for a while, and never too many of them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::moment::Moment;

/// Things by secret keys. Each is forgotten when its time is over; the oldest when there are too many. Looking through all
/// of them is cheap, because there are a few hundred at most.
pub(crate) struct Expiring<V> {
    entries: VecDeque<Entry<V>>,
    lifetime: Duration,
    capacity: usize,
}

struct Entry<V> {
    key: String,
    born: Moment,
    value: V,
}

impl<V> Expiring<V> {
    pub(crate) fn new(lifetime: Duration, capacity: usize) -> Self {
        Self { entries: VecDeque::new(), lifetime, capacity }
    }

    pub(crate) fn insert(&mut self, now: Moment, key: String, value: V) {
        self.forget(now);
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { key, born: now, value });
    }

    /// Takes it out, so that nobody gets it twice.
    pub(crate) fn take(&mut self, now: Moment, key: &str) -> Option<V> {
        self.forget(now);
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        self.entries.remove(index).map(|entry| entry.value)
    }

    pub(crate) fn get_mut(&mut self, now: Moment, key: &str) -> Option<&mut V> {
        self.forget(now);
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
    }

    /// The first thing that is as wanted.
    pub(crate) fn find_mut(&mut self, now: Moment, wanted: impl Fn(&V) -> bool) -> Option<&mut V> {
        self.forget(now);
        self.entries.iter_mut().map(|entry| &mut entry.value).find(|value| wanted(value))
    }

    fn forget(&mut self, now: Moment) {
        let is_over =
            |entry: &Entry<V>| now.instant.saturating_duration_since(entry.born.instant) >= self.lifetime;
        while self.entries.front().is_some_and(is_over) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_forgotten_in_time_and_when_there_are_too_many() {
        let now = Moment::now();
        let later = |seconds| now.after(Duration::from_secs(seconds));
        let mut things = Expiring::new(Duration::from_secs(10), 2);
        things.insert(now, "a".to_owned(), 1);
        assert_eq!(things.get_mut(later(9), "a"), Some(&mut 1));
        assert_eq!(things.get_mut(later(10), "a"), None, "its time is over");
        for (second, key) in [(11, "b"), (12, "c"), (13, "d")] {
            things.insert(later(second), key.to_owned(), second);
        }
        assert_eq!(things.take(later(14), "b"), None, "the oldest of three");
        assert_eq!(things.take(later(14), "c"), Some(12));
        assert_eq!(things.take(later(14), "c"), None, "taken once");
        assert_eq!(things.find_mut(later(14), |value| *value == 13), Some(&mut 13));
        assert_eq!(things.find_mut(later(23), |_| true), None);
    }
}
