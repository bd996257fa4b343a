#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_names::Origin;
use fairlead_store::Mutation;
use serde_json::json;

use super::CachedSlice;
use crate::Binding;
use crate::testing::{MASTER, TestShard, custom};

const THINGS: &str = "/apis/example.com/v1alpha1/things";

/// The logical cluster `c` has bound `things` of the export `e` of `p`, whose storage is the slice `s`.
async fn shard() -> TestShard {
    let shard = TestShard::start();
    let access = &shard.shard;
    let things = custom("example.com", "things", "Thing", Origin::Custom, access.registry.clone());
    let name = things.name.clone();
    let reads = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);
    let shown = Arc::new(things.view(reads, |_| None, access.registry.clone()));
    let slice = Arc::new(CachedSlice::new(Scope::new("p"), "e".into(), shown));
    access.slices.lock().push((["p", "s"], slice));
    let binding = Binding { bound: vec![name.clone()], claims: Vec::new() };
    access.bindings.lock().insert(("c".to_owned(), "e".to_owned()), Arc::new(binding));
    access.grants.lock().extend([["provider", "p", "*", "e"], ["reader", "p", "get", "e"]]);
    let thing = json!({"apiVersion": "example.com/v1alpha1", "kind": "Thing", "metadata": {"name": "a"}});
    let encoded = access.objects.encode(thing, 1).unwrap();
    let key = access.objects.key(&name, &Origin::Custom, "c", None, "a");
    access.objects.store().commit(vec![Mutation::put(key, encoded.stored().clone())]).await.unwrap();
    shard
}

fn view(cluster: &str, rest: &str) -> String {
    format!("/services/replication/p/s/clusters/{cluster}{rest}")
}

#[tokio::test(start_paused = true)]
async fn a_slice_shows_its_resource_to_users_of_the_export_s_content() {
    let shard = shard().await;
    let one = format!("{THINGS}/a");
    let object = json!({"apiVersion": "example.com/v1alpha1", "kind": "Thing", "metadata": {"name": "b"}});
    let object = object.to_string();
    for (user, method, path, code) in [
        ("provider", "GET", view("c", THINGS), 200),
        ("provider", "GET", view("c", &one), 200),
        ("provider", "GET", view("c", "/apis/example.com/v1alpha1"), 200),
        ("reader", "GET", view("c", &one), 200),
        ("reader", "GET", view("c", THINGS), 403),
        ("creator", "GET", view("c", &one), 403),
        // A logical cluster without the binding has no objects, whatever its content.
        ("provider", "GET", view("other", THINGS), 403),
        ("provider", "GET", view("p", THINGS), 403),
        ("provider", "POST", view("c", THINGS), 403),
        ("provider", "DELETE", view("c", &one), 403),
        ("provider", "DELETE", view("c", THINGS), 403),
        (MASTER, "POST", view("c", THINGS), 405),
        (MASTER, "GET", view("c", "/api/v1/configmaps"), 404),
        ("provider", "GET", format!("/services/replication/p/other/clusters/c{THINGS}"), 403),
        (MASTER, "GET", format!("/services/replication/p/other/clusters/c{THINGS}"), 404),
        (MASTER, "GET", format!("/services/replication/other/s/clusters/c{THINGS}"), 404),
        (MASTER, "GET", format!("/services/replication/p/s/clusters/root:c{THINGS}"), 404),
        (MASTER, "GET", "/services/replication/p/s/clusters".to_owned(), 404),
    ] {
        let response = shard.send(user, method, &path, if method == "POST" { &object } else { "" }).await;
        let (found, message) = response.outcome();
        assert_eq!(found, code, "{user} {method} {path}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_has_the_resource_of_the_slice_only() {
    let shard = shard().await;
    let groups = shard.get("provider", &view("*", "/apis")).await.json();
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups}");
    let list = shard.get("provider", &view("c", "/apis/example.com/v1alpha1")).await.json();
    assert_eq!(list["resources"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["resources"][0]["verbs"], json!(["get", "list", "watch"]));
}
