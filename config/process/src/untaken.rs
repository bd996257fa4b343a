//! Answers that nobody takes.
//!
//! The library asks the body of an answer for more before it knows whether there is room for it, keeps what it gets until there
//! is, and asks again after that. So an answer that was asked and is silent, as a watch mostly is, waits for nobody; one that has
//! given something and is not asked again is not taken. That is seen here, around whatever polls the body, because the body
//! itself is not polled then.
//!
//! For this to say much, bodies give parts of [`PART`] bytes. Over HTTP/2 who takes as little as one of them in the allowed time
//! goes on; over HTTP/1.1 the library fills a buffer of twice `maxHeaderBytes` and asks again when all of it is gone, so it is
//! 64 KiB there: over a line that is slower than 1 KiB a second a large answer does not come to its end. What the
//! library holds at the end of an answer, up to two parts over HTTP/2, is not seen; it goes with the connection, once that is
//! idle. Who keeps a watch open beside such ends may have them stay, up to some 16 MiB of a connection with 250 streams:
//! `peers.perAddress.connections` says how many of those.
//!
//! Cost: some 40 bytes for each stream, and a timer only for those whose clients are behind.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pin_project_lite::pin_project;
use prometheus::IntCounter;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of an answer that are given at once.
const PART: usize = 32 << 10;
/// A process that was stopped for a while finds that time is over before it has read what has come meanwhile.
pub(crate) const ONCE_MORE: Duration = Duration::from_secs(1);

/// How it is with the answer that is polled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Given {
    /// It has been asked for more, or is over.
    Taken,
    /// It has given a part since the last look.
    Part,
    /// The part is still there.
    Untaken,
    /// It has been there for too long, and is looked at once more.
    Overdue,
}

thread_local! {
    /// A way from the body to those who poll what polls it; nothing is kept here from one poll to the next.
    static GIVEN: Cell<Given> = const { Cell::new(Given::Taken) };
}

/// Bytes that are given in parts. Boxed, because most answers are one.
#[derive(Debug, Default)]
pub(crate) struct Parts(Option<Box<Bytes>>);

impl Parts {
    /// The first part; the rest stays here.
    pub(crate) fn of(&mut self, mut bytes: Bytes) -> Bytes {
        if bytes.len() <= PART {
            return bytes;
        }
        let first = bytes.split_to(PART);
        self.0 = Some(Box::new(bytes));
        first
    }

    /// The next, if there is one.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        let left = self.0.as_mut()?;
        let part = left.split_to(left.len().min(PART));
        // The last ones may wait for long, and would hold all of what they are parts of.
        if left.len() > PART && left.len() <= 2 * PART {
            **left = Bytes::copy_from_slice(left);
        }
        if left.is_empty() {
            self.0 = None;
        }
        Some(part)
    }

    /// Bytes that are still here.
    pub(crate) fn left(&self) -> u64 {
        self.0.as_ref().map_or(0, |left| left.len() as u64)
    }
}

/// The body is asked for more, or is over.
pub(crate) fn asked() {
    GIVEN.set(Given::Taken);
}

/// The body has given something.
pub(crate) fn gave() {
    GIVEN.set(Given::Part);
}

/// How long a part may lie there, and how often that was too long.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    pub(crate) lost: IntCounter,
}

pin_project! {
    /// What polls an answer's body. It is over, with `None`, when a part of it is not taken for too long.
    pub(crate) struct Patient<F> {
        #[pin]
        answering: F,
        given: Given,
        // Only as long as there is something to wait for.
        timer: Option<Pin<Box<Sleep>>>,
        patience: Arc<Patience>,
    }
}

impl<F> Patient<F> {
    pub(crate) fn new(answering: F, patience: &Arc<Patience>) -> Self {
        Self { answering, given: Given::Taken, timer: None, patience: Arc::clone(patience) }
    }

    pub(crate) fn answering(&mut self) -> &mut F {
        &mut self.answering
    }
}

impl<F: Future> Future for Patient<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        GIVEN.set(*this.given);
        let polled = this.answering.poll(context);
        *this.given = GIVEN.get();
        if polled.is_ready() {
            return polled.map(Some);
        }
        match *this.given {
            Given::Taken => *this.timer = None,
            Given::Part => {
                *this.given = Given::Untaken;
                let end = Instant::now() + this.patience.limit;
                match this.timer {
                    Some(timer) => timer.as_mut().reset(end),
                    None => *this.timer = Some(Box::pin(sleep_until(end))),
                }
            }
            Given::Untaken | Given::Overdue => {}
        }
        let Some(timer) = this.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        if *this.given == Given::Untaken {
            *this.given = Given::Overdue;
            timer.as_mut().reset(Instant::now() + ONCE_MORE);
            ready!(timer.as_mut().poll(context));
        }
        this.patience.lost.inc();
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_there_and_the_last_ones_hold_no_more_than_themselves() {
        for size in [0, 1, PART, PART + 1, 3 * PART, 10 * PART + 5] {
            let whole: Bytes = (0..size).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
            let mut parts = Parts::default();
            let mut given = vec![parts.of(whole.clone())];
            given.extend(std::iter::from_fn(|| parts.next()));
            assert_eq!(given.concat(), whole, "{size}");
            assert!(given.iter().all(|part| part.len() <= PART), "{size}");
            let within = |part: &Bytes| whole.as_ptr_range().contains(&part.as_ptr());
            let own = given.iter().rev().take(2).filter(|part| !within(part)).count();
            assert!(size < 10 * PART || own == 2, "{size}: {own}");
        }
    }
}
