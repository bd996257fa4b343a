//! Measures durable commits per second: `commit_throughput <directory> [seconds per row]`.
//!
//! Each client waits for its acknowledgement before it commits again. Values have 1 KiB; every second commit replaces
//! a value. The directory should be on the disk that will hold the store: on tmpfs the figures mean nothing.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlead_store::{Mutation, RedbOptions, RedbStore, Store};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const VALUE_BYTES: usize = 1024;
const CLIENTS: [usize; 3] = [1, 32, 256];

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map(PathBuf::from);
    let seconds = arguments.next().map_or(Ok(3), |seconds| seconds.parse());
    let (Some(directory), Ok(seconds)) = (directory, seconds) else {
        eprintln!("usage: commit_throughput <directory> [seconds per row]");
        return ExitCode::FAILURE;
    };
    match run(&directory, Duration::from_secs(seconds)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(directory: &Path, duration: Duration) -> Result<(), Failure> {
    let fsync = measure_fsync(directory)?;
    println!(
        "fsync of one 4 KiB page: p50 {:?}, p99 {:?}",
        percentile(&fsync, 50),
        percentile(&fsync, 99)
    );
    println!(
        "{:>8} {:>11} {:>8} {:>10} {:>10} {:>10}",
        "clients", "commits/s", "grouped", "p50", "p99", "max"
    );
    for clients in CLIENTS {
        let path = directory.join(format!("commit-throughput-{}.redb", std::process::id()));
        let store: Arc<dyn Store> = Arc::new(RedbStore::open(&path, RedbOptions::default())?);
        let started = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|client| tokio::spawn(commit_until(Arc::clone(&store), client, started + duration)))
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await??);
        }
        let elapsed = started.elapsed();
        latencies.sort_unstable();
        let stats = store.stats();
        println!(
            "{clients:>8} {:>11.0} {:>8.1} {:>10.2?} {:>10.2?} {:>10.2?}",
            latencies.len() as f64 / elapsed.as_secs_f64(),
            stats.commits as f64 / stats.durable_writes as f64,
            percentile(&latencies, 50),
            percentile(&latencies, 99),
            percentile(&latencies, 100),
        );
        drop(store);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

async fn commit_until(store: Arc<dyn Store>, client: usize, end: Instant) -> Result<Vec<Duration>, Failure> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let key = format!(
            "/registry/example/configmaps/client-{client}/{:08}",
            latencies.len() / 2
        );
        let begun = Instant::now();
        store.commit(vec![Mutation::put(key, value.clone())]).await?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

fn measure_fsync(directory: &Path) -> Result<Vec<Duration>, Failure> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[0; 4096])?;
    file.sync_all()?;
    let mut took = Vec::new();
    for round in 0..300_u32 {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[round as u8; 4096])?;
        let begun = Instant::now();
        file.sync_data()?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}
