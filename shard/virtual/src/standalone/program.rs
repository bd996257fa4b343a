//! The program `fairlead-virtual-workspaces`: takes the configuration from a file or from kcp's flags, and serves the virtual
//! workspaces of a shard until a signal arrives.

use std::process::ExitCode;

use fairlead_config::VirtualWorkspacesConfig;
use fairlead_config::flags::{VirtualWorkspacesArguments, VirtualWorkspacesFlags};
use fairlead_process::ProcessError;

use super::{ServerError, VirtualServer};

/// Parses the arguments, serves, and prints an error in one sentence.
pub fn main() -> ExitCode {
    // Arguments that are not UTF-8 are neither a flag nor an existing file.
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match VirtualWorkspacesFlags::parse(env!("CARGO_PKG_VERSION"), arguments) {
        Ok(VirtualWorkspacesArguments::Text(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        parsed => fairlead_process::run(|| match parsed.map_err(ServerError::Flags)? {
            VirtualWorkspacesArguments::Flags(flags) => start(flags.config, &flags.warnings),
            VirtualWorkspacesArguments::File(file) => start(fairlead_config::load(&file)?, &[]),
            VirtualWorkspacesArguments::Text(_) => Ok(()),
        }),
    }
}

fn start(config: VirtualWorkspacesConfig, warnings: &[String]) -> Result<(), ServerError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ProcessError::System)?;
    runtime.block_on(async {
        let server = VirtualServer::new(config)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        server.forward().await
    })
}
