//! What a successor sees of the process before it.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{FILE, LEFT, MAX_LINE, MINE, OWN, READY, YOURS, number_in};

/// The process that serves until this one is ready.
#[derive(Debug)]
pub struct Predecessor {
    line: StdStream,
    /// Its sockets that this process has no use for.
    left: Vec<u64>,
}

/// What is ours after a hand-over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Numbers of the sockets whose files are ours to remove.
    pub files: Vec<u64>,
    /// Names of the same, from a predecessor that knows no numbers.
    pub owned: Vec<String>,
    /// Whether the predecessor ended without having said so.
    pub is_orphaned: bool,
}

impl Predecessor {
    pub(super) fn new(line: StdStream, left: Vec<u64>) -> Self {
        Self { line, left }
    }

    /// Says that this process is ready, and returns when the other one leaves the service to it, by saying so or by having
    /// ended.
    ///
    /// # Errors
    /// The line cannot be used at all.
    pub async fn relieve(self) -> io::Result<Inheritance> {
        self.line.set_nonblocking(true)?;
        let mut line = BufReader::new(UnixStream::from_std(self.line)?);
        let left = self.left.iter().map(|number| format!("{LEFT}{number}\n"));
        let words: String = left.chain([format!("{READY}\n")]).collect();
        // If nobody hears it, the end of the line says so.
        let _ = line.get_mut().write_all(words.as_bytes()).await;
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
                word => {
                    inheritance.files.extend(number_in(word, FILE));
                    inheritance.owned.extend(word.strip_prefix(OWN).map(str::to_owned));
                }
            }
        }
    }
}
