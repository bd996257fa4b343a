//! The answer of a server on its way back, whichever protocol it came by.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::forward::downstream::ClientDisconnected;
use crate::forward::failure::{Broken, Failure};
use crate::upstream::{Lease, StreamPermit};

/// So much of an answer over HTTP/1.1 is read ahead, about.
const HTTP1_BUFFER: usize = 16 << 10;

/// The body of an answer, and what keeps its way open.
pub(crate) enum Download {
    Http2 { body: h2::RecvStream, permit: StreamPermit },
    Http1 { body: Incoming, trailers: Option<Box<HeaderMap>>, lease: Option<Box<Lease>> },
}

impl Download {
    /// Whether nothing comes any more, as far as is known.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Http2 { body, .. } => body.is_end_stream(),
            Self::Http1 { body, .. } => body.is_end_stream(),
        }
    }

    /// The next part; `None` after the last. May be dropped while it waits.
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

    /// The client has taken so many bytes: only now may the server send more, so that a client that does not read
    /// holds up its own stream and nothing else.
    pub(crate) fn release(&mut self, size: usize) {
        if let Self::Http2 { body, .. } = self {
            let _ = body.flow_control().release_capacity(size);
        }
    }

    /// Bytes that have come and were not released yet.
    pub(crate) fn waiting(&mut self) -> usize {
        match self {
            Self::Http2 { body, .. } => body.flow_control().used_capacity(),
            Self::Http1 { .. } => HTTP1_BUFFER,
        }
    }

    /// What comes after the last part.
    pub(crate) async fn trailers(&mut self) -> Result<Option<HeaderMap>, Failure> {
        match self {
            Self::Http2 { body, permit } => match body.trailers().await {
                // "No more of the request is wanted" (RFC 9113, 8.1): the answer is complete.
                Err(error) if error.reason() == Some(h2::Reason::NO_ERROR) => Ok(None),
                trailers => trailers.map_err(|error| Failure::of_stream(error, permit)),
            },
            Self::Http1 { trailers, .. } => Ok(trailers.take().map(|trailers| *trailers)),
        }
    }

    /// The answer is complete: its way may serve others.
    pub(crate) fn finish(self) {
        if let Self::Http1 { lease: Some(lease), .. } = self {
            lease.give_back();
        }
    }
}

impl From<ClientDisconnected> for Failure {
    fn from(_: ClientDisconnected) -> Self {
        Self::ClientLeft
    }
}
