//! The connection to the predecessor, for the process that takes over.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{FILE, LEFT, MAX_MESSAGE, MINE, OWN, READY, YOURS, number_in};

/// The process that serves until this one is ready.
#[derive(Debug)]
pub struct Predecessor {
    channel: StdStream,
    /// Numbers of its sockets that this process does not use.
    unused: Vec<u64>,
}

/// Resources that belong to this process after a hand-over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Numbers of the sockets whose files this process has to remove.
    pub files: Vec<u64>,
    /// Names of the same sockets, from a predecessor that sends no numbers.
    pub owned: Vec<String>,
    /// Whether the predecessor ended without handing over.
    pub is_orphaned: bool,
}

impl Predecessor {
    pub(super) fn new(channel: StdStream, unused: Vec<u64>) -> Self {
        Self { channel, unused }
    }

    /// Reports that this process is ready. Returns when the predecessor has handed over or has ended.
    ///
    /// # Errors
    /// The connection to the predecessor cannot be used.
    pub async fn take_over(self) -> io::Result<Inheritance> {
        self.channel.set_nonblocking(true)?;
        let mut channel = BufReader::new(UnixStream::from_std(self.channel)?);
        let unused = self.unused.iter().map(|number| format!("{LEFT}{number}\n"));
        let messages: String = unused.chain([format!("{READY}\n")]).collect();
        // If the predecessor has ended, reading below reports it.
        let _ = channel.get_mut().write_all(messages.as_bytes()).await;
        let mut inheritance = Inheritance::default();
        loop {
            let mut message = String::new();
            if !matches!((&mut channel).take(MAX_MESSAGE).read_line(&mut message).await, Ok(1..)) {
                inheritance.is_orphaned = true;
                return Ok(inheritance);
            }
            match message.trim_end() {
                YOURS => {
                    let _ = channel.get_mut().write_all(format!("{MINE}\n").as_bytes()).await;
                    return Ok(inheritance);
                }
                message => {
                    inheritance.files.extend(number_in(message, FILE));
                    inheritance.owned.extend(message.strip_prefix(OWN).map(str::to_owned));
                }
            }
        }
    }
}
