//! `fairlead gateway reload`.

use clap::Args;
use fairlead_config::ProcessPhase;
use rustix::process::Signal;

use super::GatewayError;
use super::process::Which;
use crate::output::print;

/// Which gateway reads its files again.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReloadCommand {
    #[command(flatten)]
    which: Which,
}

impl ReloadCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.which.find()?;
        let before = gateway.state();
        gateway.signal(Signal::HUP)?;
        // One that has begun already may have missed what was changed last.
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
        print(format!("process {}: all files are in force as they are now\n", gateway.pid));
        Ok(())
    }
}
