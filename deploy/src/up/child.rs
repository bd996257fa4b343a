//! One server process: started, watched, started again, stopped.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::board::{Change, News};
use super::logs::Log;
use super::readiness::ReadinessProbe;
use super::restarts::Restarts;
use super::settings::DRAIN_WINDOW;

/// Tells a server that its standard input is a line to whoever started it: when that ends, so must the server.
pub(crate) const SUPERVISED: &str = "FAIRLEAD_SUPERVISED";

/// How long a process may take to end after its drain window: its own patience with its tasks, and some more.
const GRACE: Duration = Duration::from_secs(7);

/// What a supervisor wants of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run it, again and again.
    Run,
    /// End it; let it finish what it does.
    Stop,
    /// End it now.
    Kill,
}

/// How to start a process.
#[derive(Debug)]
pub(crate) struct Launch {
    /// Its place among the processes.
    pub index: usize,
    pub program: PathBuf,
    pub config: PathBuf,
    pub log: Log,
    pub probe: ReadinessProbe,
}

/// Tells what happens to one process.
struct Reporter {
    process: usize,
    news: mpsc::Sender<News>,
}

impl Reporter {
    /// Whether anybody listens.
    async fn tell(&self, change: Change) -> bool {
        let process = self.process;
        self.news.send(News { process, change }).await.is_ok()
    }
}

/// A process that runs. Dropping it kills it.
struct Running {
    child: Child,
    /// Ends when we do, however we do.
    _line: Option<ChildStdin>,
    started: Instant,
}

impl Launch {
    /// Keeps the process running until it is ordered to end, and tells what happens. Returns when it has ended, or when
    /// nobody listens any more.
    pub(crate) async fn supervise(self, news: mpsc::Sender<News>, mut orders: watch::Receiver<Order>) {
        let mut restarts = Restarts::default();
        let reporter = Reporter { process: self.index, news };
        while *orders.borrow_and_update() == Order::Run {
            let (how, lived) = match self.start() {
                Err(error) => (format!("cannot be started: {error}"), Duration::ZERO),
                Ok(mut running) => {
                    let pid = running.child.id().unwrap_or_default();
                    if !reporter.tell(Change::Started { pid }).await {
                        return;
                    }
                    match self.watch(&mut running, &mut orders, &reporter).await {
                        Some(status) => (describe(status), running.started.elapsed()),
                        None => {
                            reporter.tell(Change::Stopping).await;
                            running.end(&mut orders).await;
                            break;
                        }
                    }
                }
            };
            let pause = restarts.pause_after(lived);
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            if !reporter.tell(Change::Ended { how, pause_ms }).await {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = revoked(&mut orders) => {}
            }
        }
        reporter.tell(Change::Stopped).await;
    }

    fn start(&self) -> io::Result<Running> {
        self.log.rotate()?;
        let mut child = Command::new(&self.program)
            .arg("--config")
            .arg(&self.config)
            .env(SUPERVISED, "1")
            .stdin(Stdio::piped())
            .stdout(self.log.open()?)
            .stderr(self.log.open()?)
            // Ctrl-C at a terminal is for us: we stop the processes, in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // Taken out, because waiting for a child closes its standard input.
        let line = child.stdin.take();
        Ok(Running { child, _line: line, started: Instant::now() })
    }

    /// Tells when the process is ready; returns how it ended, or nothing if it is to be ended.
    async fn watch(
        &self,
        running: &mut Running,
        orders: &mut watch::Receiver<Order>,
        reporter: &Reporter,
    ) -> Option<ExitStatus> {
        let mut ready = false;
        let mut look_at_log = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                status = running.child.wait() => return Some(status.unwrap_or_default()),
                () = self.probe.passed(), if !ready => {
                    ready = true;
                    let after_ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    reporter.tell(Change::Ready { after_ms }).await;
                }
                () = revoked(orders) => return None,
                // A full disk is for the operator to see in the log that did not rotate.
                _ = look_at_log.tick() => drop(self.log.rotate()),
            }
        }
    }
}

impl Running {
    /// SIGTERM, then SIGKILL if the process does not end in time or is ordered to be killed.
    async fn end(&mut self, orders: &mut watch::Receiver<Order>) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid.filter(|_| *orders.borrow() != Order::Kill) {
            // It may just have ended, which is as good.
            let _ = kill_process(pid, Signal::TERM);
            tokio::select! {
                _ = self.child.wait() => return,
                () = tokio::time::sleep(DRAIN_WINDOW.get() + GRACE) => {}
                () = condemned(orders) => {}
            }
        }
        let _ = self.child.kill().await;
    }
}

/// Returns when the process is no longer to be run, also when nobody is left to give orders.
async fn revoked(orders: &mut watch::Receiver<Order>) {
    let _ = orders.wait_for(|order| *order != Order::Run).await;
}

/// Returns when the process is to be killed, also when nobody is left to give orders.
async fn condemned(orders: &mut watch::Receiver<Order>) {
    let _ = orders.wait_for(|order| *order == Order::Kill).await;
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use fairlead_certs::{Inventory, Layout, Plan, Renewal};

    use super::*;
    use crate::up::topology::{Process, Role};

    /// Only to fail instead of hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A process that is a shell script, and what is told about it.
    struct Stage {
        folder: tempfile::TempDir,
        news: mpsc::Receiver<News>,
        orders: watch::Sender<Order>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Stage {
        fn set(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("server");
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
            let certificates = Layout::new(folder.path().join("pki"));
            let inventory = Inventory::parse(["root"], std::iter::empty::<&str>()).unwrap();
            let plan = Plan::for_inventory(&inventory);
            plan.apply(&certificates, std::time::SystemTime::now(), Renewal::WhenDue).unwrap();
            // Nobody listens on port 1: these processes never become ready.
            let process =
                Process { name: "root".to_owned(), role: Role::Shard, address: ([127, 0, 0, 1], 1).into() };
            let launch = Launch {
                index: 3,
                program,
                config: folder.path().join("root.yaml"),
                log: Log::at(folder.path().join("root.log")),
                probe: ReadinessProbe::of(&process, &certificates).unwrap(),
            };
            let (sender, news) = mpsc::channel(8);
            let (orders, receiver) = watch::channel(Order::Run);
            let task = tokio::spawn(launch.supervise(sender, receiver));
            Self { folder, news, orders, task }
        }

        async fn next(&mut self) -> Change {
            let news = tokio::time::timeout(PATIENCE, self.news.recv()).await;
            let news = news.unwrap().unwrap();
            assert_eq!(news.process, 3);
            news.change
        }

        /// Waits until the process has said this and no more.
        async fn until_log(&self, expected: &str) {
            let said = async {
                while self.log() != expected {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let in_time = tokio::time::timeout(PATIENCE, said).await;
            assert!(in_time.is_ok(), "{expected:?} was never said, but: {:?}", self.log());
        }

        fn log(&self) -> String {
            std::fs::read_to_string(self.folder.path().join("root.log")).unwrap()
        }
    }

    #[tokio::test]
    async fn a_process_that_ends_is_started_again() {
        let mut stage = Stage::set("echo \"$@\"; exit 3");
        for pause_ms in [100, 200] {
            assert!(matches!(stage.next().await, Change::Started { .. }));
            assert_eq!(stage.next().await, Change::Ended { how: "exit code 3".to_owned(), pause_ms });
        }
        let config = stage.folder.path().join("root.yaml");
        assert!(stage.log().starts_with(&format!("--config {}\n", config.display())), "{}", stage.log());
        stage.orders.send_replace(Order::Stop);
        while stage.next().await != Change::Stopped {}
        stage.task.await.unwrap();
    }

    #[tokio::test]
    async fn a_process_is_asked_to_end_and_may_take_its_time() {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let mut stage = Stage::set(script);
        assert!(matches!(stage.next().await, Change::Started { .. }));
        stage.until_log("up\n").await;
        stage.orders.send_replace(Order::Stop);
        assert_eq!(stage.next().await, Change::Stopping);
        assert_eq!(stage.next().await, Change::Stopped);
        assert_eq!(stage.log(), "up\nbye\n");
    }

    #[tokio::test]
    async fn a_deaf_process_is_killed_when_that_is_wanted() {
        let mut stage = Stage::set("trap '' TERM; echo up; while :; do sleep 0.01; done");
        assert!(matches!(stage.next().await, Change::Started { .. }));
        stage.until_log("up\n").await;
        stage.orders.send_replace(Order::Stop);
        assert_eq!(stage.next().await, Change::Stopping);
        stage.orders.send_replace(Order::Kill);
        assert_eq!(stage.next().await, Change::Stopped);
    }

    #[tokio::test]
    async fn a_process_has_a_line_to_its_supervisor_as_long_as_it_runs() {
        // `read` fails at once if standard input is closed, and else waits for what never comes.
        let mut stage = Stage::set("echo $FAIRLEAD_SUPERVISED; read line; echo alone");
        assert!(matches!(stage.next().await, Change::Started { .. }));
        stage.until_log("1\n").await;
        stage.orders.send_replace(Order::Stop);
        assert_eq!(stage.next().await, Change::Stopping, "it has not ended by itself");
        assert_eq!(stage.next().await, Change::Stopped);
        assert_eq!(stage.log(), "1\n");
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_told() {
        let mut stage = Stage::set("");
        std::fs::remove_file(stage.folder.path().join("server")).unwrap();
        loop {
            if let Change::Ended { how, .. } = stage.next().await
                && how.starts_with("cannot be started")
            {
                break;
            }
        }
    }
}
