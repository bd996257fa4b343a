//! HTTP/2 (RFC 9113) with any number of concurrent streams.
//!
//! Request headers are encoded once (RFC 7541): the first request of a connection adds them to the peer's dynamic table, later
//! ones take a byte per field. Response headers are not decoded: one byte shows whether `:status` is 200.

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{RequestSpec, ResponseEvent, write};
use crate::error::BenchError;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// Size of a read: a TLS record.
const READ: usize = 16 << 10;
const DEFAULT_WINDOW: u32 = 65_535;
/// The largest window.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// Number of received bytes after which windows are opened again.
const REPLENISH: u32 = 1 << 29;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const ENABLE_PUSH: u8 = 2;
const INITIAL_WINDOW_SIZE: u8 = 4;

/// `:status: 200` in the static table.
const STATUS_200: u8 = 0x88;
// Names in the static table.
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;
const ACCEPT: u8 = 19;
const AUTHORIZATION: u8 = 23;
const USER_AGENT: u8 = 58;

/// The receive window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    /// The largest possible window.
    Wide,
    /// This many bytes per stream; read bytes open it again.
    Bytes(u32),
}

/// A connection.
pub(crate) struct Http2 {
    stream: TlsStream<TcpStream>,
    first_headers: Vec<u8>,
    headers: Vec<u8>,
    window: Window,
    next_stream: u32,
    /// Bytes of bodies since the last update of the connection's window.
    consumed: u32,
    outgoing: Vec<u8>,
    incoming: BytesMut,
    is_leaving: bool,
}

impl Http2 {
    pub(crate) async fn new(
        stream: TlsStream<TcpStream>,
        request: &RequestSpec,
        window: Window,
    ) -> Result<Self, BenchError> {
        if stream.get_ref().1.alpn_protocol() != Some(crate::tls::H2) {
            return Err(BenchError::unexpected("the server does not speak HTTP/2"));
        }
        let (first_headers, headers) = encode(request);
        let mut outgoing = PREFACE.to_vec();
        let stream_window = match window {
            Window::Wide => MAX_WINDOW,
            Window::Bytes(bytes) => bytes,
        };
        let mut settings = vec![0, ENABLE_PUSH, 0, 0, 0, 0, 0, INITIAL_WINDOW_SIZE];
        settings.extend_from_slice(&stream_window.to_be_bytes());
        frame(&mut outgoing, SETTINGS, 0, 0, &settings);
        frame(&mut outgoing, WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - DEFAULT_WINDOW).to_be_bytes());
        Ok(Self {
            stream,
            first_headers,
            headers,
            window,
            next_stream: 1,
            consumed: 0,
            outgoing,
            incoming: BytesMut::new(),
            is_leaving: false,
        })
    }

    pub(crate) fn send(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let headers = if stream == 1 { &self.first_headers } else { &self.headers };
        frame(&mut self.outgoing, HEADERS, END_STREAM | END_HEADERS, stream, headers);
        stream
    }

    pub(crate) async fn flush(&mut self) -> Result<(), BenchError> {
        write(&mut self.stream, &mut self.outgoing).await
    }

    pub(crate) async fn receive(&mut self, events: &mut Vec<ResponseEvent>) -> Result<(), BenchError> {
        self.incoming.reserve(READ);
        let read = self.stream.read_buf(&mut self.incoming).await.map_err(BenchError::system("receiving"))?;
        if read == 0 {
            return Err(BenchError::unexpected("the server has closed the connection"));
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        while let Some(length) = frame_length(&incoming) {
            self.take(&incoming[..length], events)?;
            incoming.advance(length);
        }
        self.incoming = incoming;
        Ok(())
    }

    fn take(&mut self, frame: &[u8], events: &mut Vec<ResponseEvent>) -> Result<(), BenchError> {
        let (kind, flags) = (frame[3], frame[4]);
        let stream = u32::from_be_bytes([frame[5] & 0x7f, frame[6], frame[7], frame[8]]);
        let payload = &frame[FRAME_HEADER..];
        let ends = flags & END_STREAM != 0;
        match kind {
            DATA => {
                let length = payload.len();
                if length > 0 {
                    events.push(ResponseEvent::Data { stream, length });
                    self.allow_more(stream, length as u32);
                }
                if ends {
                    events.push(ResponseEvent::End { stream });
                }
            }
            HEADERS => {
                // A block may begin with an update of the table size.
                let first = payload.iter().find(|byte| !(0x20..0x40).contains(*byte));
                events.push(ResponseEvent::Head { stream, is_success: first == Some(&STATUS_200) });
                if ends {
                    events.push(ResponseEvent::End { stream });
                }
            }
            RST_STREAM => events.push(ResponseEvent::Reset { stream }),
            SETTINGS if flags & ACK == 0 => self.queue(SETTINGS, ACK, &[]),
            PING if flags & ACK == 0 => self.queue(PING, ACK, payload),
            GOAWAY => self.is_leaving = true,
            _ => {}
        }
        if self.is_leaving && payload.get(4..8).is_some_and(|code| kind == GOAWAY && code != [0; 4]) {
            return Err(BenchError::unexpected("the server has rejected the connection"));
        }
        Ok(())
    }

    fn allow_more(&mut self, stream: u32, length: u32) {
        self.consumed += length;
        if self.consumed > REPLENISH {
            let consumed = std::mem::take(&mut self.consumed);
            self.queue(WINDOW_UPDATE, 0, &consumed.to_be_bytes());
        }
        if let Window::Bytes(_) = self.window {
            frame(&mut self.outgoing, WINDOW_UPDATE, 0, stream, &length.to_be_bytes());
        }
    }

    fn queue(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        frame(&mut self.outgoing, kind, flags, 0, payload);
    }
}

/// The length of the next frame, if all of it is there.
fn frame_length(incoming: &[u8]) -> Option<usize> {
    let header = incoming.get(..FRAME_HEADER)?;
    let payload = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
    (incoming.len() >= FRAME_HEADER + payload).then_some(FRAME_HEADER + payload)
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = payload.len() as u32;
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The header blocks of the first and of later requests.
fn encode(request: &RequestSpec) -> (Vec<u8>, Vec<u8>) {
    // `:method: GET` and `:scheme: https` are entries of the static table. Of the other fields it has the names.
    const WHOLE: [u8; 2] = [0x82, 0x87];
    let token = request.token.as_ref().map(|token| (AUTHORIZATION, format!("Bearer {token}")));
    let named = [
        (PATH, request.path.clone()),
        (AUTHORITY, "localhost".to_owned()),
        (USER_AGENT, "bench".to_owned()),
        (ACCEPT, "*/*".to_owned()),
    ];
    let named: Vec<_> = named.into_iter().chain(token).collect();
    let (mut first, mut later) = (WHOLE.to_vec(), WHOLE.to_vec());
    for (position, (name, value)) in named.iter().enumerate() {
        first.push(0x40 | name);
        integer(&mut first, value.len(), 7);
        first.extend_from_slice(value.as_bytes());
        // The newest entry of the dynamic table has the index 62.
        integer_with(&mut later, 0x80, 62 + named.len() - 1 - position, 7);
    }
    (first, later)
}

fn integer(out: &mut Vec<u8>, value: usize, bits: u8) {
    integer_with(out, 0, value, bits);
}

/// An integer with a prefix of `bits` bits (RFC 7541, 5.1).
fn integer_with(out: &mut Vec<u8>, flags: u8, value: usize, bits: u8) {
    let most = (1_usize << bits) - 1;
    if value < most {
        return out.push(flags | value as u8);
    }
    out.push(flags | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push(rest as u8 & 0x7f | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        for (value, bits, expected) in [(10, 5, vec![10]), (1337, 5, vec![31, 154, 10]), (42, 8, vec![42])] {
            let mut out = Vec::new();
            integer(&mut out, value, bits);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn later_requests_are_a_byte_per_header() {
        let request = RequestSpec { path: "/a".to_owned(), token: Some("t".to_owned()) };
        let (first, later) = encode(&request);
        assert_eq!(&first[..5], [0x82, 0x87, 0x44, 2, b'/']);
        assert_eq!(later, [0x82, 0x87, 0x80 | 66, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]);
    }
}
