//! The program itself, as a process of its own.

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
        Self::by(command)
    }

    /// By a command that somebody has prepared.
    pub fn by(mut command: Command) -> Self {
        let mut child =
            command.env_remove("RUST_LOG").stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log: Some(log) }
    }

    /// The first line of the log that says this.
    pub async fn says(&mut self, what: &str) -> String {
        let heard = async {
            while let Some(line) = self.log.as_mut().unwrap().next_line().await.unwrap() {
                if line.contains(what) {
                    return Some(line);
                }
            }
            None
        };
        let heard = timeout(PATIENCE, heard).await.ok().flatten();
        heard.unwrap_or_else(|| panic!("it never said {what}"))
    }

    /// Where its first listener listens.
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

    /// Waits for its end, which is to be a good one.
    pub async fn ends_well(&mut self) {
        let end = timeout(PATIENCE, self.child.wait()).await.expect("it does not end");
        assert!(end.unwrap().success());
    }

    /// Everything that it says from now on.
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

/// What a process says of itself in its state file, whoever serves. That one is killed at the end.
pub struct StateFile(pub PathBuf);

impl StateFile {
    pub fn read(&self) -> ProcessState {
        ProcessState::read(&self.0).unwrap_or_default()
    }

    pub async fn until(&self, condition: impl Fn(&ProcessState) -> bool) -> ProcessState {
        let mut state = ProcessState::default();
        eventually("the state file says what is waited for", async || {
            state = self.read();
            condition(&state)
        })
        .await;
        state
    }

    /// To whoever is in charge.
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

/// Waits for the end of a process that need not be a child of ours.
pub async fn until_gone(number: u32) {
    let descriptor = match pidfd_open(process(number), PidfdFlags::NONBLOCK) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return,
        Err(error) => panic!("process {number}: {error}"),
    };
    #[expect(
        deprecated,
        reason = "the other ways are unsafe for the sake of what is no descriptor of its own"
    )]
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE).unwrap();
    let gone = timeout(PATIENCE, descriptor.readable()).await;
    drop(gone.unwrap_or_else(|_| panic!("process {number} does not end")).unwrap());
}
