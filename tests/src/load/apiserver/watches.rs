//! Many watches: delivery, memory, and resumption.

use std::time::{Duration, Instant};

use fairlead_client::{Client, ClientError, Ignored, List, WatchEventKind};
use http::Method;
use serde_json::json;
use tokio::sync::mpsc;

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, Until, body, closed_loop, millis, post, send, settle};
use super::super::watches::open_watches;
use super::fill::{CONFIG_MAPS, config_map, fill};
use super::server::{ROOT, Server};

const PER_CONNECTION: usize = 100;

/// Watchers of one resource: their memory while idle, and the time until one write has reached all of them.
pub(super) async fn watchers(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    const WRITES: usize = 5;
    let count = size.of(100, 10_000, 10_000);
    let target = server.target(ROOT);
    let writer = server.client(ROOT);
    post(&writer, CONFIG_MAPS, config_map("watched", 300)).await?;
    let _first = open_watches(&target, CONFIG_MAPS, 1, 1).await?;
    settle().await;
    let before = server.sample()?.resident;
    let watches = open_watches(&target, CONFIG_MAPS, count, PER_CONNECTION).await?;
    settle().await;
    let after = server.sample()?.resident;
    let each = after.saturating_sub(before) as f64 / count as f64 / 1024.0;

    let (sender, mut received) = mpsc::unbounded_channel();
    let followers: Vec<_> = watches
        .into_iter()
        .map(|mut watch| {
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(Ok(event)) = watch.next().await {
                    if event.kind == WatchEventKind::Modified && sender.send(Instant::now()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut times = Vec::new();
    for write in 0..WRITES {
        let patch = body(&json!({ "data": { "write": write.to_string() } }));
        let begin = Instant::now();
        let path = format!("{CONFIG_MAPS}/watched");
        send(&writer, Method::PATCH, &path, "application/merge-patch+json", patch).await?;
        let mut last = begin;
        for arrived in 0..count {
            let next = tokio::time::timeout(Duration::from_secs(60), received.recv()).await;
            let Ok(Some(at)) = next else {
                return Err(LoadError::Unexpected(format!("{arrived} of {count} watchers received a write")));
            };
            last = last.max(at);
        }
        times.push(last - begin);
    }
    followers.iter().for_each(tokio::task::JoinHandle::abort);
    times.sort_unstable();
    let conditions = format!("{count} watchers, {PER_CONNECTION} per connection");
    Ok(vec![
        Figure::new("watchers of one resource: all have a write", millis(times[WRITES / 2]), "ms")
            .at_most(100.0)
            .conditions(format!("{conditions}, from the request on, median of {WRITES}")),
        Figure::new("idle watch: memory", each, "KiB").at_most(4.0).conditions(conditions),
    ])
}

/// Watches of many namespaces that are resumed at once, each with ten events of its own since then, in a log with many others.
pub(super) async fn resume(server: &mut Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    const NAMESPACES: usize = 100;
    const OWN_EVENTS: usize = 10;
    let count = size.of(100, 2_000, 10_000);
    let events = size.of(1_000, 100_000, 1_000_000);
    let clients = server.clients(ROOT, 4);
    for number in 0..NAMESPACES {
        let name = format!("watched-{number}");
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        post(&clients[0], "/api/v1/namespaces", body(&object)).await?;
        post(&clients[0], &namespaced(number), config_map("watched", 300)).await?;
    }
    fill(server, ROOT, 0..64, 300).await?;
    let list: List<Ignored> = clients[0].get_json("/api/v1/configmaps?limit=1").await?;
    let revision = list.metadata.resource_version;
    // Events of the watched namespaces are spread over the log.
    let every = events / (NAMESPACES * OWN_EVENTS);
    closed_loop(&clients, 64, Until::Count(events), move |client, number| async move {
        let path = match number % every {
            0 => format!("{}/watched", namespaced(number / every % NAMESPACES)),
            _ => format!("{CONFIG_MAPS}/object-{:06}", number % 64),
        };
        let patch = body(&json!({ "data": { "number": number.to_string() } }));
        Ok(send(&client, Method::PATCH, &path, "application/merge-patch+json", patch).await?)
    })
    .await?;
    server.restart().await?;
    settle().await;

    let clients = server.clients(ROOT, count / PER_CONNECTION.min(count));
    // Connections are there before the watches.
    for client in &clients {
        client.get("/version").await?;
    }
    let meter = server.meter()?;
    let begin = Instant::now();
    let watches: Vec<_> = (0..count)
        .map(|number| {
            let client = clients[number % clients.len()].clone();
            let path = format!("{}?watch=1&resourceVersion={revision}", namespaced(number % NAMESPACES));
            tokio::spawn(async move { receive(&client, &path, OWN_EVENTS).await })
        })
        .collect();
    let mut expired = 0;
    for watch in watches {
        match watch.await? {
            Ok(()) => {}
            Err(LoadError::Client(error)) if error.is_gone() => expired += 1,
            Err(error) => return Err(error),
        }
    }
    let elapsed = begin.elapsed();
    let usage = meter.read()?;
    let conditions = format!(
        "{count} watches with {OWN_EVENTS} events each, {events} events in the log, CPU {:.2} s",
        usage.cpu.as_secs_f64()
    );
    if expired > 0 {
        let reason = format!("{expired} of {count} expired");
        return Ok(vec![Figure::absent("resumed watches: time", reason).conditions(conditions)]);
    }
    Ok(vec![
        Figure::new("resumed watches: time", elapsed.as_secs_f64(), "s")
            .at_most(2.0)
            .conditions(conditions.clone()),
        Figure::new("resumed watches: extra memory", usage.extra_memory as f64 / f64::from(1 << 20), "MiB")
            .at_most(64.0)
            .conditions(conditions),
    ])
}

async fn receive(client: &Client, path: &str, count: usize) -> Result<(), LoadError> {
    let mut watch = client.watch(path).await?;
    for received in 0..count {
        let next = tokio::time::timeout(Duration::from_secs(120), watch.next()).await;
        let Ok(Some(event)) = next else {
            return Err(LoadError::Unexpected(format!("{path}: {received} of {count} events")));
        };
        let event = event?;
        if event.kind == WatchEventKind::Error {
            return Err(ClientError::Status(Box::new(event.status())).into());
        }
    }
    Ok(())
}

fn namespaced(number: usize) -> String {
    format!("/api/v1/namespaces/watched-{number}/configmaps")
}
