//! Stores, values, and loops of clients.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlead_store::{Mutation, RedbOptions, RedbStore, Store};
use fairlead_store_etcd::{EtcdOptions, EtcdStore};
use fairlead_tests::harness::EtcdCluster;
use fairlead_tests::load::Latencies;

use crate::Failure;

/// Clients that write at the same time.
pub(crate) const WRITERS: u64 = 32;

/// Commits that fill a store at the same time, and their mutations.
const FILLERS: u64 = 8;
const FILL_MUTATIONS: u64 = 100;

/// Opens a store on redb in a folder.
pub(crate) fn redb(folder: &Path) -> Result<Arc<RedbStore>, Failure> {
    Ok(Arc::new(RedbStore::open(folder.join("store.redb"), RedbOptions::default())?))
}

/// The options of a shard whose copy is the file `view`.
pub(crate) fn etcd_options(endpoint: &str, view: &Path) -> EtcdOptions {
    EtcdOptions {
        endpoints: vec![endpoint.to_owned()],
        view: Some(view.to_owned()),
        ..EtcdOptions::default()
    }
}

/// Opens a store on etcd.
pub(crate) async fn etcd(endpoint: &str, view: &Path) -> Result<Arc<EtcdStore>, Failure> {
    Ok(Arc::new(EtcdStore::open(etcd_options(endpoint, view)).await?))
}

/// The address of the only member.
pub(crate) fn endpoint(etcd: &EtcdCluster) -> Result<String, Failure> {
    Ok(etcd.endpoints().into_iter().next().ok_or("the etcd has no member")?)
}

/// A key such as a shard has.
pub(crate) fn key(number: u64) -> String {
    format!("/registry/core/configmaps/customresources/2f4k9w1x8y3z/default/measured-{number:09}")
}

/// Text that compresses about as well as objects do.
pub(crate) fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 64);
    let mut word = seed;
    while value.len() < bytes {
        // A linear congruential generator is random enough here (Knuth, MMIX).
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend(format!("\"name-{:08x}\":\"metadata.example.com/value\",", word >> 32).into_bytes());
    }
    value.truncate(bytes);
    value
}

/// Writes keys with numbers from 0 on, and compacts.
pub(crate) async fn fill(store: Arc<dyn Store>, keys: u64, bytes: usize) -> Result<(), Failure> {
    create(&store, keys, bytes).await?;
    store.compact(store.revision()).await?;
    Ok(())
}

/// Writes keys with numbers from 0 on. The order of their commits differs from run to run.
pub(crate) async fn create(store: &Arc<dyn Store>, keys: u64, bytes: usize) -> Result<(), Failure> {
    let next = Arc::new(AtomicU64::new(0));
    let fillers: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (store, next) = (store.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let first = next.fetch_add(FILL_MUTATIONS, Ordering::Relaxed);
                    if first >= keys {
                        return Ok::<_, Failure>(());
                    }
                    let numbers = first..(first + FILL_MUTATIONS).min(keys);
                    let puts = numbers.map(|number| Mutation::put(key(number), value(number, bytes)));
                    store.commit(puts.collect()).await?;
                }
            })
        })
        .collect();
    for filler in fillers {
        filler.await??;
    }
    Ok(())
}

/// The result of a load.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Latencies,
}

impl Outcome {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Adds a later phase of the same load.
    pub(crate) fn add(&mut self, other: Self) {
        self.elapsed += other.elapsed;
        self.latencies.merge(other.latencies);
    }
}

/// Runs an operation with numbers from 0 on, by [`WRITERS`] clients, for a time or until `is_over`; each client makes pauses of
/// `pace` from the begin of one operation to the next.
pub(crate) async fn write<F>(
    pace: Option<Duration>,
    is_over: impl Fn(Duration) -> bool + Clone + Send + 'static,
    operation: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Result<Outcome, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let clients: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (next, is_over, operation) = (next.clone(), is_over.clone(), operation.clone());
            tokio::spawn(async move {
                let mut latencies = Latencies::default();
                let mut ticks = pace.map(tokio::time::interval);
                while !is_over(started.elapsed()) {
                    if let Some(ticks) = &mut ticks {
                        ticks.tick().await;
                    }
                    let begin = Instant::now();
                    operation(next.fetch_add(1, Ordering::Relaxed)).await?;
                    latencies.add(begin.elapsed());
                }
                Ok::<_, Failure>(latencies)
            })
        })
        .collect();
    let mut latencies = Latencies::default();
    for client in clients {
        latencies.merge(client.await??);
    }
    Ok(Outcome { elapsed: started.elapsed(), latencies })
}
