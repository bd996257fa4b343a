//! Questions that several ask at the same time, asked once.

use std::{collections::HashMap, sync::Arc};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

/// Questions under way, by the digest of what they are about. A question lives as long as somebody waits for
/// its answer; nothing runs behind their backs.
pub(crate) struct Flights<V: Clone> {
    under_way: Arc<Mutex<UnderWay<V>>>,
}

struct UnderWay<V: Clone> {
    flights: HashMap<[u8; 32], WeakShared<BoxFuture<'static, V>>>,
    /// At this size those that nobody waits for are forgotten.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 256;

impl<V: Clone + Send + Sync + 'static> Flights<V> {
    pub(crate) fn new() -> Self {
        let under_way = UnderWay { flights: HashMap::new(), sweep_at: FIRST_SWEEP };
        Self { under_way: Arc::new(Mutex::new(under_way)) }
    }

    /// The answer to the question that is under way, or to the one that starts now.
    pub(crate) async fn join(&self, key: [u8; 32], start: impl FnOnce() -> BoxFuture<'static, V>) -> V {
        let flight = self.under_way.lock().join(key, start);
        let answer = flight.clone().await;
        let mut under_way = self.under_way.lock();
        // Somebody may have started the next one already.
        if under_way.find(&key).is_none_or(|known| known.ptr_eq(&flight)) {
            under_way.flights.remove(&key);
        }
        answer
    }
}

impl<V: Clone + Send + Sync + 'static> UnderWay<V> {
    fn join(
        &mut self,
        key: [u8; 32],
        start: impl FnOnce() -> BoxFuture<'static, V>,
    ) -> Shared<BoxFuture<'static, V>> {
        // One that has its answer is over, even if that was not noted yet.
        if let Some(flight) = self.find(&key).filter(|flight| flight.peek().is_none()) {
            return flight;
        }
        if self.flights.len() >= self.sweep_at {
            self.flights.retain(|_, flight| flight.upgrade().is_some());
            self.sweep_at = FIRST_SWEEP.max(2 * self.flights.len());
        }
        let flight = start().shared();
        if let Some(weak) = flight.downgrade() {
            self.flights.insert(key, weak);
        }
        flight
    }

    fn find(&self, key: &[u8; 32]) -> Option<Shared<BoxFuture<'static, V>>> {
        self.flights.get(key)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_together_ask_once() {
        let flights = Flights::new();
        let asked = AtomicUsize::new(0);
        let (answer, question) = oneshot::channel::<u32>();
        let mut question = Some(question);
        let mut ask = || {
            let question = question.take();
            flights.join([0; 32], || {
                asked.fetch_add(1, Ordering::Relaxed);
                async { question.unwrap().await.unwrap() }.boxed()
            })
        };
        let (first, second) = (ask(), ask());
        let (first, second, ()) = tokio::join!(first, second, async { answer.send(7).unwrap() });
        assert_eq!((first, second, asked.load(Ordering::Relaxed)), (7, 7, 1));
        assert_eq!(flights.join([0; 32], || async { 8 }.boxed()).await, 8, "the next one asks again");
        assert!(flights.under_way.lock().flights.is_empty());
    }

    #[tokio::test]
    async fn a_question_outlives_the_one_who_asked_first() {
        let flights = Flights::new();
        let (answer, question) = oneshot::channel::<u32>();
        let mut first = Box::pin(flights.join([0; 32], || async { question.await.unwrap() }.boxed()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut second = Box::pin(flights.join([0; 32], || async { 0 }.boxed()));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        answer.send(7).unwrap();
        assert_eq!(second.await, 7);
    }

    #[tokio::test]
    async fn questions_that_nobody_waits_for_are_forgotten() {
        let flights = Flights::<u32>::new();
        for number in 0..10 * u16::try_from(FIRST_SWEEP).unwrap() {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&number.to_be_bytes());
            let mut asking = Box::pin(flights.join(key, || futures_util::future::pending().boxed()));
            assert!(futures_util::poll!(&mut asking).is_pending());
        }
        assert!(flights.under_way.lock().flights.len() <= FIRST_SWEEP);
    }
}
