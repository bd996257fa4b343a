#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_apiserver::request::Propagation;
use serde_json::json;

use super::super::testing::{Shard, config_map};
use super::*;

const MAPS: &str = "configmaps";

/// A config map in `default` with owners: name, UID and whether it blocks.
fn owned(name: &str, owners: &[(&str, &str, bool)]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|(name, uid, blocks)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
        })
        .collect();
    let mut object = config_map("default", name);
    object["metadata"]["ownerReferences"] = references.into();
    object
}

async fn uid(shard: &Shard, name: &str) -> String {
    let object = shard.get("abc", MAPS, Some("default"), name).unwrap();
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A workspace with the config maps `a` ← `b` ← `c`, where `c` blocks.
async fn chain(block: bool) -> Shard {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", MAPS, config_map("default", "a")).await.unwrap();
    let a = uid(&shard, "a").await;
    shard.create("abc", MAPS, owned("b", &[("a", &a, block)])).await.unwrap();
    let b = uid(&shard, "b").await;
    shard.create("abc", MAPS, owned("c", &[("b", &b, block)])).await.unwrap();
    shard
}

/// The managedFields of a config map.
fn managers(shard: &Shard, name: &str) -> String {
    let maps = fairlead_names::ResourceName::new("", MAPS);
    let (origin, scope) = (fairlead_names::Origin::BuiltIn, Scope::new("abc"));
    let stored = shard.objects.get(&maps, &origin, &scope, Some("default"), name).unwrap().unwrap();
    String::from_utf8_lossy(stored.object.as_object().managed_fields()).into_owned()
}

fn exists(shard: &Shard, name: &str) -> bool {
    shard.get("abc", MAPS, Some("default"), name).is_some()
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_their_last_owner() {
    let shard = chain(false).await;
    shard.create("abc", MAPS, config_map("default", "other")).await.unwrap();
    let (a, other) = (uid(&shard, "a").await, uid(&shard, "other").await);
    let both = owned("both", &[("a", &a, false), ("other", &other, false)]);
    shard.create("abc", MAPS, both).await.unwrap();
    shard.delete("abc", MAPS, Some("default"), "a").await;
    shard.until("the chain is gone", || !exists(&shard, "b") && !exists(&shard, "c")).await;
    let references = || {
        let both = shard.get("abc", MAPS, Some("default"), "both").unwrap();
        both["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
    };
    shard.until("one reference is removed", || references() == 1).await;
    shard.delete("abc", MAPS, Some("default"), "other").await;
    shard.until("its last owner is gone", || !exists(&shard, "both")).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_existed_is_deleted() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", MAPS, owned("lost", &[("nobody", "u-0", false)])).await.unwrap();
    shard.until("it is gone", || !exists(&shard, "lost")).await;
    // An owner of a kind that is not served may exist.
    let mut unknown = owned("unknown", &[("x", "u-1", false)]);
    unknown["metadata"]["ownerReferences"][0]["kind"] = "Unicorn".into();
    shard.create("abc", MAPS, unknown).await.unwrap();
    shard.settle().await;
    assert!(exists(&shard, "unknown"));
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let shard = chain(true).await;
    shard
        .change("abc", MAPS, Some("default"), "c", |object| {
            object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        })
        .await;
    shard.delete_with("abc", MAPS, Some("default"), "a", Propagation::Foreground).await;
    shard.settle().await;
    for (name, finalizers) in [
        ("a", json!(["foregroundDeletion"])),
        ("b", json!(["foregroundDeletion"])),
        ("c", json!(["example.com/hold"])),
    ] {
        let object = shard.get("abc", MAPS, Some("default"), name).unwrap();
        assert!(object["metadata"]["deletionTimestamp"].is_string(), "{name}");
        assert_eq!(object["metadata"]["finalizers"], finalizers, "{name}");
    }
    shard
        .change("abc", MAPS, Some("default"), "c", |object| object["metadata"]["finalizers"] = json!([]))
        .await;
    shard.until("all are gone", || !["a", "b", "c"].iter().any(|name| exists(&shard, name))).await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependents_stay_without_their_reference() {
    let shard = chain(true).await;
    assert!(managers(&shard, "b").contains("f:ownerReferences"));
    shard.delete_with("abc", MAPS, Some("default"), "a", Propagation::Orphan).await;
    shard.until("the owner is gone", || !exists(&shard, "a")).await;
    shard.settle().await;
    let b = shard.get("abc", MAPS, Some("default"), "b").unwrap();
    assert_eq!(b["metadata"].get("ownerReferences"), None, "{b}");
    assert!(!managers(&shard, "b").contains("f:ownerReferences"));
    assert!(exists(&shard, "c"));
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_the_definition_of_their_owner() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    shard.create("abc", "things.example.com", super::super::testing::thing("owner")).await.unwrap();
    let owner = shard.get("abc", "things.example.com", None, "owner").unwrap();
    let mut dependent = config_map("default", "dependent");
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    shard.create("abc", MAPS, dependent).await.unwrap();
    shard.delete("abc", "customresourcedefinitions.apiextensions.k8s.io", None, "things.example.com").await;
    shard.until("it is gone", || !exists(&shard, "dependent")).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_owns_nothing_and_is_reported() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", MAPS, config_map("kube-system", "parent")).await.unwrap();
    let parent = shard.get("abc", MAPS, Some("kube-system"), "parent").unwrap();
    let parent_uid = parent["metadata"]["uid"].as_str().unwrap();
    let mut invalid = owned("invalid", &[("absent", parent_uid, false)]);
    invalid["metadata"]["ownerReferences"][0]["kind"] = "Secret".into();
    shard.create("abc", MAPS, invalid).await.unwrap();
    shard.until("it is gone", || !exists(&shard, "invalid")).await;
    let events: Vec<String> = shard
        .keys("abc")
        .into_iter()
        .filter(|key| key.contains("/events/") && key.contains("/default/"))
        .collect();
    assert_eq!(events.len(), 1, "{events:?}");
    let name = events[0].rsplit('/').next().unwrap();
    let event = shard.get("abc", "events", Some("default"), name).unwrap();
    assert_eq!(
        (&event["type"], &event["reason"], &event["source"]["component"], &event["involvedObject"]["name"]),
        (
            &json!("Warning"),
            &json!("OwnerRefInvalidNamespace"),
            &json!("garbage-collector-controller"),
            &json!("invalid")
        )
    );
    let message = format!(
        "ownerRef [v1/Secret, namespace: default, name: absent, uid: {parent_uid}] does not exist in namespace \"default\""
    );
    assert_eq!(event["message"], message.as_str());
    // An owner that exists nowhere is no mistake of a namespace.
    shard.create("abc", MAPS, owned("lost", &[("nobody", "u-0", false)])).await.unwrap();
    shard.until("it is gone", || !exists(&shard, "lost")).await;
    assert_eq!(shard.keys("abc").iter().filter(|key| key.contains("/events/")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_of_a_circle_ends() {
    let shard = chain(true).await;
    let (b, c) = (uid(&shard, "b").await, uid(&shard, "c").await);
    // `b` belongs to `c`, which belongs to `b`.
    shard
        .change("abc", MAPS, Some("default"), "b", |object| {
            object["metadata"]["ownerReferences"] =
                owned("b", &[("c", &c, true)])["metadata"]["ownerReferences"].clone();
        })
        .await;
    assert_ne!(b, c);
    shard.delete_with("abc", MAPS, Some("default"), "b", Propagation::Foreground).await;
    shard.until("the circle is gone", || !exists(&shard, "b") && !exists(&shard, "c")).await;
    assert!(exists(&shard, "a"), "it owns none of them any more");
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_of_a_deep_tree_waits_for_events_only() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", MAPS, config_map("default", "n0")).await.unwrap();
    for level in 1..30 {
        let owner = format!("n{}", level - 1);
        let owner_uid = uid(&shard, &owner).await;
        let object = owned(&format!("n{level}"), &[(&owner, &owner_uid, true)]);
        shard.create("abc", MAPS, object).await.unwrap();
    }
    let begin = tokio::time::Instant::now();
    shard.delete_with("abc", MAPS, Some("default"), "n0", Propagation::Foreground).await;
    shard.until("the tree is gone", || (0..30).all(|level| !exists(&shard, &format!("n{level}")))).await;
    assert!(begin.elapsed() < FOREGROUND_PAUSE, "after {:?} of the paused clock", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn thousands_of_absent_owners_are_removed_at_once() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", MAPS, config_map("default", "a")).await.unwrap();
    let a = uid(&shard, "a").await;
    let uids: Vec<String> = (0..5_000).map(|number| format!("u-{number}")).collect();
    let mut owners: Vec<(&str, &str, bool)> = uids.iter().map(|uid| ("nobody", &**uid, false)).collect();
    owners.push(("a", &a, false));
    shard.create("abc", MAPS, owned("many", &owners)).await.unwrap();
    let left = || {
        let many = shard.get("abc", MAPS, Some("default"), "many").unwrap();
        many["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
    };
    shard.until("only the existing owner is left", || left() == 1).await;
}
