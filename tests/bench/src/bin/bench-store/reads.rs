//! Reads and events per second of a store on etcd and of one on redb with the same commits in the same order.
//!
//! The order decides how full the pages of a tree are: 20,000 keys of 1 KiB that eight writers create in order fill 29 MB of pages,
//! and 34 MB if their commits overtake each other, as they do on the way to etcd. The caches of both stores have 32 MiB, so stores
//! that were filled apart would be compared on both sides of that limit. There is one measurement far below it, and one far above.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlead_store::{Advance, Batch, Event, Mutation, Range, Revision, Store};
use fairlead_store_etcd::{EtcdOptions, EtcdStore};
use fairlead_tests::load::Figure;
use futures_util::future::try_join_all;

use crate::load;
use crate::{Failure, Site};

const VALUE_BYTES: usize = 1024;
const PAGE: NonZeroUsize = match NonZeroUsize::new(100) {
    Some(page) => page,
    None => NonZeroUsize::MIN,
};
/// Operations between two looks at the clock.
const STEP: u64 = 64;
/// Time for which one store is measured before the other one. So short that other load on the machine slows both.
const SLICE: Duration = Duration::from_millis(100);
/// Commits that are under way at the same time.
const COMMITS: u64 = 64;

/// A store with its keys, and the revision before the commits that a follower reads.
struct FilledStore {
    store: Arc<dyn Store>,
    before: Revision,
}

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("reads")?;
    let etcd = site.etcd(&folder).await?;
    let commits = site.amount(200, 20_000, 50_000);
    let mut figures = Vec::new();
    for (name, keys) in [
        ("in the cache", site.amount(500, 10_000, 10_000)),
        ("larger than the cache", site.amount(1_000, 50_000, 100_000)),
    ] {
        let folder = folder.join(keys.to_string());
        std::fs::create_dir_all(&folder)?;
        let options = EtcdOptions {
            prefix: format!("/{keys}"),
            ..load::etcd_options(&load::endpoint(&etcd)?, &folder.join("view.redb"))
        };
        let on_etcd = Arc::new(EtcdStore::open(options).await?);
        let stores = filled(on_etcd, load::redb(&folder)?, keys, commits).await?;
        figures.extend(compare(site, &stores, name, keys)?);
        figures.push(compare_events(site, &stores, name, keys, commits).await?);
    }
    Ok(figures)
}

/// Gets and lists.
fn compare(site: &Site, stores: &[FilledStore; 2], name: &str, keys: u64) -> Result<Vec<Figure>, Failure> {
    let rounds = site.amount(1, 40, 120);
    let mut figures = Vec::new();
    let operations: [(&str, Operation); 2] = [("gets", get), ("lists of 100", list)];
    for (name_of_operation, operation) in operations {
        let (mut rates, mut next) = ([0.0, 0.0], [0, 0]);
        for round in 0..rounds {
            for index in order(round) {
                let (store, next) = (&*stores[index].store, &mut next[index]);
                let rate = tokio::task::block_in_place(|| {
                    per_second(next, |number| operation(store, keys, number))
                })?;
                rates[index] += rate / rounds as f64;
            }
        }
        let conditions = format!("one reader, {keys} keys of {VALUE_BYTES} B");
        figures.push(ratio(&format!("{name_of_operation}, {name}"), rates, &conditions));
    }
    Ok(figures)
}

async fn compare_events(
    site: &Site,
    stores: &[FilledStore; 2],
    name: &str,
    keys: u64,
    commits: u64,
) -> Result<Figure, Failure> {
    let rounds = site.amount(1, 20, 20);
    let mut rates = [0.0, 0.0];
    for round in 0..rounds {
        for index in order(round) {
            rates[index] += follow(&stores[index]).await? / rounds as f64;
        }
    }
    let conditions = format!(
        "one follower, {commits} commits of {VALUE_BYTES} B, most of them from the file; {keys} keys"
    );
    Ok(ratio(&format!("events of a watch, {name}"), rates, &conditions))
}

/// The store that goes second meets the caches of the processor as the first one has left them, so they change places.
fn order(round: u64) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

fn ratio(name: &str, [etcd, redb]: [f64; 2], conditions: &str) -> Figure {
    Figure::new(format!("{name}: etcd / redb"), etcd / redb.max(1e-9), "×")
        .at_least(0.95)
        .conditions(format!("{etcd:.0}/s and {redb:.0}/s; {conditions}"))
}

/// Fills etcd, and redb with the log of etcd.
async fn filled(
    etcd: Arc<dyn Store>,
    redb: Arc<dyn Store>,
    keys: u64,
    commits: u64,
) -> Result<[FilledStore; 2], Failure> {
    let begin = etcd.revision();
    load::create(&etcd, keys, VALUE_BYTES).await?;
    repeat(&*etcd, begin, &*redb).await?;
    for store in [&etcd, &redb] {
        store.compact(store.revision()).await?;
    }
    let before = [etcd.revision(), redb.revision()];
    for first in (0..commits).step_by(COMMITS as usize) {
        let numbers = first..(first + COMMITS).min(commits);
        try_join_all(numbers.map(|number| {
            let put = Mutation::put(load::key(number % keys), load::value(number, VALUE_BYTES));
            etcd.commit(vec![put])
        }))
        .await?;
    }
    repeat(&*etcd, before[0], &*redb).await?;
    let [etcd_before, redb_before] = before;
    Ok([FilledStore { store: etcd, before: etcd_before }, FilledStore { store: redb, before: redb_before }])
}

/// Repeats the commits after `after` in another store, in their order.
async fn repeat(source: &dyn Store, after: Revision, target: &dyn Store) -> Result<(), Failure> {
    let end = source.revision();
    let mut follower = source.follow(after)?;
    let mut commits = Vec::new();
    while follower.position() < end {
        if let Advance::Batch(batch) = follower.advance().await? {
            commits.push(target.commit(mutations(&batch)));
        }
        if commits.len() == COMMITS as usize || follower.position() >= end {
            // The first poll of each, in their order, puts it into the queue of the writer.
            try_join_all(commits.drain(..)).await?;
        }
    }
    Ok(())
}

fn mutations(batch: &Batch) -> Vec<Mutation> {
    let put = |event: &Event| Some(Mutation::put(event.key.clone(), event.value.clone()?));
    batch.events.iter().filter_map(put).collect()
}

/// The operation with a number, on so many keys.
type Operation = fn(&dyn Store, u64, u64) -> Result<(), Failure>;

fn get(store: &dyn Store, keys: u64, number: u64) -> Result<(), Failure> {
    let found = store.get(load::key(hash(number) % keys).as_bytes())?;
    found.map(drop).ok_or_else(|| "a key is missing".into())
}

fn list(store: &dyn Store, keys: u64, number: u64) -> Result<(), Failure> {
    let start = load::key(hash(number) % keys.saturating_sub(PAGE.get() as u64).max(1));
    let page = store.list(&Range { start: start.into(), end: None }, Some(PAGE), None)?;
    if page.records.len() == PAGE.get() { Ok(()) } else { Err("a list is too short".into()) }
}

/// The hash of a number (splitmix64; Steele, Lea, Flood 2014). Of keys in a fixed rotation a cache that is a bit too small has none,
/// and how many it has depends on what was in it before.
fn hash(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Operations per second, with numbers from `next` on.
fn per_second(next: &mut u64, operation: impl Fn(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let (started, first) = (Instant::now(), *next);
    while started.elapsed() < SLICE {
        for _ in 0..STEP {
            operation(*next)?;
            *next += 1;
        }
    }
    Ok((*next - first) as f64 / started.elapsed().as_secs_f64())
}

/// Events per second that a follower reads.
async fn follow(filled: &FilledStore) -> Result<f64, Failure> {
    let end = filled.store.revision();
    let mut follower = filled.store.follow(filled.before)?;
    let started = Instant::now();
    let mut events = 0;
    while follower.position() < end {
        // The last revision has no batch if it is that of a barrier.
        if let Advance::Batch(batch) = follower.advance().await? {
            events += batch.events.len();
        }
    }
    Ok(events as f64 / started.elapsed().as_secs_f64())
}
