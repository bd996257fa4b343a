//! `fairlead gateway upgrade`.

use clap::Args;
use fairlead_config::ProcessPhase;
use rustix::process::Signal;

use super::GatewayError;
use super::process::Which;
use crate::output::print;

/// Which gateway starts its successor.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpgradeCommand {
    #[command(flatten)]
    which: Which,
}

impl UpgradeCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.which.find()?;
        let pid = gateway.pid;
        let before = gateway.state();
        gateway.signal(Signal::QUIT)?;
        let before = before?;
        let after = gateway.until(|| match gateway.state() {
            Ok(state) if state.pid != pid && state.phase == ProcessPhase::Ready => Some(Ok(state)),
            Ok(state) if state.pid == pid && state.upgrades_failed > before.upgrades_failed => {
                let why = state.upgrade_failure.unwrap_or_default();
                Some(Err(GatewayError::NotUpgraded { pid, why }))
            }
            // The successor takes its time over the state file, but not without its predecessor.
            Ok(state) if state.pid == pid && !gateway.is_alive() => Some(Err(GatewayError::Ended { pid })),
            Err(_) if !gateway.is_alive() => Some(Err(GatewayError::Ended { pid })),
            _ => None,
        })??;
        print(format!(
            "process {} ({}) serves in place of process {pid} ({}), which ends when everything there has\n",
            after.pid, after.version, before.version
        ));
        Ok(())
    }
}
