//! Puts load on a running system and prints the cost as one table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fairlead_client::default_kubeconfig_path;
use fairlead_tests::load::{
    DeliveryLoad, GetLoad, LoadError, ObservedProcess, Table, Target, WatchLoad, WorkspaceLoad,
    measure_delivery, measure_fsync, measure_gets, measure_watches, measure_workspaces, raise_file_limit,
};

/// Measures a running system: CPU per request, latencies, memory per watch and per workspace.
#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    /// Kubeconfig of the system; kubectl's if absent.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context in it; the current one if absent.
    #[arg(long, global = true)]
    context: Option<String>,
    /// A process to observe, as name=pid; may be repeated.
    #[arg(long = "pid", value_parser = ObservedProcess::parse, global = true)]
    processes: Vec<ObservedProcess>,
    #[command(subcommand)]
    what: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    /// Current memory of the processes.
    Memory,
    /// CPU and latency of reads.
    Get(Get),
    /// Memory of idle watches.
    Watches(Watches),
    /// Time from an acknowledged write to the event in a watch.
    Delivery(Delivery),
    /// Creation of workspaces.
    Workspaces(Workspaces),
    /// Cost of a durable write in a directory.
    Fsync {
        /// The directory.
        #[arg(long, default_value = ".")]
        directory: PathBuf,
    },
}

#[derive(Args)]
struct Get {
    /// Path to read, below the context's server URL.
    #[arg(long)]
    path: String,
    /// Name in the table.
    #[arg(long, default_value = "GET")]
    name: String,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    #[arg(long, default_value_t = 8)]
    streams: usize,
    #[arg(long, default_value_t = 2)]
    warm_up_seconds: u64,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Args)]
struct Watches {
    /// The collection, below the context's server URL.
    #[arg(long, default_value = "/api/v1/configmaps")]
    path: String,
    #[arg(long, default_value_t = 5000)]
    count: usize,
    #[arg(long, default_value_t = 100)]
    per_connection: usize,
    #[arg(long, default_value_t = 2)]
    settle_seconds: u64,
}

#[derive(Args)]
struct Delivery {
    /// Writes per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    #[arg(long, default_value_t = 1000)]
    watches: usize,
    /// Watches that see each write.
    #[arg(long, default_value_t = 10)]
    receivers: usize,
    #[arg(long, default_value_t = 100)]
    per_connection: usize,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Args)]
struct Workspaces {
    #[arg(long, default_value_t = 32)]
    clients: usize,
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Number of workspaces after which the memory comparison starts.
    #[arg(long, default_value_t = 0)]
    settled_after: usize,
    /// Names are <prefix>-<number>; choose another one for another run.
    #[arg(long, default_value = "bench")]
    name_prefix: String,
    /// Type of the workspaces, below root.
    #[arg(long = "type", default_value = "universal")]
    type_name: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<Table, LoadError> {
    if let Measurement::Fsync { directory } = &cli.what {
        return measure_fsync(directory);
    }
    if matches!(cli.what, Measurement::Memory) {
        return memory(&cli.processes);
    }
    raise_file_limit();
    let path = cli.kubeconfig.or_else(default_kubeconfig_path);
    let path = path.ok_or_else(|| LoadError::Unexpected("--kubeconfig is needed".to_owned()))?;
    let target = Target::from_kubeconfig(&path, cli.context.as_deref(), cli.processes)?;
    match cli.what {
        Measurement::Get(get) => measure_gets(&target, &get.load()).await,
        Measurement::Watches(watches) => measure_watches(&target, &watches.load()).await,
        Measurement::Delivery(delivery) => measure_delivery(&target, &delivery.load()).await,
        Measurement::Workspaces(workspaces) => measure_workspaces(&target, &workspaces.load()).await,
        Measurement::Memory | Measurement::Fsync { .. } => Ok(Table::default()),
    }
}

fn memory(processes: &[ObservedProcess]) -> Result<Table, LoadError> {
    let mut table = Table::default();
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    for process in processes {
        let sample = process.sample()?;
        let note = format!("peak {}, CPU {:.2} s", mebibytes(sample.peak), sample.cpu.as_secs_f64());
        table.push(format!("{} RSS", process.name), mebibytes(sample.resident), note);
    }
    Ok(table)
}

impl Get {
    fn load(self) -> GetLoad {
        GetLoad {
            name: self.name,
            path: self.path,
            connections: self.connections,
            streams: self.streams,
            warm_up: Duration::from_secs(self.warm_up_seconds),
            duration: Duration::from_secs(self.seconds),
        }
    }
}

impl Watches {
    fn load(self) -> WatchLoad {
        WatchLoad {
            path: self.path,
            count: self.count,
            per_connection: self.per_connection,
            settle: Duration::from_secs(self.settle_seconds),
        }
    }
}

impl Delivery {
    fn load(self) -> DeliveryLoad {
        DeliveryLoad {
            rate: self.rate,
            watches: self.watches,
            receivers: self.receivers,
            per_connection: self.per_connection,
            duration: Duration::from_secs(self.seconds),
        }
    }
}

impl Workspaces {
    fn load(self) -> WorkspaceLoad {
        WorkspaceLoad {
            clients: self.clients,
            count: self.count,
            settled_after: self.settled_after,
            name_prefix: self.name_prefix,
            type_name: self.type_name,
        }
    }
}
