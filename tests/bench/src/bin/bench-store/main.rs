//! `bench-store`: measures the stores of a shard, redb and etcd, beside their goals, and prints one table.
//!
//! All figures are those of the store crates, without an API server: a commit, a read or an event is a call of the trait `Store`.
//! etcd is one member on the loopback interface, with its data on the same disk. Rates are compared in phases that alternate, so
//! that a slow minute of the disk slows both. Memory and the time of a start are those of processes of their own.

mod backup;
mod load;
mod reads;
mod start;
mod watch;
mod writes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Parser, Subcommand, ValueEnum};
use fairlead_tests::harness::EtcdCluster;
use fairlead_tests::load::{Figure, GoalArguments, GoalTable, Scale};

/// The allocator of the shard.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An error that ends the program.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures the stores on redb and etcd, and prints one table.
#[derive(Parser)]
#[command(name = "bench-store", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    arguments: GoalArguments<Measurement>,
}

/// The commands with which the program starts itself.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Replica(start::ReplicaArguments),
    #[command(hide = true)]
    Backup(backup::BackupArguments),
}

/// A group of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measurement {
    /// Commits per second.
    Writes,
    /// Reads and events per second.
    Reads,
    /// Time from a commit to its event in another replica.
    Watch,
    /// Time of a start, and memory of a replica.
    Start,
    /// Effect of a backup on writes and memory.
    Backup,
}

impl ValueEnum for Measurement {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Writes, Self::Reads, Self::Watch, Self::Start, Self::Backup]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Writes => "writes",
            Self::Reads => "reads",
            Self::Watch => "watch",
            Self::Start => "start",
            Self::Backup => "backup",
        }))
    }
}

/// The amount of load, and the folder for files.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    scale: Scale,
    directory: PathBuf,
}

impl Site {
    /// One of three amounts.
    pub(crate) fn amount(&self, smoke: u64, normal: u64, full: u64) -> u64 {
        match self.scale {
            Scale::Smoke => smoke,
            Scale::Normal => normal,
            Scale::Full => full,
        }
    }

    /// A new folder.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.directory.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// An etcd with one member and no data, whose limit of size is large enough for every measurement.
    pub(crate) async fn etcd(&self, folder: &Path) -> Result<EtcdCluster, Failure> {
        let folder = std::path::absolute(folder)?;
        Ok(EtcdCluster::start(&folder, 1, &["--quota-backend-bytes=8589934592"]).await?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { role, arguments } = Cli::parse();
    let outcome = match role {
        Some(Role::Replica(arguments)) => start::replica(arguments).await,
        Some(Role::Backup(arguments)) => backup::measure_in_this_process(arguments).await,
        None => measure_all(&arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-store: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the figures that were measured, also after a failure.
async fn measure_all(arguments: &GoalArguments<Measurement>) -> Result<(), Failure> {
    let site = Site { scale: arguments.scale(), directory: arguments.directory("bench-store") };
    let mut table = GoalTable::default();
    let mut outcome = Ok(());
    for measurement in arguments.measurements() {
        eprintln!("{measurement:?} ..");
        match measure(*measurement, &site).await {
            Ok(figures) => table.extend(figures, None),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    print!("{table}");
    outcome
}

async fn measure(measurement: Measurement, site: &Site) -> Result<Vec<Figure>, Failure> {
    match measurement {
        Measurement::Writes => writes::measure(site).await,
        Measurement::Reads => reads::measure(site).await,
        Measurement::Watch => watch::measure(site).await,
        Measurement::Start => start::measure(site).await,
        Measurement::Backup => backup::measure(site).await,
    }
}
