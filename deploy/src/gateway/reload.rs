//! `fairlead gateway reload`.

use clap::Args;
use fairlead_config::ProcessPhase;
use rustix::process::Signal;

use super::GatewayError;
use super::process::ProcessSelector;
use crate::output::print;

/// The gateway to reload.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReloadCommand {
    #[command(flatten)]
    process: ProcessSelector,
}

impl ReloadCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.process.find()?;
        let before = gateway.state();
        gateway.signal(Signal::HUP)?;
        // A reload in progress may have read a file before its last change, so a later one is waited for.
        let before = before?.reloads_begun;
        let state = gateway.until(|| match gateway.state() {
            Ok(state) if state.reloads_done > before && state.phase != ProcessPhase::Reloading => {
                Some(Ok(state))
            }
            _ if !gateway.is_alive() => Some(Err(GatewayError::Ended { pid: gateway.pid })),
            _ => None,
        })??;
        if !state.not_reloaded.is_empty() {
            return Err(GatewayError::NotReloaded(state.not_reloaded));
        }
        print(format!("process {}: all files are in effect\n", gateway.pid));
        Ok(())
    }
}
