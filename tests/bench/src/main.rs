//! `bench-gateway`: measures the cost of the gateway and of other proxies, in one table.
//!
//! The program is the load generator. With other commands it is the backend or the bare forwarder, so that each of them is a
//! separate process.

mod backend;
mod contestants;
mod error;
mod forward;
mod load;
mod measure;
mod plan;
mod report;
mod root_shard;
mod tls;
mod usage;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairlead_tests::load::raise_file_limit;
use tokio::task::LocalSet;

use error::BenchError;
use plan::Plan;

/// Measures the gateway beside other proxies on this machine and prints one table.
#[derive(Parser)]
#[command(name = "bench-gateway")]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    plan: Plan,
}

/// The commands with which the program starts itself.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Backend {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        pki: PathBuf,
    },
    #[command(hide = true)]
    Forward {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        backend: u16,
        #[arg(long)]
        pki: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.role {
        Some(Role::Backend { port, pki }) => {
            serve(async move { backend::serve(port, contestants::server_tls(&pki)?).await })
        }
        Some(Role::Forward { port, backend, pki }) => serve(async move {
            let (server, client) = (contestants::server_tls(&pki)?, contestants::proxy_tls(&pki)?);
            forward::serve(port, backend, server, client).await
        }),
        None => measure_all(&cli.plan),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(server: impl Future<Output = Result<(), BenchError>>) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(BenchError::system("starting a runtime"))?.block_on(server)
}

/// The load runs on this thread only, so that it takes little CPU time from the measured processes.
fn measure_all(plan: &Plan) -> Result<(), BenchError> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::system("starting a runtime"))?;
    let (report, outcome) = runtime.block_on(LocalSet::new().run_until(plan.carry_out()));
    print!("{report}");
    outcome
}
