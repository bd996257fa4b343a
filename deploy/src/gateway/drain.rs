//! `fairlead gateway drain`.

use clap::Args;
use rustix::process::Signal;

use super::GatewayError;
use super::process::ProcessSelector;
use crate::output::print;

/// The gateway to drain.
#[derive(Clone, Debug, Args)]
pub(crate) struct DrainCommand {
    #[command(flatten)]
    process: ProcessSelector,
}

impl DrainCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.process.find()?;
        gateway.signal(Signal::TERM)?;
        print(format!("process {}: draining\n", gateway.pid));
        gateway.until(|| (!gateway.is_alive()).then_some(()))?;
        print(format!("process {}: ended\n", gateway.pid));
        Ok(())
    }
}
