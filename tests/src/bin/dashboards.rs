//! Writes the dashboards for Grafana from their sources, and draws them with data of an installation of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use fairlead_tests::dashboards::{DashboardError, GeneratedDashboard, dashboards};
use fairlead_tests::draw::{Span, Theme, draw};
use fairlead_tests::load::raise_file_limit;
use fairlead_tests::scenario::{Scenario, ScenarioError};
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    /// Folder of dashboards and alerts
    #[arg(long, default_value = "deploy", global = true)]
    folder: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the files that Grafana imports
    Write,
    /// Run an installation under load, with Prometheus, and draw all dashboards
    Demo {
        /// Folder for the pictures
        #[arg(long, default_value = "target/dashboards")]
        out: PathBuf,
        /// Duration of the traffic before and after the events
        #[arg(long, default_value_t = 40)]
        seconds: u64,
    },
}

/// A failed command.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Dashboards(#[from] DashboardError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Command::Write => write(&arguments.folder),
        Command::Demo { out, seconds } => demo(&arguments.folder, out, Duration::from_secs(*seconds)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), Failure> {
    for GeneratedDashboard { file, text, .. } in dashboards(&folder.join("dashboards"))? {
        std::fs::write(&file, &text).map_err(|source| DashboardError::File { path: file.clone(), source })?;
        println!("{}", file.display());
    }
    Ok(())
}

fn demo(folder: &Path, out: &Path, quiet: Duration) -> Result<(), Failure> {
    let system = |what| move |source| Failure::System { what, source };
    let dashboards = dashboards(&folder.join("dashboards"))?;
    std::fs::create_dir_all(out).map_err(system("making the folder of pictures"))?;
    let place = tempfile::tempdir().map_err(system("making a folder"))?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(system("starting threads"))?.block_on(async {
        println!("starting an installation and Prometheus");
        let rules = folder.join("alerts/fairlead.yaml");
        let mut scenario = Scenario::start(place.path(), Duration::from_secs(1), &rules).await?;
        let from = now();
        println!("traffic, then outages and other events");
        tokio::time::sleep(quiet).await;
        scenario.run_events(Duration::from_secs(8)).await?;
        tokio::time::sleep(quiet).await;
        let span = Span { from, to: now() };
        for GeneratedDashboard { file, text, dashboard } in dashboards {
            let whole: Value = serde_json::from_str(&text).unwrap_or_default();
            for theme in [Theme::Light, Theme::Dark] {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                let name = format!("{stem}-{}", theme.name());
                let picture = draw(&scenario.prometheus, &whole, span, theme, out, &name).await?;
                println!("{}  {}", picture.display(), dashboard.title);
            }
        }
        scenario.stop_traffic();
        Ok(())
    })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
