#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use fairlead_apiserver::Scope;
use serde_json::{Value, json};

use crate::testing::{MASTER, TestShard, events, is_watch};

const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";

/// The logical cluster `c` has bound the schemas `v1.gadgets` of `q` and `v1.widgets` of `p`, and one that was deleted.
async fn shard() -> TestShard {
    let shard = TestShard::start();
    for (cluster, name) in [("p", "v1.widgets"), ("p", "v1.other"), ("q", "v1.gadgets"), ("c", "own")] {
        shard.create(&format!("/clusters/{cluster}{SCHEMAS}"), schema(name, cluster)).await;
    }
    let bound = [("v1.widgets", "p"), ("v1.gadgets", "q"), ("v1.gone", "q")];
    let bound: BTreeMap<_, _> =
        bound.into_iter().map(|(name, cluster)| (name.into(), Scope::new(cluster))).collect();
    shard.shard.schemas.lock().insert("c".to_owned(), bound);
    shard
}

fn schema(name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": name, "labels": {"of": cluster}},
    })
}

fn view(rest: &str) -> String {
    format!("/services/apiresourceschema/c{rest}")
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items
        .iter()
        .map(|item| &item["metadata"])
        .map(|meta| format!("{}/{}", text(&meta["annotations"]["kcp.io/cluster"]), text(&meta["name"])))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn schemas_of_bound_exports_are_read() {
    let shard = shard().await;
    for prefix in ["", "/clusters/*", "/clusters/c"] {
        let list = shard.get("creator", &view(&format!("{prefix}{SCHEMAS}"))).await.json();
        assert_eq!(names(&list), ["q/v1.gadgets", "p/v1.widgets"], "{prefix}");
        assert!(list["metadata"]["resourceVersion"].is_string(), "{list}");
        assert_eq!(list["kind"], "APIResourceSchemaList");
    }
    let selected = shard.get("creator", &view(&format!("{SCHEMAS}?labelSelector=of%3Dp"))).await.json();
    assert_eq!(names(&selected), ["p/v1.widgets"]);
    for (name, code) in
        [("v1.widgets", 200), ("v1.gadgets", 200), ("v1.gone", 404), ("v1.other", 404), ("own", 404)]
    {
        let found = shard.get("creator", &view(&format!("{SCHEMAS}/{name}"))).await;
        assert_eq!(found.code.as_u16(), code, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_view_serves_reads_only() {
    let shard = shard().await;
    let list = shard.get("creator", &view("/apis/apis.kcp.io/v1alpha1")).await.json();
    assert_eq!(list["resources"].as_array().unwrap().len(), 1);
    assert_eq!(list["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    let object = schema("new", "c").to_string();
    for (method, path, body) in [
        ("POST", SCHEMAS.to_owned(), &*object),
        ("PUT", format!("{SCHEMAS}/v1.widgets"), &object),
        ("PATCH", format!("{SCHEMAS}/v1.widgets"), "{}"),
        ("DELETE", format!("{SCHEMAS}/v1.widgets"), ""),
        ("DELETE", SCHEMAS.to_owned(), ""),
    ] {
        let refused = shard.send("creator", method, &view(&path), body).await;
        assert_eq!(refused.code, 403, "{method} {path}");
        let refused = shard.send(MASTER, method, &view(&path), body).await;
        assert_eq!(refused.code, 405, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_users_paths_and_logical_clusters_are_refused() {
    let shard = shard().await;
    let code = async |user: &str, path: &str| shard.get(user, path).await.code.as_u16();
    assert_eq!(code("stranger", &view(SCHEMAS)).await, 403);
    assert_eq!(code("stranger", &view("/apis")).await, 403);
    // No logical cluster but the consumer, and none that has bound nothing.
    for path in [
        format!("/services/apiresourceschema/c/clusters/p{SCHEMAS}"),
        format!("/services/apiresourceschema/*{SCHEMAS}"),
        format!("/services/apiresourceschema/root:c{SCHEMAS}"),
        format!("/services/apiresourceschema/p{SCHEMAS}"),
    ] {
        assert_eq!(code(MASTER, &path).await, 404, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_the_initial_state_and_no_events() {
    let shard = shard().await;
    let mut with_state = shard.open("creator", "GET", &view(&format!("{SCHEMAS}?watch=1")), &[], "").await;
    let revision = shard.shard.objects.store().revision();
    let path = view(&format!("{SCHEMAS}?watch=1&resourceVersion={revision}"));
    let mut without_state = shard.open("creator", "GET", &path, &[], "").await;
    assert!(is_watch(&with_state) && is_watch(&without_state));
    for cluster in ["c", "p"] {
        shard.create(&format!("/clusters/{cluster}{SCHEMAS}"), schema("later", cluster)).await;
    }
    shard.settle().await;
    let added = |cluster: &str| ("ADDED".to_owned(), cluster.to_owned(), false);
    assert_eq!(events(&mut with_state), [added("q"), added("p")]);
    assert_eq!(events(&mut without_state), []);
}
