//! The start of a store on etcd with a good local copy and without one, and its memory, in processes of their own.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;
use fairlead_store::{Range, Store};
use fairlead_tests::load::{Figure, ObservedProcess};

use crate::load;
use crate::{Failure, Site};

const VALUE_BYTES: usize = 1024;

#[derive(Args)]
pub(crate) struct ReplicaArguments {
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    view: PathBuf,
}

/// The output of a process with a replica.
struct StartResult {
    milliseconds: f64,
    /// Resident memory after the start, and the peak until all keys have been read, in MiB.
    resident: f64,
    peak: f64,
}

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("start")?;
    let keys = site.amount(2_000, 200_000, 1_000_000);
    let etcd = site.etcd(&folder).await?;
    let endpoint = load::endpoint(&etcd)?;
    let good = folder.join("good.redb");
    let store = load::etcd(&endpoint, &good).await?;
    load::fill(store.clone(), keys, VALUE_BYTES).await?;
    store.close().await;
    drop(store);
    let without = started(&endpoint, &folder.join("new.redb"), keys)?;
    let with = started(&endpoint, &good, keys)?;
    let conditions = format!("{keys} keys of {VALUE_BYTES} B; open() of a process of its own");
    let seconds = |name: &str, started: &StartResult| {
        Figure::new(name, started.milliseconds / 1e3, "s").conditions(conditions.clone())
    };
    let memory = |name: &str, started: &StartResult| {
        let note = format!("{keys} keys of {VALUE_BYTES} B, after a scan; peak {:.0} MiB", started.peak);
        Figure::new(name, started.resident, "MiB").at_most(100.0).conditions(note)
    };
    Ok(vec![
        seconds("start on etcd with a good view file", &with).at_most(2.0),
        seconds("start on etcd without a view file", &without).at_most(30.0),
        memory("memory of a replica", &with),
        memory("memory of a replica that has loaded its view", &without),
    ])
}

/// Starts a replica in a process of its own.
fn started(endpoint: &str, view: &Path, keys: u64) -> Result<StartResult, Failure> {
    let program = std::env::current_exe()?;
    let output =
        Command::new(program).args(["replica", "--endpoint", endpoint, "--view"]).arg(view).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [milliseconds, resident, peak, found] if found >= keys as f64 => {
            Ok(StartResult { milliseconds, resident, peak })
        }
        _ => Err(format!("a replica failed: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The process with a replica: prints milliseconds, resident memory, its peak, and the number of keys.
pub(crate) async fn replica(arguments: ReplicaArguments) -> Result<(), Failure> {
    let begin = Instant::now();
    let store = load::etcd(&arguments.endpoint, &arguments.view).await?;
    let took = begin.elapsed();
    let mut keys = 0_u64;
    store.scan(&Range::all(), None, &mut |_| {
        keys += 1;
        ControlFlow::Continue(())
    })?;
    let sample = ObservedProcess { name: "replica".to_owned(), pid: std::process::id() }.sample()?;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{:.1} {:.1} {:.1} {keys}",
        took.as_secs_f64() * 1e3,
        mebibytes(sample.resident),
        mebibytes(sample.peak)
    );
    store.close().await;
    Ok(())
}
