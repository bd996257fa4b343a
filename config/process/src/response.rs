//! Responses of a server: those of its service, and its own errors.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use crate::activity::OpenRequest;
use crate::connection;
use crate::request_body::RequestBody;
use crate::slow_reader::{self, Parts};
use crate::status::Status;

/// The error of a response body; ends the stream (HTTP/2) or the connection (HTTP/1.1).
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Handler of the requests of a server. Cheap requests need no allocation beyond their response. Each request
/// carries a [`ConnectionInfo`](crate::ConnectionInfo) in its extensions.
///
/// A panic in the handler becomes a 500 and the connection survives; when the client disconnects the future is dropped.
pub trait Service: Send + Sync + 'static {
    /// The response body. A boxed body serves where there are several kinds.
    type Body: Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static;

    /// Handles one request.
    fn call(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl<F, R, B> Service for F
where
    F: Fn(Request<RequestBody>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
{
    type Body = B;

    fn call(&self, request: Request<RequestBody>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

/// Counts a request as open until it is dropped.
pub(crate) type Open = OpenRequest<connection::Inner>;

/// The body of a response; the request counts as open until it is dropped.
pub(crate) struct ResponseBody<B> {
    kind: Kind<B>,
    /// Data that the inner body has yielded and this one has not.
    parts: Parts,
    _open: Open,
}

enum Kind<B> {
    Service(B),
    /// An error of the server itself.
    Status(Full<Bytes>),
    /// No body: the response to a HEAD request.
    Empty,
}

impl<B> ResponseBody<B> {
    fn new(kind: Kind<B>, open: Open) -> Self {
        Self { kind, parts: Parts::default(), _open: open }
    }
}

pub(crate) fn from_service<B>(response: Response<B>, open: Open) -> Response<ResponseBody<B>> {
    response.map(|body| ResponseBody::new(Kind::Service(body), open))
}

pub(crate) fn from_status<B>(status: &Status, open: Open) -> Response<ResponseBody<B>> {
    status.to_response().map(|body| ResponseBody::new(Kind::Status(Full::new(body)), open))
}

/// The response to a HEAD request: that of a GET without its body. hyper omits the body over HTTP/1.1 only, and HTTP/2
/// clients treat one as an error.
pub(crate) fn without_body<B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin>(
    response: Response<ResponseBody<B>>,
) -> Response<ResponseBody<B>> {
    let (mut head, mut body) = response.into_parts();
    // An empty body does not imply a length of 0: a 304 has the length of the omitted representation.
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    body.kind = Kind::Empty;
    Response::from_parts(head, body)
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        slow_reader::record_poll();
        if let Some(part) = this.parts.next() {
            slow_reader::record_data();
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let frame = match &mut this.kind {
            Kind::Service(body) => ready!(Pin::new(body).poll_frame(cx)).transpose().map_err(Into::into)?,
            Kind::Status(body) => ready!(Pin::new(body).poll_frame(cx)).map(|Ok(frame)| frame),
            Kind::Empty => None,
        };
        Poll::Ready(frame.map(|frame| {
            Ok(match frame.into_data() {
                Ok(bytes) => {
                    slow_reader::record_data();
                    Frame::data(this.parts.split(bytes))
                }
                Err(trailers) => trailers,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.remaining() == 0
            && match &self.kind {
                Kind::Service(body) => body.is_end_stream(),
                Kind::Status(body) => body.is_end_stream(),
                Kind::Empty => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match &self.kind {
            Kind::Service(body) => body.size_hint(),
            Kind::Status(body) => body.size_hint(),
            Kind::Empty => SizeHint::with_exact(0),
        };
        let remaining = self.parts.remaining();
        if remaining > 0 {
            let upper = hint.upper().map(|upper| upper.saturating_add(remaining));
            hint.set_lower(hint.lower().saturating_add(remaining));
            if let Some(upper) = upper {
                hint.set_upper(upper);
            }
        }
        hint
    }
}

impl<B> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        slow_reader::record_poll();
    }
}
