//! `fairlead gateway drain`.

use clap::Args;
use rustix::process::Signal;

use super::GatewayError;
use super::process::Which;
use crate::output::print;

/// Which gateway ends.
#[derive(Clone, Debug, Args)]
pub(crate) struct DrainCommand {
    #[command(flatten)]
    which: Which,
}

impl DrainCommand {
    pub(super) fn run(&self) -> Result<(), GatewayError> {
        let gateway = self.which.find()?;
        gateway.signal(Signal::TERM)?;
        print(format!("process {}: draining\n", gateway.pid));
        gateway.until(|| (!gateway.is_alive()).then_some(()))?;
        print(format!("process {}: has ended\n", gateway.pid));
        Ok(())
    }
}
