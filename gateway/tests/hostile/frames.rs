//! HTTP/2 as bytes: what is written frame by frame, and what comes back, judged by the rules of RFC 9113.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub const CANCEL: u32 = 8;

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields as literals without indexing: any byte may be in a name or a value.
pub fn block<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, 0, 7, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// A number of HPACK (RFC 7541, 5.1).
pub fn integer(block: &mut Vec<u8>, pattern: u8, bits: u8, value: usize) {
    let limit = (1_usize << bits) - 1;
    if value < limit {
        return block.push(pattern | value as u8);
    }
    block.push(pattern | limit as u8);
    let mut rest = value - limit;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// The head of a request, in one frame or several.
pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut pieces = block.chunks(16_384);
    let first = pieces.next().unwrap_or_default();
    let rest: Vec<&[u8]> = pieces.collect();
    let end = |last: bool| if last { END_HEADERS } else { 0 };
    let mut bytes = frame(HEADERS, flags | end(rest.is_empty()), stream, first);
    for (number, piece) in rest.iter().enumerate() {
        bytes.extend(frame(CONTINUATION, end(number + 1 == rest.len()), stream, piece));
    }
    bytes
}

/// The head of an ordinary request.
pub fn request_block(method: &[u8], path: &[u8]) -> Vec<u8> {
    block([
        (&b":method"[..], method),
        (b":scheme", b"https"),
        (b":authority", b"localhost"),
        (b":path", path),
    ])
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// An answer, from its head to its end.
    Answered(u16),
    /// The server has reset it.
    Reset(u32),
    /// The connection has ended first.
    Gone,
}

#[derive(Debug, Default)]
struct Stream {
    code: Option<u16>,
    end: Option<End>,
}

/// A frame that has come.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection of which one side is ours to abuse.
pub struct RawHttp2 {
    socket: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    pub goaway: Option<u32>,
    pub ended: bool,
    pub next_stream: u32,
    pings: u64,
    pongs: u64,
}

/// A violation of the protocol by the server.
pub type Fault = String;

impl RawHttp2 {
    /// Says hello, with windows that hold everything and no table for compression.
    pub async fn over(socket: TlsStream<TcpStream>) -> Self {
        let setting = |name: u16, value: u32| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let settings = [setting(1, 0), setting(4, (1 << 31) - 1)].concat();
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(frame(SETTINGS, 0, 0, &settings));
        hello.extend(frame(WINDOW_UPDATE, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes()));
        let mut this = Self {
            socket,
            buffer: Vec::new(),
            streams: BTreeMap::new(),
            goaway: None,
            ended: false,
            next_stream: 1,
            pings: 0,
            pongs: 0,
        };
        this.write(&hello).await;
        this
    }

    pub fn is_usable(&self) -> bool {
        !self.ended && self.goaway.is_none() && self.next_stream < 1 << 20
    }

    /// A stream that an answer may come on.
    pub fn open(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.streams.insert(stream, Stream::default());
        stream
    }

    /// Writes bytes; a server that has gone away is noticed when reading.
    pub async fn write(&mut self, bytes: &[u8]) {
        let written = async {
            self.socket.write_all(bytes).await?;
            self.socket.flush().await
        };
        if written.await.is_err() && !self.ended {
            // Frames that the server sent before it closed the connection.
            while let Some(frame) = self.next().await {
                if self.judge(&frame).is_err() {
                    return;
                }
            }
        }
    }

    /// Takes frames until these streams have ended and the server has answered a ping that was sent after everything
    /// else, or until the connection ends.
    pub async fn settle(&mut self, streams: &[u32]) -> Result<Vec<End>, Fault> {
        self.pings += 1;
        let ping = frame(PING, 0, 0, &self.pings.to_be_bytes());
        self.write(&ping).await;
        let open = |this: &Self| streams.iter().any(|stream| this.streams[stream].end.is_none());
        while self.pongs < self.pings || open(self) {
            let Some(frame) = self.next().await else { break };
            self.judge(&frame)?;
            if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                self.write(&frame_of_settings_ack()).await;
            } else if frame.kind == PING && frame.flags & ACK == 0 {
                let pong = self::frame(PING, ACK, 0, &frame.payload);
                self.write(&pong).await;
            }
        }
        let ends = streams.iter().map(|stream| self.streams[stream].end.unwrap_or(End::Gone)).collect();
        // Late frames of a stream that has ended are checked for a while.
        while self.streams.len() > 256 {
            self.streams.pop_first();
        }
        Ok(ends)
    }

    /// The end of a stream, if it has ended.
    pub fn end_of(&self, stream: u32) -> Option<End> {
        self.streams.get(&stream).and_then(|stream| stream.end)
    }

    /// The next frame as it is; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let mut piece = [0; 16 << 10];
            match self.socket.read(&mut piece).await {
                Ok(count @ 1..) => self.buffer.extend_from_slice(&piece[..count]),
                Ok(0) | Err(_) => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.buffer.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if self.buffer.len() < 9 + length {
            return None;
        }
        let payload = self.buffer[9..9 + length].to_vec();
        self.buffer.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    fn judge(&mut self, frame: &Frame) -> Result<(), Fault> {
        let fault = |what: &str| Err(format!("{what}: {frame:?}"));
        if frame.payload.len() > 16_384 {
            return fault("a frame that is too large");
        }
        match frame.kind {
            HEADERS | DATA | RST_STREAM if frame.stream == 0 || frame.stream.is_multiple_of(2) => {
                fault("no stream of ours")
            }
            HEADERS => {
                let Some(stream) = self.streams.get_mut(&frame.stream) else { return Ok(()) };
                if stream.end.is_some() {
                    return fault("a head after the end");
                }
                if frame.flags & END_HEADERS == 0 {
                    return fault("an answer with more head than a frame holds");
                }
                if stream.code.is_none() {
                    let code = status(&frame.payload)
                        .ok_or_else(|| format!("a head without a status: {frame:?}"))?;
                    if code >= 200 {
                        stream.code = Some(code);
                    }
                } else if frame.flags & END_STREAM == 0 {
                    return fault("trailers that do not end the stream");
                }
                self.end_if(frame)
            }
            DATA => match self.streams.get(&frame.stream) {
                Some(stream) if stream.end.is_some() => fault("data after the end"),
                Some(stream) if stream.code.is_none() => fault("data before the head"),
                Some(_) => self.end_if(frame),
                None => Ok(()),
            },
            RST_STREAM => {
                let code =
                    u32::from_be_bytes(frame.payload.clone().try_into().map_err(|_| "a reset of odd size")?);
                if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.end = stream.end.or(Some(End::Reset(code)));
                }
                Ok(())
            }
            PUSH_PROMISE => fault("a push"),
            CONTINUATION => fault("a continuation of nothing"),
            GOAWAY => {
                let code = frame.payload.get(4..8).ok_or("a GOAWAY that is too short")?;
                self.goaway = Some(u32::from_be_bytes(code.try_into().unwrap()));
                Ok(())
            }
            PING if frame.flags & ACK != 0 => {
                self.pongs =
                    u64::from_be_bytes(frame.payload.clone().try_into().map_err(|_| "a ping of odd size")?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end_if(&mut self, frame: &Frame) -> Result<(), Fault> {
        if frame.flags & END_STREAM == 0 {
            return Ok(());
        }
        let stream = self.streams.get_mut(&frame.stream).ok_or("no such stream")?;
        let code = stream.code.ok_or_else(|| format!("an end without an answer: {frame:?}"))?;
        stream.end = Some(End::Answered(code));
        Ok(())
    }
}

fn frame_of_settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// The `:status` that a head begins with. There is no table, so it is one of few forms.
fn status(block: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let block = match block.first()? {
        // The table has no room: said once.
        0x20..0x40 => &block[1..],
        _ => block,
    };
    match *block.first()? {
        index @ 0x88..=0x8e => Some(INDEXED[usize::from(index - 0x88)]),
        0x48 | 0x08 | 0x18 => {
            let length = *block.get(1)?;
            let text = block.get(2..2 + usize::from(length & 127))?;
            let digits = if length & 128 == 0 { text.to_vec() } else { digits(text)? };
            std::str::from_utf8(&digits).ok()?.parse().ok().filter(|code| (100..600).contains(code))
        }
        _ => None,
    }
}

/// Three digits in Huffman's code (RFC 7541, appendix B): five bits for 0 to 2, six for the others.
fn digits(text: &[u8]) -> Option<Vec<u8>> {
    let bits: Vec<u8> = text.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    let (mut at, mut digits) = (0, Vec::new());
    while digits.len() < 3 {
        match number(bits.get(at..at + 5)?) {
            digit @ 0..=2 => {
                digits.push(b'0' + digit);
                at += 5;
            }
            _ => {
                let digit = number(bits.get(at..at + 6)?);
                digits.push(b'0' + digit.checked_sub(22)?);
                at += 6;
            }
        }
    }
    Some(digits)
}
