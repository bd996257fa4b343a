//! The body of an upstream's response, over HTTP/2 or HTTP/1.1.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::forward::downstream::ClientDisconnected;
use crate::forward::failure::{Broken, Failure};
use crate::upstream::{Lease, StreamPermit};

/// Bytes of an HTTP/1.1 response that are read ahead, approximately.
const HTTP1_BUFFER: usize = 16 << 10;

/// A response body and its connection.
pub(crate) enum Download {
    Http2 { body: h2::RecvStream, permit: StreamPermit },
    Http1 { body: Incoming, trailers: Option<Box<HeaderMap>>, lease: Option<Box<Lease>> },
}

impl Download {
    /// Whether the body is known to be complete.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Http2 { body, .. } => body.is_end_stream(),
            Self::Http1 { body, .. } => body.is_end_stream(),
        }
    }

    /// The next part; `None` after the last. Cancel-safe.
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, Failure>> {
        match self {
            Self::Http2 { body, permit } => {
                let chunk = body.data().await?;
                Some(chunk.map_err(|error| Failure::of_stream(error, permit)))
            }
            Self::Http1 { body, trailers, .. } => loop {
                match body.frame().await?.map(hyper::body::Frame::into_data) {
                    Ok(Ok(chunk)) => return Some(Ok(chunk)),
                    Ok(Err(other)) => *trailers = other.into_trailers().ok().map(Box::new),
                    Err(error) => return Some(Err(Failure::Shard(Broken::Http1(error)))),
                }
            },
        }
    }

    /// Opens the window for bytes that the client has read. Only then may the server send more, so that a client that does not read
    /// blocks its own stream only.
    pub(crate) fn release(&mut self, size: usize) {
        if let Self::Http2 { body, .. } = self {
            let _ = body.flow_control().release_capacity(size);
        }
    }

    /// Bytes that were received and not released.
    pub(crate) fn waiting(&mut self) -> usize {
        match self {
            Self::Http2 { body, .. } => body.flow_control().used_capacity(),
            Self::Http1 { .. } => HTTP1_BUFFER,
        }
    }

    /// The trailers.
    pub(crate) async fn trailers(&mut self) -> Result<Option<HeaderMap>, Failure> {
        match self {
            Self::Http2 { body, permit } => match body.trailers().await {
                // NO_ERROR: the server wants no more of the request, and the response is complete (RFC 9113, 8.1).
                Err(error) if error.reason() == Some(h2::Reason::NO_ERROR) => Ok(None),
                trailers => trailers.map_err(|error| Failure::of_stream(error, permit)),
            },
            Self::Http1 { trailers, .. } => Ok(trailers.take().map(|trailers| *trailers)),
        }
    }

    /// The response is complete: its connection can be reused.
    pub(crate) fn finish(self) {
        if let Self::Http1 { lease: Some(lease), .. } = self {
            lease.release();
        }
    }
}

impl From<ClientDisconnected> for Failure {
    fn from(_: ClientDisconnected) -> Self {
        Self::ClientDisconnected
    }
}
