//! The successor process, for the process that hands over.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{Command as StdCommand, ExitStatus};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::{FILE, HANDOVER_SOCKET, LEFT, MAX_MESSAGE, MINE, OWN, READY, UNNAMED, YOURS, number_in};

/// First passed descriptor, as systemd defines it.
const FIRST_DESCRIPTOR: i32 = 3;

/// Time limit for messages that the successor can send at once.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// A process that was started to take over. It is killed if this value is dropped before the hand-over.
#[derive(Debug)]
pub struct Successor {
    /// `None` after the hand-over.
    child: Option<Child>,
    channel: BufReader<UnixStream>,
    /// Numbers of the sockets that the successor has closed unused.
    unused: Vec<u64>,
}

/// The successor does not take over, and this process continues.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The successor cannot be started.
    #[error("{program} cannot be started")]
    Start {
        /// The program.
        program: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The successor ended before it was ready.
    #[error("the successor ended before it was ready ({0})")]
    Ended(ExitStatus),
    /// The successor closed the connection before it was ready.
    #[error(
        "the successor closed the connection to its predecessor; its version may not support taking over"
    )]
    ConnectionClosed,
    /// The successor was not ready in time.
    #[error("the successor was not ready within {0:?}")]
    TimedOut(Duration),
}

impl Successor {
    /// Starts a program with these arguments and passes the sockets by name. `files` are the numbers of the sockets whose files
    /// belong to the successor once it serves alone.
    ///
    /// # Errors
    /// [`HandoverError::Start`]
    pub fn start(
        program: &OsStr,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        sockets: Vec<(String, OwnedFd)>,
        files: &[u64],
    ) -> Result<Self, HandoverError> {
        let failed =
            |source| HandoverError::Start { program: program.to_string_lossy().into_owned(), source };
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let files: String = files.iter().map(|number| format!("{FILE}{number}\n")).collect();
        (&ours).write_all(files.as_bytes()).map_err(failed)?;
        let channel = BufReader::new(UnixStream::from_std(ours).map_err(failed)?);
        let (names, descriptors): (Vec<String>, Vec<OwnedFd>) = sockets
            .into_iter()
            .map(|(name, socket)| (passable(&name).to_owned(), socket))
            .chain([(HANDOVER_SOCKET.to_owned(), theirs.into())])
            .unzip();
        let count = descriptors.len();
        let mappings = (FIRST_DESCRIPTOR..).zip(descriptors);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        let mut command = StdCommand::new(program);
        command
            .args(arguments)
            .env("LISTEN_FDS", count.to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            // These variables name this process.
            .env_remove("LISTEN_PID")
            .env_remove("WATCHDOG_PID")
            .fd_mappings(mappings)
            .map_err(|error| failed(io::Error::other(error)))?;
        // The command owns the descriptors, and closes them in this process.
        let child = Command::from(command).spawn().map_err(failed)?;
        Ok(Self { child: Some(child), channel, unused: Vec::new() })
    }

    /// Process ID of the successor, until the hand-over.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// Numbers of the sockets that the successor has closed unused. Complete once it is ready.
    pub fn unused(&self) -> &[u64] {
        &self.unused
    }

    /// Returns when the successor is ready to serve.
    ///
    /// # Errors
    /// [`HandoverError`]; the caller then drops the successor.
    pub async fn ready(&mut self, limit: Duration) -> Result<(), HandoverError> {
        match tokio::time::timeout(limit, self.receives(READY)).await {
            Ok(true) => self.check_running(),
            Ok(false) => Err(self.end_reason().await),
            Err(_) => {
                self.check_running()?;
                Err(HandoverError::TimedOut(limit))
            }
        }
    }

    /// Hands over to the successor, with the files of these sockets. Afterwards it is no longer killed on drop.
    ///
    /// # Errors
    /// The successor has just ended.
    pub async fn hand_over(&mut self, owned: &[String]) -> Result<(), HandoverError> {
        let owned = owned.iter().map(|name| format!("{OWN}{}\n", passable(name)));
        let messages: String = owned.chain([format!("{YOURS}\n")]).collect();
        // If the successor has ended, reading below reports it.
        let _ = self.channel.get_mut().write_all(messages.as_bytes()).await;
        match tokio::time::timeout(MESSAGE_TIMEOUT, self.receives(MINE)).await {
            Ok(false) => return Err(self.end_reason().await),
            // Older versions do not send the message.
            Ok(true) | Err(_) => self.check_running()?,
        }
        // The successor outlives this process. If it ends before, this process has to reap it.
        if let Some(mut child) = self.child.take() {
            tokio::spawn(async move { child.wait().await });
        }
        Ok(())
    }

    /// Whether the successor sends this message before it closes the connection.
    async fn receives(&mut self, expected: &str) -> bool {
        loop {
            let mut message = String::new();
            match (&mut self.channel).take(MAX_MESSAGE).read_line(&mut message).await {
                Ok(1..) if message.trim_end() == expected => return true,
                Ok(1..) => self.unused.extend(number_in(message.trim_end(), LEFT)),
                Ok(0) | Err(_) => return false,
            }
        }
    }

    /// Fails if the successor has ended, whatever it has sent.
    fn check_running(&mut self) -> Result<(), HandoverError> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => Err(HandoverError::Ended(status)),
            _ => Ok(()),
        }
    }

    /// The reason for a closed connection: most likely the process is ending.
    async fn end_reason(&mut self) -> HandoverError {
        let Some(child) = &mut self.child else { return HandoverError::ConnectionClosed };
        match tokio::time::timeout(MESSAGE_TIMEOUT, child.wait()).await {
            Ok(Ok(status)) => HandoverError::Ended(status),
            _ => HandoverError::ConnectionClosed,
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that it has ended already.
            let _ = child.start_kill();
        }
    }
}

/// The name if `LISTEN_FDNAMES` can hold it, otherwise [`UNNAMED`].
fn passable(name: &str) -> &str {
    let is_passable = name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if is_passable && name != HANDOVER_SOCKET { name } else { UNNAMED }
}
