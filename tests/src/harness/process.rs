//! Real processes: starting, waiting, killing, restarting.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::future::Future;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fairlead_client::{Client, ClientError};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::{HarnessError, binary, with_descendants};

/// A binary with its arguments and its working directory. It can be started more than once.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    path: PathBuf,
    directory: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    is_killed_with_descendants: bool,
    has_lifeline: bool,
}

/// A running program. It is killed when dropped. If the test is failing, the end of its log is printed.
pub struct Process {
    program: Program,
    child: Child,
    id: u32,
    /// The end of the pipe that the program reads, if it has a lifeline. It is only kept.
    #[allow(dead_code, reason = "closing it is its use")]
    lifeline: Option<PipeWriter>,
}

/// Limit for everything that a test waits for. It is long, because a loaded machine is no failure.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Program {
    /// A binary of this workspace with `directory`, which must exist, as its working directory. Its log is `<name>.log` there.
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
            is_killed_with_descendants: false,
            has_lifeline: false,
        }
    }

    /// Sets the name in logs and errors, for tests with several processes of a kind.
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

    /// Kills the descendants together with the process, for programs that leave their workers behind.
    pub fn killed_with_descendants(mut self) -> Self {
        self.is_killed_with_descendants = true;
        self
    }

    /// The executable of the same name in another folder, such as that of an older build.
    pub fn of_build(mut self, folder: &Path) -> Self {
        self.path = folder.join(self.path.file_name().unwrap_or_default());
        self
    }

    /// Another program, whose last arguments are this one with its arguments.
    pub fn run_by<A: Into<OsString>>(mut self, path: PathBuf, first: impl IntoIterator<Item = A>) -> Self {
        let own = std::mem::take(&mut self.arguments);
        self.arguments = first.into_iter().map(Into::into).collect();
        self.arguments.push(std::mem::replace(&mut self.path, path).into());
        self.arguments.extend(own);
        self
    }

    /// Makes standard input a pipe that ends with this process, however it ends. For programs that outlive the test which
    /// started them: statics are not dropped.
    pub fn with_lifeline(mut self) -> Self {
        self.has_lifeline = true;
        self
    }

    /// The same with a limit for the size of every file, in blocks of the shell's `ulimit -f` (512 or 1,024 bytes), or `unlimited`. A
    /// write beyond it fails, as on a full disk. The signal that reports it (setrlimit(2)) is ignored, as a disk has none.
    pub fn with_file_limit(self, blocks: &str) -> Self {
        const LIMITED: &str = "trap '' XFSZ; ulimit -S -f \"$0\"; exec \"$@\"";
        self.run_by("/bin/sh".into(), ["-c", LIMITED, blocks])
    }

    /// Starts the program. Needs a tokio runtime.
    pub fn start(self) -> Result<Process, HarnessError> {
        let (child, lifeline) = self.spawn()?;
        let id = child.id().unwrap_or_default();
        Ok(Process { program: self, child, id, lifeline })
    }

    /// The log file, shared by all starts.
    pub fn log_path(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.name))
    }

    fn spawn(&self) -> Result<(Child, Option<PipeWriter>), HarnessError> {
        let path = self.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(HarnessError::system(format!("opening {}", path.display())))?;
        let errors = log.try_clone().map_err(HarnessError::system("duplicating a log file"))?;
        let (input, lifeline) = if self.has_lifeline {
            let (reader, writer) = std::io::pipe().map_err(HarnessError::system("making a pipe"))?;
            (Stdio::from(reader), Some(writer))
        } else {
            (Stdio::null(), None)
        };
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .current_dir(&self.directory)
            .stdin(input)
            .stdout(log)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(HarnessError::system(format!("starting {}", self.path.display())))?;
        Ok((child, lifeline))
    }
}

impl Process {
    /// The process ID.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits until a check succeeds. The check is repeated after short, growing pauses, until the timeout or the end of the
    /// process.
    pub async fn until<E: std::fmt::Display, F: Future<Output = Result<(), E>>>(
        &mut self,
        mut check: impl FnMut() -> F,
    ) -> Result<(), HarnessError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut pause = Duration::from_millis(10);
        loop {
            let result = tokio::select! {
                status = self.child.wait() => return Err(self.ended(status)),
                result = check() => result,
            };
            let Err(last) = result else { return Ok(()) };
            if Instant::now() >= deadline {
                let (name, log) = (self.program.name.clone(), self.log_tail());
                return Err(HarnessError::NotReady { name, last: last.to_string(), log });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Waits until `/readyz` responds with success.
    pub async fn until_ready(&mut self, client: &Client) -> Result<(), HarnessError> {
        self.until(|| ready(client)).await
    }

    /// Sends SIGTERM and waits for the end. A process that does not end is killed, which is an error.
    pub async fn terminate(&mut self) -> Result<ExitStatus, HarnessError> {
        self.signal(Signal::TERM)?;
        match timeout(TIMEOUT, self.child.wait()).await {
            Ok(status) => status.map_err(HarnessError::system("waiting for the end of a process")),
            Err(_) => {
                self.kill().await?;
                let (name, log) = (self.program.name.clone(), self.log_tail());
                Err(HarnessError::NotReady { name, last: "it ignored SIGTERM".to_owned(), log })
            }
        }
    }

    /// Sends SIGKILL and waits for the end. To other processes this looks like a power failure.
    pub async fn kill(&mut self) -> Result<(), HarnessError> {
        let descendants = self.descendants_to_kill();
        let killed = self.child.kill().await;
        kill_all(&descendants);
        killed.map_err(HarnessError::system(format!("killing {}", self.program.name)))
    }

    /// Sends a signal, for example HUP to reload.
    pub fn signal(&self, signal: Signal) -> Result<(), HarnessError> {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| HarnessError::System {
            what: format!("sending a signal to {}", self.program.name),
            source: error.into(),
        })
    }

    /// Waits until it ends by itself.
    pub async fn until_end(&mut self) -> Result<ExitStatus, HarnessError> {
        match timeout(TIMEOUT, self.child.wait()).await {
            Ok(status) => status.map_err(HarnessError::system("waiting for the end of a process")),
            Err(_) => {
                let (name, log) = (self.program.name.clone(), self.log_tail());
                Err(HarnessError::NotReady { name, last: "it does not end".to_owned(), log })
            }
        }
    }

    /// Sets the limit for the size of a file, in bytes, of the running process, which must have [`Program::with_file_limit`].
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<(), HarnessError> {
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None })
            .map(drop)
            .map_err(|error| HarnessError::system("setting the limit of files")(error.into()))
    }

    /// Starts the same program again, after its end.
    pub async fn restart(&mut self) -> Result<(), HarnessError> {
        if self.child.try_wait().ok().flatten().is_none() {
            self.kill().await?;
        }
        (self.child, self.lifeline) = self.program.spawn()?;
        self.id = self.child.id().unwrap_or_default();
        Ok(())
    }

    /// Replaces the program of the next [`Process::restart`].
    pub fn set_program(&mut self, program: Program) {
        self.program = program;
    }

    /// The whole log.
    pub fn log(&self) -> String {
        std::fs::read(self.program.log_path())
            .map_or(String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Empty unless [`Program::killed_with_descendants`] was set.
    fn descendants_to_kill(&self) -> Vec<u32> {
        if !self.program.is_killed_with_descendants {
            return Vec::new();
        }
        let members = with_descendants(self.id).unwrap_or_default();
        members.into_iter().filter(|pid| *pid != self.id).collect()
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
        // The process comes first: it would replace a dead worker.
        let descendants = self.descendants_to_kill();
        if !descendants.is_empty() && self.child.start_kill().is_ok() {
            kill_all(&descendants);
        }
    }
}

fn kill_all(pids: &[u32]) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // It may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Succeeds if `/readyz` responds with success.
pub async fn ready(client: &Client) -> Result<(), ClientError> {
    client.get("/readyz").await.map(drop)
}
