//! Which process is meant, and how it is.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fairlead_config::{ProcessState, Timespan};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::site::{Site, SiteError};

/// The gateway's program.
pub(super) const PROGRAM: &str = "fairlead-gateway";
/// As long a name as the system keeps.
const COMMAND: &str = "fairlead-gatewa";
/// Between two looks at something that nobody tells of.
const LOOK: Duration = Duration::from_millis(20);

/// The process that is meant.
#[derive(Clone, Debug, Args)]
pub(super) struct Which {
    /// Number of the process
    #[arg(long, conflicts_with = "pid_file")]
    pid: Option<u32>,
    /// File with the number of the process: the gateway's stateFile, or one with the number alone
    #[arg(long)]
    pid_file: Option<PathBuf>,
    /// Where `fairlead up` keeps its installation, whose gateway is meant otherwise
    #[arg(long, default_value = crate::command::default_directory().as_os_str())]
    dir: PathBuf,
    /// How long to wait for what was asked for
    #[arg(long, default_value = "5m")]
    timeout: Timespan,
}

/// A gateway that runs.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) pid: u32,
    /// Means this process, whoever gets its number afterwards.
    handle: OwnedFd,
    state: Option<PathBuf>,
    until: Instant,
}

/// A process cannot be asked, or its answer cannot be known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error("{} cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{} names no process", .0.display())]
    NoNumber(PathBuf),
    #[error("there is no process {0}")]
    Gone(u32),
    #[error("process {pid} is no gateway but {name:?}")]
    Other { pid: u32, name: String },
    #[error("process {pid} cannot be signalled: {source}")]
    Signal { pid: u32, source: io::Error },
    #[error("process {pid} was asked, but keeps no state file: what came of it is not known")]
    Unknown { pid: u32 },
    #[error("process {pid} is not done yet")]
    Late { pid: u32 },
}

impl ProcessError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Site(error) => error.hint(),
            Self::NotRunning(_) => {
                Some("--pid or --pid-file names a gateway that `fairlead up` has not started".to_owned())
            }
            Self::Unknown { .. } => {
                Some("set stateFile in its configuration; until then its log says it".to_owned())
            }
            Self::Late { .. } => Some("--timeout waits for longer; its log says what it does".to_owned()),
            Self::Read { .. }
            | Self::NoNumber(_)
            | Self::Gone(_)
            | Self::Other { .. }
            | Self::Signal { .. } => None,
        }
    }
}

impl Which {
    pub(super) fn find(&self) -> Result<Gateway, ProcessError> {
        let (pid, state) = match (self.pid, &self.pid_file) {
            (Some(pid), _) => (pid, None),
            (None, Some(file)) => named_by(file)?,
            (None, None) => self.of_the_installation()?,
        };
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(ProcessError::Gone(pid))?;
        // From here on nobody else can be meant; so it is looked at after this.
        let handle = pidfd_open(raw, PidfdFlags::empty()).map_err(|_| ProcessError::Gone(pid))?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| ProcessError::Gone(pid))?;
        if name.trim_end() != COMMAND {
            return Err(ProcessError::Other { pid, name: name.trim_end().to_owned() });
        }
        let state = state.or_else(|| state_file_of(pid));
        Ok(Gateway { pid, handle, state, until: Instant::now() + self.timeout.get() })
    }

    fn of_the_installation(&self) -> Result<(u32, Option<PathBuf>), ProcessError> {
        let site = Site::at(&self.dir)?;
        let not_running = || ProcessError::NotRunning(self.dir.clone());
        site.occupant()?.ok_or_else(not_running)?;
        let record = site.read_record().ok_or_else(not_running)?;
        let gateway = record.processes.iter().find(|process| process.name == "gateway");
        let pid = gateway.and_then(|process| process.pid).ok_or_else(not_running)?;
        Ok((pid, Some(site.data("gateway").join("state"))))
    }
}

fn named_by(file: &Path) -> Result<(u32, Option<PathBuf>), ProcessError> {
    let text =
        fs::read_to_string(file).map_err(|source| ProcessError::Read { file: file.to_owned(), source })?;
    if let Ok(pid) = text.trim().parse() {
        return Ok((pid, None));
    }
    match ProcessState::read(file) {
        Ok(state) => Ok((state.pid, Some(file.to_owned()))),
        Err(_) => Err(ProcessError::NoNumber(file.to_owned())),
    }
}

/// The state file of a process, as its configuration says it, which need not be good otherwise.
fn state_file_of(pid: u32) -> Option<PathBuf> {
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let file = words.iter().enumerate().find_map(|(place, word)| match word.strip_prefix("--config") {
        Some("") => words.get(place + 1).map(|file| file.to_string()),
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
            rustix::io::Errno::SRCH => ProcessError::Gone(self.pid),
            error => ProcessError::Signal { pid: self.pid, source: error.into() },
        })
    }

    /// How it says to be, or whoever is in its place.
    pub(super) fn state(&self) -> Result<ProcessState, ProcessError> {
        self.state
            .as_ref()
            .and_then(|file| ProcessState::read(file).ok())
            .ok_or(ProcessError::Unknown { pid: self.pid })
    }

    pub(super) fn is_alive(&self) -> bool {
        // One that nobody has waited for yet has ended, too.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Waits until something is known.
    pub(super) fn until<T>(&self, mut known: impl FnMut() -> Option<T>) -> Result<T, ProcessError> {
        loop {
            if let Some(known) = known() {
                return Ok(known);
            }
            if Instant::now() > self.until {
                return Err(ProcessError::Late { pid: self.pid });
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn which(pid: Option<u32>, pid_file: Option<PathBuf>, dir: &Path) -> Which {
        Which { pid, pid_file, dir: dir.to_owned(), timeout: Timespan::from_millis(1) }
    }

    #[test]
    fn what_is_no_gateway_is_not_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let told = |which: Which| which.find().unwrap_err().to_string();
        let own = std::process::id();
        assert!(told(which(Some(own), None, folder.path())).contains("is no gateway but"));
        assert_eq!(
            told(which(Some(u32::MAX), None, folder.path())),
            format!("there is no process {}", u32::MAX)
        );
        for (text, expected) in [("7x", "names no process"), ("4194305\n", "there is no process 4194305")] {
            fs::write(&file, text).unwrap();
            let told = told(which(None, Some(file.clone()), folder.path()));
            assert!(told.contains(expected), "{told}");
        }
        assert!(told(which(None, None, folder.path())).contains("nothing is running in"));
    }
}
