//! The life of the process, as a service manager and the state file are told of it.

use std::path::PathBuf;
use std::sync::Arc;

use fairlead_config::{ProcessPhase, ProcessState};
use fairlead_process::{InheritedSockets, ReloadHold, Reloads, ServiceManager, Shutdown};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::listener::workers::Workers;
use crate::process::gateway::{CONFIGURATION, SharedGateway};

/// Tells how the process is.
#[derive(Clone)]
pub struct ServiceNotifier {
    told: Arc<Mutex<LastNotification>>,
    manager: ServiceManager,
}

struct LastNotification {
    state: ProcessState,
    file: Option<PathBuf>,
    /// Nothing is told before the process is in charge, and after it has handed over.
    in_charge: bool,
}

impl ServiceNotifier {
    /// Of a process that begins; `file` is the state file.
    pub fn new(file: Option<PathBuf>) -> Self {
        let state = ProcessState {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ProcessState::default()
        };
        Self {
            told: Arc::new(Mutex::new(LastNotification { state, file, in_charge: false })),
            manager: ServiceManager,
        }
    }

    /// Follows the process until it drains: takes over when it is ready, tells of reloads and of the end. From the call on a
    /// successor keeps the configuration that it has begun with until it has taken over; the future must be run.
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
            // Whoever runs this has the gateway no longer than it takes.
            if self.takes_over(gateway, &inherited, &shutdown).await {
                self.serves(workers, &reloads, held, &shutdown).await;
            }
        }
    }

    /// Whether it came to that.
    async fn takes_over(
        &self,
        gateway: SharedGateway,
        inherited: &InheritedSockets,
        shutdown: &Shutdown,
    ) -> bool {
        // Later it may have ended, and we would be somebody else's child.
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
                gateway.lock().open_listeners().own(&inheritance);
                if inheritance.is_orphaned {
                    tracing::warn!("the predecessor has ended without a word: this process takes over");
                } else {
                    tracing::info!("took over from the predecessor");
                }
            }
            Err(error) => {
                tracing::error!(%error, "the predecessor cannot be spoken to");
                return false;
            }
        }
        self.change(|state| state.predecessor = parent);
        self.manager.main_process(std::process::id());
        true
    }

    async fn serves(
        &self,
        workers: Arc<Workers>,
        reloads: &Reloads,
        held: Option<ReloadHold>,
        shutdown: &Shutdown,
    ) {
        self.told.lock().in_charge = true;
        self.enter(ProcessPhase::Ready);
        self.manager.ready("serving");
        let mut looks = reloads.counts();
        if let Some(held) = held {
            drop(held);
            // Whoever asked the predecessor to look meanwhile is not forgotten.
            reloads.trigger().fire();
        }
        let watchdog = watchdog(self.manager, workers);
        tokio::pin!(watchdog);
        loop {
            tokio::select! {
                changed = looks.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.looked(&mut looks, reloads);
                }
                () = &mut watchdog => {}
                () = shutdown.announced() => break,
            }
        }
        if self.is_in_charge() {
            self.enter(ProcessPhase::Draining);
            self.manager.stopping("draining");
        }
    }

    /// Whether nobody else serves in this process's place, or goes before it.
    pub(crate) fn is_in_charge(&self) -> bool {
        self.told.lock().in_charge
    }

    /// The process starts its successor.
    pub(crate) fn upgrading(&self) {
        self.enter(ProcessPhase::Upgrading);
        self.manager.status("starting a successor");
    }

    /// It came to nothing.
    pub(crate) fn goes_on(&self, why: &str) {
        self.change(|state| {
            state.phase = ProcessPhase::Ready;
            state.upgrades_failed += 1;
            state.upgrade_failure = Some(why.to_owned());
        });
        self.manager.status(&format!("serving; there was no upgrade: {why}"));
    }

    /// Whoever is the service says what the service does, and that may be the successor from now on.
    pub(crate) fn falls_silent(&self) {
        self.told.lock().in_charge = false;
    }

    /// It is not.
    pub(crate) fn speaks_again(&self) {
        self.told.lock().in_charge = true;
    }

    /// The successor is in charge from now on.
    pub(crate) fn hands_over(&self, successor: Option<u32>) {
        if let Some(successor) = successor {
            self.manager.main_process(successor);
        }
    }

    /// The process ends.
    pub fn end(&self) {
        let told = self.told.lock();
        if let Some(file) = told.file.as_ref().filter(|_| told.in_charge) {
            // It may never have been there.
            let _ = std::fs::remove_file(file);
        }
    }

    fn looked(&self, looks: &mut watch::Receiver<fairlead_process::ReloadCounts>, reloads: &Reloads) {
        let now = *looks.borrow_and_update();
        let is_over = now.begun == now.done;
        let failures = if is_over { reloads.failures() } else { Vec::new() };
        // It may be over before anybody has heard that it began.
        if self.told.lock().state.reloads_begun < now.begun {
            self.manager.reloading();
        }
        self.change(|state| {
            if is_over {
                state.not_reloaded =
                    failures.iter().map(|(what, reason)| format!("{what}: {reason}")).collect();
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
            (true, Some((what, _))) => {
                self.manager.ready(&format!("serving; the last good one is in effect: {what}"));
            }
        }
    }

    fn enter(&self, phase: ProcessPhase) {
        self.change(|state| state.phase = phase);
    }

    fn change(&self, change: impl FnOnce(&mut ProcessState)) {
        let mut told = self.told.lock();
        change(&mut told.state);
        if let Some(file) = told.file.as_ref().filter(|_| told.in_charge)
            && let Err(error) = told.state.write(file)
        {
            tracing::warn!(file = %file.display(), %error, "the state file cannot be written");
        }
    }
}

/// Tells the service manager that the process is alive, as long as all workers are; never returns.
async fn watchdog(manager: ServiceManager, workers: Arc<Workers>) {
    let Some(pause) = manager.watchdog_interval() else { return std::future::pending().await };
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        workers.answer().await;
        manager.alive();
    }
}
