//! Answers: status, headers and a body that is bytes or a watch.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::Write as _;

use bytes::Bytes;
use fairlead_process::Status;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::watch::WatchBody;

/// The header that ties an answer to the server's log.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// From this size on an answer is compressed for who accepts it.
const COMPRESS_FROM: usize = 128 * 1024;

/// An answer.
pub type Response = http::Response<ResponseBody>;

/// The body of an answer.
pub enum ResponseBody {
    /// All of it.
    Full(Option<Bytes>),
    /// A stream of events.
    Watch(Box<WatchBody>),
    /// Whatever the host streams, for example what it forwards.
    Streamed(Pin<Box<dyn Body<Data = Bytes, Error = fairlead_process::BodyError> + Send>>),
}

impl ResponseBody {
    /// A body of bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = fairlead_process::BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(
                bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Watch(watch) => {
                watch.poll_chunk(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Streamed(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Watch(_) => false,
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Watch(_) => SizeHint::default(),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}

/// An answer of JSON or YAML.
pub fn content(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(ResponseBody::full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A failure.
pub fn failure(status: &Status) -> Response {
    status.to_response().map(ResponseBody::full)
}

/// Plain text, as Go's HTTP library answers for paths nobody knows.
pub fn unknown_path() -> Response {
    let mut response = content(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n");
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Adds what every answer carries, and compresses large ones. `audit_id` is the request's.
pub(crate) fn finish(mut response: Response, request: &Finishing, warnings: &[String]) -> Response {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&request.audit_id) {
        headers.insert(AUDIT_ID, value);
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    for warning in warnings {
        // RFC 9111 5.5: code, agent, quoted text.
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append("warning", value);
        }
    }
    if request.gzip
        && let ResponseBody::Full(Some(bytes)) = response.body()
        && bytes.len() >= COMPRESS_FROM
        && let Ok(compressed) = gzip(bytes)
    {
        *response.body_mut() = ResponseBody::full(compressed);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// What [`finish`] needs of the request, which is gone by then.
pub(crate) struct Finishing {
    audit_id: String,
    gzip: bool,
}

impl Finishing {
    /// Takes the client's audit id, or makes one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given =
            headers.get(AUDIT_ID).and_then(|value| value.to_str().ok()).filter(|text| text.len() <= 64);
        let audit_id = given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
        let accepts = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self { audit_id, gzip: accepts.split(',').any(|coding| coding.trim().starts_with("gzip")) }
    }
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}
