//! A request of a client and the way to answer it, whichever protocol it came by.

use std::future::pending;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};

/// What `Cache-Control` says where nobody may keep an answer.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// There is nobody to answer any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the client has left")]
pub(crate) struct ClientDisconnected;

/// The body of a request does not come to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum BodyError {
    /// There is nobody to answer any more.
    #[error(transparent)]
    ClientDisconnected(#[from] ClientDisconnected),
    /// The client's fault.
    #[error("{0}")]
    Malformed(&'static str),
}

/// What the straight pass needs of a client. Everything may be dropped while it waits, unless it says otherwise.
pub(crate) trait DownstreamExchange: Send {
    /// Whether nothing of the request is still to come.
    fn is_done(&self) -> bool;

    /// The next part of the request's body; `None` after the last.
    fn read(&mut self) -> impl Future<Output = Result<Option<Bytes>, BodyError>> + Send;

    /// Says how many bytes of the body have come and were not passed on. Only where the bodies of several requests come over
    /// one connection.
    fn unsent(&mut self) -> impl Fn() -> usize + Send + 'static {
        || 0
    }

    /// Returns when the client is known to have gone away, before its body has been read. It may be that nobody can know.
    fn gone(&mut self) -> impl Future<Output = ()> + Send {
        pending()
    }

    /// What came after the last part.
    fn trailers(&mut self) -> impl Future<Output = Result<Option<HeaderMap>, BodyError>> + Send;

    /// Returns when the client has gone away. Only once the body has been read.
    fn left(&mut self) -> impl Future<Output = ()> + Send;

    /// Passes on an interim answer (1xx), where the client understands it.
    fn interim(&mut self, head: Response<()>) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Begins the answer. It may wait for [`DownstreamExchange::flush`].
    fn begin(&mut self, head: Parts, ended: bool) -> Result<(), ClientDisconnected>;

    /// The code of the answer that has begun.
    fn begun(&self) -> Option<u16>;

    /// Sends a part of the answer, as soon as the client takes it. It may wait for [`DownstreamExchange::flush`]. If this is dropped
    /// while it waits, the answer can only be aborted.
    fn write(
        &mut self,
        chunk: Bytes,
        ended: bool,
    ) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Everything so far is on its way.
    fn flush(&mut self) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Ends the answer.
    fn end(
        &mut self,
        trailers: Option<HeaderMap>,
    ) -> impl Future<Output = Result<(), ClientDisconnected>> + Send;

    /// Breaks the answer off, so that it cannot be taken for a complete one.
    fn abort(&mut self);
}
