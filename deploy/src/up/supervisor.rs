//! Supervision of one server process: start, readiness, restart, stop.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::log_file::LogFile;
use super::process_table::{Change, ProcessEvent};
use super::readiness::ReadinessProbe;
use super::restart_backoff::RestartBackoff;
use super::settings::DRAIN_WINDOW;

/// The environment variable that makes a server end at the end of its standard input, a pipe held by its supervisor.
pub(crate) const SUPERVISED_VARIABLE: &str = "FAIRLEAD_SUPERVISED";

/// Time that a process gets to end after its drain window: the timeout of its tasks, and a margin.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(7);

/// The state that a supervised process should be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesiredState {
    /// The process runs, and is restarted when it ends.
    Run,
    /// The process ends after it has drained.
    Stop,
    /// The process is killed.
    Kill,
}

/// A process to supervise.
#[derive(Debug)]
pub(crate) struct SupervisedProcess {
    /// Index of the process.
    pub index: usize,
    pub program: PathBuf,
    /// Arguments before `--config`.
    pub arguments: Vec<OsString>,
    pub config: PathBuf,
    pub log: LogFile,
    pub probe: ReadinessProbe,
}

/// Sends the events of one process.
struct EventReporter {
    process: usize,
    events: mpsc::Sender<ProcessEvent>,
}

impl EventReporter {
    /// Sends an event. Returns whether there is still a receiver.
    async fn report(&self, change: Change) -> bool {
        let process = self.process;
        self.events.send(ProcessEvent { process, change }).await.is_ok()
    }
}

/// A running process. It is killed on drop.
struct RunningProcess {
    child: Child,
    /// The write end of its standard input: closed whenever this process ends, even by SIGKILL.
    _stdin: Option<ChildStdin>,
    started: Instant,
}

impl SupervisedProcess {
    /// Keeps the process running until it should stop, and sends events. Returns when it has ended, or when the receiver of
    /// the events is gone.
    pub(crate) async fn supervise(
        self,
        events: mpsc::Sender<ProcessEvent>,
        mut desired: watch::Receiver<DesiredState>,
    ) {
        let mut restarts = RestartBackoff::default();
        let reporter = EventReporter { process: self.index, events };
        while *desired.borrow_and_update() == DesiredState::Run {
            let (exit, ran_for) = match self.start() {
                Err(error) => (format!("cannot be started: {error}"), Duration::ZERO),
                Ok(mut running) => {
                    let pid = running.child.id().unwrap_or_default();
                    if !reporter.report(Change::Started { pid }).await {
                        return;
                    }
                    match self.watch(&mut running, &mut desired, &reporter).await {
                        Some(status) => (describe(status), running.started.elapsed()),
                        None => {
                            reporter.report(Change::Stopping).await;
                            running.end(&mut desired).await;
                            break;
                        }
                    }
                }
            };
            let pause = restarts.pause_after(ran_for);
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            if !reporter.report(Change::Ended { exit, pause_ms }).await {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = until_not_run(&mut desired) => {}
            }
        }
        reporter.report(Change::Stopped).await;
    }

    fn start(&self) -> io::Result<RunningProcess> {
        self.log.rotate()?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .arg("--config")
            .arg(&self.config)
            .env(SUPERVISED_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(self.log.open()?)
            .stderr(self.log.open()?)
            // Ctrl-C at the terminal must reach `up` only, which stops the processes in the order of their roles.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // Kept apart from the child, because `Child::wait` closes its standard input.
        let stdin = child.stdin.take();
        Ok(RunningProcess { child, _stdin: stdin, started: Instant::now() })
    }

    /// Reports readiness. Returns the exit status, or `None` if the process should stop.
    async fn watch(
        &self,
        running: &mut RunningProcess,
        desired: &mut watch::Receiver<DesiredState>,
        reporter: &EventReporter,
    ) -> Option<ExitStatus> {
        let mut ready = false;
        let mut log_rotation = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                status = running.child.wait() => return Some(status.unwrap_or_default()),
                () = self.probe.until_ready(), if !ready => {
                    ready = true;
                    let after_ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    reporter.report(Change::Ready { after_ms }).await;
                }
                () = until_not_run(desired) => return None,
                // A failed rotation, such as on a full disk, must not end the server.
                _ = log_rotation.tick() => drop(self.log.rotate()),
            }
        }
    }
}

impl RunningProcess {
    /// Sends SIGTERM, then SIGKILL if the process does not end in time or should be killed.
    async fn end(&mut self, desired: &mut watch::Receiver<DesiredState>) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid.filter(|_| *desired.borrow() != DesiredState::Kill) {
            // The process may already have ended.
            let _ = kill_process(pid, Signal::TERM);
            tokio::select! {
                _ = self.child.wait() => return,
                () = tokio::time::sleep(DRAIN_WINDOW.get() + EXIT_GRACE_PERIOD) => {}
                () = until_killed(desired) => {}
            }
        }
        let _ = self.child.kill().await;
    }
}

/// Returns when the process should no longer run, or when the sender of the desired state is gone.
async fn until_not_run(desired: &mut watch::Receiver<DesiredState>) {
    let _ = desired.wait_for(|state| *state != DesiredState::Run).await;
}

/// Returns when the process should be killed, or when the sender of the desired state is gone.
async fn until_killed(desired: &mut watch::Receiver<DesiredState>) {
    let _ = desired.wait_for(|state| *state == DesiredState::Kill).await;
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

    /// Deadline that turns a hanging test into a failing one.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A supervised shell script and its events.
    struct Fixture {
        folder: tempfile::TempDir,
        events: mpsc::Receiver<ProcessEvent>,
        desired: watch::Sender<DesiredState>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Fixture {
        fn start(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("server");
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
            let certificates = Layout::new(folder.path().join("pki"));
            let inventory = Inventory::parse(["root"], std::iter::empty::<&str>()).unwrap();
            let plan = Plan::for_inventory(&inventory);
            plan.apply(&certificates, std::time::SystemTime::now(), Renewal::WhenDue).unwrap();
            // There is no server on port 1, so these processes never become ready.
            let process =
                Process { name: "root".to_owned(), role: Role::Shard, address: ([127, 0, 0, 1], 1).into() };
            let process_spec = SupervisedProcess {
                index: 3,
                program,
                arguments: Vec::new(),
                config: folder.path().join("root.yaml"),
                log: LogFile::at(folder.path().join("root.log")),
                probe: ReadinessProbe::of(&process, &certificates).unwrap(),
            };
            let (sender, events) = mpsc::channel(8);
            let (desired, receiver) = watch::channel(DesiredState::Run);
            let task = tokio::spawn(process_spec.supervise(sender, receiver));
            Self { folder, events, desired, task }
        }

        async fn next(&mut self) -> Change {
            let events = tokio::time::timeout(TEST_TIMEOUT, self.events.recv()).await;
            let events = events.unwrap().unwrap();
            assert_eq!(events.process, 3);
            events.change
        }

        /// Waits until the log has exactly this content.
        async fn until_log(&self, expected: &str) {
            let said = async {
                while self.log() != expected {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let in_time = tokio::time::timeout(TEST_TIMEOUT, said).await;
            assert!(in_time.is_ok(), "{expected:?} was not logged, but: {:?}", self.log());
        }

        fn log(&self) -> String {
            std::fs::read_to_string(self.folder.path().join("root.log")).unwrap()
        }
    }

    #[tokio::test]
    async fn a_process_that_ends_is_started_again() {
        let mut fixture = Fixture::start("echo \"$@\"; exit 3");
        for pause_ms in [100, 200] {
            assert!(matches!(fixture.next().await, Change::Started { .. }));
            assert_eq!(fixture.next().await, Change::Ended { exit: "exit code 3".to_owned(), pause_ms });
        }
        let config = fixture.folder.path().join("root.yaml");
        assert!(fixture.log().starts_with(&format!("--config {}\n", config.display())), "{}", fixture.log());
        fixture.desired.send_replace(DesiredState::Stop);
        while fixture.next().await != Change::Stopped {}
        fixture.task.await.unwrap();
    }

    #[tokio::test]
    async fn a_process_is_stopped_by_sigterm_and_waited_for() {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let mut fixture = Fixture::start(script);
        assert!(matches!(fixture.next().await, Change::Started { .. }));
        fixture.until_log("up\n").await;
        fixture.desired.send_replace(DesiredState::Stop);
        assert_eq!(fixture.next().await, Change::Stopping);
        assert_eq!(fixture.next().await, Change::Stopped);
        assert_eq!(fixture.log(), "up\nbye\n");
    }

    #[tokio::test]
    async fn a_process_that_ignores_sigterm_is_killed_on_request() {
        let mut fixture = Fixture::start("trap '' TERM; echo up; while :; do sleep 0.01; done");
        assert!(matches!(fixture.next().await, Change::Started { .. }));
        fixture.until_log("up\n").await;
        fixture.desired.send_replace(DesiredState::Stop);
        assert_eq!(fixture.next().await, Change::Stopping);
        fixture.desired.send_replace(DesiredState::Kill);
        assert_eq!(fixture.next().await, Change::Stopped);
    }

    #[tokio::test]
    async fn the_standard_input_of_a_process_stays_open_while_it_runs() {
        // `read` fails at once on a closed standard input, and otherwise blocks.
        let mut fixture = Fixture::start("echo $FAIRLEAD_SUPERVISED; read line; echo alone");
        assert!(matches!(fixture.next().await, Change::Started { .. }));
        fixture.until_log("1\n").await;
        fixture.desired.send_replace(DesiredState::Stop);
        assert_eq!(fixture.next().await, Change::Stopping, "it has not ended by itself");
        assert_eq!(fixture.next().await, Change::Stopped);
        assert_eq!(fixture.log(), "1\n");
    }

    #[tokio::test]
    async fn a_missing_program_is_reported() {
        let mut fixture = Fixture::start("");
        std::fs::remove_file(fixture.folder.path().join("server")).unwrap();
        loop {
            if let Change::Ended { exit, .. } = fixture.next().await
                && exit.starts_with("cannot be started")
            {
                break;
            }
        }
    }
}
