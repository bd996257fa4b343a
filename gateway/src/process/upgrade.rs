//! SIGQUIT: starts a successor, and ends this process when the successor serves. If it fails to, this process continues.

use std::ffi::OsString;
use std::io;

use fairlead_process::{HandoverError, ReloadHold, Reloads, Shutdown, Successor};
use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::process::gateway::{CONFIGURATION, SharedGateway};
use crate::process::lifecycle::ServiceNotifier;

/// Set by a supervisor that tracks this process only and would lose its successor.
const SUPERVISED: &str = "FAIRLEAD_SUPERVISED";

/// The hand-over failed, and this process continues.
#[derive(Debug, thiserror::Error)]
enum UpgradeError {
    /// The supervisor tracks this process only.
    #[error(
        "the supervisor of this process cannot follow a hand-over: restart the process through the supervisor"
    )]
    Supervised,
    /// The program to start is unknown.
    #[error("the program of this process is unknown; set upgrade.program")]
    NoName,
    /// The sockets cannot be handed over.
    #[error("the sockets cannot be handed over")]
    Sockets(#[source] io::Error),
    /// The successor failed.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// The process ends before the hand-over is complete.
    #[error("the process is shutting down")]
    Ending,
}

/// Waits for SIGQUIT until the process ends. The handler is installed by the call; the future must be run.
///
/// # Errors
/// The handler cannot be installed.
pub fn on_upgrade_signal(
    gateway: SharedGateway,
    notifier: ServiceNotifier,
    reloads: Reloads,
    shutdown: Shutdown,
) -> io::Result<impl Future<Output = ()> + Send> {
    let mut sigquit = signal(SignalKind::quit())?;
    Ok(async move {
        loop {
            tokio::select! {
                biased;
                () = shutdown.announced() => return,
                _ = sigquit.recv() => {}
            }
            if !notifier.is_reporting() {
                // A successor that has not taken over would start a third process, whose end its predecessor would not notice.
                tracing::warn!("SIGQUIT is ignored: this process is not ready, or has not taken over yet");
                continue;
            }
            notifier.upgrade_started();
            // Two processes listen on the same addresses: listeners must not change until one of them is the only one.
            let reload_hold = hold(&reloads).await;
            match hand_over(&gateway, &notifier, &shutdown).await {
                Ok(()) => {
                    tracing::info!("the successor has taken over; open connections drain");
                    shutdown.begin_now();
                    shutdown.draining().await;
                    return drop(reload_hold);
                }
                Err(UpgradeError::Ending) => return,
                Err(error) => {
                    let reason = fairlead_process::chain(&error);
                    tracing::error!(reason, "the upgrade failed: this process continues");
                    notifier.upgrade_failed(&reason);
                }
            }
            drop(reload_hold);
            // Further signals during the hand-over are ignored.
            while sigquit.recv().now_or_never().is_some() {}
        }
    })
}

async fn hold(reloads: &Reloads) -> Option<ReloadHold> {
    let reloads = reloads.clone();
    // Waits for a reload in progress. It fails if the process ends; then nothing is reloaded any more.
    tokio::task::spawn_blocking(move || reloads.hold(CONFIGURATION)).await.ok()
}

async fn hand_over(
    gateway: &SharedGateway,
    notifier: &ServiceNotifier,
    shutdown: &Shutdown,
) -> Result<(), UpgradeError> {
    if std::env::var_os(SUPERVISED).is_some() {
        return Err(UpgradeError::Supervised);
    }
    let (program, limit, (handed, sockets)) = {
        let gateway = gateway.lock();
        let upgrade = &gateway.config().upgrade;
        let program = upgrade.program.as_ref().map(|program| program.as_os_str().to_owned());
        (
            program,
            upgrade.ready_timeout.get(),
            gateway.open_listeners().hand_over().map_err(UpgradeError::Sockets)?,
        )
    };
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let (own_program, arguments) = arguments.split_first().ok_or(UpgradeError::NoName)?;
    let own_program = Some(own_program.clone()).filter(|own_program| !own_program.is_empty());
    let program: OsString = program.or(own_program).ok_or(UpgradeError::NoName)?;
    let mut successor = Successor::start(&program, arguments, sockets, &handed.files())?;
    tracing::info!(program = %program.display(), pid = successor.pid(), "a successor was started");
    tokio::select! {
        ready = successor.ready(limit) => ready?,
        // The successor is killed; it does not serve yet.
        () = shutdown.announced() => return Err(UpgradeError::Ending),
    }
    let (pid, owned) = (successor.pid(), handed.release(successor.unused()));
    // Before the successor is notified, so that its reports are not overwritten.
    notifier.stop_reporting();
    if let Err(error) = successor.hand_over(&owned).await {
        notifier.resume_reporting();
        handed.reclaim();
        return Err(error.into());
    }
    notifier.handed_over(pid);
    Ok(())
}
