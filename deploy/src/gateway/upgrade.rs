//! `fairlead gateway upgrade`.

use clap::Args;
use fairlead_config::ProcessPhase;
use rustix::process::Signal;

use super::GatewayError;
use super::process::ProcessSelector;
use crate::output::print;

/// The gateway to upgrade.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpgradeCommand {
    #[command(flatten)]
    process: ProcessSelector,
}

impl UpgradeCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.process.find()?;
        let pid = gateway.pid;
        let before = gateway.state();
        gateway.signal(Signal::QUIT)?;
        let before = before?;
        let after = gateway.until(|| match gateway.state() {
            Ok(state) if state.pid != pid && state.phase == ProcessPhase::Ready => Some(Ok(state)),
            Ok(state) if state.pid == pid && state.upgrades_failed > before.upgrades_failed => {
                let reason = state.upgrade_failure.unwrap_or_default();
                Some(Err(GatewayError::NotUpgraded { pid, reason }))
            }
            // The predecessor lives until the successor has written the state file.
            Ok(state) if state.pid == pid && !gateway.is_alive() => Some(Err(GatewayError::Ended { pid })),
            Err(_) if !gateway.is_alive() => Some(Err(GatewayError::Ended { pid })),
            _ => None,
        })??;
        print(format!(
            "process {} ({}) serves in place of process {pid} ({}), which ends after it has drained\n",
            after.pid, after.version, before.version
        ));
        Ok(())
    }
}
