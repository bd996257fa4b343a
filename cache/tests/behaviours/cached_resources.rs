use fairlead_client::{DeleteOptions, WriteOptions};
use serde_json::{Value, json};

use crate::support::{Cache, code, collection, names};

const PUBLISHED: &str = "cache.kcp.io/v1alpha1/clustercachedresources";

/// A ClusterCachedResource of widgets as its shard has completed it.
fn published(identity: &str, version: &str) -> Value {
    json!({
        "apiVersion": "cache.kcp.io/v1alpha1",
        "kind": "ClusterCachedResource",
        "metadata": {"name": "widgets", "annotations": {
            "cache.kcp.io/resource-kind": "Widget",
            "cache.kcp.io/resource-scope": "Cluster",
        }},
        "spec": {"group": "example.com", "version": version, "resource": "widgets"},
        "status": {"identityHash": identity},
    })
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"any": [1]}})
}

async fn create(cache: &Cache, path: &str, object: &Value) {
    let _: Value = cache.master().create(path, object, &WriteOptions::default()).await.unwrap();
}

/// Waits until a path is served, or is not served any more: the server learns of resources by its own events.
async fn wait(cache: &Cache, path: &str, is_served: bool) {
    while cache.master().get_json::<Value>(path).await.is_ok() != is_served {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn published_resources_are_served_under_their_identity() {
    let cache = Cache::start().await;
    let master = cache.master();
    let of_widgets = |shard: &str, cluster: &str, identity: &str| {
        collection(shard, cluster, &format!("example.com/v1/widgets{identity}"))
    };
    assert_eq!(code(master.get_json::<Value>(&of_widgets("*", "*", ":id1")).await), 404);
    for (shard, cluster, identity) in [("s1", "a", "id1"), ("s2", "b", "id1"), ("s1", "c", "id2")] {
        create(&cache, &collection(shard, cluster, PUBLISHED), &published(identity, "v1")).await;
        wait(&cache, &of_widgets(shard, cluster, ""), true).await;
        create(&cache, &of_widgets(shard, cluster, &format!(":{identity}")), &widget(cluster)).await;
    }
    for (path, expected) in [
        (of_widgets("*", "*", ":id1"), &["a", "b"][..]),
        (of_widgets("s1", "*", ":id1"), &["a"]),
        (of_widgets("*", "*", ":id2"), &["c"]),
        (of_widgets("s1", "a", ":id1"), &["a"]),
        (of_widgets("s1", "c", ""), &["c"]),
    ] {
        let list: Value = master.get_json(&path).await.unwrap();
        assert_eq!(names(&list), expected, "{path}");
    }
    for path in [
        of_widgets("*", "*", ""),
        of_widgets("*", "*", ":other"),
        of_widgets("s1", "a", ":id2"),
        of_widgets("s1", "d", ""),
        collection("*", "*", "example.com/v2/widgets:id1"),
        collection("*", "*", "cache.kcp.io/v1alpha1/clustercachedresources:id1"),
    ] {
        assert_eq!(code(master.get_json::<Value>(&path).await), 404, "{path}");
    }
}

#[tokio::test]
async fn a_resource_is_served_in_the_versions_of_all_that_publish_it_until_the_last_is_deleted() {
    let cache = Cache::start().await;
    let master = cache.master();
    let all = |version: &str| collection("*", "*", &format!("example.com/{version}/widgets:id1"));
    create(&cache, &collection("s1", "a", PUBLISHED), &published("id1", "v1")).await;
    create(&cache, &collection("s1", "b", PUBLISHED), &published("id1", "v2")).await;
    wait(&cache, &all("v1"), true).await;
    wait(&cache, &all("v2"), true).await;
    let of = |cluster: &str| format!("{}/widgets", collection("s1", cluster, PUBLISHED));
    master.delete(&of("b"), &DeleteOptions::default()).await.unwrap();
    wait(&cache, &all("v2"), false).await;
    wait(&cache, &all("v1"), true).await;
    master.delete(&of("a"), &DeleteOptions::default()).await.unwrap();
    wait(&cache, &all("v1"), false).await;
}

#[tokio::test]
async fn a_resource_without_identity_or_kind_is_not_served() {
    let cache = Cache::start().await;
    let incomplete = [
        ("identity", json!({"status": {}})),
        (
            "kind",
            json!({"metadata": {"name": "widgets", "annotations": {"cache.kcp.io/resource-scope": "Cluster"}}}),
        ),
        (
            "scope",
            json!({"metadata": {"name": "widgets", "annotations": {
            "cache.kcp.io/resource-kind": "Widget", "cache.kcp.io/resource-scope": "Namespaced"}}}),
        ),
    ];
    for (cluster, changes) in incomplete {
        let mut object = published("id1", "v1");
        for (field, value) in changes.as_object().unwrap() {
            object[field] = value.clone();
        }
        create(&cache, &collection("s1", cluster, PUBLISHED), &object).await;
    }
    create(&cache, &collection("s1", "complete", PUBLISHED), &published("id2", "v1")).await;
    wait(&cache, &collection("*", "*", "example.com/v1/widgets:id2"), true).await;
    let path = collection("*", "*", "example.com/v1/widgets:id1");
    assert_eq!(code(cache.master().get_json::<Value>(&path).await), 404);
}
