//! Field sections of HTTP/1.1 (header fields and trailers): finds their end and validates them.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use memchr::memchr_iter;

/// A request that cannot be served. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum HeadError {
    /// The request is malformed: 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// The headers are too large: 431.
    #[error("the request headers are too large")]
    TooLarge,
}

use HeadError::Malformed;

/// Offset of the first byte after the head at the beginning of `input`; `None` if it is incomplete. `seen` bytes were searched
/// before.
///
/// # Errors
/// A line ends without CR LF.
pub(super) fn end(input: &[u8], seen: usize) -> Result<Option<usize>, HeadError> {
    for at in memchr_iter(b'\n', &input[seen..]).map(|at| seen + at) {
        if at == 0 || input[at - 1] != b'\r' {
            return Err(Malformed("a line does not end with CR LF"));
        }
        if at >= 3 && input[at - 2] == b'\n' {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

/// The fields as a map; `text` holds their bytes.
pub(super) fn headers(text: &Bytes, fields: &[httparse::Header<'_>]) -> Result<HeaderMap, HeadError> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| Malformed("a header name is not a token"))?;
        let value = HeaderValue::from_maybe_shared(text.slice_ref(field.value))
            .map_err(|_| Malformed("a header value has control characters"))?;
        headers.append(name, value);
    }
    Ok(headers)
}
