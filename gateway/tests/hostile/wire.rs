//! Answers over HTTP/1.1, read with all the strictness that the gateway owes its clients.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A response.
#[derive(Debug)]
#[allow(dead_code, reason = "shown when a test fails")]
pub struct Answer {
    pub code: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The server will close the connection.
    pub last: bool,
}

/// The reason why there is no response.
#[derive(Debug)]
#[allow(dead_code, reason = "shown when a test fails")]
pub enum NoAnswer {
    /// The connection has ended between two responses.
    End,
    /// The connection has ended inside a response.
    BrokenOff(String),
    /// The bytes are not HTTP.
    Malformed(String),
}

/// A connection on which the client writes arbitrary bytes.
pub struct RawHttp1 {
    pub socket: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl RawHttp1 {
    pub fn over(socket: TlsStream<TcpStream>) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// Sends a message that has to be answered completely.
    pub async fn ask(&mut self, message: &str) -> Result<Answer, NoAnswer> {
        // A server that does not want it all has still answered.
        let _ = self.socket.write_all(message.as_bytes()).await;
        self.answer(message.starts_with("HEAD ")).await
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) {
        let _ = self.socket.shutdown().await;
    }

    /// The next answer, after those that only say "wait". May be dropped and called again.
    pub async fn answer(&mut self, to_head: bool) -> Result<Answer, NoAnswer> {
        loop {
            let head = loop {
                if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                    break end + 4;
                }
                if !self.more().await {
                    return Err(match self.buffer.is_empty() {
                        true => NoAnswer::End,
                        false => self.broken_off(),
                    });
                }
            };
            let text =
                String::from_utf8(self.buffer[..head].to_vec()).map_err(|_| self.malformed("not text"))?;
            let (code, length, chunked, last) = read_head(&text).map_err(|why| self.malformed(why))?;
            if code < 200 && code != 101 {
                self.buffer.drain(..head);
                continue;
            }
            let bodiless = to_head || matches!(code, 204 | 304);
            let (body, end) = if bodiless {
                (Vec::new(), head)
            } else if chunked {
                self.chunks(head).await?
            } else if let Some(length) = length {
                while self.buffer.len() < head + length {
                    if !self.more().await {
                        return Err(self.broken_off());
                    }
                }
                (self.buffer[head..head + length].to_vec(), head + length)
            } else if last {
                while self.more().await {}
                (self.buffer[head..].to_vec(), self.buffer.len())
            } else {
                return Err(self.malformed("a body without an end"));
            };
            self.buffer.drain(..end);
            return Ok(Answer { code, head: text, body, last });
        }
    }

    async fn chunks(&mut self, from: usize) -> Result<(Vec<u8>, usize), NoAnswer> {
        let (mut at, mut body) = (from, Vec::new());
        loop {
            let line = loop {
                if let Some(end) = find(&self.buffer[at..], b"\r\n") {
                    break end;
                }
                if !self.more().await {
                    return Err(self.broken_off());
                }
            };
            let size = std::str::from_utf8(&self.buffer[at..at + line]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.ok_or_else(|| self.malformed("a chunk without a size"))?;
            at += line + 2;
            while self.buffer.len() < at + size + 2 {
                if !self.more().await {
                    return Err(self.broken_off());
                }
            }
            if &self.buffer[at + size..at + size + 2] != b"\r\n" {
                return Err(self.malformed("a chunk without an end"));
            }
            body.extend_from_slice(&self.buffer[at..at + size]);
            at += size + 2;
            if size == 0 {
                return Ok((body, at));
            }
        }
    }

    async fn more(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        match self.socket.read(&mut piece).await {
            Ok(count @ 1..) => {
                self.buffer.extend_from_slice(&piece[..count]);
                true
            }
            Ok(0) | Err(_) => false,
        }
    }

    /// Whether the server has sent no bytes beyond the responses.
    pub fn is_clean(&self) -> bool {
        self.buffer.is_empty()
    }

    fn broken_off(&self) -> NoAnswer {
        NoAnswer::BrokenOff(self.buffer.escape_ascii().to_string())
    }

    fn malformed(&self, why: &str) -> NoAnswer {
        NoAnswer::Malformed(format!("{why}: {}", self.buffer.escape_ascii()))
    }
}

/// Code, length, whether in chunks, whether the last.
fn read_head(head: &str) -> Result<(u16, Option<usize>, bool, bool), &'static str> {
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).ok_or("no status line")?;
    let code: u16 = status.get(..3).and_then(|code| code.parse().ok()).ok_or("no code")?;
    if !(100..600).contains(&code) || !matches!(status.as_bytes().get(3), None | Some(b' ')) {
        return Err("an odd status line");
    }
    let (mut length, mut chunked, mut last) = (None, false, false);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a line without a colon")?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("a name that is none");
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err("a control character");
        }
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" if length.is_some() => return Err("two lengths"),
            "content-length" => length = Some(value.parse().map_err(|_| "a length that is none")?),
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => last = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if chunked && length.is_some() {
        return Err("a length of chunks");
    }
    Ok((code, length, chunked, last))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
