//! The program itself, as a process of its own.

use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

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
        // Generous: a loaded machine is no failure, and one that waits for ever says nothing.
        let heard = tokio::time::timeout(std::time::Duration::from_secs(60), heard).await.ok().flatten();
        heard.unwrap_or_else(|| panic!("it never said {what}"))
    }

    /// Where its first door listens.
    pub async fn address(&mut self) -> std::net::SocketAddr {
        let line = self.says("listening").await;
        line.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
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
