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
    /// A supervisor tracks this process only.
    #[error(
        "the supervisor that has started this process would take the hand-over for its end; stop and start it there"
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
    #[error("the process ends")]
    Ending,
}

/// Waits for SIGQUIT until the process ends. The handler is installed by the call; the future must be run.
///
/// # Errors
/// The handler cannot be installed.
pub fn on_upgrade_signal(
    gateway: SharedGateway,
    life: ServiceNotifier,
    reloads: Reloads,
    shutdown: Shutdown,
) -> io::Result<impl Future<Output = ()> + Send> {
    let mut asked = signal(SignalKind::quit())?;
    Ok(async move {
        loop {
            tokio::select! {
                biased;
                () = shutdown.announced() => return,
                _ = asked.recv() => {}
            }
            if !life.is_in_charge() {
                // As a successor it would start a third process, and its predecessor would not notice the end of that one.
                tracing::warn!("SIGQUIT is ignored: this process is not ready, or has not taken over yet");
                continue;
            }
            life.upgrading();
            // Two processes listen on the same addresses: listeners must not change until one of them is the only one.
            let held = hold(&reloads).await;
            match hand_over(&gateway, &life, &shutdown).await {
                Ok(()) => {
                    tracing::info!("the successor has taken over; open connections drain");
                    shutdown.begin_now();
                    shutdown.draining().await;
                    return drop(held);
                }
                Err(UpgradeError::Ending) => return,
                Err(error) => {
                    let reason = fairlead_process::chain(&error);
                    tracing::error!(reason, "there is no upgrade: this process goes on");
                    life.goes_on(&reason);
                }
            }
            drop(held);
            // Further signals during the hand-over are ignored.
            while asked.recv().now_or_never().is_some() {}
        }
    })
}

async fn hold(reloads: &Reloads) -> Option<ReloadHold> {
    let reloads = reloads.clone();
    // Waits for a load in progress. It fails if the process ends, and then nothing is loaded any more.
    tokio::task::spawn_blocking(move || reloads.hold(CONFIGURATION)).await.ok()
}

async fn hand_over(
    gateway: &SharedGateway,
    life: &ServiceNotifier,
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
    let (called, arguments) = arguments.split_first().ok_or(UpgradeError::NoName)?;
    let called = Some(called.clone()).filter(|called| !called.is_empty());
    let program: OsString = program.or(called).ok_or(UpgradeError::NoName)?;
    let mut successor = Successor::start(&program, arguments, sockets, &handed.files())?;
    tracing::info!(program = %program.display(), pid = successor.pid(), "a successor was started");
    tokio::select! {
        ready = successor.ready(limit) => ready?,
        // The successor is killed; it does not serve yet.
        () = shutdown.announced() => return Err(UpgradeError::Ending),
    }
    let (pid, owned) = (successor.pid(), handed.release(successor.unused()));
    // Before the successor learns of it, so that its reports are not overwritten.
    life.falls_silent();
    if let Err(error) = successor.hand_over(&owned).await {
        life.speaks_again();
        handed.reclaim();
        return Err(error.into());
    }
    life.hands_over(pid);
    Ok(())
}
