//! Garbage collection of many dependents, and its cost for other workspaces.

use std::time::{Duration, Instant};

use fairlead_client::{DeleteOptions, WatchEventKind};
use serde_json::{Value, json};

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, Until, body, closed_loop, millis, paced_gets, post};
use super::fill::{CONFIG_MAPS, config_map, workspace};
use super::server::{ROOT, Server};

/// Deletes an owner and waits until all dependents are gone, while another workspace is read.
pub(super) async fn owner(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let count = size.of(50, 10_000, 10_000);
    let rate = size.of(50, 200, 200) as u32;
    let root = server.client(ROOT);
    let (owners, other) = (workspace(&root, "owners").await?, workspace(&root, "other").await?);
    let readers = server.clients(&other, 4);
    post(&readers[0], CONFIG_MAPS, config_map("small", 300)).await?;
    let small = format!("{CONFIG_MAPS}/small");

    let client = server.client(&owners);
    post(&client, CONFIG_MAPS, config_map("owner", 300)).await?;
    let owner: Value = client.get_json(&format!("{CONFIG_MAPS}/owner")).await?;
    let uid = owner["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    closed_loop(&server.clients(&owners, 4), 64, Until::Count(count), move |client, number| {
        let object = body(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("dependent-{number}"), "labels": { "is": "dependent" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid }],
            },
        }));
        async move { Ok(post(&client, CONFIG_MAPS, object).await?) }
    })
    .await?;
    let mut quiet = paced_gets(&readers, &small, rate, size.duration()).await?;

    let list: Value = client.get_json(&format!("{CONFIG_MAPS}?limit=1")).await?;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("{CONFIG_MAPS}?watch=1&labelSelector=is%3Ddependent&resourceVersion={revision}");
    let mut watch = client.watch(&path).await?;
    let begin = Instant::now();
    let gone = async {
        let options = DeleteOptions { propagation_policy: Some("Background"), ..DeleteOptions::default() };
        client.delete(&format!("{CONFIG_MAPS}/owner"), &options).await?;
        let mut deleted = 0;
        while deleted < count {
            let next = tokio::time::timeout(Duration::from_secs(120), watch.next()).await;
            let Ok(Some(event)) = next else {
                return Err(LoadError::Unexpected(format!("{deleted} of {count} dependents were deleted")));
            };
            deleted += usize::from(event?.kind == WatchEventKind::Deleted);
        }
        Ok(begin.elapsed())
    };
    // Reads begin with the deletion and end after it; a short one is measured with few reads.
    let duration = size.duration().min(Duration::from_secs(3));
    let (elapsed, beside) = tokio::join!(gone, paced_gets(&readers, &small, rate, duration));
    let (elapsed, mut beside) = (elapsed?, beside?);
    let ratio = millis(beside.percentile(99.0)) / millis(quiet.percentile(99.0)).max(f64::MIN_POSITIVE);
    let conditions = format!("{count} dependents");
    Ok(vec![
        Figure::new("deletion of an owner: time", elapsed.as_secs_f64(), "s")
            .at_most(5.0)
            .conditions(&conditions),
        Figure::new("deletion of an owner: p99 of other workspaces", ratio, "×").at_most(1.5).conditions(
            format!("{conditions}, {rate} reads/s; alone {}, beside {}", quiet.summary(), beside.summary()),
        ),
    ])
}
