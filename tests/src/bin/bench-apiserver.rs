//! Measures the API server of a shard beside its goals and prints one table.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::load::{GoalTable, LoadError, Measurement, Scale, ServerKind, raise_file_limit};

/// Measures the API server of a shard beside its goals. Where `$KCP` names a kcp program, the same is measured with it.
#[derive(Parser)]
#[command(name = "bench-apiserver")]
struct Cli {
    /// Measurements, separated by commas; all if absent.
    #[arg(long, value_delimiter = ',', value_parser = parse_measurement)]
    only: Vec<Measurement>,
    /// The amounts for which the goals are set; without it, some measurements take a fifth or less.
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Tiny amounts, which show that everything works.
    #[arg(long)]
    smoke: bool,
    /// Folder for the servers' files, not on tmpfs.
    #[arg(long, default_value = "target/bench-apiserver")]
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
    let measurements = if cli.only.is_empty() { Measurement::ALL.to_vec() } else { cli.only };
    let kcp =
        std::env::var_os("KCP").filter(|path| !path.is_empty()).map(|path| ServerKind::Kcp(path.into()));
    let mut table = GoalTable::default();
    let mut is_complete = true;
    for measurement in measurements {
        eprintln!("{} ..", measurement.name());
        match side_by_side(measurement, kcp.as_ref(), &cli.dir, scale).await {
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

fn parse_measurement(name: &str) -> Result<Measurement, String> {
    let known = Measurement::ALL.into_iter().find(|measurement| measurement.name() == name);
    known.ok_or_else(|| {
        let names: Vec<_> = Measurement::ALL.iter().map(|measurement| measurement.name()).collect();
        format!("one of {}", names.join(", "))
    })
}
