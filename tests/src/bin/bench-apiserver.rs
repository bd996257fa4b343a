//! Measures the API server of a shard beside its goals and prints one table.

use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::load::{
    GoalArguments, GoalTable, LoadError, Measurement, Scale, ServerKind, raise_file_limit,
};

/// Measures the API server of a shard beside its goals. Where `$KCP` names a kcp program, the same is measured with it.
#[derive(Parser)]
#[command(name = "bench-apiserver")]
struct Cli {
    #[command(flatten)]
    arguments: GoalArguments<Measurement>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { arguments } = Cli::parse();
    raise_file_limit();
    let (directory, scale) = (arguments.directory("bench-apiserver"), arguments.scale());
    let kcp = ServerKind::kcp_from_environment();
    let mut table = GoalTable::default();
    let mut is_complete = true;
    for &measurement in arguments.measurements() {
        eprintln!("{} ..", measurement.name());
        match side_by_side(measurement, kcp.as_ref(), &directory, scale).await {
            Ok((ours, other)) => table.extend(ours, other),
            Err(error) => {
                eprintln!("bench-apiserver: {}: {error}", measurement.name());
                is_complete = false;
            }
        }
    }
    print!("{table}");
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Figures = Vec<fairlead_tests::load::Figure>;

/// The figures of our server, and those of kcp where there is one. A failure of kcp is printed, because it says nothing about
/// our server.
async fn side_by_side(
    measurement: Measurement,
    kcp: Option<&ServerKind>,
    directory: &std::path::Path,
    scale: Scale,
) -> Result<(Figures, Option<Figures>), LoadError> {
    let ours = measurement.run(&ServerKind::Fairlead, directory, scale).await?;
    let Some(kcp) = kcp else { return Ok((ours, None)) };
    let other = measurement.run(kcp, directory, scale).await.unwrap_or_else(|error| {
        eprintln!("bench-apiserver: kcp: {}: {error}", measurement.name());
        Vec::new()
    });
    Ok((ours, Some(other)))
}
