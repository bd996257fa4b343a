//! Signals of the process: termination, reload, and reopening of log files.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::lifecycle::Shutdown;
use crate::reload::ReloadTrigger;

/// Handles signals until the process exits: SIGTERM and SIGINT begin the shutdown, a second one exits at once with code 1,
/// SIGHUP triggers a check of all files. The call installs the handlers; the future must be run beside
/// [`Tasks::supervise`](crate::Tasks::supervise), whose result is that of the process.
pub fn signals(
    shutdown: &Shutdown,
    reload: ReloadTrigger,
) -> io::Result<impl Future<Output = Infallible> + Send + use<>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let shutdown = shutdown.clone();
    Ok(async move {
        loop {
            tokio::select! {
                _ = hangup.recv() => reload.fire(),
                _ = terminate.recv() => on_terminate(&shutdown),
                _ = interrupt.recv() => on_terminate(&shutdown),
            }
        }
    })
}

/// Handles SIGUSR1 until the process drains: each calls `reopen`, so that log files can be rotated. The call installs the
/// handler, which stays; the future must be run.
pub fn on_reopen_signal<F: Fn() + Send>(
    shutdown: &Shutdown,
    reopen: F,
) -> io::Result<impl Future<Output = ()> + Send + use<F>> {
    let mut reopens = signal(SignalKind::user_defined1())?;
    let shutdown = shutdown.clone();
    Ok(async move {
        loop {
            tokio::select! {
                _ = reopens.recv() => reopen(),
                () = shutdown.draining() => return,
            }
        }
    })
}

fn on_terminate(shutdown: &Shutdown) {
    if shutdown.is_announced() {
        tracing::warn!("second signal: exiting without waiting for open requests");
        std::process::exit(1);
    }
    tracing::info!("shutting down; a second signal exits at once");
    shutdown.begin();
}
