//! Slow-reader protection: aborts streams whose response data the client does not read.
//!
//! hyper polls a response body before it knows whether there is room for the data, keeps the data until there is room, and polls
//! the body again only afterwards. So a body that was polled and is pending, as that of an idle watch is, does not wait for its
//! client. A body that has yielded data and is not polled again has a client that does not read. The body itself is not polled
//! then, so this is detected by the future that polls it, [`SlowReaderGuard`].
//!
//! Bodies yield parts of [`PART`] bytes. Over HTTP/2 a client that reads at least one part in the allowed time continues. Over
//! HTTP/1.1 hyper fills a buffer of twice `maxHeaderBytes` and polls again once all of it was written, so there the amount is
//! 64 KiB: over a line slower than 1 KiB per second a large response does not complete. Data that hyper holds at the end of a
//! response, up to two parts over HTTP/2, is not detected. It is released with the connection, once that is idle. A client that
//! keeps a watch open beside such streams can retain them, up to about 16 MiB for a connection with 250 streams;
//! `peers.perAddress.connections` limits the number of such connections.
//!
//! Cost: about 40 bytes per stream, and a timer only for streams with unread data.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pin_project_lite::pin_project;
use prometheus::IntCounter;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of a response that are yielded at once.
const PART: usize = 32 << 10;
/// Extra time after a deadline. A process that was suspended finds its timers expired before it has handled pending socket events.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// State of the response body that is polled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BodyState {
    /// The body was polled for more data, or has ended.
    Polled,
    /// The body has yielded a part since the last check.
    Yielded,
    /// The body was not polled since it yielded that part.
    Unread,
    /// The time limit has passed; the extra time runs.
    Overdue,
}

thread_local! {
    /// Passes the state from the body to the guard around the future that polls it. It holds nothing between two polls.
    static STATE: Cell<BodyState> = const { Cell::new(BodyState::Polled) };
}

/// The rest of a data frame that is yielded in parts. Boxed, because most responses have one part.
#[derive(Debug, Default)]
pub(crate) struct Parts(Option<Box<Bytes>>);

impl Parts {
    /// Returns the first part and keeps the rest.
    pub(crate) fn split(&mut self, mut bytes: Bytes) -> Bytes {
        if bytes.len() <= PART {
            return bytes;
        }
        let first = bytes.split_to(PART);
        self.0 = Some(Box::new(bytes));
        first
    }

    /// The next part, if there is one.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        let left = self.0.as_mut()?;
        let part = left.split_to(left.len().min(PART));
        // The last parts may stay buffered for long, and would keep the whole allocation alive.
        if left.len() > PART && left.len() <= 2 * PART {
            **left = Bytes::copy_from_slice(left);
        }
        if left.is_empty() {
            self.0 = None;
        }
        Some(part)
    }

    /// Number of bytes not yet yielded.
    pub(crate) fn remaining(&self) -> u64 {
        self.0.as_ref().map_or(0, |left| left.len() as u64)
    }
}

/// Records that the body was polled for more data, or has ended.
pub(crate) fn record_poll() {
    STATE.set(BodyState::Polled);
}

/// Records that the body has yielded data.
pub(crate) fn record_data() {
    STATE.set(BodyState::Yielded);
}

/// The time in which a client has to read a part, and the counter of streams that were aborted.
#[derive(Debug)]
pub(crate) struct ReadTimeout {
    pub(crate) limit: Duration,
    pub(crate) aborted: IntCounter,
}

pin_project! {
    /// The future that polls a response body. It ends with `None` when the client has not read a part in time.
    pub(crate) struct SlowReaderGuard<F> {
        #[pin]
        inner: F,
        state: BodyState,
        // Set only while a part is unread.
        timer: Option<Pin<Box<Sleep>>>,
        timeout: Arc<ReadTimeout>,
    }
}

impl<F> SlowReaderGuard<F> {
    pub(crate) fn new(inner: F, timeout: &Arc<ReadTimeout>) -> Self {
        Self { inner, state: BodyState::Polled, timer: None, timeout: Arc::clone(timeout) }
    }

    pub(crate) fn inner(&mut self) -> &mut F {
        &mut self.inner
    }
}

impl<F: Future> Future for SlowReaderGuard<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        STATE.set(*this.state);
        let polled = this.inner.poll(context);
        *this.state = STATE.get();
        if polled.is_ready() {
            return polled.map(Some);
        }
        match *this.state {
            BodyState::Polled => *this.timer = None,
            BodyState::Yielded => {
                *this.state = BodyState::Unread;
                let end = Instant::now() + this.timeout.limit;
                match this.timer {
                    Some(timer) => timer.as_mut().reset(end),
                    None => *this.timer = Some(Box::pin(sleep_until(end))),
                }
            }
            BodyState::Unread | BodyState::Overdue => {}
        }
        let Some(timer) = this.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        if *this.state == BodyState::Unread {
            *this.state = BodyState::Overdue;
            timer.as_mut().reset(Instant::now() + GRACE);
            ready!(timer.as_mut().poll(context));
        }
        this.timeout.aborted.inc();
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_yielded_and_the_last_ones_have_allocations_of_their_own() {
        for size in [0, 1, PART, PART + 1, 3 * PART, 10 * PART + 5] {
            let whole: Bytes = (0..size).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
            let mut parts = Parts::default();
            let mut yielded = vec![parts.split(whole.clone())];
            yielded.extend(std::iter::from_fn(|| parts.next()));
            assert_eq!(yielded.concat(), whole, "{size}");
            assert!(yielded.iter().all(|part| part.len() <= PART), "{size}");
            let within = |part: &Bytes| whole.as_ptr_range().contains(&part.as_ptr());
            let own = yielded.iter().rev().take(2).filter(|part| !within(part)).count();
            assert!(size < 10 * PART || own == 2, "{size}: {own}");
        }
    }
}
