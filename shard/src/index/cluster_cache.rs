//! A bounded cache of values that are derived from the store, by logical cluster.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_process::Status;
use lru::LruCache;
use parking_lot::Mutex;

/// A cache of derived values for the most recently used logical clusters.
///
/// A value that was read before a change must not be cached after it. So every change of a logical cluster increments the generation of
/// its entry, and a value is cached only if the generation is the same as before its derivation. A changed value is kept for the next
/// derivation, which may reuse parts of it. One caller derives the value of a logical cluster, and the others wait.
pub(crate) struct ClusterCache<T> {
    entries: Mutex<LruCache<Box<str>, Entry<T>>>,
}

struct Entry<T> {
    generation: u64,
    value: Option<Arc<T>>,
    is_current: bool,
    /// Held by the caller that derives the value.
    derivation: Arc<Mutex<()>>,
}

impl<T> ClusterCache<T> {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        Self { entries: Mutex::new(LruCache::new(capacity)) }
    }

    /// The value of a logical cluster, derived if it is not cached. `derive` gets the value before the last change, if it is known.
    pub(crate) fn get(
        &self,
        cluster: &str,
        derive: impl FnOnce(Option<&T>) -> Result<Arc<T>, Status>,
    ) -> Result<Arc<T>, Status> {
        let derivation = match self.look_up(cluster) {
            Ok(value) => return Ok(value),
            Err(derivation) => derivation,
        };
        let _derives = derivation.lock();
        let (generation, previous) = {
            let mut entries = self.entries.lock();
            match entries.get(cluster) {
                // Another caller has derived it meanwhile.
                Some(Entry { value: Some(value), is_current: true, .. }) => return Ok(value.clone()),
                Some(entry) => (entry.generation, entry.value.clone()),
                None => (0, None),
            }
        };
        let value = derive(previous.as_deref())?;
        if let Some(entry) = self.entries.lock().get_mut(cluster)
            && entry.generation == generation
        {
            (entry.value, entry.is_current) = (Some(value.clone()), true);
        }
        Ok(value)
    }

    /// Marks the value of a logical cluster whose data changed.
    pub(crate) fn invalidate(&self, cluster: &str) {
        if let Some(entry) = self.entries.lock().peek_mut(cluster) {
            entry.invalidate();
        }
    }

    /// Removes all values, because data that all depend on changed.
    pub(crate) fn invalidate_all(&self) {
        for (_, entry) in self.entries.lock().iter_mut() {
            entry.invalidate();
            entry.value = None;
        }
    }

    /// The current value, or the lock of its derivation.
    fn look_up(&self, cluster: &str) -> Result<Arc<T>, Arc<Mutex<()>>> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(cluster) {
            return match &entry.value {
                Some(value) if entry.is_current => Ok(value.clone()),
                _ => Err(entry.derivation.clone()),
            };
        }
        let derivation = Arc::<Mutex<()>>::default();
        let entry = Entry { generation: 0, value: None, is_current: false, derivation: derivation.clone() };
        entries.put(cluster.into(), entry);
        Err(derivation)
    }
}

impl<T> Entry<T> {
    fn invalidate(&mut self) {
        self.generation += 1;
        self.is_current = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cached_until_they_are_invalidated() {
        let cache = ClusterCache::new(NonZeroUsize::MIN.saturating_add(1));
        let get = |value: u32| *cache.get("a", |_| Ok(Arc::new(value))).unwrap();
        assert_eq!((get(1), get(2)), (1, 1));
        cache.invalidate("b");
        assert_eq!(get(2), 1, "another logical cluster has changed");
        cache.invalidate("a");
        assert_eq!(get(3), 3);
        cache.invalidate_all();
        assert_eq!(get(4), 4);
    }

    #[test]
    fn a_value_read_before_an_invalidation_is_not_cached() {
        let cache = ClusterCache::new(NonZeroUsize::MIN);
        let stale = cache.get("a", |_| {
            cache.invalidate("a");
            Ok(Arc::new(1))
        });
        assert_eq!(*stale.unwrap(), 1);
        assert_eq!(*cache.get("a", |_| Ok(Arc::new(2))).unwrap(), 2);
    }

    #[test]
    fn a_derivation_gets_the_value_before_the_change() {
        let cache = ClusterCache::new(NonZeroUsize::MIN);
        let next = |previous: Option<&u32>| Ok(Arc::new(previous.map_or(1, |previous| previous + 1)));
        assert_eq!(*cache.get("a", next).unwrap(), 1);
        cache.invalidate("a");
        assert_eq!(*cache.get("a", next).unwrap(), 2);
        cache.invalidate_all();
        assert_eq!(*cache.get("a", next).unwrap(), 1);
    }

    #[test]
    fn concurrent_callers_derive_a_value_once() {
        let cache = ClusterCache::new(NonZeroUsize::MIN);
        let derived = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cache.get("a", |_| {
                        derived.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        Ok(Arc::new(()))
                    })
                });
            }
        });
        assert_eq!(derived.into_inner(), 1);
    }
}
