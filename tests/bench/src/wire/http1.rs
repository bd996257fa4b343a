//! HTTP/1.1, one request at a time.

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{RequestSpec, ResponseEvent, write};
use crate::error::BenchError;

/// A connection with at most one open request.
pub(crate) struct Http1 {
    stream: TlsStream<TcpStream>,
    request: Vec<u8>,
    outgoing: Vec<u8>,
    incoming: BytesMut,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    Head,
    /// This many bytes of the body.
    Body(usize),
    /// The line before a chunk.
    ChunkSize,
    /// This many bytes of a chunk, and the end of its line.
    Chunk(usize),
    /// The empty line after the last chunk.
    LastLine,
}

impl Http1 {
    pub(crate) fn new(stream: TlsStream<TcpStream>, request: &RequestSpec) -> Self {
        let token = request.token.as_ref();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let path = &request.path;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n{token}\r\n"
        );
        Self {
            stream,
            request: request.into_bytes(),
            outgoing: Vec::new(),
            incoming: BytesMut::new(),
            expected: Expected::Head,
        }
    }

    pub(crate) fn send(&mut self) -> u32 {
        self.outgoing.extend_from_slice(&self.request);
        0
    }

    pub(crate) async fn flush(&mut self) -> Result<(), BenchError> {
        write(&mut self.stream, &mut self.outgoing).await
    }

    pub(crate) async fn receive(&mut self, events: &mut Vec<ResponseEvent>) -> Result<(), BenchError> {
        self.incoming.reserve(16 << 10);
        let read = self.stream.read_buf(&mut self.incoming).await.map_err(BenchError::system("receiving"))?;
        if read == 0 {
            return Err(BenchError::unexpected("the server has closed the connection"));
        }
        while self.step(events)? {}
        Ok(())
    }

    /// Reads one part of a response, if it is complete.
    fn step(&mut self, events: &mut Vec<ResponseEvent>) -> Result<bool, BenchError> {
        self.expected = match self.expected {
            Expected::Head => {
                let Some(end) = find(&self.incoming, b"\r\n\r\n") else { return Ok(false) };
                let head = String::from_utf8_lossy(&self.incoming[..end]).to_ascii_lowercase();
                self.incoming.advance(end + 4);
                events.push(ResponseEvent::Head { stream: 0, is_success: head.starts_with("http/1.1 200") });
                match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
                    Some(length) => {
                        let wrong = |_| BenchError::unexpected("a Content-Length is not a number");
                        Expected::Body(length.trim().parse().map_err(wrong)?)
                    }
                    None => Expected::ChunkSize,
                }
            }
            Expected::Body(0) => {
                events.push(ResponseEvent::End { stream: 0 });
                self.expected = Expected::Head;
                return Ok(false);
            }
            Expected::Body(left) => match self.take(left, events) {
                0 => return Ok(false),
                taken => Expected::Body(left - taken),
            },
            Expected::ChunkSize => {
                let Some(end) = find(&self.incoming, b"\r\n") else { return Ok(false) };
                let line = String::from_utf8_lossy(&self.incoming[..end]).into_owned();
                self.incoming.advance(end + 2);
                match usize::from_str_radix(line.trim(), 16) {
                    Ok(0) => Expected::LastLine,
                    Ok(length) => Expected::Chunk(length + 2),
                    Err(_) => return Err(BenchError::unexpected("a chunk has no length")),
                }
            }
            Expected::Chunk(0) => Expected::ChunkSize,
            Expected::Chunk(left) => match self.take(left, events) {
                0 => return Ok(false),
                taken => Expected::Chunk(left - taken),
            },
            Expected::LastLine => {
                if self.incoming.len() < 2 {
                    return Ok(false);
                }
                self.incoming.advance(2);
                Expected::Body(0)
            }
        };
        Ok(true)
    }

    fn take(&mut self, at_most: usize, events: &mut Vec<ResponseEvent>) -> usize {
        let length = self.incoming.len().min(at_most);
        self.incoming.advance(length);
        if length > 0 {
            events.push(ResponseEvent::Data { stream: 0, length });
        }
        length
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
