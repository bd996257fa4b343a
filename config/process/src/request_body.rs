//! The body of a request, which its client may take only so much time for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::untaken::ONCE_MORE;

/// Bytes that earn a client one more second.
const LEAST_RATE: u64 = 512;

/// The body of a request. It fails when the client takes longer over it than the settings allow (`slowClients.body`): only the
/// time counts for which somebody waited for more. The server answers 408 then, whatever its service makes of that.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    /// Boxed, because most requests have no body.
    pace: Option<Box<Pace>>,
}

/// The body of a request breaks off; the client is to blame.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The client is gone, or does not speak as it should.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// It took too long.
    #[error("the body of the request comes too slowly")]
    TooSlow,
}

/// Whether a body came too slowly.
#[derive(Clone, Debug, Default)]
pub(crate) struct TooSlow(Option<Arc<AtomicBool>>);

impl TooSlow {
    pub(crate) fn is_true(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Pace {
    allowed: Duration,
    received: u64,
    waited: Duration,
    /// Since when somebody waits for more.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// It was looked at once more.
    warned: bool,
    too_slow: Arc<AtomicBool>,
}

impl RequestBody {
    /// `allowed` is how long it may take, and a second more for so many bytes of it.
    pub(crate) fn new(incoming: Incoming, allowed: Duration) -> (Self, TooSlow) {
        if incoming.is_end_stream() {
            return (Self { incoming, pace: None }, TooSlow::default());
        }
        let too_slow = Arc::new(AtomicBool::new(false));
        let pace = Pace {
            allowed,
            received: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
            warned: false,
            too_slow: Arc::clone(&too_slow),
        };
        (Self { incoming, pace: Some(Box::new(pace)) }, TooSlow(Some(too_slow)))
    }
}

impl Pace {
    fn came(&mut self, bytes: usize) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        self.received += bytes as u64;
    }

    /// Ready when it was waited for too long.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.since.is_none() {
            let now = Instant::now();
            let earned = Duration::from_secs(self.received / LEAST_RATE);
            let end = now + self.allowed.saturating_add(earned).saturating_sub(self.waited);
            self.since = Some(now);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(end),
                None => self.timer = Some(Box::pin(sleep_until(end))),
            }
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(context));
            if !self.warned {
                self.warned = true;
                self.allowed = self.allowed.saturating_add(ONCE_MORE);
                timer.as_mut().reset(Instant::now() + ONCE_MORE);
                ready!(timer.as_mut().poll(context));
            }
        }
        self.too_slow.store(true, Ordering::Relaxed);
        Poll::Ready(())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Self { incoming, pace } = self.get_mut();
        let polled = Pin::new(incoming).poll_frame(context).map_err(RequestBodyError::Broken);
        match (&polled, pace) {
            (Poll::Ready(Some(Ok(frame))), Some(pace)) => {
                pace.came(frame.data_ref().map_or(0, Bytes::len));
            }
            (Poll::Pending, Some(pace)) => {
                ready!(pace.poll_end(context));
                return Poll::Ready(Some(Err(RequestBodyError::TooSlow)));
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
