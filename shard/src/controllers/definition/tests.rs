#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_apiserver::hub::{Delivery, SubscriptionEnd};
use fairlead_apiserver::registry::ServedResource;

use super::super::testing::{Shard, condition, thing};
use super::*;

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const THINGS: &str = "things.example.com";

#[test]
fn a_definition_name_is_parsed_as_resource() {
    for (name, group, plural) in
        [("things.example.com", "example.com", "things"), ("pods.core", "", "pods"), ("odd", "", "odd")]
    {
        assert_eq!(resource_of(name), ResourceName::new(group, plural));
    }
}

#[test]
fn a_definition_is_removed_with_its_last_finalizer() {
    for (finalizers, expected) in
        [(json!([CLEANUP_FINALIZER]), None), (json!([CLEANUP_FINALIZER, "a/b"]), Some(json!(["a/b"])))]
    {
        let old = json!({"metadata": {"finalizers": finalizers}});
        let plan = plan(&old, &Sweep::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(plan.definition.map(|new| new["metadata"]["finalizers"].clone()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_a_definition_removes_its_objects_and_ends_its_watches() {
    let shard = Shard::start().await;
    for cluster in ["abc", "other"] {
        shard.workspace(cluster).await;
        shard.define(cluster, "things", "Cluster").await;
        shard.create(cluster, THINGS, thing("a")).await.unwrap();
    }
    let (watch, other) = (shard.watch("abc", THINGS), shard.watch("other", THINGS));
    let crd_watch = shard.watch("abc", CRDS);
    shard.delete("abc", CRDS, None, THINGS).await;
    let Ok(Delivery::Event(event)) = watch.next().await else { panic!("the object's deletion comes first") };
    assert!(event.is_deletion());
    assert_eq!(watch.next().await.err(), Some(SubscriptionEnd::Cancelled));
    shard.until("it is removed", || shard.get("abc", CRDS, None, THINGS).is_none()).await;
    assert!(shard.keys("abc").iter().all(|key| !key.contains("example.com")));
    shard.create("other", THINGS, thing("b")).await.unwrap();
    assert!(other.next().await.is_ok());
    assert!(crd_watch.next().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_waits_for_finalizers_of_its_objects() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    let mut held = thing("held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    shard.create("abc", THINGS, held).await.unwrap();
    shard.create("abc", THINGS, thing("free")).await.unwrap();
    shard.delete("abc", CRDS, None, THINGS).await;
    shard.settle().await;
    let definition = shard.get("abc", CRDS, None, THINGS).unwrap();
    let (holds, reason, message) = condition(&definition, "Terminating").unwrap();
    assert_eq!((holds, &*reason), (true, "InstanceDeletionInProgress"));
    assert_eq!(message, "CustomResource deletion is in progress");
    assert_eq!(shard.get("abc", THINGS, None, "free"), None);
    assert!(shard.get("abc", THINGS, None, "held").unwrap()["metadata"]["deletionTimestamp"].is_string());
    let catalog = shard.definitions.catalog(&Scope::new("abc")).unwrap();
    let served = catalog.resources.iter().find(|resource| resource.name == resource_of(THINGS)).unwrap();
    assert!(!served.verbs.contains(fairlead_apiserver::resource::Verb::Create), "creates are refused");
    shard.change("abc", THINGS, None, "held", |object| object["metadata"]["finalizers"] = json!([])).await;
    shard.until("it is removed", || shard.get("abc", CRDS, None, THINGS).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_definition_that_shadows_a_system_resource_keeps_its_objects() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let mut definition = shard.get("system:system-crds", CRDS, None, "logicalclusters.core.kcp.io").unwrap();
    definition["metadata"] =
        json!({"name": "logicalclusters.core.kcp.io", "finalizers": [CLEANUP_FINALIZER]});
    let mut writes = Writes::new(&shard.objects, &shard.definitions);
    writes.create("abc", definition).unwrap();
    writes.commit().await.unwrap();
    shard.delete("abc", CRDS, None, "logicalclusters.core.kcp.io").await;
    shard
        .until("it is removed", || shard.get("abc", CRDS, None, "logicalclusters.core.kcp.io").is_none())
        .await;
    shard.settle().await;
    let logical_cluster = shard.logical_cluster("abc").unwrap();
    assert!(logical_cluster["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_create_does_not_outlive_the_definition_that_validated_it() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    let resource = served(&shard, "abc", "things");
    let fence = || shard.definitions.creation_fence(&Scope::new("abc"), &resource, "a");
    let before = fence().unwrap().unwrap();
    shard.delete("abc", CRDS, None, THINGS).await;
    shard.until("it is removed", || shard.get("abc", CRDS, None, THINGS).is_none()).await;
    shard.hub.wait(shard.objects.store().revision()).await.unwrap();
    assert_eq!(fence().unwrap_err().code, 404, "no definition");
    shard.define("abc", "things", "Namespaced").await;
    shard.hub.wait(shard.objects.store().revision()).await.unwrap();
    assert_eq!(fence().unwrap_err().code, 503, "another definition");
    let key = shard.objects.key(&resource.name, &CUSTOM, "abc", None, "late");
    let late = fairlead_store::Mutation::put(key, b"{}".to_vec());
    let conflict = shard.objects.store().commit(vec![late, before]).await.unwrap_err();
    assert!(matches!(conflict, fairlead_store::CommitError::Conflict { index: 1, .. }), "{conflict:?}");
    let built_in = shard.definitions.common_resource(&ResourceName::new("", "configmaps")).unwrap();
    let needs_none = shard.definitions.creation_fence(&Scope::new("abc"), &built_in, "a");
    assert!(needs_none.unwrap().is_none());
}

/// The resource that a CRD of a logical cluster defines.
fn served(shard: &Shard, cluster: &str, plural: &str) -> Arc<ServedResource> {
    let catalog = shard.definitions.catalog(&Scope::new(cluster)).unwrap();
    let name = ResourceName::new("example.com", plural);
    catalog.resources.iter().find(|resource| resource.name == name).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn an_update_of_one_definition_compiles_only_that_one() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let plurals: Vec<String> = (0..100).map(|index| format!("things{index}")).collect();
    for plural in &plurals {
        shard.define("abc", plural, "Cluster").await;
    }
    let before: Vec<_> = plurals.iter().map(|plural| served(&shard, "abc", plural)).collect();
    shard
        .change("abc", CRDS, None, "things7.example.com", |definition| {
            definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
        })
        .await;
    shard.hub.wait(shard.objects.store().revision()).await.unwrap();
    let changed: Vec<&String> = plurals
        .iter()
        .zip(&before)
        .filter(|(plural, before)| !Arc::ptr_eq(before, &served(&shard, "abc", plural)))
        .map(|(plural, _)| plural)
        .collect();
    assert_eq!(changed, ["things7"]);
    assert!(served(&shard, "abc", "things7").subresource("v1", "status").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_definition_of_many_workspaces_is_compiled_once() {
    let shard = Shard::start().await;
    for cluster in ["abc", "def", "ghi"] {
        shard.workspace(cluster).await;
        shard.define(cluster, "things", "Cluster").await;
    }
    let [first, others @ ..] = ["abc", "def", "ghi"].map(|cluster| served(&shard, cluster, "things"));
    for other in others {
        assert!(Arc::ptr_eq(&first.versions, &other.versions));
    }
}
