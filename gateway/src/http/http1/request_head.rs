//! The head of an HTTP/1.1 request: where it ends, its fields, and the framing of the body. Strict as RFC 9112: a head
//! that two servers could read differently is refused.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use percent_encoding::{AsciiSet, percent_encode};

use crate::http::http1::body::BodyFraming;
use crate::http::http1::fields::HeadError::{self, Malformed};
use crate::http::http1::fields::headers;

/// Maximum number of header fields, whatever the configured limit.
const MAX_FIELDS: usize = 512;

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) parts: Parts,
    pub(super) framing: BodyFraming,
    /// True if the client can send another request afterwards.
    pub(super) keep_alive: bool,
    /// True if the client waits for 100 before it sends the body.
    pub(super) expects_continue: bool,
}

/// Number of bytes of the empty lines before a request, which some clients send after a body (RFC 9112, 2.2).
pub(super) fn blank_lines(input: &[u8]) -> usize {
    input.chunks_exact(2).take_while(|line| *line == b"\r\n").count() * 2
}

/// Parses a complete head. It is copied once; the fields are slices of that copy.
///
/// # Errors
/// [`HeadError`], which is an error of the client.
pub(super) fn parse(input: &[u8]) -> Result<Head, HeadError> {
    let text = Bytes::copy_from_slice(input);
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(&text, &mut fields) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(Malformed("the head is not complete")),
        Err(error) => return Err(head_error(error)),
    }
    let version = match request.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes())
        .map_err(|_| Malformed("the method is not a token"))?;
    let headers = headers(&text, request.headers)?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.uri = target(&text, request.path.unwrap_or_default(), &method)?;
    parts.method = method;
    parts.version = version;
    let framing = BodyFraming::of(&headers, version)?;
    let keep_alive = match version {
        Version::HTTP_10 => has_option(&headers, "keep-alive"),
        _ => !has_option(&headers, "close"),
    };
    let expects = headers.get(header::EXPECT).is_some_and(|expect| {
        version == Version::HTTP_11 && expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    });
    parts.headers = headers;
    Ok(Head { parts, framing, keep_alive, expects_continue: expects && framing != BodyFraming::None })
}

fn head_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooLarge,
        httparse::Error::HeaderName => Malformed("a header name is not a token"),
        httparse::Error::HeaderValue => Malformed("a header value has control characters"),
        httparse::Error::Version => Malformed("the protocol is not HTTP/1.0 or HTTP/1.1"),
        httparse::Error::NewLine => Malformed("a line does not end with CR LF"),
        _ => Malformed("the request line is malformed"),
    }
}

/// Characters that the `http` crate refuses in a target and other servers accept: they are percent-encoded.
const ENCODED: &AsciiSet = &percent_encoding::CONTROLS.add(b'"').add(b'<').add(b'>').add(b'`');

fn target(text: &Bytes, raw: &str, method: &Method) -> Result<Uri, HeadError> {
    const MALFORMED_TARGET: HeadError = Malformed("the request target is malformed");
    if *method == Method::CONNECT {
        let authority = Authority::try_from(raw).map_err(|_| MALFORMED_TARGET)?;
        return Ok(Uri::from(authority));
    }
    if raw.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'#') {
        return Err(MALFORMED_TARGET);
    }
    if raw.starts_with('/') || raw == "*" {
        return Ok(Uri::from(path_and_query(text.slice_ref(raw.as_bytes()))?));
    }
    // Clients of a proxy send the absolute form, which every server must accept (RFC 9112, 3.2.2).
    let (scheme, rest) = raw.split_once("://").ok_or(MALFORMED_TARGET)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "https" => Scheme::HTTPS,
        "http" => Scheme::HTTP,
        _ => return Err(MALFORMED_TARGET),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match path {
        "" => PathAndQuery::from_static("/"),
        _ if path.starts_with('?') => path_and_query(format!("/{path}").into())?,
        _ => path_and_query(text.slice_ref(path.as_bytes()))?,
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(Authority::try_from(authority).map_err(|_| MALFORMED_TARGET)?);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| MALFORMED_TARGET)
}

fn path_and_query(raw: Bytes) -> Result<PathAndQuery, HeadError> {
    PathAndQuery::from_maybe_shared(raw.clone()).or_else(|_| {
        if std::str::from_utf8(&raw).is_err() {
            return Err(Malformed("malformed request path: not UTF-8"));
        }
        let encoded = percent_encode(&raw, ENCODED).to_string();
        PathAndQuery::try_from(encoded).map_err(|_| Malformed("the request target is malformed"))
    })
}

fn has_option(headers: &HeaderMap, option: &str) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|token| token.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::http::http1::fields::end;

    fn outcome(text: &str) -> String {
        match end(text.as_bytes(), 0) {
            Ok(Some(at)) if at == text.len() => {}
            Ok(_) => return "not whole".to_owned(),
            Err(error) => return error.to_string(),
        }
        match parse(text.as_bytes()) {
            Ok(head) => format!("{} {} {:?}", head.parts.method, head.parts.uri, head.framing),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn requests_are_read() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", "GET / None"),
            ("GET /a?b=c;d HTTP/1.0\r\nHost: a\r\n\r\n", "GET /a?b=c;d None"),
            ("GET /a?b=>c HTTP/1.1\r\n\r\n", "GET /a?b=%3Ec None"),
            ("GET /a<b>`c HTTP/1.1\r\n\r\n", "GET /a%3Cb%3E%60c None"),
            ("GET http://h:1/a?b HTTP/1.1\r\n\r\n", "GET http://h:1/a?b None"),
            ("GET https://h HTTP/1.1\r\n\r\n", "GET https://h/ None"),
            ("OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS * None"),
            ("POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n", "POST / Length(12)"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", "POST / Chunked"),
        ] {
            assert_eq!(outcome(text), expected, "{text:?}");
        }
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for text in [
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\r\nA: b\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.1\r\n: b\r\n\r\n",
            "GET /\x01 HTTP/1.1\r\n\r\n",
            "GET /a b HTTP/1.1\r\n\r\n",
            "GET /a#b HTTP/1.1\r\n\r\n",
            "GET a HTTP/1.1\r\n\r\n",
            "GET ftp://a/b HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.2\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET /\r\n\r\n",
            "G@T / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let parsed = end(text.as_bytes(), 0).and_then(|_| parse(text.as_bytes()));
            assert!(matches!(parsed, Err(Malformed(_))), "{text:?}: {parsed:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(parse(many.as_bytes()).map(|_| ()), Err(HeadError::TooLarge));
    }

    #[test]
    fn the_connection_is_kept_if_version_and_header_allow_it() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().keep_alive, expected, "{text:?}");
        }
    }

    #[test]
    fn a_head_is_found_however_it_arrives() {
        let text = b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest";
        for cut in 0..text.len() {
            let seen = end(&text[..cut], 0).unwrap();
            assert_eq!(seen, (cut >= 24).then_some(24), "{cut}");
            if seen.is_none() {
                assert_eq!(end(text, cut.saturating_sub(0)).unwrap(), Some(24), "{cut}");
            }
        }
        assert_eq!(blank_lines(b"\r\n\r\nGET"), 4);
    }
}
