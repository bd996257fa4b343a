//! The process of a gateway: selection, signals, state file.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fairlead_config::{ProcessState, Timespan};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::installation::{Installation, InstallationError};

/// Name of the gateway's program.
pub(super) const PROGRAM: &str = "fairlead-gateway";
/// Its name in `/proc/<pid>/comm`, which has at most 15 characters.
const COMMAND: &str = "fairlead-gatewa";
/// Poll interval for state that has no event.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Selects the process of a gateway.
#[derive(Clone, Debug, Args)]
pub(super) struct ProcessSelector {
    /// Process id of the gateway
    #[arg(long, conflicts_with = "pid_file")]
    pid: Option<u32>,
    /// File with the process id: the gateway's stateFile, or a file with the id alone
    #[arg(long)]
    pid_file: Option<PathBuf>,
    /// Directory of an installation of `fairlead up`, whose gateway is used by default
    #[arg(long, default_value = crate::installation::default_directory().as_os_str())]
    dir: PathBuf,
    /// Maximum time to wait for the result
    #[arg(long, default_value = "5m")]
    timeout: Timespan,
}

/// A running gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) pid: u32,
    /// Refers to this process even if its id is used again later.
    handle: OwnedFd,
    state: Option<PathBuf>,
    until: Instant,
}

/// A process that cannot be signalled, or whose state is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error("{} cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} contains no process id", .0.display())]
    NoProcessId(PathBuf),
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("process {pid} is not a gateway but {name:?}")]
    NotAGateway { pid: u32, name: String },
    #[error("process {pid} cannot be signalled: {source}")]
    Signal { pid: u32, source: io::Error },
    #[error("process {pid} was signalled, but has no state file: the result is unknown")]
    NoStateFile { pid: u32 },
    #[error("process {pid} has not completed the operation in time")]
    Timeout { pid: u32 },
}

impl ProcessError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Installation(error) => error.hint(),
            Self::NotRunning(_) => {
                Some("--pid or --pid-file selects a gateway that `fairlead up` has not started".to_owned())
            }
            Self::NoStateFile { .. } => {
                Some("set stateFile in its configuration; until then see its log".to_owned())
            }
            Self::Timeout { .. } => Some("wait longer with --timeout; see its log".to_owned()),
            Self::Read { .. }
            | Self::NoProcessId(_)
            | Self::NoProcess(_)
            | Self::NotAGateway { .. }
            | Self::Signal { .. } => None,
        }
    }
}

impl ProcessSelector {
    pub(super) fn find(&self) -> Result<Gateway, ProcessError> {
        let (pid, state) = match (self.pid, &self.pid_file) {
            (Some(pid), _) => (pid, None),
            (None, Some(file)) => from_file(file)?,
            (None, None) => self.in_installation()?,
        };
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ProcessError::NoProcess(pid))?;
        // The pidfd is opened before the name is checked, so both refer to the same process.
        let handle = pidfd_open(raw, PidfdFlags::empty()).map_err(|_| ProcessError::NoProcess(pid))?;
        let name =
            fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| ProcessError::NoProcess(pid))?;
        if name.trim_end() != COMMAND {
            return Err(ProcessError::NotAGateway { pid, name: name.trim_end().to_owned() });
        }
        let state = state.or_else(|| state_file_of(pid));
        Ok(Gateway { pid, handle, state, until: Instant::now() + self.timeout.get() })
    }

    fn in_installation(&self) -> Result<(u32, Option<PathBuf>), ProcessError> {
        let installation = Installation::at(&self.dir)?;
        let not_running = || ProcessError::NotRunning(self.dir.clone());
        installation.running_up()?.ok_or_else(not_running)?;
        let record = installation.read_state().ok_or_else(not_running)?;
        let gateway = record.processes.iter().find(|process| process.name == "gateway");
        let pid = gateway.and_then(|process| process.pid).ok_or_else(not_running)?;
        Ok((pid, Some(installation.data("gateway").join("state"))))
    }
}

fn from_file(file: &Path) -> Result<(u32, Option<PathBuf>), ProcessError> {
    let text =
        fs::read_to_string(file).map_err(|source| ProcessError::Read { file: file.to_owned(), source })?;
    if let Ok(pid) = text.trim().parse() {
        return Ok((pid, None));
    }
    match ProcessState::read(file) {
        Ok(state) => Ok((state.pid, Some(file.to_owned()))),
        Err(_) => Err(ProcessError::NoProcessId(file.to_owned())),
    }
}

/// The state file in the configuration of a process. The rest of the configuration need not be valid.
fn state_file_of(pid: u32) -> Option<PathBuf> {
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let file = words.iter().enumerate().find_map(|(index, word)| match word.strip_prefix("--config") {
        Some("") => words.get(index + 1).map(|file| file.to_string()),
        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
        None => None,
    })?;
    let file = folder.join(file);
    let settings: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(&file).ok()?).ok()?;
    Some(file.parent()?.join(settings.get("stateFile")?.as_str()?))
}

impl Gateway {
    pub(super) fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        pidfd_send_signal(&self.handle, signal).map_err(|error| match error {
            rustix::io::Errno::SRCH => ProcessError::NoProcess(self.pid),
            error => ProcessError::Signal { pid: self.pid, source: error.into() },
        })
    }

    /// The state of the process or of its successor.
    pub(super) fn state(&self) -> Result<ProcessState, ProcessError> {
        self.state
            .as_ref()
            .and_then(|file| ProcessState::read(file).ok())
            .ok_or(ProcessError::NoStateFile { pid: self.pid })
    }

    pub(super) fn is_alive(&self) -> bool {
        // A zombie has ended.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Polls until `result` returns a value, at most for the timeout of the command line.
    pub(super) fn until<T>(&self, mut result: impl FnMut() -> Option<T>) -> Result<T, ProcessError> {
        loop {
            if let Some(result) = result() {
                return Ok(result);
            }
            if Instant::now() > self.until {
                return Err(ProcessError::Timeout { pid: self.pid });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn selector(pid: Option<u32>, pid_file: Option<PathBuf>, dir: &Path) -> ProcessSelector {
        ProcessSelector { pid, pid_file, dir: dir.to_owned(), timeout: Timespan::from_millis(1) }
    }

    #[test]
    fn only_a_gateway_is_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let error = |selector: ProcessSelector| selector.find().unwrap_err().to_string();
        let own = std::process::id();
        assert!(error(selector(Some(own), None, folder.path())).contains("is not a gateway but"));
        assert_eq!(
            error(selector(Some(u32::MAX), None, folder.path())),
            format!("there is no process {}", u32::MAX)
        );
        for (text, expected) in
            [("7x", "contains no process id"), ("4194305\n", "there is no process 4194305")]
        {
            fs::write(&file, text).unwrap();
            let error = error(selector(None, Some(file.clone()), folder.path()));
            assert!(error.contains(expected), "{error}");
        }
        assert!(error(selector(None, None, folder.path())).contains("nothing is running in"));
    }
}
