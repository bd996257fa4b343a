//! The body of a request.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

/// The body of a request on a connection.
pub(crate) enum RequestBody {
    /// In memory, so that it can be sent again.
    Buffered(Full<Bytes>),
    /// Sent as it arrives.
    Streamed(StreamedBody),
}

pub(crate) type StreamedBody = UnsyncBoxBody<Bytes, BrokenBody>;

/// The source of a streamed body has failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BrokenBody(Box<dyn Error + Send + Sync>);

/// A body that is sent as it arrives.
pub(crate) fn streamed<B>(body: B) -> StreamedBody
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    body.map_err(|error| BrokenBody(error.into())).boxed_unsync()
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        match self.get_mut() {
            Self::Buffered(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
            Self::Streamed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered(body) => body.is_end_stream(),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered(body) => body.size_hint(),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}
