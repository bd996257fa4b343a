//! Responses: status, headers and a body that is bytes or a watch.

mod audit_id;

use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fairlead_process::Status;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, VARY, WARNING, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;
use sha2::{Digest as _, Sha512};

use crate::request::{Form, Query, ResponseFormat};

use crate::gzip::gzip;
use crate::list::ListBody;
use crate::watch::WatchBody;

/// The header that identifies a request in the server's log.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Size from which a response is compressed if the client accepts gzip.
const MIN_GZIP_BYTES: usize = 128 * 1024;

/// Size from which a response is compressed on a blocking thread.
const MIN_BLOCKING_GZIP_BYTES: usize = 1024 * 1024;

/// A response.
pub type Response = http::Response<ResponseBody>;

/// The body of a response.
pub enum ResponseBody {
    /// The whole body.
    Full(Option<Bytes>),
    /// A list that is sent in pieces.
    List(Box<ListBody>),
    /// A watch.
    Watch(Box<WatchBody>),
    /// A stream of the host, for example a forwarded response.
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
            Self::List(list) => list.poll_piece(context).map(|piece| {
                // The response has begun, so the error can only break off the stream.
                piece.map(|piece| piece.map(Frame::data).map_err(|status| status.message.into()))
            }),
            Self::Watch(watch) => {
                watch.poll_chunk(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Streamed(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::List(_) | Self::Watch(_) => false,
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::List(_) | Self::Watch(_) => SizeHint::default(),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}

/// A response with this content.
pub fn content(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(ResponseBody::full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with the JSON in the accepted encoding, terminated by a newline.
///
/// # Errors
/// 500 when it is no JSON.
pub(crate) fn encoded(
    accepted: ResponseFormat,
    code: StatusCode,
    json: impl Into<Bytes>,
) -> Result<Response, Status> {
    let json: Bytes = json.into();
    let bytes = match (accepted.is_yaml, accepted.is_pretty) {
        (false, false) => json,
        (true, _) => {
            let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
            serde_saphyr::to_string(&value).map_err(Status::internal)?.into()
        }
        (false, true) => {
            let value: Value = serde_json::from_slice(&json).map_err(Status::internal)?;
            serde_json::to_vec_pretty(&value).map_err(Status::internal)?.into()
        }
    };
    let terminated = if bytes.ends_with(b"\n") {
        bytes
    } else {
        // The bytes are rarely shared, so this normally appends without a copy.
        let mut bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
        bytes.extend_from_slice(b"\n");
        bytes.freeze()
    };
    Ok(content(code, accepted.content_type(), terminated))
}

/// Adds the ETag; 304 if the client has the document.
pub(crate) fn tagged(request: &HeaderMap, hash: &str, mut full: Response) -> Response {
    if is_known(request, hash) {
        *full.status_mut() = StatusCode::NOT_MODIFIED;
        *full.body_mut() = ResponseBody::Full(None);
        full.headers_mut().remove(CONTENT_TYPE);
    }
    let headers = full.headers_mut();
    // The form of the document depends on Accept.
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    // Hex digits are always a valid value.
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        headers.insert(ETAG, tag);
    }
    full
}

/// Whether If-None-Match contains the hash (RFC 9110 13.1.2, weak comparison).
fn is_known(request: &HeaderMap, hash: &str) -> bool {
    let tags = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|tags| tags.split(',')).map(str::trim).any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(hash)
    })
}

/// The upper-case hex of the SHA-512 of a document: its ETag, as in Kubernetes.
pub(crate) fn content_hash(bytes: &[u8]) -> Arc<str> {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect::<String>().into()
}

/// Encodes a failure as YAML or indented JSON if the client prefers that.
pub(crate) fn encode_failure(mut response: Response, headers: &HeaderMap, query: &Query<'_>) -> Response {
    if let Ok(accepted) = ResponseFormat::of(headers, query)
        && (accepted.is_pretty || accepted.is_yaml)
        && let ResponseBody::Full(Some(bytes)) = response.body()
        && let Ok(encoded) =
            encoded(ResponseFormat { form: Form::Object, ..accepted }, response.status(), bytes.clone())
    {
        let (parts, body) = encoded.into_parts();
        response.headers_mut().extend(parts.headers);
        *response.body_mut() = body;
    }
    response
}

/// The response for a failure.
pub fn failure(status: &Status) -> Response {
    status.to_response().map(ResponseBody::full)
}

/// The response for a request that the authorizer denies. The message contains text of the client, so browsers must not guess its
/// type.
pub(crate) fn denial(status: &Status) -> Response {
    let mut response = failure(status);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The plain-text 404 of Go's HTTP library for unknown paths.
pub fn unknown_path() -> Response {
    let mut response = content(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds the headers of every response, and compresses large bodies.
pub(crate) async fn finish(mut response: Response, request: &FinishContext, warnings: &[String]) -> Response {
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, request.audit_id.clone());
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    for warning in limited(warnings) {
        headers.extend(warning_header(warning).map(|value| (WARNING, value)));
    }
    if request.accepts_gzip
        && let ResponseBody::List(list) = response.body_mut()
    {
        list.compress();
        mark_compressed(response.headers_mut());
    }
    if request.accepts_gzip
        && let ResponseBody::Full(Some(bytes)) = response.body()
        && bytes.len() >= MIN_GZIP_BYTES
        && let Some(compressed) = compressed(bytes.clone()).await
    {
        *response.body_mut() = ResponseBody::full(compressed);
        mark_compressed(response.headers_mut());
    }
    response
}

fn mark_compressed(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Maximum number of characters of all warnings, and of each of them if all are longer than that. Clients refuse larger
/// headers.
const MAX_WARNINGS: usize = 4 << 10;
const MAX_TRUNCATED_WARNING: usize = 256;

/// The warnings without repetitions, cut and left out as in Kubernetes.
fn limited(warnings: &[String]) -> Vec<&str> {
    let mut distinct: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    distinct.extend(warnings.iter().map(String::as_str).filter(|warning| seen.insert(*warning)));
    let length = |text: &str| text.chars().count();
    if distinct.iter().map(|warning| length(warning)).sum::<usize>() <= MAX_WARNINGS {
        return distinct;
    }
    let mut written = 0;
    distinct.retain_mut(|warning| {
        if let Some((end, _)) = warning.char_indices().nth(MAX_TRUNCATED_WARNING) {
            *warning = &warning[..end];
        }
        let fits = written + length(warning) <= MAX_WARNINGS;
        written += if fits { length(warning) } else { 0 };
        fits
    });
    distinct
}

/// A Warning header (RFC 7234 5.5): code, agent, quoted text. Non-ASCII characters are sent as UTF-8.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let mut value = Vec::with_capacity(text.len() + 16);
    value.extend_from_slice(b"299 - \"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => value.extend([b'\\', byte]),
            byte if byte.is_ascii_control() => value.push(b' '),
            byte => value.push(byte),
        }
    }
    value.push(b'"');
    HeaderValue::from_bytes(&value).ok()
}

/// The parts of the request that [`finish`] needs.
pub(crate) struct FinishContext {
    audit_id: HeaderValue,
    accepts_gzip: bool,
}

impl FinishContext {
    /// The audit id as text.
    pub(crate) fn audit_id(&self) -> &str {
        self.audit_id.to_str().unwrap_or_default()
    }

    /// Takes the client's audit id, or generates one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(AUDIT_ID).filter(|value| value.len() <= 64).cloned();
        let audit_id = given.unwrap_or_else(audit_id::generate);
        let accepts = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self { audit_id, accepts_gzip: accepts.split(',').any(is_gzip) }
    }
}

/// Whether one coding of Accept-Encoding is gzip, and not refused by a weight of 0.
fn is_gzip(coding: &str) -> bool {
    let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
    let weight = weight.trim().strip_prefix("q=").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
    name.trim() == "gzip" && weight > 0.0
}

/// Compresses a body. This takes about 5 ms per MiB, so large bodies are compressed on a blocking thread.
async fn compressed(bytes: Bytes) -> Option<Vec<u8>> {
    if bytes.len() < MIN_BLOCKING_GZIP_BYTES {
        return gzip(&bytes);
    }
    tokio::task::spawn_blocking(move || gzip(&bytes)).await.ok()?
}
