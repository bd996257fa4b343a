//! A response in HTTP/1.1: its head, and the framing of its body.

use bytes::{BufMut, BytesMut};
use http::header::{self, HeaderMap, HeaderName};
use http::response::Parts;
use http::{Method, StatusCode, Version};

use crate::request::is_hop_by_hop;

/// The framing of a response body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ResponseFraming {
    /// There is no body, or it must not be sent.
    Bodiless,
    /// Number of remaining bytes.
    Length(u64),
    Chunked,
    /// Until the connection is closed, for HTTP/1.0 clients.
    UntilClose,
}

/// The request that a response belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseContext<'r> {
    pub(super) method: &'r Method,
    pub(super) version: Version,
    /// True if the connection is kept afterwards, provided that the response allows it.
    pub(super) keep_alive: bool,
}

/// Writes the head of a final response. Returns the framing of its body, and whether the connection is kept.
pub(super) fn write_head(
    output: &mut BytesMut,
    head: &Parts,
    context: ResponseContext<'_>,
    ended: bool,
) -> (ResponseFraming, bool) {
    let length =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let has_no_body = head.status.is_informational() || head.status == StatusCode::NO_CONTENT;
    let framing = if has_no_body || *context.method == Method::HEAD || head.status == StatusCode::NOT_MODIFIED
    {
        ResponseFraming::Bodiless
    } else if let Some(length) = length {
        ResponseFraming::Length(length)
    } else if ended {
        ResponseFraming::Length(0)
    } else if context.version == Version::HTTP_11 {
        ResponseFraming::Chunked
    } else {
        ResponseFraming::UntilClose
    };
    let keep = context.keep_alive && framing != ResponseFraming::UntilClose;

    output.reserve(64 + head.headers.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum::<usize>());
    write_status_line(output, head.status);
    for (name, value) in &head.headers {
        let kept = if *name == header::CONTENT_LENGTH { !has_no_body } else { !is_hop_by_hop(name) };
        if kept {
            write_field(output, name, value.as_bytes());
        }
    }
    match framing {
        ResponseFraming::Length(0) if length.is_none() => output.put_slice(b"content-length: 0\r\n"),
        ResponseFraming::Chunked => output.put_slice(b"transfer-encoding: chunked\r\n"),
        _ => {}
    }
    if !keep {
        output.put_slice(b"connection: close\r\n");
    } else if context.version == Version::HTTP_10 {
        output.put_slice(b"connection: keep-alive\r\n");
    }
    output.put_slice(b"\r\n");
    (framing, keep)
}

/// Writes the head of an interim response, or of a 101: all fields are for this hop.
pub(super) fn write_whole_head(output: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
    write_status_line(output, status);
    for (name, value) in headers {
        write_field(output, name, value.as_bytes());
    }
    output.put_slice(b"\r\n");
}

fn write_status_line(output: &mut BytesMut, status: StatusCode) {
    output.put_slice(b"HTTP/1.1 ");
    output.put_slice(status.as_str().as_bytes());
    output.put_u8(b' ');
    output.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    output.put_slice(b"\r\n");
}

fn write_field(output: &mut BytesMut, name: &HeaderName, value: &[u8]) {
    output.put_slice(name.as_str().as_bytes());
    output.put_slice(b": ");
    output.put_slice(value);
    output.put_slice(b"\r\n");
}

impl ResponseFraming {
    /// Writes a part of the body. False if the body is longer than its Content-Length.
    pub(super) fn write(&mut self, output: &mut BytesMut, part: &[u8]) -> bool {
        match self {
            _ if part.is_empty() => {}
            Self::Bodiless => {}
            Self::UntilClose => output.put_slice(part),
            Self::Length(left) => match left.checked_sub(part.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    output.put_slice(part);
                }
                None => return false,
            },
            Self::Chunked => {
                output.reserve(part.len() + 24);
                write_size(output, part.len());
                output.put_slice(part);
                output.put_slice(b"\r\n");
            }
        }
        true
    }

    /// Writes the end of the body. False if it is shorter than its Content-Length.
    pub(super) fn end(self, output: &mut BytesMut, trailers: Option<&HeaderMap>) -> bool {
        match self {
            Self::Bodiless | Self::UntilClose | Self::Length(0) => true,
            Self::Length(_) => false,
            Self::Chunked => {
                output.put_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    write_field(output, name, value.as_bytes());
                }
                output.put_slice(b"\r\n");
                true
            }
        }
    }
}

fn write_size(output: &mut BytesMut, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        output.put_u8(b"0123456789abcdef"[size >> (digit * 4) & 15]);
    }
    output.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http::Response;

    use super::*;

    fn written(
        status: u16,
        fields: &[(&'static str, &str)],
        context: ResponseContext<'_>,
        parts: &[&str],
    ) -> String {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            head.headers.append(*name, value.parse().unwrap());
        }
        let mut output = BytesMut::new();
        let (mut framing, _) = write_head(&mut output, &head, context, parts.is_empty());
        for part in parts {
            assert!(framing.write(&mut output, part.as_bytes()));
        }
        assert!(framing.end(&mut output, None));
        String::from_utf8(output.to_vec()).unwrap()
    }

    #[test]
    fn bodies_are_framed_for_the_client() {
        let get = ResponseContext { method: &Method::GET, version: Version::HTTP_11, keep_alive: true };
        let old = ResponseContext { version: Version::HTTP_10, ..get };
        let head = ResponseContext { method: &Method::HEAD, ..get };
        for (status, fields, context, parts, expected) in [
            (200, &[][..], get, &[][..], "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            (
                200,
                &[("content-length", "3")],
                get,
                &["abc"],
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            ),
            (
                200,
                &[("keep-alive", "x"), ("a", "b")],
                get,
                &["abc", "0123456789abcdef"],
                "HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
            ),
            (200, &[], old, &["abc"], "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"),
            (
                200,
                &[("content-length", "1")],
                old,
                &["a"],
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive\r\n\r\na",
            ),
            (200, &[("content-length", "9")], head, &[], "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
            (204, &[("content-length", "0")], get, &[], "HTTP/1.1 204 No Content\r\n\r\n"),
            (304, &[], get, &[], "HTTP/1.1 304 Not Modified\r\n\r\n"),
        ] {
            assert_eq!(written(status, fields, context, parts), expected);
        }
    }

    #[test]
    fn a_body_must_match_its_content_length() {
        let mut output = BytesMut::new();
        assert!(!ResponseFraming::Length(2).write(&mut output, b"abc"));
        assert!(!ResponseFraming::Length(2).end(&mut output, None));
    }
}
