//! What a successor sees of the process before it.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{MAX_LINE, MINE, OWN, READY, YOURS};

/// The process that serves until this one is ready.
#[derive(Debug)]
pub struct Predecessor(StdStream);

/// What is ours after a hand-over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Names of the sockets whose files are ours to remove.
    pub owned: Vec<String>,
    /// Whether the predecessor ended without having said so.
    pub is_orphaned: bool,
}

impl Predecessor {
    pub(super) fn new(line: StdStream) -> Self {
        Self(line)
    }

    /// Says that this process is ready, and returns when the other one leaves the service to it, by saying so or by having
    /// ended.
    ///
    /// # Errors
    /// The line cannot be used at all.
    pub async fn relieve(self) -> io::Result<Inheritance> {
        self.0.set_nonblocking(true)?;
        let mut line = BufReader::new(UnixStream::from_std(self.0)?);
        // If nobody hears it, the end of the line says so.
        let _ = line.get_mut().write_all(format!("{READY}\n").as_bytes()).await;
        let mut inheritance = Inheritance::default();
        loop {
            let mut word = String::new();
            if !matches!((&mut line).take(MAX_LINE).read_line(&mut word).await, Ok(1..)) {
                inheritance.is_orphaned = true;
                return Ok(inheritance);
            }
            match word.trim_end() {
                YOURS => {
                    let _ = line.get_mut().write_all(format!("{MINE}\n").as_bytes()).await;
                    return Ok(inheritance);
                }
                word => inheritance.owned.extend(word.strip_prefix(OWN).map(str::to_owned)),
            }
        }
    }
}
