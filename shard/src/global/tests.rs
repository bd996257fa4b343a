//! Tests of the view with a cache server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use fairlead_config::DrainConfig;
use fairlead_process::Shutdown;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::test_cache::{TestCache, WAIT_TIMEOUT, until_view};
use super::{CacheResource, GlobalView, REFILL_TIME};

fn types() -> CacheResource {
    CacheResource::new("tenancy.kcp.io", "v1alpha1", "workspacetypes")
}

fn object(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kcp.io/shard": "x"}}})
}

/// A view that follows `cache` until the test ends.
fn follow(cache: &TestCache) -> Arc<GlobalView> {
    let view = GlobalView::new();
    let (followed, client) = (view.clone(), cache.client());
    tokio::spawn(async move { followed.run(client, Shutdown::new(&DrainConfig::default())).await });
    view
}

fn names(view: &GlobalView, cluster: Option<&str>) -> Vec<String> {
    let name = |object: &Arc<Value>| object["metadata"]["name"].as_str().unwrap().to_owned();
    view.list(&types().name, cluster).iter().map(name).collect()
}

#[tokio::test]
async fn the_view_shows_replicas_of_all_shards_and_notifies_observers() {
    let cache = TestCache::start().await;
    cache.create(&types(), "s1", "root", &object("a")).await;
    cache.create(&types(), "s2", "org", &object("b")).await;
    let view = GlobalView::new();
    let notified = Arc::new(Mutex::new(Vec::new()));
    let notifications = notified.clone();
    view.on_change(types().name, Box::new(move |cluster| notifications.lock().push(cluster.to_owned())));
    assert!(!view.is_synced() && view.list(&types().name, None).is_empty());
    let (followed, client) = (view.clone(), cache.client());
    tokio::spawn(async move { followed.run(client, Shutdown::new(&DrainConfig::default())).await });

    until_view(&view, "the first state", || view.is_synced()).await;
    assert_eq!(names(&view, None), ["b", "a"]);
    assert_eq!(names(&view, Some("root")), ["a"]);
    assert_eq!(*notified.lock(), ["org", "root"]);

    cache.create(&types(), "s1", "root", &object("c")).await;
    until_view(&view, "a new type", || names(&view, Some("root")) == ["a", "c"]).await;
    cache.client().delete(&types().object("s1", "root", "a"), &Default::default()).await.unwrap();
    until_view(&view, "a deletion", || view.get(&types().name, "root", "a").is_none()).await;
    assert_eq!(*notified.lock(), ["org", "root", "root", "root"]);
}

#[tokio::test]
async fn the_view_keeps_the_last_state_during_a_cache_outage_and_updates_it_afterwards() {
    let mut cache = TestCache::start().await;
    cache.create(&types(), "s1", "root", &object("a")).await;
    let view = follow(&cache);
    until_view(&view, "the first state", || view.is_synced()).await;
    cache.stop().await;
    assert_eq!(names(&view, None), ["a"]);
    assert!(view.is_synced());
    cache.resume().await;
    cache.create(&types(), "s2", "root", &object("b")).await;
    until_view(&view, "the object from after the restart", || names(&view, None) == ["a", "b"]).await;
}

#[tokio::test]
async fn the_view_keeps_what_a_new_store_lacks_until_the_shards_have_filled_it() {
    let mut cache = TestCache::start().await;
    cache.create(&types(), "s1", "root", &object("deleted")).await;
    cache.create(&types(), "s2", "org", &object("of-a-stopped-shard")).await;
    let view = follow(&cache);
    until_view(&view, "the first state", || view.is_synced()).await;
    cache.stop().await;
    cache.lose_store().await;
    cache.resume().await;
    cache.create(&types(), "s1", "root", &object("new")).await;
    until_view(&view, "the new store", || names(&view, Some("root")) == ["deleted", "new"]).await;
    let now = Instant::now();
    view.release(now);
    view.release(now + REFILL_TIME / 2);
    assert_eq!(names(&view, None), ["of-a-stopped-shard", "deleted", "new"]);
    let now = until_released(&view, now, None, &["of-a-stopped-shard", "new"]).await;
    cache.create(&types(), "s2", "org", &object("other")).await;
    until_view(&view, "the second shard", || view.get(&types().name, "org", "other").is_some()).await;
    view.release(now + REFILL_TIME);
    assert_eq!(names(&view, Some("org")), ["of-a-stopped-shard", "other"]);
    until_released(&view, now + REFILL_TIME, Some("org"), &["other"]).await;
}

/// Releases later and later, until the view is as expected; returns that time. The first list of a further resource of the new
/// store, which may still come, begins the time of all shards anew.
async fn until_released(
    view: &GlobalView,
    from: Instant,
    cluster: Option<&str>,
    expected: &[&str],
) -> Instant {
    let mut now = from;
    let released = async {
        loop {
            now += REFILL_TIME;
            view.release(now);
            if names(view, cluster) == expected {
                return now;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT_TIMEOUT, released).await.expect("the view keeps it for ever")
}

#[tokio::test]
async fn the_view_waits_for_the_cache_server_to_start() {
    let mut cache = TestCache::start().await;
    cache.stop().await;
    let view = follow(&cache);
    cache.resume().await;
    until_view(&view, "the first state", || view.is_synced()).await;
}
