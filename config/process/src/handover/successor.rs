//! What a process sees of the one that is to come after it.

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

use super::{FILE, LEFT, LINE, MAX_LINE, MINE, OWN, READY, UNNAMED, YOURS, number_in};

/// The first descriptor that is handed on, as systemd has it.
const FIRST: i32 = 3;

/// How long it may take over a word that costs it nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A process that was started to take over. Dropped before it has, it is killed.
#[derive(Debug)]
pub struct Successor {
    /// `None` once it has.
    child: Option<Child>,
    line: BufReader<UnixStream>,
    /// Numbers of the sockets that it has closed.
    left: Vec<u64>,
}

/// The successor does not take over, and this process goes on.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// It cannot be started.
    #[error("{program} cannot be started")]
    Start {
        /// What was to be started.
        program: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It ended before it was ready.
    #[error("the successor ended before it was ready ({0})")]
    Ended(ExitStatus),
    /// It said that it will not be ready, by closing the line.
    #[error("the successor does not speak to its predecessor; it may be of a version that cannot take over")]
    Silent,
    /// It took too long.
    #[error("the successor was not ready within {0:?}")]
    Late(Duration),
}

impl Successor {
    /// Starts a program with these arguments, which inherits the sockets by their names. `files` are the numbers of those
    /// whose files are to be its own as soon as it serves alone.
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
        let line = BufReader::new(UnixStream::from_std(ours).map_err(failed)?);
        let (names, descriptors): (Vec<String>, Vec<OwnedFd>) = sockets
            .into_iter()
            .map(|(name, socket)| (sayable(&name).to_owned(), socket))
            .chain([(LINE.to_owned(), theirs.into())])
            .unzip();
        let count = descriptors.len();
        let mappings = (FIRST..).zip(descriptors);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        let mut command = StdCommand::new(program);
        command
            .args(arguments)
            .env("LISTEN_FDS", count.to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            // They would name this process.
            .env_remove("LISTEN_PID")
            .env_remove("WATCHDOG_PID")
            .fd_mappings(mappings)
            .map_err(|error| failed(io::Error::other(error)))?;
        // The command has the descriptors, and closes them here.
        let child = Command::from(command).spawn().map_err(failed)?;
        Ok(Self { child: Some(child), line, left: Vec::new() })
    }

    /// Its number.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// The numbers of the sockets that it has closed, because it has no use for them; said before it is ready.
    pub fn left(&self) -> &[u64] {
        &self.left
    }

    /// Returns when it serves as well as we do.
    ///
    /// # Errors
    /// [`HandoverError`]; then it is to be dropped.
    pub async fn ready(&mut self, limit: Duration) -> Result<(), HandoverError> {
        match tokio::time::timeout(limit, self.hears(READY)).await {
            Ok(true) => self.is_there(),
            Ok(false) => Err(self.how_it_ended().await),
            Err(_) => {
                self.is_there()?;
                Err(HandoverError::Late(limit))
            }
        }
    }

    /// Leaves the service to it, with the files of these sockets. Then it is not ours any more.
    ///
    /// # Errors
    /// It has just ended.
    pub async fn relieve_us(&mut self, owned: &[String]) -> Result<(), HandoverError> {
        let owned = owned.iter().map(|name| format!("{OWN}{}\n", sayable(name)));
        let words: String = owned.chain([format!("{YOURS}\n")]).collect();
        // If it does not hear it, the end of the line says so.
        let _ = self.line.get_mut().write_all(words.as_bytes()).await;
        match tokio::time::timeout(PATIENCE, self.hears(MINE)).await {
            Ok(false) => return Err(self.how_it_ended().await),
            // A version that does not say it is there all the same.
            Ok(true) | Err(_) => self.is_there()?,
        }
        // It lives on without us; but as long as we are there, somebody has to hear of its end.
        if let Some(mut child) = self.child.take() {
            tokio::spawn(async move { child.wait().await });
        }
        Ok(())
    }

    /// Whether it says this before its end.
    async fn hears(&mut self, expected: &str) -> bool {
        loop {
            let mut word = String::new();
            match (&mut self.line).take(MAX_LINE).read_line(&mut word).await {
                Ok(1..) if word.trim_end() == expected => return true,
                Ok(1..) => self.left.extend(number_in(word.trim_end(), LEFT)),
                Ok(0) | Err(_) => return false,
            }
        }
    }

    /// Whatever it has said: one that has ended serves nobody.
    fn is_there(&mut self) -> Result<(), HandoverError> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => Err(HandoverError::Ended(status)),
            _ => Ok(()),
        }
    }

    /// Its line is closed: most likely it is ending right now.
    async fn how_it_ended(&mut self) -> HandoverError {
        let Some(child) = &mut self.child else { return HandoverError::Silent };
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(Ok(status)) => HandoverError::Ended(status),
            _ => HandoverError::Silent,
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may just have ended, which is as good.
            let _ = child.start_kill();
        }
    }
}

/// The name, if it can be said in `LISTEN_FDNAMES`.
fn sayable(name: &str) -> &str {
    let is_sayable = name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if is_sayable && name != LINE { name } else { UNNAMED }
}
