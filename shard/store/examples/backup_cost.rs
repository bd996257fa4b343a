//! Measures a backup under writes, and its restore: `backup_cost <directory> [MiB]`.
//!
//! One row for writes alone, one while a backup is made: commits per second, their latency, and the peak of the process's memory.
//! 32 clients wait for each acknowledgement; together they make at most 1,000 commits of 2 KiB per second.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlead_store::{
    BackupContent, BackupHeader, BackupRange, BackupReader, ExistingStore, Mutation, Ownership, Range,
    RedbOptions, RedbStore, RetainedRevisions, Store, write_backup,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const VALUE_BYTES: usize = 2048;
const CLIENTS: u64 = 32;
/// Pause between the commits of a client: 1,000 commits per second of all.
const PACE: Duration = Duration::from_millis(32);
const QUIET: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map(PathBuf::from);
    let size = arguments.next().map_or(Ok(1024), |size| size.parse());
    let (Some(directory), Ok(size)) = (directory, size) else {
        eprintln!("usage: backup_cost <directory> [MiB]");
        return ExitCode::FAILURE;
    };
    match run(&directory, size).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(directory: &Path, mebibytes: u64) -> Result<(), Failure> {
    let path = directory.join("backup-cost.redb");
    let store: Arc<RedbStore> = Arc::new(RedbStore::open(&path, RedbOptions::default())?);
    fill(&*store, mebibytes * (1 << 20) / VALUE_BYTES as u64).await?;

    reset_peak_memory()?;
    let quiet = write_until(&store, tokio::time::sleep(QUIET)).await?;
    println!("writes alone     {quiet}, peak memory {} KiB", peak_memory()?);

    reset_peak_memory()?;
    let file = directory.join("backup-cost.backup");
    let (reader, output) = (Arc::clone(&store), std::fs::File::create(&file)?);
    let backup = tokio::task::spawn_blocking(move || back_up(&*reader, output));
    let mut made = None;
    let waiting = async { made = Some(backup.await) };
    let loaded = write_until(&store, waiting).await?;
    let loaded_peak = peak_memory()?;
    let (records, took) = made.ok_or("the backup did not end")???;
    let bytes = std::fs::metadata(&file)?.len();
    println!("during a backup  {loaded}, peak memory {loaded_peak} KiB");
    println!("backup: {records} records of {VALUE_BYTES} bytes in {took:.1?}, a file of {} MiB", bytes >> 20);
    store.close().await;
    drop(store);

    reset_peak_memory()?;
    let started = Instant::now();
    let restored = directory.join("backup-cost-restored.redb");
    let reader = BackupReader::open(std::fs::File::open(&file)?)?;
    let outcome = RedbStore::restore(&restored, reader, ExistingStore::Replace, None)?;
    println!(
        "restore: {} records in {:.1?}; peak memory {} KiB",
        outcome.records,
        started.elapsed(),
        peak_memory()?
    );
    for path in [path, file, restored] {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

async fn fill(store: &dyn Store, records: u64) -> Result<(), Failure> {
    for first in (0..records).step_by(256) {
        let keys = first..(first + 256).min(records);
        store.commit(keys.map(|key| Mutation::put(format!("key-{key:09}"), value(key))).collect()).await?;
    }
    store.compact(store.revision()).await?;
    Ok(())
}

/// Text that compresses about as well as objects do.
fn value(seed: u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_BYTES);
    let mut word = seed;
    while value.len() < VALUE_BYTES {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend(format!("\"name-{:08x}\":\"metadata.example.com/value\",", word >> 32).into_bytes());
    }
    value.truncate(VALUE_BYTES);
    value
}

fn back_up(store: &dyn Store, mut output: impl Write) -> Result<(u64, Duration), Failure> {
    let started = Instant::now();
    let retained = RetainedRevisions::default();
    let revision = retained.retain_latest(store);
    let header = BackupHeader {
        content: BackupContent::Whole,
        source: "measured".to_owned(),
        anchor: None,
        revision: revision.revision(),
        created: 0,
    };
    let everything = BackupRange { range: Range::all(), ownership: Ownership::Own };
    let records = write_backup(store, &header, &[everything], &mut output)?;
    Ok((records, started.elapsed()))
}

/// Writes until `end` is over; returns the rate and the latencies.
async fn write_until(store: &Arc<RedbStore>, end: impl Future<Output = ()>) -> Result<String, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (store, is_over) = (Arc::clone(store), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut ticks = tokio::time::interval(PACE);
                let mut next = client;
                while !is_over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let begun = Instant::now();
                    let put = Mutation::put(format!("key-{next:09}"), value(next));
                    store.commit(vec![put]).await.map_err(|error| error.to_string())?;
                    latencies.push(begun.elapsed());
                    next += CLIENTS;
                }
                Ok::<_, String>(latencies)
            })
        })
        .collect();
    end.await;
    is_over.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    let rate = latencies.len() as f64 / started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: usize| latencies.get(latencies.len() * share / 1000).copied().unwrap_or_default();
    Ok(format!("{rate:.0} commits/s, p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?}", at(500), at(990), at(999)))
}

/// Begins the measurement of the peak anew.
fn reset_peak_memory() -> Result<(), Failure> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

/// The peak of this process's memory since the last reset, in KiB.
fn peak_memory() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
