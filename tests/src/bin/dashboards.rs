//! Writes the dashboards for Grafana from their sources.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairlead_tests::dashboards::{DashboardError, dashboards};

#[derive(Parser)]
struct Arguments {
    /// Where the dashboards are
    #[arg(long, default_value = "deploy/dashboards", global = true)]
    folder: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write what Grafana imports
    Write,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Write => write(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(arguments: &Arguments) -> Result<(), DashboardError> {
    for written in dashboards(&arguments.folder)? {
        std::fs::write(&written.file, &written.text)
            .map_err(|source| DashboardError::File { path: written.file.clone(), source })?;
        println!("{}", written.file.display());
    }
    Ok(())
}
