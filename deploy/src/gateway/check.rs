//! `fairlead gateway check`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use super::GatewayError;
use super::process::PROGRAM;

/// The configuration to check.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckCommand {
    /// The configuration file
    file: PathBuf,
}

impl CheckCommand {
    /// Runs the program of the gateway with `--check`.
    pub(super) fn run(&self) -> Result<ExitCode, GatewayError> {
        let own = std::env::current_exe().unwrap_or_default();
        let program = own.with_file_name(PROGRAM);
        let status = Command::new(&program).arg("--check").arg(&self.file).status();
        match status {
            Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
            Ok(_) => Ok(ExitCode::FAILURE),
            Err(_) => Err(GatewayError::NoProgram(program)),
        }
    }
}
