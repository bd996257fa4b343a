//! Single-flight: concurrent calls with the same key share one call.

use std::{collections::HashMap, sync::Arc};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

/// Calls in flight, by digest. A call is polled by its callers only: it is dropped when the last caller gives up, and no
/// background task exists.
#[allow(missing_debug_implementations, reason = "its values may be secret")]
pub struct SingleFlight<V: Clone> {
    calls: Arc<Mutex<CallsInFlight<V>>>,
}

struct CallsInFlight<V: Clone> {
    by_key: HashMap<[u8; 32], WeakShared<BoxFuture<'static, V>>>,
    /// At this size, calls without callers are removed.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 256;

impl<V: Clone + Send + Sync + 'static> SingleFlight<V> {
    /// No calls in flight.
    #[must_use]
    pub fn new() -> Self {
        let calls = CallsInFlight { by_key: HashMap::new(), sweep_at: FIRST_SWEEP };
        Self { calls: Arc::new(Mutex::new(calls)) }
    }

    /// The result of the call in flight for this key, or of a new one.
    pub async fn join(&self, key: [u8; 32], start: impl FnOnce() -> BoxFuture<'static, V>) -> V {
        let call = self.calls.lock().join(key, start);
        let result = call.clone().await;
        let mut calls = self.calls.lock();
        // Another caller may have started the next call already.
        if calls.find(&key).is_none_or(|known| known.ptr_eq(&call)) {
            calls.by_key.remove(&key);
        }
        result
    }
}

impl<V: Clone + Send + Sync + 'static> Default for SingleFlight<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Clone + Send + Sync + 'static> CallsInFlight<V> {
    fn join(
        &mut self,
        key: [u8; 32],
        start: impl FnOnce() -> BoxFuture<'static, V>,
    ) -> Shared<BoxFuture<'static, V>> {
        // A finished call is not joined, even if it has not been removed yet.
        if let Some(call) = self.find(&key).filter(|call| call.peek().is_none()) {
            return call;
        }
        if self.by_key.len() >= self.sweep_at {
            self.by_key.retain(|_, call| call.upgrade().is_some());
            self.sweep_at = FIRST_SWEEP.max(2 * self.by_key.len());
        }
        let call = start().shared();
        if let Some(weak) = call.downgrade() {
            self.by_key.insert(key, weak);
        }
        call
    }

    fn find(&self, key: &[u8; 32]) -> Option<Shared<BoxFuture<'static, V>>> {
        self.by_key.get(key)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn concurrent_calls_with_one_key_run_once() {
        let flights = SingleFlight::new();
        let started = AtomicUsize::new(0);
        let (sender, receiver) = oneshot::channel::<u32>();
        let mut receiver = Some(receiver);
        let mut call = || {
            let receiver = receiver.take();
            flights.join([0; 32], || {
                started.fetch_add(1, Ordering::Relaxed);
                async { receiver.unwrap().await.unwrap() }.boxed()
            })
        };
        let (first, second) = (call(), call());
        let (first, second, ()) = tokio::join!(first, second, async { sender.send(7).unwrap() });
        assert_eq!((first, second, started.load(Ordering::Relaxed)), (7, 7, 1));
        assert_eq!(flights.join([0; 32], || async { 8 }.boxed()).await, 8, "the next call starts anew");
        assert!(flights.calls.lock().by_key.is_empty());
    }

    #[tokio::test]
    async fn a_call_outlives_its_first_caller() {
        let flights = SingleFlight::new();
        let (sender, receiver) = oneshot::channel::<u32>();
        let mut first = Box::pin(flights.join([0; 32], || async { receiver.await.unwrap() }.boxed()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(flights.join([0; 32], || async { 0 }.boxed()));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        sender.send(7).unwrap();
        assert_eq!(second.await, 7);
    }

    #[tokio::test]
    async fn calls_without_callers_are_removed() {
        let flights = SingleFlight::<u32>::new();
        for number in 0..10 * u16::try_from(FIRST_SWEEP).unwrap() {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&number.to_be_bytes());
            let mut call = Box::pin(flights.join(key, || futures_util::future::pending().boxed()));
            assert!(futures_util::poll!(&mut call).is_pending());
        }
        assert!(flights.calls.lock().by_key.len() <= FIRST_SWEEP);
    }
}
