//! Reads and events per second of a store on etcd and of one on redb with the same keys.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlead_store::{Mutation, Range, Revision, Store};
use fairlead_tests::load::Figure;

use crate::load;
use crate::{Failure, Site};

const VALUE_BYTES: usize = 1024;
const PAGE: NonZeroUsize = match NonZeroUsize::new(100) {
    Some(page) => page,
    None => NonZeroUsize::MIN,
};
/// Operations between two looks at the clock.
const STEP: u64 = 64;

/// A store with its keys, and the revision before the commits that a follower reads.
struct FilledStore {
    store: Arc<dyn Store>,
    before: Revision,
}

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("reads")?;
    let (keys, commits) = (site.amount(500, 20_000, 100_000), site.amount(200, 20_000, 50_000));
    let etcd = site.etcd(&folder).await?;
    let view: &Path = &folder.join("view.redb");
    let on_etcd = filled(load::etcd(&load::endpoint(&etcd)?, view).await?, keys, commits).await?;
    let on_redb = filled(load::redb(&folder)?, keys, commits).await?;
    let time = Duration::from_millis(site.amount(50, 1_000, 2_000));
    let rounds = site.amount(1, 4, 6);
    let get = |filled: &FilledStore| gets(&*filled.store, keys, time);
    let list = |filled: &FilledStore| lists(&*filled.store, keys, time);
    let mut figures = Vec::new();
    for (name, operation) in
        [("gets", &get as &dyn Fn(&FilledStore) -> Result<f64, Failure>), ("lists of 100", &list)]
    {
        let mut rates = [0.0, 0.0];
        for _ in 0..rounds {
            for (rate, filled) in rates.iter_mut().zip([&on_etcd, &on_redb]) {
                *rate += tokio::task::block_in_place(|| operation(filled))? / rounds as f64;
            }
        }
        figures.push(ratio(name, rates, &format!("one reader, {keys} keys of {VALUE_BYTES} B")));
    }
    let mut rates = [0.0, 0.0];
    for _ in 0..rounds {
        for (rate, filled) in rates.iter_mut().zip([&on_etcd, &on_redb]) {
            *rate += follow(filled).await? / rounds as f64;
        }
    }
    let conditions =
        format!("one follower, {commits} commits of {VALUE_BYTES} B, most of them from the file");
    figures.push(ratio("events of a watch", rates, &conditions));
    Ok(figures)
}

fn ratio(name: &str, [etcd, redb]: [f64; 2], conditions: &str) -> Figure {
    Figure::new(format!("{name}: etcd / redb"), etcd / redb.max(1e-9), "×")
        .at_least(0.95)
        .conditions(format!("{etcd:.0}/s and {redb:.0}/s; {conditions}"))
}

async fn filled(store: Arc<dyn Store>, keys: u64, commits: u64) -> Result<FilledStore, Failure> {
    load::fill(store.clone(), keys, VALUE_BYTES).await?;
    let before = store.revision();
    for first in (0..commits).step_by(64) {
        let commits = (first..(first + 64).min(commits)).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let put = Mutation::put(load::key(number % keys), load::value(number, VALUE_BYTES));
                store.commit(vec![put]).await
            })
        });
        for commit in commits.collect::<Vec<_>>() {
            commit.await??;
        }
    }
    Ok(FilledStore { store, before })
}

/// Reads per second.
fn gets(store: &dyn Store, keys: u64, time: Duration) -> Result<f64, Failure> {
    per_second(time, |number| {
        // A prime, so that neighbours in time are none in the tree.
        let found = store.get(load::key(number * 7919 % keys).as_bytes())?;
        found.map(drop).ok_or_else(|| "a key is missing".into())
    })
}

/// Lists per second.
fn lists(store: &dyn Store, keys: u64, time: Duration) -> Result<f64, Failure> {
    per_second(time, |number| {
        let start = load::key(number * 7919 % keys.saturating_sub(PAGE.get() as u64).max(1));
        let page = store.list(&Range { start: start.into(), end: None }, Some(PAGE), None)?;
        if page.records.len() == PAGE.get() { Ok(()) } else { Err("a list is too short".into()) }
    })
}

fn per_second(time: Duration, mut operation: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let started = Instant::now();
    let mut done = 0;
    while started.elapsed() < time {
        for _ in 0..STEP {
            operation(done)?;
            done += 1;
        }
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

/// Events per second that a follower reads.
async fn follow(filled: &FilledStore) -> Result<f64, Failure> {
    let end = filled.store.revision();
    let mut follower = filled.store.follow(filled.before)?;
    let started = Instant::now();
    let mut events = 0;
    while follower.position() < end {
        events += follower.next().await?.events.len();
    }
    Ok(events as f64 / started.elapsed().as_secs_f64())
}
