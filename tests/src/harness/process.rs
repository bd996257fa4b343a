//! Real processes: started, waited for, killed, started again.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fairlead_client::{Client, ClientError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::{HarnessError, binary};

/// A binary with its arguments and a directory of its own: all that is needed to start it, also again.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    path: PathBuf,
    directory: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A running program. Dropped, it is killed; dropped by a failing test, it shows the end of its log.
pub struct Process {
    program: Program,
    child: Child,
    id: u32,
}

/// How long a process may take for anything that a test waits for. Generous: a loaded machine is not a failure.
const PATIENCE: Duration = Duration::from_secs(60);

impl Program {
    /// A binary of this workspace that works in `directory`, which exists. Its log is `<name>.log` there.
    pub fn new(name: &str, directory: &Path) -> Result<Self, HarnessError> {
        Ok(Self::at(binary(name)?, name, directory))
    }

    /// Any executable.
    pub fn at(path: PathBuf, name: &str, directory: &Path) -> Self {
        Self {
            name: name.to_owned(),
            path,
            directory: directory.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Calls it something else in logs and errors, where several of a kind run.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it; needs a tokio runtime.
    pub fn start(self) -> Result<Process, HarnessError> {
        let child = self.spawn()?;
        let id = child.id().unwrap_or_default();
        Ok(Process { program: self, child, id })
    }

    /// Where its output goes, that of all its starts.
    pub fn log_path(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.name))
    }

    fn spawn(&self) -> Result<Child, HarnessError> {
        let path = self.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(HarnessError::system(format!("opening {}", path.display())))?;
        let errors = log.try_clone().map_err(HarnessError::system("duplicating a log file"))?;
        Command::new(&self.path)
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(HarnessError::system(format!("starting {}", self.path.display())))
    }
}

impl Process {
    /// Process id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits until a question is answered with yes. It is asked again after a short, growing pause, until patience
    /// ends or the process does.
    pub async fn until<E: std::fmt::Display, F: Future<Output = Result<(), E>>>(
        &mut self,
        mut question: impl FnMut() -> F,
    ) -> Result<(), HarnessError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(10);
        loop {
            let answer = tokio::select! {
                status = self.child.wait() => return Err(self.ended(status)),
                answer = question() => answer,
            };
            let Err(last) = answer else { return Ok(()) };
            if Instant::now() >= deadline {
                let (name, log) = (self.program.name.clone(), self.log_tail());
                return Err(HarnessError::NotReady { name, last: last.to_string(), log });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Waits until `/readyz` says ok.
    pub async fn until_ready(&mut self, client: &Client) -> Result<(), HarnessError> {
        self.until(|| ready(client)).await
    }

    /// SIGTERM, then waits for the end. A process that does not end is killed, which is an error.
    pub async fn terminate(&mut self) -> Result<ExitStatus, HarnessError> {
        self.signal(Signal::TERM)?;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.map_err(HarnessError::system("waiting for the end of a process")),
            Err(_) => {
                self.kill().await?;
                let (name, log) = (self.program.name.clone(), self.log_tail());
                Err(HarnessError::NotReady { name, last: "it ignored SIGTERM".to_owned(), log })
            }
        }
    }

    /// SIGKILL, then waits for the end: what a power failure looks like to everybody else.
    pub async fn kill(&mut self) -> Result<(), HarnessError> {
        self.child.kill().await.map_err(HarnessError::system(format!("killing {}", self.program.name)))
    }

    /// Any signal, e.g. HUP to reload.
    pub fn signal(&self, signal: Signal) -> Result<(), HarnessError> {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| HarnessError::System {
            what: format!("sending a signal to {}", self.program.name),
            source: error.into(),
        })
    }

    /// Starts the same program again, after it ended.
    pub async fn restart(&mut self) -> Result<(), HarnessError> {
        if self.child.try_wait().ok().flatten().is_none() {
            self.kill().await?;
        }
        self.child = self.program.spawn()?;
        self.id = self.child.id().unwrap_or_default();
        Ok(())
    }

    /// Everything it wrote so far.
    pub fn log(&self) -> String {
        std::fs::read(self.program.log_path())
            .map_or(String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// What it is.
    pub fn program(&self) -> &Program {
        &self.program
    }

    fn log_tail(&self) -> String {
        const LINES: usize = 40;
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn ended(&self, status: std::io::Result<ExitStatus>) -> HarnessError {
        match status {
            Ok(status) => {
                HarnessError::Ended { name: self.program.name.clone(), status, log: self.log_tail() }
            }
            Err(source) => {
                HarnessError::System { what: format!("waiting for {}", self.program.name), source }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the log of {} ---\n{}\n---", self.program.name, self.log_tail());
        }
    }
}

/// Whether a server says that it is ready.
pub async fn ready(client: &Client) -> Result<(), ClientError> {
    client.get("/readyz").await.map(drop)
}
