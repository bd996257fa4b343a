//! A schema change of an export with many bindings.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlead_client::{Client, Request, WatchStream};
use http::Method;
use http::header::{ACCEPT, HeaderValue};
use serde_json::Value;

use super::super::report::Figure;
use super::super::run::{Size, body, millis, paced, send};
use super::super::{Latencies, LoadError};
use super::binding::Shared;
use super::consumers::workspaces;
use super::published::{BINDINGS, collection, object};
use super::site::{FAR, NEAR, Site};

/// Changes one schema of the export several times, beside reads and writes in a workspace that has not bound it.
pub(super) async fn change(site: &Site, shared: &Shared, size: Size) -> Result<Vec<Figure>, LoadError> {
    const VERSIONS: [&str; 3] = ["v2", "v3", "v4"];
    let other = workspaces(site, "other", NEAR, 1).await?;
    let other = other.first().map_or("", String::as_str);
    let clients = (0..4).map(|_| site.direct(NEAR, other)).collect::<Result<Vec<_>, _>>()?;
    let small = "/api/v1/namespaces/default";
    let rate = size.of(50, 200, 200) as u32;
    let quiet_until = Instant::now() + size.duration();
    let (mut quiet_reads, mut quiet_writes) =
        others(&clients, small, rate, move |_| Instant::now() >= quiet_until).await?;

    let (mut reads, mut writes, mut times) = (Latencies::default(), Latencies::default(), Vec::new());
    for version in VERSIONS {
        shared.published.prepare(version).await?;
        let near = follow(site, NEAR).await?;
        let far = follow(site, FAR).await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let load = tokio::spawn({
            let (clients, is_over) = (clients.clone(), is_over.clone());
            async move { others(&clients, small, rate, move |_| is_over.load(Ordering::Relaxed)).await }
        });
        let begin = Instant::now();
        let changed = async {
            shared.published.change(version).await?;
            tokio::try_join!(all(near, shared.near.len()), all(far, shared.far.len()))?;
            for (shard, consumers) in [(NEAR, &shared.near), (FAR, &shared.far)] {
                serve(site, shard, consumers, version).await?;
            }
            Ok::<_, LoadError>(begin.elapsed())
        };
        let changed = changed.await;
        is_over.store(true, Ordering::Relaxed);
        let (some_reads, some_writes) = load.await??;
        reads.merge(some_reads);
        writes.merge(some_writes);
        times.push(changed?);
    }
    let longest = times.iter().max().copied().unwrap_or_default();
    let bindings = shared.near.len() + shared.far.len();
    let shown: Vec<_> = times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
    let conditions = format!(
        "{bindings} bindings on two shards, one of the kinds; from the request to the last workspace, {} s",
        shown.join(", ")
    );
    let ratio = |beside: &mut Latencies, quiet: &mut Latencies| {
        millis(beside.percentile(99.0)) / millis(quiet.percentile(99.0)).max(f64::MIN_POSITIVE)
    };
    let compared = |kind: &str, beside: &mut Latencies, quiet: &mut Latencies| {
        Figure::new(format!("schema change: p99 of other {kind}"), ratio(beside, quiet), "×")
            .at_most(1.5)
            .conditions(format!(
                "{rate}/s; quiet {}, beside {} changes {}",
                quiet.summary(),
                VERSIONS.len(),
                beside.summary()
            ))
    };
    Ok(vec![
        Figure::new("schema change: time", longest.as_secs_f64(), "s").at_most(10.0).conditions(conditions),
        compared("reads", &mut reads, &mut quiet_reads),
        compared("writes", &mut writes, &mut quiet_writes),
    ])
}

/// Reads a namespace at a rate and writes it at a fifth of it, until the end; returns the times of both.
async fn others(
    clients: &[Client],
    path: &'static str,
    rate: u32,
    is_over: impl Fn(usize) -> bool,
) -> Result<(Latencies, Latencies), LoadError> {
    let results = paced(clients, rate + rate / 5, is_over, move |client, number, planned| async move {
        let is_write = number % 6 == 5;
        if is_write {
            let patch =
                serde_json::json!({ "metadata": { "annotations": { "number": number.to_string() } } });
            send(&client, Method::PATCH, path, "application/merge-patch+json", body(&patch)).await?;
        } else {
            client.get(path).await?;
        }
        Ok((is_write, planned.elapsed()))
    });
    let (mut reads, mut writes) = (Latencies::default(), Latencies::default());
    for (is_write, time) in results.await? {
        if is_write { writes.add(time) } else { reads.add(time) }
    }
    Ok((reads, writes))
}

/// A watch of the metadata of all bindings of a shard, from now on.
async fn follow(site: &Site, shard: &str) -> Result<WatchStream, LoadError> {
    let client = site.direct(shard, "/clusters/*")?;
    let list: Value = client.get_json(&format!("{BINDINGS}?limit=1")).await?;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("{BINDINGS}?watch=1&resourceVersion={revision}");
    let metadata = HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    Ok(client.watch_with(Request::new(Method::GET, path).with_header(ACCEPT, metadata)).await?)
}

/// Waits until bindings of this many logical clusters have changed.
async fn all(mut watch: WatchStream, count: usize) -> Result<(), LoadError> {
    const LONGEST: Duration = Duration::from_secs(120);
    let mut changed = HashSet::new();
    while changed.len() < count {
        let next = tokio::time::timeout(LONGEST, watch.next()).await;
        let Ok(Some(event)) = next else {
            return Err(LoadError::Unexpected(format!("{} of {count} bindings changed", changed.len())));
        };
        let object: Value = serde_json::from_slice(&event?.object).unwrap_or_default();
        // Every workspace has bindings to exports of root, too.
        if object["metadata"]["name"] == "shared"
            && let Some(cluster) = object["metadata"]["annotations"]["kcp.io/cluster"].as_str()
        {
            changed.insert(cluster.to_owned());
        }
    }
    Ok(())
}

/// Verifies that some of the consumers serve the new field, or waits until they do.
async fn serve(site: &Site, shard: &str, consumers: &[String], field: &str) -> Result<(), LoadError> {
    const SOME: usize = 50;
    let client = site.direct(shard, "")?;
    for consumer in consumers.iter().step_by((consumers.len() / SOME).max(1)) {
        let client = client.with_prefix(consumer);
        let mut object = object(0, "probe", 10);
        object["spec"][field] = "value".into();
        let options = fairlead_client::WriteOptions { dry_run: true, field_manager: None };
        loop {
            let created: Value = client.create(&collection(0), &object, &options).await?;
            if created["spec"][field] == "value" {
                break;
            }
        }
    }
    Ok(())
}
