//! The time from an acknowledged write to the event in a watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fairlead_client::{Client, ClientError, PatchType, WatchEventKind, WatchStream, WriteOptions};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::watches::open_watches;
use super::{Latencies, LoadError, Table, Target};

/// Writes at a constant rate to config maps of several namespaces, each of which is watched.
#[derive(Debug, Clone)]
pub struct DeliveryLoad {
    /// Writes per second.
    pub rate: u32,
    /// Total number of watches.
    pub watches: usize,
    /// Number of watches that receive each write. The watches are spread over `watches / receivers` namespaces.
    pub receivers: usize,
    /// Number of watches per connection.
    pub per_connection: usize,
    /// Duration of the writes.
    pub duration: Duration,
}

/// Creates the missing namespaces `bench-…` below the prefix of the kubeconfig, opens the watches, and writes.
/// If the event overtakes the acknowledgement, the delivery time counts as zero.
pub async fn measure_delivery(target: &Target, load: &DeliveryLoad) -> Result<Table, LoadError> {
    let receivers = load.receivers.clamp(1, load.watches.max(1));
    let namespaces = (load.watches / receivers).max(1);
    let writer = target.connection();
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let mut followers = Vec::new();
    for namespace in 0..namespaces {
        prepare(&writer, namespace).await?;
        let watches = open_watches(target, &collection(namespace), receivers, load.per_connection).await?;
        followers.extend(watches.into_iter().map(|watch| tokio::spawn(follow(watch, sender.clone()))));
    }
    drop(sender);

    let (acknowledged, mut writes) = write_steadily(&writer, load, namespaces).await?;
    let expected = acknowledged.iter().flatten().count() * receivers;
    let mut latencies = Latencies::default();
    let all = async {
        while latencies.count() < expected {
            let Some((sequence, arrived)) = arrivals.recv().await else { break };
            if let Some(Some(written)) = acknowledged.get(sequence) {
                latencies.add(arrived.saturating_duration_since(*written));
            }
        }
    };
    // Events that have not arrived by then are reported as lost.
    let _ = tokio::time::timeout(Duration::from_secs(30), all).await;
    followers.iter().for_each(tokio::task::JoinHandle::abort);

    let mut table = Table::default();
    let note = format!(
        "{} writes at {}/s; {} watches, {receivers} per write, {} per connection",
        writes.count(),
        load.rate,
        namespaces * receivers,
        load.per_connection
    );
    table.push(
        "write acknowledged to event received",
        latencies.summary(),
        format!("p50 / p90 / p99 / max; {note}"),
    );
    table.push("write", writes.summary(), "p50 / p90 / p99 / max until acknowledged");
    table.push("events lost", format!("{}", expected - latencies.count()), format!("of {expected}"));
    Ok(table)
}

/// Writes at the rate, whether or not earlier writes were acknowledged. Each write in flight has its own object, so that no
/// write waits for another. Returns the time of each acknowledgement, and the latencies.
async fn write_steadily(
    client: &Client,
    load: &DeliveryLoad,
    namespaces: usize,
) -> Result<(Vec<Option<Instant>>, Latencies), LoadError> {
    const MAX_IN_FLIGHT: usize = 256;
    const OBJECTS_PER_NAMESPACE: usize = 16;
    let total = (f64::from(load.rate) * load.duration.as_secs_f64()) as usize;
    let mut ticks = interval(Duration::from_secs(1) / load.rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let places = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let failed = Arc::new(AtomicUsize::new(0));
    let mut writes = Vec::with_capacity(total);
    for sequence in 0..total {
        ticks.tick().await;
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let (client, failed) = (client.clone(), failed.clone());
        let object = sequence / namespaces % OBJECTS_PER_NAMESPACE;
        let path = format!("{}/bench-{object}", collection(sequence % namespaces));
        writes.push(tokio::spawn(async move {
            let _place = place;
            let patch = json!({ "data": { "sequence": sequence.to_string() } });
            let start = Instant::now();
            let options = WriteOptions::default();
            let written: Result<Value, _> = client.patch(&path, PatchType::Merge, &patch, &options).await;
            let end = Instant::now();
            if written.is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            written.ok().map(|_| (end, end - start))
        }));
    }
    let mut acknowledged = Vec::with_capacity(total);
    let mut latencies = Latencies::default();
    for write in writes {
        let outcome = write.await?;
        if let Some((_, latency)) = outcome {
            latencies.add(latency);
        }
        acknowledged.push(outcome.map(|(at, _)| at));
    }
    let failed = failed.load(Ordering::Relaxed);
    if failed > 0 {
        return Err(LoadError::Unexpected(format!("{failed} of {total} writes failed")));
    }
    Ok((acknowledged, latencies))
}

async fn follow(mut watch: WatchStream, arrivals: mpsc::UnboundedSender<(usize, Instant)>) {
    #[derive(Deserialize)]
    struct Written {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        sequence: String,
    }
    while let Some(Ok(event)) = watch.next().await {
        let arrived = Instant::now();
        if event.kind != WatchEventKind::Modified {
            continue;
        }
        let written = serde_json::from_slice::<Written>(&event.object).ok();
        let Some(sequence) = written.and_then(|written| written.data.sequence.parse().ok()) else { continue };
        if arrivals.send((sequence, arrived)).is_err() {
            return;
        }
    }
}

/// Creates a namespace and its config maps if they are missing.
async fn prepare(client: &Client, namespace: usize) -> Result<(), LoadError> {
    let options = WriteOptions::default();
    let name = format!("bench-{namespace}");
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    existing(client.create("/api/v1/namespaces", &object, &options).await)?;
    for object in 0..16 {
        let name = format!("bench-{object}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "sequence": "none" },
        });
        existing(client.create(&collection(namespace), &object, &options).await)?;
    }
    Ok(())
}

fn existing(created: Result<Value, ClientError>) -> Result<(), ClientError> {
    match created {
        Err(error) if error.is_already_exists() => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn collection(namespace: usize) -> String {
    format!("/api/v1/namespaces/bench-{namespace}/configmaps")
}
