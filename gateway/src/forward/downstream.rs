//! The client's side of an exchange, whichever protocol the client speaks.

use std::time::Duration;

use std::future::pending;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use tokio::time::timeout;

/// `Cache-Control` of responses that must not be stored.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The client has disconnected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the client has disconnected")]
pub(crate) struct ClientDisconnected;

/// The request body is incomplete.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The client has disconnected.
    #[error(transparent)]
    ClientDisconnected(#[from] ClientDisconnected),
    /// The framing of the body is invalid.
    #[error("{0}")]
    Malformed(&'static str),
}

/// A request of a client and its response. All futures are cancel-safe, unless stated otherwise.
pub(crate) trait DownstreamExchange: Send {
    /// Whether the request has been received completely.
    fn is_done(&self) -> bool;

    /// The next part of the request body; `None` after the last.
    fn read(&mut self) -> impl Future<Output = Result<Option<Bytes>, BodyError>> + Send;

    /// A function that returns how many bytes of the body were received and not forwarded. Always 0 over HTTP/1.1, where a connection has one
    /// request at a time.
    fn unsent(&mut self) -> impl Fn() -> usize + Send + 'static {
        || 0
    }

    /// Returns when the client has disconnected, before its body was read. May never return where this cannot be noticed.
    fn disconnected(&mut self) -> impl Future<Output = ()> + Send {
        pending()
    }

    /// The trailers of the request body.
    fn trailers(&mut self) -> impl Future<Output = Result<Option<HeaderMap>, BodyError>> + Send;

    /// Returns when the client has disconnected. To be called after the body has been read.
    fn closed(&mut self) -> impl Future<Output = ()> + Send;

    /// Forwards an interim response (1xx) to clients that understand it.
    fn interim(&mut self, head: Response<()>) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Starts the response. Its head may be buffered until [`DownstreamExchange::flush`].
    fn begin(&mut self, head: Parts, ended: bool) -> Result<(), ClientDisconnected>;

    /// Status code of the response, if it has started.
    fn status_sent(&self) -> Option<u16>;

    /// Writes a part of the response body when the client's window allows. It may be buffered until [`DownstreamExchange::flush`]. Not
    /// cancel-safe: after cancellation the response can only be aborted.
    fn write(
        &mut self,
        chunk: Bytes,
        ended: bool,
    ) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Writes everything that is buffered.
    fn flush(&mut self) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Ends the response.
    fn end(
        &mut self,
        trailers: Option<HeaderMap>,
    ) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Aborts the response such that the client sees that it is incomplete.
    fn abort(&mut self);
}

/// Bytes of a request body that are read and dropped after the response was sent, and the time for it.
const MAX_DRAINED_BYTES: usize = 4 << 20;
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// Reads and drops the body of a request that already has its response. A stream that ends with an unread body is reset, and some
/// clients then drop the response (curl: error 92); over HTTP/1.1 the connection could not be kept.
pub(crate) async fn drain<C: DownstreamExchange>(client: &mut C) {
    if client.is_done() {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = client.read().await {
            read += chunk.len();
            if read > MAX_DRAINED_BYTES {
                break;
            }
        }
    };
    // A client that sends more, or slowly, has its response; the end of the stream tells it to stop.
    let _ = Box::pin(timeout(MAX_DRAIN, reading)).await;
}
