//! Time from the begin of a write to its event: in a second replica, and in a watch of etcd itself by another client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::{Client, EventType, WatchOptions};
use fairlead_store::{Mutation, Store};
use fairlead_store_etcd::EtcdStore;
use fairlead_tests::load::{Figure, Latencies};

use crate::load;
use crate::{Failure, Site};

const VALUE_BYTES: usize = 2048;
/// Time between two writes.
const PACE: Duration = Duration::from_millis(5);

/// Begins of writes by their keys.
type Begins = Arc<Mutex<HashMap<Vec<u8>, Instant>>>;

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("watch")?;
    let etcd = site.etcd(&folder).await?;
    let endpoint = load::endpoint(&etcd)?;
    let writer = load::etcd(&endpoint, &folder.join("writer.redb")).await?;
    let replica = load::etcd(&endpoint, &folder.join("replica.redb")).await?;
    let count = site.amount(20, 1_000, 2_000);
    let (mut ours, mut plain) = (Latencies::default(), Latencies::default());
    for round in 0..site.amount(1, 4, 6) {
        let first = round * count;
        plain.merge(watched(&endpoint, first, count).await?);
        ours.merge(followed(&writer, &replica, first, count).await?);
    }
    let (ours_p99, plain_p99) = (ours.percentile(99.0), plain.percentile(99.0));
    let more = (ours_p99.as_secs_f64() - plain_p99.as_secs_f64()) * 1e3;
    let conditions = format!(
        "{} writes of {VALUE_BYTES} B at 200/s each; p50 / p90 / p99 / max {}, etcd's own {}",
        ours.count(),
        ours.summary(),
        plain.summary()
    );
    writer.close().await;
    replica.close().await;
    let name = "p99 of write to event on another replica, above etcd's own watch";
    Ok(vec![Figure::new(name, more, "ms").at_most(20.0).conditions(conditions)])
}

async fn followed(
    writer: &Arc<EtcdStore>,
    replica: &EtcdStore,
    first: u64,
    count: u64,
) -> Result<Latencies, Failure> {
    let begins = Begins::default();
    let mut follower = replica.follow(replica.revision())?;
    let (store, begun) = (writer.clone(), begins.clone());
    let writes = tokio::spawn(paced(first, count, move |number| {
        let (store, begun) = (store.clone(), begun.clone());
        async move {
            let key = format!("{}-ours", load::key(number));
            note(&begun, key.as_bytes());
            store.commit(vec![Mutation::put(key, load::value(number, VALUE_BYTES))]).await?;
            Ok(())
        }
    }));
    let mut latencies = Latencies::default();
    while latencies.count() < count as usize {
        for event in &follower.next().await?.events {
            add(&begins, &event.key, &mut latencies);
        }
    }
    writes.await??;
    Ok(latencies)
}

async fn watched(endpoint: &str, first: u64, count: u64) -> Result<Latencies, Failure> {
    let begins = Begins::default();
    let kv = Client::connect([endpoint], None).await?.kv_client();
    let mut client = Client::connect([endpoint], None).await?;
    let mut watch = client.watch("/plain/", Some(WatchOptions::new().with_prefix())).await?;
    let begun = begins.clone();
    let writes = tokio::spawn(paced(first, count, move |number| {
        let (mut kv, begun) = (kv.clone(), begun.clone());
        async move {
            let key = format!("/plain{}", load::key(number));
            note(&begun, key.as_bytes());
            kv.put(key, load::value(number, VALUE_BYTES), None).await?;
            Ok(())
        }
    }));
    let mut latencies = Latencies::default();
    while latencies.count() < count as usize {
        let response = watch.message().await?.ok_or("the watch has ended")?;
        for event in response.events() {
            if let (EventType::Put, Some(kv)) = (event.event_type(), event.kv()) {
                add(&begins, kv.key(), &mut latencies);
            }
        }
    }
    writes.await??;
    Ok(latencies)
}

/// Runs an operation at a constant rate, whether or not the one before has ended.
async fn paced<F>(
    first: u64,
    count: u64,
    operation: impl Fn(u64) -> F + Send + 'static,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut ticks = tokio::time::interval(PACE);
    let mut operations = Vec::new();
    for number in first..first + count {
        ticks.tick().await;
        operations.push(tokio::spawn(operation(number)));
    }
    for operation in operations {
        operation.await??;
    }
    Ok(())
}

fn note(begins: &Begins, key: &[u8]) {
    begins.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_vec(), Instant::now());
}

fn add(begins: &Begins, key: &[u8], latencies: &mut Latencies) {
    if let Some(begin) = begins.lock().unwrap_or_else(PoisonError::into_inner).remove(key) {
        latencies.add(begin.elapsed());
    }
}
