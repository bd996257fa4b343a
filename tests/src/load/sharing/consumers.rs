//! Workspaces, and bindings in them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fairlead_client::{Client, ClientError};
use serde_json::{Value, json};

use super::super::run::{Until, body, closed_loop, post, retried};
use super::super::{Latencies, LoadError};
use super::published::{BINDINGS, Published, collection, object};
use super::site::Site;

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const ROOT: &str = "/clusters/root";

/// Creates universal workspaces `<prefix>-<number>` below root on a shard; returns the paths of their logical clusters, in the order
/// of their numbers, when all are ready.
pub(super) async fn workspaces(
    site: &Site,
    prefix: &'static str,
    shard: &'static str,
    count: usize,
) -> Result<Vec<String>, LoadError> {
    let clients = (0..4).map(|_| site.user(ROOT)).collect::<Result<Vec<_>, _>>()?;
    let mut spec = json!({ "type": { "name": "universal", "path": "root" } });
    if site.shards().len() > 1 {
        spec["location"] = json!({ "selector": { "matchLabels": { "name": shard } } });
    }
    closed_loop(&clients, 16, Until::Count(count), move |client, number| {
        let object = body(&json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
            "metadata": { "name": format!("{prefix}-{number}") }, "spec": spec,
        }));
        async move { retried(|| post(&client, WORKSPACES, object.clone())).await }
    })
    .await?;
    let mut ready = BTreeMap::new();
    let mut watch = site.user(ROOT)?.watch(&format!("{WORKSPACES}?watch=1")).await?;
    while ready.len() < count {
        let Some(event) = watch.next().await else {
            return Err(LoadError::Unexpected(format!("{} of {count} workspaces are ready", ready.len())));
        };
        let workspace: Value = serde_json::from_slice(&event?.object).unwrap_or_default();
        let number = workspace["metadata"]["name"].as_str().and_then(|name| name.strip_prefix(prefix));
        let number = number.and_then(|rest| rest.strip_prefix('-')?.parse::<usize>().ok());
        if let Some(number) = number
            && workspace["status"]["phase"] == "Ready"
            && let Some(cluster) = workspace["spec"]["cluster"].as_str()
        {
            ready.insert(number, format!("/clusters/{cluster}"));
        }
    }
    Ok(ready.into_values().collect())
}

/// Binds the export in workspaces, some at a time, each time followed by the creation of an object. Returns the times from the
/// request for the binding to the response with the object.
pub(super) async fn bind(
    site: &Site,
    published: &Published,
    consumers: &[String],
    workers: usize,
) -> Result<Latencies, LoadError> {
    let clients = (0..workers).map(|_| site.user("")).collect::<Result<Vec<_>, _>>()?;
    let binding = published.binding();
    let attempts = Attempts::at(site);
    let consumers: std::sync::Arc<[String]> = consumers.into();
    let outcome = closed_loop(&clients, workers, Until::Count(consumers.len()), {
        let consumers = consumers.clone();
        move |client, number| {
            let (binding, consumers) = (binding.clone(), consumers.clone());
            async move {
                let client = client.with_prefix(&consumers[number]);
                post(&client, BINDINGS, binding).await?;
                attempts.create(&client, &body(&object(0, "first", 100))).await
            }
        }
    });
    Ok(outcome.await?.latencies)
}

/// Attempts to create an object of a kind that is not served yet.
#[derive(Clone, Copy)]
struct Attempts {
    /// The pause between two of them.
    pause: Duration,
    /// Whether a response means that the kind is not served yet.
    is_early: fn(&ClientError) -> bool,
}

impl Attempts {
    fn at(site: &Site) -> Self {
        match site.kcp() {
            None => Self { pause: Duration::from_millis(2), is_early: ClientError::is_not_found },
            // It takes seconds, so that more attempts would be load without a better figure. Its responses vary.
            Some(_) => Self { pause: Duration::from_millis(20), is_early: |error| error.code().is_some() },
        }
    }

    /// Creates an object of the first kind as soon as the kind is served.
    async fn create(self, client: &Client, object: &bytes::Bytes) -> Result<(), LoadError> {
        const LONGEST: Duration = Duration::from_secs(60);
        let begin = Instant::now();
        loop {
            match post(client, &collection(0), object.clone()).await {
                Err(error) if (self.is_early)(&error) && begin.elapsed() < LONGEST => {
                    tokio::time::sleep(self.pause).await;
                }
                outcome => return Ok(outcome?),
            }
        }
    }
}
