//! A bounded cache of values that are derived from the store, by logical cluster.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_process::Status;
use lru::LruCache;
use parking_lot::Mutex;

/// A cache of derived values for the most recently used logical clusters.
///
/// A value that was read before a change must not be cached after it. So every change increments a generation, and a
/// value is cached only if the generation is the same as before its derivation.
pub(super) struct ClusterCache<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    generation: u64,
    values: LruCache<Box<str>, Arc<T>>,
}

impl<T> ClusterCache<T> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self { state: Mutex::new(State { generation: 0, values: LruCache::new(capacity) }) }
    }

    /// The value of a logical cluster, derived if it is not cached.
    pub(super) fn get(
        &self,
        cluster: &str,
        derive: impl FnOnce() -> Result<Arc<T>, Status>,
    ) -> Result<Arc<T>, Status> {
        let generation = {
            let mut state = self.state.lock();
            if let Some(value) = state.values.get(cluster) {
                return Ok(value.clone());
            }
            state.generation
        };
        let value = derive()?;
        let mut state = self.state.lock();
        if state.generation == generation {
            state.values.put(cluster.into(), value.clone());
        }
        Ok(value)
    }

    /// Removes the value of a logical cluster whose data changed.
    pub(super) fn invalidate(&self, cluster: &str) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.values.pop(cluster);
    }

    /// Removes all values, because data that all depend on changed.
    pub(super) fn invalidate_all(&self) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cached_until_they_are_invalidated() {
        let cache = ClusterCache::new(NonZeroUsize::MIN.saturating_add(1));
        let get = |value: u32| *cache.get("a", || Ok(Arc::new(value))).unwrap();
        assert_eq!((get(1), get(2)), (1, 1));
        cache.invalidate("a");
        assert_eq!(get(3), 3);
        cache.invalidate_all();
        assert_eq!(get(4), 4);
    }

    #[test]
    fn a_value_read_before_an_invalidation_is_not_cached() {
        let cache = ClusterCache::new(NonZeroUsize::MIN);
        let stale = cache.get("a", || {
            cache.invalidate("a");
            Ok(Arc::new(1))
        });
        assert_eq!(*stale.unwrap(), 1);
        assert_eq!(*cache.get("a", || Ok(Arc::new(2))).unwrap(), 2);
    }
}
