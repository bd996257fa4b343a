//! Reports readiness, reloads and shutdown to the service manager (sd_notify) and to the state file.

use std::path::PathBuf;
use std::sync::Arc;

use fairlead_config::{ProcessPhase, ProcessState};
use fairlead_process::{InheritedSockets, ReloadHold, Reloads, ServiceManager, Shutdown};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::listener::workers::Workers;
use crate::process::gateway::{CONFIGURATION, SharedGateway};

/// Reports the state of the process.
#[derive(Clone)]
pub struct ServiceNotifier {
    last: Arc<Mutex<LastNotification>>,
    manager: ServiceManager,
}

struct LastNotification {
    state: ProcessState,
    file: Option<PathBuf>,
    /// True after the take-over and before a hand-over: only then this process reports the state of the service.
    is_reporting: bool,
}

impl ServiceNotifier {
    /// A notifier for a starting process; `file` is the state file.
    pub fn new(file: Option<PathBuf>) -> Self {
        let state = ProcessState {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ProcessState::default()
        };
        Self {
            last: Arc::new(Mutex::new(LastNotification { state, file, is_reporting: false })),
            manager: ServiceManager,
        }
    }

    /// Follows the process until it drains: takes over when it is ready, and reports reloads and the end. From this call on, a
    /// successor does not reload its configuration until it has taken over; the returned future must be run.
    pub fn run(
        self,
        gateway: SharedGateway,
        inherited: Arc<InheritedSockets>,
        reloads: Reloads,
        shutdown: Shutdown,
    ) -> impl Future<Output = ()> + Send {
        let held = inherited.is_successor().then(|| reloads.hold(CONFIGURATION));
        async move {
            let workers = gateway.lock().workers();
            // The reference to the gateway is dropped after the take-over.
            if self.take_over(gateway, &inherited, &shutdown).await {
                self.report_until_drain(workers, &reloads, held, &shutdown).await;
            }
        }
    }

    /// Takes over from a predecessor. False if that failed.
    async fn take_over(
        &self,
        gateway: SharedGateway,
        inherited: &InheritedSockets,
        shutdown: &Shutdown,
    ) -> bool {
        // Read now, because the parent may end before it is needed, and the process would then have another parent.
        let parent =
            rustix::process::getppid().and_then(|parent| parent.as_raw_nonzero().get().try_into().ok());
        let mut ready = gateway.lock().readiness();
        tokio::select! {
            is_ready = ready.wait_for(|ready| *ready) => if is_ready.is_err() { return false },
            () = shutdown.announced() => return false,
        }
        let Some(predecessor) = inherited.predecessor() else { return true };
        let inheritance = tokio::select! {
            inheritance = predecessor.take_over() => inheritance,
            () = shutdown.announced() => return false,
        };
        match inheritance {
            Ok(inheritance) => {
                gateway.lock().open_listeners().own_files(&inheritance);
                if inheritance.is_orphaned {
                    tracing::warn!("the predecessor has ended without a message: this process takes over");
                } else {
                    tracing::info!("took over from the predecessor");
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot communicate with the predecessor");
                return false;
            }
        }
        self.change(|state| state.predecessor = parent);
        self.manager.main_process(std::process::id());
        true
    }

    async fn report_until_drain(
        &self,
        workers: Arc<Workers>,
        reloads: &Reloads,
        held: Option<ReloadHold>,
        shutdown: &Shutdown,
    ) {
        self.last.lock().is_reporting = true;
        self.set_phase(ProcessPhase::Ready);
        self.manager.ready("serving");
        let mut reload_counts = reloads.counts();
        if let Some(held) = held {
            drop(held);
            // A reload that was requested from the predecessor meanwhile is done now.
            reloads.trigger().fire();
        }
        let watchdog = watchdog(self.manager, workers);
        tokio::pin!(watchdog);
        loop {
            tokio::select! {
                changed = reload_counts.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.on_reload_counts(&mut reload_counts, reloads);
                }
                () = &mut watchdog => {}
                () = shutdown.announced() => break,
            }
        }
        if self.is_reporting() {
            self.set_phase(ProcessPhase::Draining);
            self.manager.stopping("draining");
        }
    }

    /// True while this process reports the service's state: after the take-over and before a hand-over.
    pub(crate) fn is_reporting(&self) -> bool {
        self.last.lock().is_reporting
    }

    /// Reports that the process starts its successor.
    pub(crate) fn upgrade_started(&self) {
        self.set_phase(ProcessPhase::Upgrading);
        self.manager.status("starting a successor");
    }

    /// Reports that the hand-over has failed.
    pub(crate) fn upgrade_failed(&self, reason: &str) {
        self.change(|state| {
            state.phase = ProcessPhase::Ready;
            state.upgrades_failed += 1;
            state.upgrade_failure = Some(reason.to_owned());
        });
        self.manager.status(&format!("serving; the upgrade failed: {reason}"));
    }

    /// Stops reporting: the successor may report the service's state from now on.
    pub(crate) fn stop_reporting(&self) {
        self.last.lock().is_reporting = false;
    }

    /// Reports again, because the hand-over has failed.
    pub(crate) fn resume_reporting(&self) {
        self.last.lock().is_reporting = true;
    }

    /// Reports that the successor has taken over.
    pub(crate) fn handed_over(&self, successor: Option<u32>) {
        if let Some(successor) = successor {
            self.manager.main_process(successor);
        }
    }

    /// Reports the end of the process.
    pub fn end(&self) {
        let last = self.last.lock();
        if let Some(file) = last.file.as_ref().filter(|_| last.is_reporting) {
            // The file may not exist.
            let _ = std::fs::remove_file(file);
        }
    }

    fn on_reload_counts(
        &self,
        reload_counts: &mut watch::Receiver<fairlead_process::ReloadCounts>,
        reloads: &Reloads,
    ) {
        let now = *reload_counts.borrow_and_update();
        let is_over = now.begun == now.done;
        let failures = if is_over { reloads.failures() } else { Vec::new() };
        // A reload may be complete before its start was observed.
        if self.last.lock().state.reloads_begun < now.begun {
            self.manager.reloading();
        }
        self.change(|state| {
            if is_over {
                state.not_reloaded =
                    failures.iter().map(|(object, reason)| format!("{object}: {reason}")).collect();
            }
            (state.reloads_begun, state.reloads_done) = (now.begun, now.done);
            state.phase = match state.phase {
                ProcessPhase::Upgrading => ProcessPhase::Upgrading,
                _ if is_over => ProcessPhase::Ready,
                _ => ProcessPhase::Reloading,
            };
        });
        match (is_over, failures.first()) {
            (false, _) => {}
            (true, None) => self.manager.ready("serving"),
            (true, Some((object, _))) => {
                self.manager.ready(&format!("serving; the last good one is in effect: {object}"));
            }
        }
    }

    fn set_phase(&self, phase: ProcessPhase) {
        self.change(|state| state.phase = phase);
    }

    fn change(&self, change: impl FnOnce(&mut ProcessState)) {
        let mut last = self.last.lock();
        change(&mut last.state);
        if let Some(file) = last.file.as_ref().filter(|_| last.is_reporting)
            && let Err(error) = last.state.write(file)
        {
            tracing::warn!(file = %file.display(), %error, "the state file cannot be written");
        }
    }
}

/// Reports to the service manager that the process is alive, while all workers are; never returns.
async fn watchdog(manager: ServiceManager, workers: Arc<Workers>) {
    let Some(pause) = manager.watchdog_interval() else { return std::future::pending().await };
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        workers.probe().await;
        manager.alive();
    }
}
