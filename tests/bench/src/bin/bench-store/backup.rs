//! A backup while 1,000 commits per second go on: their latency and the memory of the process, which is one of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fairlead_store::{
    BackupContent, BackupHeader, BackupRange, Mutation, Ownership, Range, RetainedRevisions, Store,
    write_backup,
};
use fairlead_tests::load::{Figure, ObservedProcess};

use crate::load::{self, Outcome, WRITERS};
use crate::{Failure, Site};

const VALUE_BYTES: usize = 2048;
/// Time between two commits of a client: together they make 1,000 per second.
const PACE: Duration = Duration::from_millis(WRITERS);

#[derive(Args)]
pub(crate) struct BackupArguments {
    #[arg(long)]
    folder: PathBuf,
    /// The store is on etcd; without it, on redb.
    #[arg(long)]
    endpoint: Option<String>,
    #[arg(long)]
    mebibytes: u64,
    /// Time of the quiet run, and the least time of the run with backups.
    #[arg(long)]
    milliseconds: u64,
}

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("backup")?;
    let mebibytes = site.amount(4, 256, 1024);
    let milliseconds = site.amount(300, 10_000, 20_000);
    let etcd = site.etcd(&folder).await?;
    let mut figures = Vec::new();
    for (name, endpoint) in [("redb", None), ("etcd", Some(load::endpoint(&etcd)?))] {
        figures.extend(measure_store(name, &folder, endpoint, mebibytes, milliseconds)?);
    }
    Ok(figures)
}

fn measure_store(
    name: &str,
    folder: &Path,
    endpoint: Option<String>,
    mebibytes: u64,
    milliseconds: u64,
) -> Result<[Figure; 2], Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("backup").arg("--folder").arg(folder);
    command.args(["--mebibytes", &mebibytes.to_string(), "--milliseconds", &milliseconds.to_string()]);
    if let Some(endpoint) = endpoint {
        command.args(["--endpoint", &endpoint]);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [quiet, loaded, rate, more, seconds, backups] = numbers[..] else {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the measurement of {name} failed: {text}{error}").into());
    };
    let conditions = format!("{mebibytes} MiB, {rate:.0} commits/s of {VALUE_BYTES} B");
    let ratio =
        Figure::new(format!("backup of {name}: p99 of commits / without"), loaded / quiet.max(1e-9), "×")
            .at_most(2.0)
            .conditions(format!(
                "{loaded:.2} ms and {quiet:.2} ms; {conditions}; {backups} backups of {seconds:.1} s"
            ));
    let memory = Figure::new(format!("backup of {name}: memory"), more, "MiB")
        .at_most(16.0)
        .conditions(format!("peak beyond that of the run without; {conditions}"));
    Ok([ratio, memory])
}

/// The process with the store. Prints the 99th percentiles in ms without and with backups, commits per second, MiB of memory, and
/// the seconds and number of backups.
pub(crate) async fn measure_in_this_process(arguments: BackupArguments) -> Result<(), Failure> {
    let store: Arc<dyn Store> = match &arguments.endpoint {
        None => load::redb(&arguments.folder)?,
        Some(endpoint) => load::etcd(endpoint, &arguments.folder.join("view.redb")).await?,
    };
    let keys = (arguments.mebibytes << 20) / VALUE_BYTES as u64;
    load::fill(store.clone(), keys, VALUE_BYTES).await?;
    let time = Duration::from_millis(arguments.milliseconds);

    // Fills caches before the run without a backup, so that its peak of memory is no smaller for that.
    back_up(&*store, &arguments.folder)?;
    let process = ObservedProcess { name: "the store".to_owned(), pid: std::process::id() };
    reset_peak()?;
    let mut quiet = commit(&store, keys, move |elapsed| elapsed >= time).await?;
    let quiet_peak = process.sample()?.peak;

    reset_peak()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (reader, folder, ended) = (store.clone(), arguments.folder.clone(), is_over.clone());
    let backups = tokio::task::spawn_blocking(move || {
        let begin = Instant::now();
        let mut backups = 0_u32;
        let outcome = loop {
            if let Err(error) = back_up(&*reader, &folder) {
                break Err(error);
            }
            backups += 1;
            if begin.elapsed() >= time {
                break Ok((backups, begin.elapsed()));
            }
        };
        ended.store(true, Ordering::Relaxed);
        outcome
    });
    let mut loaded = commit(&store, keys, move |_| is_over.load(Ordering::Relaxed)).await?;
    let (backups, took) = backups.await??;
    let loaded_peak = process.sample()?.peak;
    println!(
        "{:.3} {:.3} {:.0} {:.2} {:.2} {backups}",
        milliseconds(&mut quiet),
        milliseconds(&mut loaded),
        loaded.rate(),
        (loaded_peak as f64 - quiet_peak as f64) / f64::from(1 << 20),
        took.as_secs_f64() / f64::from(backups),
    );
    Ok(())
}

fn milliseconds(outcome: &mut Outcome) -> f64 {
    outcome.latencies.percentile(99.0).as_secs_f64() * 1e3
}

async fn commit(
    store: &Arc<dyn Store>,
    keys: u64,
    is_over: impl Fn(Duration) -> bool + Clone + Send + 'static,
) -> Result<Outcome, Failure> {
    let store = store.clone();
    let commit = move |number: u64| {
        let store = store.clone();
        async move {
            let put = Mutation::put(load::key(number % keys), load::value(number, VALUE_BYTES));
            store.commit(vec![put]).await?;
            Ok(())
        }
    };
    load::write(Some(PACE), is_over, commit).await
}

fn back_up(store: &dyn Store, folder: &Path) -> Result<(), Failure> {
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
    write_backup(store, &header, &[everything], File::create(folder.join("backup"))?)?;
    Ok(())
}

/// Begins the measurement of the peak anew (proc(5), `clear_refs`).
fn reset_peak() -> Result<(), Failure> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}
