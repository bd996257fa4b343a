//! Converted objects, so that many readers of one state of an object cost one call of its webhook.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_process::Status;
use fairlead_store::Revision;
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::object::EncodedObject;
use crate::scope::Scope;

/// Bytes of all cached objects.
const CACHED_BYTES: usize = 32 << 20;
/// Number of cached objects.
const CACHED_OBJECTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_535);

/// One state of an object in one version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(in crate::registry) struct CacheKey {
    pub(in crate::registry) webhook: u64,
    pub(in crate::registry) scope: Scope,
    pub(in crate::registry) uid: Box<str>,
    pub(in crate::registry) revision: Revision,
    pub(in crate::registry) version: Arc<str>,
}

/// The result of a conversion, for those who wait for it.
type Outcome = Result<EncodedObject, Status>;

/// The converted objects of all webhooks of a server: a bounded number of bytes, the least recently used are dropped.
#[derive(Default)]
pub struct ConversionCache {
    state: Mutex<State>,
}

struct State {
    ready: LruCache<CacheKey, EncodedObject>,
    bytes: usize,
    in_flight: FxHashMap<CacheKey, watch::Receiver<Option<Outcome>>>,
}

impl Default for State {
    fn default() -> Self {
        Self { ready: LruCache::new(CACHED_OBJECTS), bytes: 0, in_flight: FxHashMap::default() }
    }
}

/// The state of a conversion in the cache.
pub(in crate::registry) enum Lookup {
    Ready(EncodedObject),
    /// Another caller converts the object.
    InFlight(PendingConversion),
    /// The caller converts the object.
    Missing(ConversionClaim),
}

impl ConversionCache {
    /// An empty cache.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Looks up a conversion. A caller that finds none has to do it.
    pub(in crate::registry) fn look_up(self: &Arc<Self>, key: CacheKey) -> Lookup {
        let mut state = self.state.lock();
        if let Some(ready) = state.ready.get(&key) {
            return Lookup::Ready(ready.clone());
        }
        if let Some(pending) = state.in_flight.get(&key) {
            return Lookup::InFlight(PendingConversion(pending.clone()));
        }
        let (sender, receiver) = watch::channel(None);
        state.in_flight.insert(key.clone(), receiver);
        drop(state);
        Lookup::Missing(ConversionClaim { cache: Arc::clone(self), key, sender })
    }
}

impl State {
    fn insert(&mut self, key: CacheKey, object: EncodedObject, limit: usize) {
        self.bytes += object.stored().len();
        if let Some((_, replaced)) = self.ready.push(key, object) {
            self.bytes -= replaced.stored().len();
        }
        while self.bytes > limit
            && let Some((_, dropped)) = self.ready.pop_lru()
        {
            self.bytes -= dropped.stored().len();
        }
    }
}

/// The duty to convert an object. Others wait for it; if it is dropped, one of them takes over.
pub(in crate::registry) struct ConversionClaim {
    cache: Arc<ConversionCache>,
    key: CacheKey,
    sender: watch::Sender<Option<Outcome>>,
}

impl ConversionClaim {
    /// Ends the conversion. A failure is not cached, but those who wait get it: otherwise each of them would wait for a
    /// webhook that hangs.
    pub(in crate::registry) fn complete(self, outcome: Outcome) {
        if let Ok(object) = &outcome {
            self.cache.state.lock().insert(self.key.clone(), object.clone(), CACHED_BYTES);
        }
        self.sender.send_replace(Some(outcome));
    }
}

impl Drop for ConversionClaim {
    fn drop(&mut self) {
        self.cache.state.lock().in_flight.remove(&self.key);
    }
}

/// A conversion of another caller.
pub(in crate::registry) struct PendingConversion(watch::Receiver<Option<Outcome>>);

impl PendingConversion {
    /// Waits for the conversion. `None`: the other caller has given up.
    pub(in crate::registry) async fn outcome(mut self) -> Option<Outcome> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(uid: &str) -> CacheKey {
        CacheKey {
            webhook: 0,
            scope: Scope::new("c"),
            uid: uid.into(),
            revision: Revision(1),
            version: "v1".into(),
        }
    }

    fn object(size: usize) -> EncodedObject {
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {}, "text": "x".repeat(size)});
        crate::object::encode(&object, 0).unwrap()
    }

    fn claim(cache: &Arc<ConversionCache>, uid: &str) -> ConversionClaim {
        match cache.look_up(key(uid)) {
            Lookup::Missing(claim) => claim,
            Lookup::Ready(_) | Lookup::InFlight(_) => panic!("{uid} is known"),
        }
    }

    #[tokio::test]
    async fn one_caller_converts_and_the_others_get_its_result() {
        let cache = ConversionCache::new();
        let first = claim(&cache, "a");
        let Lookup::InFlight(waiting) = cache.look_up(key("a")) else { panic!("not in flight") };
        first.complete(Ok(object(1)));
        assert_eq!(waiting.outcome().await, Some(Ok(object(1))));
        assert!(matches!(cache.look_up(key("a")), Lookup::Ready(_)));
    }

    #[tokio::test]
    async fn failures_reach_those_who_wait_and_are_not_kept() {
        let cache = ConversionCache::new();
        let first = claim(&cache, "a");
        let Lookup::InFlight(waiting) = cache.look_up(key("a")) else { panic!("not in flight") };
        first.complete(Err(Status::internal("x")));
        assert_eq!(waiting.outcome().await, Some(Err(Status::internal("x"))));
        let second = claim(&cache, "a");
        let Lookup::InFlight(waiting) = cache.look_up(key("a")) else { panic!("not in flight") };
        drop(second);
        assert_eq!(waiting.outcome().await, None, "the caller was cancelled");
        drop(claim(&cache, "a"));
    }

    #[test]
    fn objects_are_kept_up_to_a_size() {
        let mut state = State::default();
        for uid in ["a", "b", "c"] {
            state.insert(key(uid), object(1000), 2500);
        }
        let kept: Vec<&str> = state.ready.iter().map(|(key, _)| &*key.uid).collect();
        assert_eq!(kept, ["c", "b"]);
        assert_eq!(state.bytes, 2 * object(1000).stored().len());
    }
}
