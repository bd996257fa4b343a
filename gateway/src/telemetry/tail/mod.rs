//! Live subscriptions to the lines of the access log.
//!
//! Without subscribers a request costs one atomic load. A slow subscriber loses lines and never delays requests: each has
//! a bounded queue and receives the number of lines that did not fit.

mod filter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::telemetry::access_log::Line;
pub(crate) use filter::Filter;

/// Path of the endpoint.
pub(crate) const PATH: &str = "/services/fairlead/v1/tail";
/// Maximum number of concurrent subscribers.
pub(crate) const MAX_SUBSCRIBERS: usize = 16;
/// Queued lines per subscriber; about 512 KiB.
const QUEUE: usize = 1024;

/// The subscribers.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Loaded by every request, so reading never locks.
    subscribers: ArcSwap<Vec<Arc<Subscriber>>>,
    /// Held while `subscribers` is replaced.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Subscriber {
    filter: Filter,
    queue: mpsc::Sender<Bytes>,
    lost: AtomicU64,
}

/// The subscription of one client, until this is dropped.
#[derive(Debug)]
pub(crate) struct LogSubscription {
    tail: Arc<Tail>,
    subscriber: Arc<Subscriber>,
    queue: mpsc::Receiver<Bytes>,
}

/// The maximum number of subscribers is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there are {MAX_SUBSCRIBERS} subscribers already")]
pub(crate) struct TooManySubscribers;

impl Tail {
    /// True if there are subscribers.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.subscribers.load().is_empty()
    }

    /// Adds a subscriber.
    ///
    /// # Errors
    /// [`TooManySubscribers`].
    pub(crate) fn subscribe(self: &Arc<Self>, filter: Filter) -> Result<LogSubscription, TooManySubscribers> {
        let _changing = self.changing.lock();
        let mut subscribers = Vec::clone(&self.subscribers.load());
        if subscribers.len() >= MAX_SUBSCRIBERS {
            return Err(TooManySubscribers);
        }
        let (sender, queue) = mpsc::channel(QUEUE);
        let subscriber = Arc::new(Subscriber { filter, queue: sender, lost: AtomicU64::new(0) });
        subscribers.push(Arc::clone(&subscriber));
        self.subscribers.store(Arc::new(subscribers));
        Ok(LogSubscription { tail: Arc::clone(self), subscriber, queue })
    }

    /// Sends a line to all subscribers whose filter matches.
    pub(crate) fn publish(&self, line: &Line<'_>) {
        let mut written = None;
        for subscriber in self.subscribers.load().iter().filter(|subscriber| subscriber.filter.matches(line))
        {
            let written = written.get_or_insert_with(|| {
                let mut bytes = Vec::with_capacity(512);
                line.write_to(&mut bytes);
                Bytes::from(bytes)
            });
            if subscriber.queue.try_send(written.clone()).is_err() {
                subscriber.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl LogSubscription {
    /// The next lines, at least one, with the number of lines that were lost before the following ones.
    pub(crate) async fn next(&mut self) -> Bytes {
        const MOST: usize = 64;
        let mut lines = Vec::new();
        // The receiver's owner also holds the sender, so the channel is never closed.
        self.queue.recv_many(&mut lines, MOST).await;
        let mut text = lines.concat();
        match self.subscriber.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => text.extend_from_slice(format!("{{\"lost\":{lost}}}\n").as_bytes()),
        }
        text.into()
    }
}

impl Drop for LogSubscription {
    fn drop(&mut self) {
        let _changing = self.tail.changing.lock();
        let mut subscribers = Vec::clone(&self.tail.subscribers.load());
        subscribers.retain(|subscriber| !Arc::ptr_eq(subscriber, &self.subscriber));
        self.tail.subscribers.store(Arc::new(subscribers));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::telemetry::access_log::a_line;

    #[tokio::test]
    async fn a_slow_subscriber_loses_and_counts_lines_and_others_lose_none() {
        let tail: Arc<Tail> = Arc::default();
        assert!(!tail.has_subscribers());
        let mut slow = tail.subscribe(Filter::default()).unwrap();
        let mut quick = tail.subscribe(Filter::of_query("status=5xx").unwrap()).unwrap();
        for number in 0..QUEUE + 10 {
            tail.publish(&a_line("/x", if number == QUEUE + 9 { 503 } else { 200 }));
        }
        let told = String::from_utf8(quick.next().await.to_vec()).unwrap();
        assert_eq!((told.lines().count(), told.contains("\"code\":503")), (1, true));
        let (mut lines, mut lost) = (0, 0);
        while lines < QUEUE {
            let text = String::from_utf8(slow.next().await.to_vec()).unwrap();
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                match line["lost"].as_u64() {
                    Some(number) => lost += number,
                    None => lines += 1,
                }
            }
        }
        assert_eq!((lines, lost), (QUEUE, 10));
        drop((slow, quick));
        tail.publish(&a_line("/x", 200));
        assert!(!tail.has_subscribers(), "a removed subscriber costs nothing");
    }

    #[test]
    fn readers_are_bounded() {
        let tail: Arc<Tail> = Arc::default();
        let subscribers: Vec<_> =
            (0..MAX_SUBSCRIBERS).map(|_| tail.subscribe(Filter::default()).unwrap()).collect();
        assert_eq!(tail.subscribe(Filter::default()).err(), Some(TooManySubscribers));
        drop(subscribers);
        assert!(tail.subscribe(Filter::default()).is_ok());
    }
}
