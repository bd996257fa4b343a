//! Notifications to the service manager: systemd, or another one that listens at `NOTIFY_SOCKET`.

use std::time::Duration;

use sd_notify::NotifyState;

/// Notifies the service manager, if there is one. A failed notification does not stop the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceManager;

impl ServiceManager {
    /// Reports that the service is ready.
    pub fn ready(self, status: &str) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that the service reloads its files, until [`Self::ready`] is called.
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now, NotifyState::Status("reloading")]),
            Err(error) => tracing::debug!(%error, "there is no monotonic clock"),
        }
    }

    /// Reports that the service is stopping.
    pub fn stopping(self, status: &str) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }

    /// Reports that another process is the main process from now on.
    pub fn main_process(self, pid: u32) {
        self.notify(&[NotifyState::MainPid(pid)]);
    }

    /// Reports a status text for humans.
    pub fn status(self, status: &str) {
        self.notify(&[NotifyState::Status(status)]);
    }

    /// Sends a watchdog notification: the process is alive.
    pub fn alive(self) {
        self.notify(&[NotifyState::Watchdog]);
    }

    /// Interval of watchdog notifications: half the time-out of the service manager.
    pub fn watchdog_interval(self) -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 2)
    }

    fn notify(self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::debug!(%error, "the service manager cannot be notified");
        }
    }
}
