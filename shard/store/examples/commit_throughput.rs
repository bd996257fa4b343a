//! Measures durable commits per second: `commit_throughput <directory> [seconds per row]`.
//!
//! Each client waits for its acknowledgement before it commits again. Values have 1 KiB; every second commit replaces
//! a value. The directory should be on the disk that will hold the store: on tmpfs the figures mean nothing.

use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlead_store::{Mutation, Range, RedbOptions, RedbStore, Store};

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
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>8} {:>11} {:>10} {:>10} {:>10} {:>9} {:>9}",
        "clients",
        "fsync p50",
        "fsync mean",
        "commits/s",
        "grouped",
        "durable wr.",
        "p50",
        "p99",
        "max",
        "get",
        "scan 100",
    );
    for clients in CLIENTS {
        // Before each row, because the speed of a shared disk varies.
        let fsync = measure_fsync(directory)?;
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
        let durable_write = stats.durable_write_nanoseconds / stats.durable_writes.max(1);
        let (get, scan) = measure_reads(&*store)?;
        println!(
            "{clients:>8} {:>10.1?} {:>10.1?} {:>10.0} {:>8.1} {:>11.2?} {:>10.2?} {:>10.2?} {:>10.2?} {get:>9.2?} {scan:>9.2?}",
            percentile(&fsync, 50),
            fsync.iter().sum::<Duration>() / u32::try_from(fsync.len())?,
            latencies.len() as f64 / elapsed.as_secs_f64(),
            stats.commits as f64 / stats.durable_writes.max(1) as f64,
            Duration::from_nanos(durable_write),
            percentile(&latencies, 50),
            percentile(&latencies, 99),
            percentile(&latencies, 100),
        );
        drop(store);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

/// The mean of a get of an existing key, and of a scan over 100 records, both spread over the whole store.
fn measure_reads(store: &dyn Store) -> Result<(Duration, Duration), Failure> {
    const ROUNDS: usize = 2000;
    let mut keys = Vec::new();
    store.scan(&Range::all(), None, &mut |record| {
        keys.push(Bytes::copy_from_slice(record.key));
        ControlFlow::Continue(())
    })?;
    let picked: Vec<_> = (0..ROUNDS).map(|round| &keys[round * 7919 % keys.len()]).collect();
    let started = Instant::now();
    for key in &picked {
        store.get(key)?.ok_or("a key has vanished")?;
    }
    let get = started.elapsed() / u32::try_from(ROUNDS)?;
    let started = Instant::now();
    for key in &picked {
        let mut left = 100;
        store.scan(&Range::all().after(key), None, &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok((get, started.elapsed() / u32::try_from(ROUNDS)?))
}

async fn commit_until(store: Arc<dyn Store>, client: usize, end: Instant) -> Result<Vec<Duration>, Failure> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let key = format!("/registry/example/configmaps/client-{client}/{:08}", latencies.len() / 2);
        let started = Instant::now();
        store.commit(vec![Mutation::put(key, value.clone())]).await?;
        latencies.push(started.elapsed());
    }
    Ok(latencies)
}

fn measure_fsync(directory: &Path) -> Result<Vec<Duration>, Failure> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[0; 4096])?;
    file.sync_all()?;
    let mut durations = Vec::new();
    for round in 0..400_u32 {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[round as u8; 4096])?;
        let started = Instant::now();
        file.sync_data()?;
        durations.push(started.elapsed());
    }
    durations.sort_unstable();
    Ok(durations)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}
