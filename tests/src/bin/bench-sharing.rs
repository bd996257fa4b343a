//! Measures what sharing APIs between workspaces costs, beside the goals, and prints one table.

use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::load::{
    Figure, GoalArguments, GoalTable, SharingMeasurement, measure_sharing, raise_file_limit,
};

/// Measures APIs that one workspace publishes and many others bind, in an installation of two shards.
#[derive(Parser)]
#[command(name = "bench-sharing")]
struct Cli {
    #[command(flatten)]
    arguments: GoalArguments<SharingMeasurement>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { arguments } = Cli::parse();
    raise_file_limit();
    let directory = arguments.directory("bench-sharing");
    let mut table = GoalTable::default();
    let mut report = |figures: Vec<Figure>| table.extend(figures, None);
    let outcome = measure_sharing(arguments.measurements(), &directory, arguments.scale(), &mut report).await;
    print!("{table}");
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-sharing: {error}");
            ExitCode::FAILURE
        }
    }
}
