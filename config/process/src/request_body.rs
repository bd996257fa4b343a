//! Request bodies with a deadline for slow clients.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::slow_reader::GRACE;

/// Bytes that extend the deadline by one second.
const BYTES_PER_SECOND: u64 = 512;
/// Bytes that are read of a body that the service has dropped, and the time for them.
const MAX_DRAINED: usize = 4 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The body of a request. Reading fails when the client takes longer than the settings allow
/// (`slowClients.requestBodyTimeout`). Only time in which the service waits for data counts. The server then responds with
/// 408, whatever response the service returns.
///
/// A service may respond before it has read the body. The rest is then read and dropped, up to 4 MiB: over HTTP/1.1 the client
/// otherwise gets a connection error instead of the response, and over HTTP/2 data that arrives for a stream that the server has
/// reset counts as an error of the peer, so that many refused uploads would end the connection, which may be a proxy's.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` once it has ended.
    incoming: Option<Incoming>,
    /// A body that is in memory.
    buffered: Bytes,
    /// Boxed, because most requests have no body.
    deadline: Option<Box<Deadline>>,
}

/// The request body ended early because of the client.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The client has disconnected or violated the protocol.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The deadline has passed.
    #[error("the request body arrives too slowly")]
    TooSlow,
}

/// Whether a body missed its deadline.
#[derive(Clone, Debug, Default)]
pub(crate) struct TooSlow(Option<Arc<AtomicBool>>);

impl TooSlow {
    pub(crate) fn is_true(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Deadline {
    allowed: Duration,
    received: u64,
    waited: Duration,
    /// Start of the current wait.
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the extra time was granted.
    has_grace: bool,
    too_slow: Arc<AtomicBool>,
}

impl RequestBody {
    /// The body of a request within this process.
    pub fn buffered(bytes: Bytes) -> Self {
        Self { incoming: None, buffered: bytes, deadline: None }
    }

    /// `allowed` is the time for the body, plus one second per [`BYTES_PER_SECOND`] bytes.
    pub(crate) fn new(incoming: Incoming, allowed: Duration) -> (Self, TooSlow) {
        if incoming.is_end_stream() {
            return (Self::buffered(Bytes::new()), TooSlow::default());
        }
        let too_slow = Arc::new(AtomicBool::new(false));
        let deadline = Deadline {
            allowed,
            received: 0,
            waited: Duration::ZERO,
            waiting_since: None,
            timer: None,
            has_grace: false,
            too_slow: Arc::clone(&too_slow),
        };
        let (incoming, deadline) = (Some(incoming), Some(Box::new(deadline)));
        (Self { incoming, buffered: Bytes::new(), deadline }, TooSlow(Some(too_slow)))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let rest = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, tokio::runtime::Handle::try_current()) {
            // Nothing depends on the result.
            drop(runtime.spawn(tokio::time::timeout(DRAIN_TIME, drain(rest))));
        }
    }
}

/// Reads a body and drops it.
async fn drain(mut body: Incoming) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.data_ref().map_or(0, Bytes::len);
        if drained > MAX_DRAINED {
            return;
        }
    }
}

impl Deadline {
    fn on_data(&mut self, bytes: usize) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
        self.received += bytes as u64;
    }

    /// Ready when the deadline has passed.
    fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.waiting_since.is_none() {
            let now = Instant::now();
            let earned = Duration::from_secs(self.received / BYTES_PER_SECOND);
            let end = now + self.allowed.saturating_add(earned).saturating_sub(self.waited);
            self.waiting_since = Some(now);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(end),
                None => self.timer = Some(Box::pin(sleep_until(end))),
            }
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(context));
            if !self.has_grace {
                self.has_grace = true;
                self.allowed = self.allowed.saturating_add(GRACE);
                timer.as_mut().reset(Instant::now() + GRACE);
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
        let this = self.get_mut();
        let Some(incoming) = &mut this.incoming else {
            let bytes = std::mem::take(&mut this.buffered);
            return Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))));
        };
        let polled = Pin::new(incoming).poll_frame(context).map_err(RequestBodyError::Broken);
        match (&polled, &mut this.deadline) {
            (Poll::Ready(Some(Ok(frame))), Some(deadline)) => {
                deadline.on_data(frame.data_ref().map_or(0, Bytes::len));
            }
            (Poll::Ready(None | Some(Err(_))), _) => this.incoming = None,
            (Poll::Pending, Some(deadline)) => {
                ready!(deadline.poll_expired(context));
                this.incoming = None;
                return Poll::Ready(Some(Err(RequestBodyError::TooSlow)));
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().map_or(self.buffered.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let buffered = || SizeHint::with_exact(self.buffered.len() as u64);
        self.incoming.as_ref().map_or_else(buffered, Body::size_hint)
    }
}
