//! The gateway program as a child process.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use fairlead_config::ProcessState;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::world::{PATIENCE, eventually};

pub struct Gateway {
    pub child: Child,
    log: Option<tokio::io::Lines<BufReader<ChildStderr>>>,
}

impl Gateway {
    pub fn start(config: &std::path::Path) -> Self {
        Self::with([OsStr::new("--config"), config.as_os_str()])
    }

    pub fn with(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead-gateway"));
        command.args(arguments);
        Self::of_command(command)
    }

    /// Starts the gateway with a prepared command.
    pub fn of_command(mut command: Command) -> Self {
        let mut child =
            command.env_remove("RUST_LOG").stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log: Some(log) }
    }

    /// Waits for the first line of the log that contains this text, and returns the line.
    pub async fn says(&mut self, text: &str) -> String {
        self.says_one_of(&[text]).await
    }

    /// Waits for the first line of the log that contains one of these texts, and returns the line.
    pub async fn says_one_of(&mut self, texts: &[&str]) -> String {
        let line = async {
            while let Some(line) = self.log.as_mut().unwrap().next_line().await.unwrap() {
                if texts.iter().any(|text| line.contains(text)) {
                    return Some(line);
                }
            }
            None
        };
        let line = timeout(PATIENCE, line).await.ok().flatten();
        line.unwrap_or_else(|| panic!("no line of the log contains one of {texts:?}"))
    }

    /// The address of the first listener, from the log.
    pub async fn address(&mut self) -> std::net::SocketAddr {
        let line = self.says("listening").await;
        line.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(process(self.pid()), signal).unwrap();
    }

    /// Waits for the end of the process and asserts that it is successful.
    pub async fn ends_well(&mut self) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("the process does not end");
        assert!(status.unwrap().success());
    }

    /// Collects the lines of the log from now on.
    pub fn collect_log(&mut self) -> Arc<Mutex<Vec<String>>> {
        let (mut log, collected) = (self.log.take().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let target = Arc::clone(&collected);
        tokio::spawn(async move {
            while let Ok(Some(line)) = log.next_line().await {
                target.lock().push(line);
            }
        });
        collected
    }
}

/// The state file of the gateway, which names the process that serves. Dropping it kills that process.
pub struct StateFile(pub PathBuf);

impl StateFile {
    pub fn read(&self) -> ProcessState {
        ProcessState::read(&self.0).unwrap_or_default()
    }

    /// Waits until the state satisfies a condition, and returns the state.
    pub async fn until(&self, condition: impl Fn(&ProcessState) -> bool) -> ProcessState {
        let mut state = ProcessState::default();
        eventually("the state file has the expected state", async || {
            state = self.read();
            condition(&state)
        })
        .await;
        state
    }

    /// Sends a signal to the process that serves.
    pub fn signal(&self, signal: Signal) {
        kill_process(process(self.read().pid), signal).unwrap();
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.read().pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

pub fn process(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Waits for the end of a process that need not be a child of this one.
pub async fn until_gone(number: u32) {
    let descriptor = match pidfd_open(process(number), PidfdFlags::NONBLOCK) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return,
        Err(error) => panic!("process {number}: {error}"),
    };
    #[expect(
        deprecated,
        reason = "the replacement is an unsafe function, because of types that do not own their descriptor"
    )]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE).unwrap();
    let ended = timeout(PATIENCE, descriptor.readable()).await;
    drop(ended.unwrap_or_else(|_| panic!("process {number} does not end")).unwrap());
}
