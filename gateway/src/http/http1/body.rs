//! The body of an HTTP/1.1 request: framing by Content-Length or chunks, and trailers (RFC 9112, 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use http::header::{self, HeaderMap};
use memchr::memchr;

use crate::http::http1::fields::{self, HeadError, headers};

/// Longest chunk-size line, with extensions, in bytes.
const MAX_SIZE_LINE: usize = 256;
/// All trailers together, in bytes.
const MAX_TRAILER_BYTES: usize = 8 << 10;
const MAX_TRAILERS: usize = 32;
/// Largest part of a body that is returned at once, in bytes.
const MAX_PART: usize = 64 << 10;

/// The framing of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyFraming {
    None,
    Length(u64),
    Chunked,
}

impl BodyFraming {
    /// Reads the framing from the headers (RFC 9112, 6.1 and 6.3).
    ///
    /// # Errors
    /// The headers contradict each other, or name an unknown transfer coding.
    pub(super) fn of(headers: &HeaderMap, version: Version) -> Result<Self, HeadError> {
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
        match (codings.next(), lengths.next()) {
            (None, None) => Ok(Self::None),
            (Some(_), Some(_)) => {
                Err(HeadError::Malformed("the request has both a content length and a transfer encoding"))
            }
            (Some(coding), None) => {
                let chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
                if !chunked || codings.next().is_some() || version != Version::HTTP_11 {
                    return Err(HeadError::Malformed("the transfer encoding is not understood"));
                }
                Ok(Self::Chunked)
            }
            (None, Some(length)) => {
                if lengths.next().is_some() {
                    return Err(HeadError::Malformed("the request has several content lengths"));
                }
                number(length.as_bytes(), 10)
                    .map(|length| if length == 0 { Self::None } else { Self::Length(length) })
                    .ok_or(HeadError::Malformed("the content length is not a number"))
            }
        }
    }
}

/// Parses a number of digits only: no sign, no spaces.
fn number(text: &[u8], radix: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        sum.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

/// A body that is being received.
#[derive(Debug)]
pub(super) struct Body {
    state: State,
    trailers: Option<HeaderMap>,
}

#[derive(Debug)]
enum State {
    Done,
    /// Number of remaining bytes.
    Length(u64),
    /// A chunk-size line comes next.
    ChunkSize,
    /// Number of remaining bytes of the chunk.
    Chunk(u64),
    /// The line end after a chunk comes next.
    ChunkEnd,
    Trailers,
}

/// The result of an attempt to take a part of the body.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Progress {
    Part(Bytes),
    /// More has to be read from the connection.
    NeedMore,
    End,
}

/// The reason of a framing error; nothing after it on the connection can be parsed.
pub(super) type FramingError = &'static str;

impl Body {
    pub(super) fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::None => State::Done,
            BodyFraming::Length(length) => State::Length(length),
            BodyFraming::Chunked => State::ChunkSize,
        };
        Self { state, trailers: None }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Takes the next part out of the bytes that were read.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Progress, FramingError> {
        loop {
            match &mut self.state {
                State::Done => return Ok(Progress::End),
                State::Length(left) => {
                    let Some(part) = part(input, left) else { return Ok(Progress::NeedMore) };
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    return Ok(Progress::Part(part));
                }
                State::Chunk(left) => {
                    let Some(part) = part(input, left) else { return Ok(Progress::NeedMore) };
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                    return Ok(Progress::Part(part));
                }
                State::ChunkEnd => {
                    if input.len() < 2 {
                        return Ok(Progress::NeedMore);
                    }
                    if !input.starts_with(b"\r\n") {
                        return Err("a chunk does not end with CR LF");
                    }
                    input.advance(2);
                    self.state = State::ChunkSize;
                }
                State::ChunkSize => match chunk_size(input)? {
                    None => return Ok(Progress::NeedMore),
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Chunk(size),
                },
                State::Trailers => match trailers(input)? {
                    None => return Ok(Progress::NeedMore),
                    Some(trailers) => {
                        self.trailers = (!trailers.is_empty()).then_some(trailers);
                        self.state = State::Done;
                    }
                },
            }
        }
    }
}

fn part(input: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    if input.is_empty() {
        return None;
    }
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len()).min(MAX_PART);
    *left -= size as u64;
    Some(input.split_to(size).freeze())
}

/// Takes the next chunk-size line and returns the size; `None` if the line is incomplete.
fn chunk_size(input: &mut BytesMut) -> Result<Option<u64>, FramingError> {
    let Some(end) = memchr(b'\n', &input[..input.len().min(MAX_SIZE_LINE)]) else {
        return if input.len() < MAX_SIZE_LINE { Ok(None) } else { Err("a chunk has no size") };
    };
    let line = input[..end].strip_suffix(b"\r").ok_or("the size of a chunk does not end with CR LF")?;
    let (size, extension) = line.split_at(memchr(b';', line).unwrap_or(line.len()));
    if extension.iter().any(|byte| (byte.is_ascii_control() && *byte != b'\t') || *byte == b'\r') {
        return Err("the extension of a chunk has control characters");
    }
    let size = if extension.is_empty() { size } else { size.trim_ascii_end() };
    let size = number(size, 16).ok_or("the size of a chunk is not a number")?;
    input.advance(end + 1);
    Ok(Some(size))
}

/// Takes the trailers; `None` if they are incomplete.
fn trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, FramingError> {
    if input.starts_with(b"\r\n") {
        input.advance(2);
        return Ok(Some(HeaderMap::new()));
    }
    let end = fields::end(input, 0).map_err(|_| "a trailer does not end with CR LF")?;
    // Checked also when the end is known: one read may bring more than the limit together with the end.
    if end.unwrap_or(input.len()) > MAX_TRAILER_BYTES {
        return Err("the trailers are too long");
    }
    let Some(end) = end else { return Ok(None) };
    let text = input.split_to(end).freeze();
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    match httparse::parse_headers(&text, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => {
            headers(&text, fields).map(Some).map_err(|_| "a trailer is malformed")
        }
        _ => Err("the trailers are malformed"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A whole body, its trailers, and the bytes after it.
    type Read = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// Reads a chunked body that arrives in pieces of `size` bytes.
    fn read(text: &[u8], size: usize) -> Result<Read, FramingError> {
        let mut body = Body::new(BodyFraming::Chunked);
        let (mut input, mut whole) = (BytesMut::new(), Vec::new());
        let mut pieces = text.chunks(size);
        loop {
            match body.take(&mut input)? {
                Progress::Part(part) => whole.extend_from_slice(&part),
                Progress::NeedMore => match pieces.next() {
                    Some(piece) => input.extend_from_slice(piece),
                    None => return Err("hungry"),
                },
                Progress::End => {
                    pieces.for_each(|piece| input.extend_from_slice(piece));
                    return Ok((whole, body.take_trailers(), input.to_vec()));
                }
            }
        }
    }

    #[test]
    fn chunks_are_put_together_however_they_arrive() {
        let text = b"3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\nChecksum: 1\r\nb: 2\r\n\r\nGET";
        for size in 1..=text.len() {
            let (whole, trailers, rest) = read(text, size).unwrap();
            assert_eq!((whole.as_slice(), rest.as_slice()), (&b"abc0123456789"[..], &b"GET"[..]), "{size}");
            let trailers = trailers.unwrap();
            assert_eq!((trailers.len(), trailers["checksum"].as_bytes()), (2, &b"1"[..]));
        }
        assert_eq!(read(b"0\r\n\r\n", 1).unwrap(), (Vec::new(), None, Vec::new()));
    }

    #[test]
    fn broken_chunks_are_refused() {
        for text in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"g\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b" 1\r\n",
            b"1 \r\na\r\n0\r\n\r\n",
            b"0x1\r\n",
            b"\r\n",
            b"11111111111111111\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"1;a\rb\r\nx\r\n",
            b"0\r\na b: c\r\n\r\n",
            b"0\r\na: b\n\r\n",
        ] {
            assert!(
                read(text, text.len()).is_err_and(|reason| reason != "hungry"),
                "{:?}",
                text.escape_ascii()
            );
        }
        assert!(read(&[b'1'; 300], 300).is_err_and(|reason| reason != "hungry"));
    }

    #[test]
    fn trailers_are_limited_however_they_arrive() {
        let trailers = |size: usize| format!("0\r\na: {}\r\n\r\n", "b".repeat(size));
        for text in [trailers(MAX_TRAILER_BYTES), trailers(2 * MAX_TRAILER_BYTES)] {
            for size in [text.len(), 1000] {
                assert_eq!(read(text.as_bytes(), size), Err("the trailers are too long"), "{size}");
            }
        }
        let text = trailers(MAX_TRAILER_BYTES - 100);
        assert!(read(text.as_bytes(), text.len()).is_ok());
    }

    #[test]
    fn a_length_is_kept_to() {
        let mut input = BytesMut::from(&b"abcdef"[..]);
        let mut body = Body::new(BodyFraming::Length(4));
        assert_eq!(body.take(&mut input), Ok(Progress::Part(Bytes::from_static(b"abcd"))));
        assert_eq!(body.take(&mut input), Ok(Progress::End));
        assert_eq!(input, "ef");
    }
}
