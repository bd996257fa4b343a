//! Measures what sharing APIs between workspaces costs, beside the goals, and prints one table.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::load::{Figure, GoalTable, Scale, SharingMeasurement, measure_sharing, raise_file_limit};

/// Measures APIs that one workspace publishes and many others bind, in an installation of two shards.
#[derive(Parser)]
#[command(name = "bench-sharing")]
struct Cli {
    /// Measurements, separated by commas; all if absent.
    #[arg(long, value_delimiter = ',', value_parser = parse_measurement)]
    only: Vec<SharingMeasurement>,
    /// The amounts for which the goals are set; without it, a fifth of them.
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Tiny amounts, which show that everything works.
    #[arg(long)]
    smoke: bool,
    /// Folder for the servers' files, not on tmpfs.
    #[arg(long, default_value = "target/bench-sharing")]
    dir: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    raise_file_limit();
    let scale = if cli.full {
        Scale::Full
    } else if cli.smoke {
        Scale::Smoke
    } else {
        Scale::Normal
    };
    let measurements = if cli.only.is_empty() { SharingMeasurement::ALL.to_vec() } else { cli.only };
    let mut table = GoalTable::default();
    let mut report = |figures: Vec<Figure>| table.extend(figures, None);
    let outcome = measure_sharing(&measurements, &cli.dir, scale, &mut report).await;
    print!("{table}");
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-sharing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_measurement(name: &str) -> Result<SharingMeasurement, String> {
    let known = SharingMeasurement::ALL.into_iter().find(|measurement| measurement.name() == name);
    known.ok_or_else(|| {
        let names: Vec<_> = SharingMeasurement::ALL.iter().map(|measurement| measurement.name()).collect();
        format!("one of {}", names.join(", "))
    })
}
