#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use fairlead_api::annotation;
use fairlead_client::WriteOptions;
use fairlead_names::ResourceName;
use fairlead_process::Shutdown;
use serde_json::{Value, json};

use super::copies::PublishedCopies;
use super::sources::CopySource;
use crate::global::CacheResource;
use crate::global::test_cache::TestCache;

/// A cache server with the copies `a` and `b` of things of the logical cluster `p`.
async fn published() -> (TestCache, CopySource) {
    let cache = TestCache::start().await;
    let resource = CacheResource::new("cache.kcp.io", "v1alpha1", "clustercachedresources");
    let annotations = json!({
        annotation::CACHED_RESOURCE_KIND: "Thing", annotation::CACHED_RESOURCE_SCOPE: "Cluster",
        annotation::CLUSTER: "p", annotation::CACHE_SHARD: "s1",
    });
    let published = json!({
        "metadata": {"name": "things", "annotations": annotations},
        "spec": {"group": "example.com", "version": "v1", "resource": "things"},
        "status": {"identityHash": "hash"},
    });
    cache.create(&resource, "s1", "p", &published).await;
    let source = CopySource {
        shard: "s1".into(),
        cluster: "p".into(),
        resource: ResourceName::new("example.com", "things"),
        version: "v1".into(),
        identity: "hash".into(),
    };
    for name in ["a", "b"] {
        let copy = json!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": name, "annotations": {annotation::CLUSTER: "p", annotation::CACHE_SHARD: "s1"}},
        });
        let path = CacheResource::published(&source.resource, "v1", "hash").collection("s1", "p");
        // The cache server serves the resource as soon as its own hub has delivered the ClusterCachedResource.
        while cache.client().create::<Value>(&path, &copy, &WriteOptions::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    (cache, source)
}

#[tokio::test]
async fn a_mirror_lasts_as_long_as_its_readers_and_leaves_no_history() {
    let (cache, source) = published().await;
    let (copies, new) = PublishedCopies::new();
    let running = Arc::clone(&copies).run(cache.client(), new, Shutdown::new(&Default::default()));
    let running = tokio::spawn(running);
    let hub = copies.hub().clone();
    let delivering = tokio::spawn(async move { hub.run().await });
    let reader = copies.open(&source).await.unwrap();
    assert_eq!(copies.names(&source), ["a", "b"]);
    copies.stop_idle_after(Duration::from_secs(3600));
    let second = copies.open(&source).await.unwrap();
    assert_eq!(reader.location(), second.location());
    let before = copies.store().revision();
    drop((reader, second));
    copies.stop_idle_after(Duration::ZERO);
    assert_eq!(copies.names(&source), ["a", "b"], "a mirror that was just read");
    copies.stop_idle_after(Duration::from_secs(3600));
    while !copies.names(&source).is_empty() {
        tokio::task::yield_now().await;
    }
    let again = loop {
        match copies.open(&source).await {
            Ok(reader) => break reader,
            Err(status) => assert_eq!(status.code, 503),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(copies.names(&source), ["a", "b"]);
    assert!(copies.store().compacted() > before, "a revision of the first mirror can be read");
    // The hub fails when events are discarded that it has not read.
    copies.hub().wait(copies.store().revision()).await.unwrap();
    assert!(!delivering.is_finished());
    drop(again);
    running.abort();
    delivering.abort();
}
