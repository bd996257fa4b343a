//! What a service manager is told: systemd, or whoever else listens at `NOTIFY_SOCKET`.

use std::time::Duration;

use sd_notify::NotifyState;

/// Tells the service manager, if there is one. One that does not listen is no reason to stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceManager;

impl ServiceManager {
    /// The service is there.
    pub fn ready(self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Files are being read again; it is over with [`Self::ready`].
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now, NotifyState::Status("reloading")]),
            Err(error) => tracing::debug!(%error, "there is no monotonic clock"),
        }
    }

    /// The service ends.
    pub fn stopping(self, status: &str) {
        self.tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }

    /// Another process is the service from now on.
    pub fn main_process(self, pid: u32) {
        self.tell(&[NotifyState::MainPid(pid)]);
    }

    /// Only a word for people.
    pub fn status(self, status: &str) {
        self.tell(&[NotifyState::Status(status)]);
    }

    /// The process is alive.
    pub fn alive(self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    /// How often it wants to hear that: twice in the time after which it would act.
    pub fn wants_to_hear(self) -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 2)
    }

    fn tell(self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::debug!(%error, "the service manager cannot be told");
        }
    }
}
