//! Measures what sharing APIs between workspaces costs, beside the goals, and prints one table.

use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::load::{
    GoalArguments, GoalTable, ServerKind, SharingMeasurement, measure_sharing, raise_file_limit,
};

/// Measures APIs that one workspace publishes and many others bind, in an installation of two shards. Where `$KCP` names a kcp
/// program, the same is measured with it, with smaller amounts.
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
    let kcp = ServerKind::kcp_from_environment();
    let (measurements, scale) = (arguments.measurements(), arguments.scale());
    let outcome = measure_sharing(measurements, kcp.as_ref(), &directory, scale, &mut table).await;
    print!("{table}");
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-sharing: {error}");
            ExitCode::FAILURE
        }
    }
}
