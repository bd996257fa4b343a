#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_api::{condition_type, finalizer, label};
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::request::WriteOptions;
use fairlead_store::Mutation;
use serde_json::json;

use super::super::testing::{Shard, condition, config_map, namespace, thing};
use super::*;
use crate::names::{BUILT_IN, CONFIG_MAPS};
use crate::permission_claims::PermissionClaims;

const MAPS: &str = "configmaps";
const SECRETS: &str = "secrets";
const BINDINGS: &str = "apibindings.apis.kcp.io";
/// The value of the label for a claim on ConfigMaps, from kcp.
const MAPS_CLAIM: &str = "3QVjs6pfBjMpLEVYYhysJnroYGsQGlWm05E4qe";

/// The key of the label for the export of [`binding`].
fn key() -> String {
    format!("{}{}", label::CLAIMED_PREFIX, fairlead_names::export_hash("provider", "my-export"))
}

fn claim(group: &str, resource: &str, identity: &str) -> Value {
    let mut claim = json!({"group": group, "resource": resource, "verbs": ["*"]});
    if !identity.is_empty() {
        claim["identityHash"] = identity.into();
    }
    claim
}

fn accepted(claim: &Value, selector: Value) -> Value {
    let mut accepted = claim.clone();
    accepted["selector"] = selector;
    accepted["state"] = "Accepted".into();
    accepted
}

fn all() -> Value {
    json!({"matchAll": true})
}

/// A binding as its controller leaves it: bound, with the claims of the export in its status.
fn binding(accepted: Value, exported: Value) -> Value {
    let labels = fairlead_api::binding_labels("provider", "my-export");
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "claims", "labels": labels, "finalizers": [finalizer::API_BINDING]},
        "spec": {
            "reference": {"export": {"path": "root:provider", "name": "my-export"}}, "permissionClaims": accepted,
        },
        "status": {
            "phase": "Bound", "apiExportClusterName": "provider", "exportPermissionClaims": exported,
        },
    })
}

async fn bind(shard: &Shard, cluster: &str, binding: Value) {
    let mut writes = Writes::new(&shard.objects, &shard.definitions);
    writes.create(cluster, binding).unwrap();
    let revision = writes.commit().await.unwrap();
    shard.hub.wait(revision).await.unwrap();
}

/// Changes the claims of the export in the status of the binding, as its controller does.
async fn set_exported(shard: &Shard, exported: Value) {
    loop {
        let mut writes = Writes::new(&shard.objects, &shard.definitions);
        let like = binding(json!([]), json!([]));
        let resource = writes.resource_of(&like).unwrap();
        let stored = writes.stored(&resource, "abc", &like).unwrap().unwrap();
        let mut new = writes.tree(&stored).unwrap();
        new["status"]["exportPermissionClaims"] = exported.clone();
        writes.replace(&resource, &stored, new).unwrap();
        if writes.commit().await.is_ok() {
            return;
        }
    }
}

fn value(shard: &Shard, resource: &str, namespace: Option<&str>, name: &str) -> Option<String> {
    let object = shard.get("abc", resource, namespace, name)?;
    object["metadata"]["labels"][key()].as_str().map(str::to_owned)
}

fn map_value(shard: &Shard, name: &str) -> Option<String> {
    value(shard, MAPS, Some("default"), name)
}

fn applied(shard: &Shard) -> Vec<String> {
    let Some(binding) = shard.get("abc", BINDINGS, None, "claims") else { return Vec::new() };
    let all = binding["status"]["appliedPermissionClaims"].as_array();
    all.into_iter().flatten().map(|claim| claim["resource"].as_str().unwrap().to_owned()).collect()
}

fn labelled_map(name: &str, labels: Value) -> Value {
    let mut map = config_map("default", name);
    map["metadata"]["labels"] = labels;
    map
}

fn core_event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"namespace": "default"}, "reason": "Test", "type": "Normal",
    })
}

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "regarding": {"namespace": "default"}, "reason": "Test", "type": "Normal", "action": "Test",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/test",
        "reportingInstance": "test",
    })
}

#[tokio::test(start_paused = true)]
async fn objects_of_claims_in_force_are_labelled_whoever_writes_them() {
    let shard = Shard::start().await;
    for cluster in ["abc", "xyz"] {
        shard.workspace(cluster).await;
        shard.define(cluster, "things", "Cluster").await;
        shard.create(cluster, "things.example.com", thing("own")).await.unwrap();
        shard.create(cluster, MAPS, config_map("default", "before")).await.unwrap();
    }
    let claims = [
        claim("", MAPS, ""),
        claim("", "serviceaccounts", ""),
        claim("", "namespaces", ""),
        claim("events.k8s.io", "events", ""),
        claim("core.kcp.io", "logicalclusters", ""),
        claim("authorization.k8s.io", "subjectaccessreviews", ""),
    ];
    let accepted = claims.iter().map(|claim| accepted(claim, all())).collect();
    bind(&shard, "abc", binding(accepted, json!(claims))).await;
    shard.until("the claims are applied", || applied(&shard).len() == 6).await;
    assert_eq!(
        applied(&shard),
        [MAPS, "events", "logicalclusters", "namespaces", "serviceaccounts", "subjectaccessreviews"]
    );
    shard.create("abc", MAPS, config_map("default", "after")).await.unwrap();
    shard.create("abc", "namespaces", namespace("more")).await.unwrap();
    shard.create("abc", "events", core_event("core")).await.unwrap();
    shard.create("abc", "events.events.k8s.io", event("new")).await.unwrap();
    let bundle = || value(&shard, MAPS, Some("more"), "kube-root-ca.crt");
    shard.until("objects of the shard have the label", || bundle().is_some()).await;
    for (resource, namespace, name, is_labelled) in [
        (MAPS, Some("default"), "before", true),
        (MAPS, Some("default"), "after", true),
        (MAPS, Some("default"), "kube-root-ca.crt", true),
        (MAPS, Some("more"), "kube-root-ca.crt", true),
        ("serviceaccounts", Some("default"), "default", true),
        ("namespaces", None, "default", true),
        ("namespaces", None, "more", true),
        ("logicalclusters.core.kcp.io", None, "cluster", true),
        ("events", Some("default"), "core", true),
        ("events", Some("default"), "new", true),
        ("things.example.com", None, "own", false),
        ("clusterrolebindings.rbac.authorization.k8s.io", None, "workspace-admin", false),
    ] {
        let found = value(&shard, resource, namespace, name);
        assert_eq!(found.is_some(), is_labelled, "{resource} {name}: {found:?}");
    }
    assert_eq!(map_value(&shard, "after").as_deref(), Some(MAPS_CLAIM));
    let own = shard.get("abc", BINDINGS, None, "claims").unwrap();
    assert_eq!(own["metadata"]["labels"][key()], label::REFLEXIVE_CLAIM);
    for kind in [condition_type::PERMISSION_CLAIMS_APPLIED, condition_type::PERMISSION_CLAIMS_VALID] {
        assert_eq!(condition(&own, kind), Some((true, String::new(), String::new())), "{kind}");
    }
    let other = shard.get("xyz", MAPS, Some("default"), "before").unwrap();
    assert!(other["metadata"].get("labels").is_none(), "{other}");
}

#[tokio::test(start_paused = true)]
async fn labels_follow_each_change_of_the_claims() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let (maps, secrets) = (claim("", MAPS, ""), claim("", SECRETS, ""));
    for (name, labels) in [("plain", json!({})), ("chosen", json!({"a": "b"}))] {
        shard.create("abc", MAPS, labelled_map(name, labels)).await.unwrap();
    }
    let states = || (map_value(&shard, "plain").is_some(), map_value(&shard, "chosen").is_some());
    let claims_are = |names: &'static [&str]| {
        let shard = &shard;
        move || applied(shard) == names
    };
    let set_accepted = async |claims: Value| {
        shard
            .change("abc", BINDINGS, None, "claims", |binding| {
                binding["spec"]["permissionClaims"] = claims.clone()
            })
            .await;
    };
    bind(&shard, "abc", binding(json!([accepted(&maps, all())]), json!([]))).await;
    let invalid = || {
        let binding = shard.get("abc", BINDINGS, None, "claims").unwrap();
        condition(&binding, condition_type::PERMISSION_CLAIMS_VALID)
            .is_some_and(|(holds, reason, _)| !holds && reason == "InvalidPermissionClaims")
    };
    shard.until("the export does not claim it", invalid).await;
    assert_eq!(states(), (false, false));

    set_exported(&shard, json!([maps, secrets])).await;
    shard.until("the export claims it later", claims_are(&[MAPS])).await;
    assert_eq!(states(), (true, true));

    set_accepted(json!([accepted(&maps, json!({"matchLabels": {"a": "b"}}))])).await;
    shard.until("the selector changes", || states() == (false, true)).await;
    shard
        .until("the selector is applied", || {
            let binding = shard.get("abc", BINDINGS, None, "claims").unwrap();
            binding["status"]["appliedPermissionClaims"][0]["selector"]["matchLabels"]["a"] == "b"
        })
        .await;
    shard
        .change("abc", MAPS, Some("default"), "plain", |map| map["metadata"]["labels"] = json!({"a": "b"}))
        .await;
    shard
        .change("abc", MAPS, Some("default"), "chosen", |map| map["metadata"]["labels"]["a"] = "c".into())
        .await;
    assert_eq!(states(), (true, false), "the label follows those of the object at once");

    let mut rejected = accepted(&maps, all());
    rejected["state"] = "Rejected".into();
    set_accepted(json!([rejected])).await;
    shard.until("the claim is rejected", claims_are(&[])).await;
    assert_eq!(states(), (false, false));

    set_accepted(json!([accepted(&maps, all()), accepted(&secrets, all())])).await;
    shard.until("the claim is accepted again", claims_are(&[MAPS, SECRETS])).await;
    assert_eq!(states(), (true, true));

    set_exported(&shard, json!([secrets])).await;
    shard.until("the export gives the claim up", claims_are(&[SECRETS])).await;
    assert_eq!(states(), (false, false));

    set_exported(&shard, json!([maps, secrets])).await;
    shard.until("the export claims it again", claims_are(&[MAPS, SECRETS])).await;
    assert_eq!(states(), (true, true));

    shard.delete("abc", BINDINGS, None, "claims").await;
    let is_gone = || {
        let is_gone = shard.get("abc", BINDINGS, None, "claims").is_none();
        assert!(!is_gone || states() == (false, false), "the binding is gone before its labels");
        is_gone
    };
    shard.until("the binding is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_binding_that_was_removed_without_its_finalizer_vanish() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let maps = claim("", MAPS, "");
    shard.create("abc", MAPS, config_map("default", "a")).await.unwrap();
    bind(&shard, "abc", binding(json!([accepted(&maps, all())]), json!([maps]))).await;
    shard.until("the claim is applied", || applied(&shard) == [MAPS]).await;
    let is_removed = async || {
        let mut writes = Writes::new(&shard.objects, &shard.definitions);
        let like = binding(json!([]), json!([]));
        let resource = writes.resource_of(&like).unwrap();
        let stored = writes.stored(&resource, "abc", &like).unwrap().unwrap();
        writes.remove(&resource, &stored, &like);
        writes.commit().await.is_ok()
    };
    while !is_removed().await {}
    shard.until("the labels are gone", || map_value(&shard, "a").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn large_resources_are_labelled_in_batches() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    for batch in 0..7 {
        let mut writes = Writes::new(&shard.objects, &shard.definitions);
        for index in 0..100 {
            writes.create("abc", config_map("default", &format!("m-{batch}-{index}"))).unwrap();
        }
        writes.commit().await.unwrap();
    }
    let maps = claim("", MAPS, "");
    bind(&shard, "abc", binding(json!([accepted(&maps, all())]), json!([maps]))).await;
    let one = ScopeSelector::One(Scope::new("abc"));
    let counts = || {
        let key = key();
        let all = shard.objects.list(&CONFIG_MAPS, &BUILT_IN, &one, None).unwrap();
        let is_labelled =
            |one: &StoredObject| String::from_utf8_lossy(one.object.as_object().json()).contains(&key);
        (all.len(), all.iter().filter(|one| is_labelled(one)).count())
    };
    shard.until("the claim is applied", || applied(&shard) == [MAPS]).await;
    let (amount, labelled) = counts();
    assert!(amount > 700 && labelled == amount, "{labelled} of {amount}");
    shard
        .change("abc", BINDINGS, None, "claims", |binding| binding["spec"]["permissionClaims"] = json!([]))
        .await;
    shard.until("the claim is gone", || applied(&shard).is_empty()).await;
    assert_eq!(counts(), (amount, 0));
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_claimed_identity_are_labelled() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let identities = shard.root_exports.identities();
    let workspaces = claim("tenancy.kcp.io", "workspaces", &identities["tenancy.kcp.io"]);
    let other = claim("tenancy.kcp.io", "workspacetypes", "xxxxxxx");
    let workspace = |name: &str| json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
    let kind =
        json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "t"}});
    shard.create("abc", "workspaces.tenancy.kcp.io", workspace("before")).await.unwrap();
    shard.create("abc", "workspacetypes.tenancy.kcp.io", kind).await.unwrap();
    let claims = json!([workspaces, other]);
    let accepted = json!([accepted(&workspaces, all()), accepted(&other, all())]);
    bind(&shard, "abc", binding(accepted, claims)).await;
    shard.until("the claims are applied", || applied(&shard) == ["workspaces", "workspacetypes"]).await;
    shard.create("abc", "workspaces.tenancy.kcp.io", workspace("after")).await.unwrap();
    for name in ["before", "after"] {
        assert!(value(&shard, "workspaces.tenancy.kcp.io", None, name).is_some(), "{name}");
    }
    let kind = value(&shard, "workspacetypes.tenancy.kcp.io", None, "t");
    assert_eq!(kind, None, "objects of another identity are not labelled");
}

#[tokio::test(start_paused = true)]
async fn claimed_bindings_have_the_label_of_the_claim_and_otherwise_that_of_their_export() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let bindings = claim("apis.kcp.io", "apibindings", "");
    bind(&shard, "abc", binding(json!([accepted(&bindings, all())]), json!([bindings]))).await;
    let value_of = |name: &str| value(&shard, BINDINGS, None, name);
    let names: Vec<String> = {
        let one = ScopeSelector::One(Scope::new("abc"));
        let all = shard.objects.list(&API_BINDINGS, &CUSTOM, &one, None).unwrap();
        all.iter().map(|one| name_of(&shard.objects.tree(one).unwrap()).to_owned()).collect()
    };
    assert_eq!(names.len(), 3);
    let claimed = |name: &String| value_of(name).is_some_and(|value| value != label::REFLEXIVE_CLAIM);
    shard.until("all bindings are labelled", || names.iter().all(claimed)).await;
    shard
        .change("abc", BINDINGS, None, "claims", |binding| binding["spec"]["permissionClaims"] = json!([]))
        .await;
    shard.until("the claim is gone", || applied(&shard).is_empty()).await;
    let own = || value_of("claims").as_deref() == Some(label::REFLEXIVE_CLAIM);
    shard.until("the binding has its own label", own).await;
    assert_eq!(names.iter().filter(|name| value_of(name).is_some()).count(), 1);
    for name in names.iter().filter(|name| *name != "claims") {
        let binding = shard.get("abc", BINDINGS, None, name).unwrap();
        let labels = binding["metadata"]["labels"].as_object().unwrap();
        let reflexive = labels.values().filter(|value| *value == label::REFLEXIVE_CLAIM).count();
        assert_eq!(reflexive, 1, "{name}: {labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_neither_writes_nor_owns_the_label() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let maps = claim("", MAPS, "");
    bind(&shard, "abc", binding(json!([accepted(&maps, all())]), json!([maps]))).await;
    let options = WriteOptions { field_manager: "tester".to_owned(), ..WriteOptions::default() };
    let map = labelled_map("applied", json!({"a": "b"}));
    let first = shard.apply("abc", MAPS, &map, &options).await;
    let second = shard.apply("abc", MAPS, &map, &options).await;
    assert_eq!(first.revision, second.revision, "the second apply changes nothing");
    let owners = String::from_utf8_lossy(second.object.as_object().managed_fields()).into_owned();
    assert!(owners.contains("f:a") && !owners.contains("claimed.internal"), "{owners}");
    let mut changed = map;
    changed["metadata"]["labels"] = json!({});
    shard.apply("abc", MAPS, &changed, &options).await;
    let labels = shard.get("abc", MAPS, Some("default"), "applied").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels, json!({key(): MAPS_CLAIM}));
}

#[tokio::test(start_paused = true)]
async fn foreign_claim_labels_are_removed() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let foreign = "claimed.internal.apis.kcp.io/foreign";
    shard.create("abc", MAPS, labelled_map("a", json!({foreign: "x", "a": "b"}))).await.unwrap();
    let labels = || shard.get("abc", MAPS, Some("default"), "a").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels(), json!({"a": "b"}));
    shard
        .change("abc", MAPS, Some("default"), "a", |map| map["metadata"]["labels"][foreign] = "x".into())
        .await;
    assert_eq!(labels(), json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_stored_with_outdated_labels_is_labelled() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let maps = claim("", MAPS, "");
    bind(&shard, "abc", binding(json!([accepted(&maps, all())]), json!([maps]))).await;
    shard.until("the claim is applied", || applied(&shard) == [MAPS]).await;
    // As a write whose admission was before the binding.
    let store = async |name: &str, labels: Value| {
        let mut map = labelled_map(name, labels);
        map["metadata"]["uid"] = name.into();
        let key = shard.objects.key(&CONFIG_MAPS, &BUILT_IN, "abc", Some("default"), name);
        let encoded = shard.objects.encode(map, 0).unwrap();
        let create = Mutation::create(key, encoded.stored().clone());
        shard.objects.store().commit(vec![create]).await.unwrap();
    };
    store("late", json!({})).await;
    shard.until("it has the label", || map_value(&shard, "late").is_some()).await;
    shard
        .change("abc", BINDINGS, None, "claims", |binding| binding["spec"]["permissionClaims"] = json!([]))
        .await;
    shard.until("the claim is gone", || map_value(&shard, "late").is_none()).await;
    store("later", json!({key(): MAPS_CLAIM})).await;
    shard.until("it loses the label", || map_value(&shard, "later").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn equal_claims_are_shared_and_checked_again_after_a_restart() {
    let shard = Shard::start().await;
    for cluster in ["abc", "def", "xyz"] {
        shard.workspace(cluster).await;
    }
    let maps = claim("", MAPS, "");
    for cluster in ["abc", "def"] {
        bind(&shard, cluster, binding(json!([accepted(&maps, all())]), json!([maps]))).await;
    }
    shard.settle().await;
    assert_eq!(shard.definitions.claims().counts(), (2, 1));
    let restarted = || {
        let hub = Hub::new(shard.objects.store().clone(), *shard.objects.codec(), HubOptions::default());
        PermissionClaims::follow(&shard.objects, &hub).unwrap()
    };
    let restarted = restarted();
    assert_eq!(restarted.counts(), (2, 1));
    assert!(restarted.take_outdated("abc").are_all && restarted.take_outdated("def").are_all);
    assert!(!restarted.take_outdated("xyz").are_all);
    shard.delete_cluster("abc").await;
    shard.until("the logical cluster is gone", || shard.logical_cluster("abc").is_none()).await;
    shard.settle().await;
    assert_eq!(shard.definitions.claims().counts().0, 1);
}

fn schema() -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "v1.things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}],
        },
    })
}

fn export(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}, "spec": spec,
    })
}

#[tokio::test(start_paused = true)]
async fn an_export_claims_objects_of_another_export() {
    const EXPORTS: &str = "apiexports.apis.kcp.io";
    const THINGS: &str = "things.example.com";
    let shard = Shard::start().await;
    for cluster in ["owner", "provider", "abc"] {
        shard.workspace(cluster).await;
    }
    let things = json!({"group": "example.com", "name": "things", "schema": "v1.things.example.com", "storage": {"crd": {}}});
    shard.create("owner", "apiresourceschemas.apis.kcp.io", schema()).await.unwrap();
    shard.create("owner", EXPORTS, export("things", json!({"resources": [things]}))).await.unwrap();
    let identity = || {
        let export = shard.get("owner", EXPORTS, None, "things").unwrap();
        export["status"]["identityHash"].as_str().map(str::to_owned)
    };
    shard.until("the export has an identity", || identity().is_some()).await;
    let (maps, things) = (claim("", MAPS, ""), claim("example.com", "things", &identity().unwrap()));
    let claims = json!({"permissionClaims": [maps, things]});
    shard.create("provider", EXPORTS, export("my-export", claims)).await.unwrap();
    let mut own = binding(json!([accepted(&maps, all()), accepted(&things, all())]), json!([]));
    own["spec"]["reference"]["export"]["path"] = "provider".into();
    shard.create("abc", BINDINGS, own).await.unwrap();
    shard.until("the claims are applied", || applied(&shard) == [MAPS, "things"]).await;
    // The claimed resource is bound later.
    let reference = fairlead_api::ExportReference { path: "owner".to_owned(), name: "things".to_owned() };
    let other = fairlead_api::api_binding("things", &reference, "owner", "root:w", &[]);
    shard.create("abc", BINDINGS, other).await.unwrap();
    let is_bound = || shard.get("abc", BINDINGS, None, "things").unwrap()["status"]["phase"] == "Bound";
    shard.until("the resource is bound", is_bound).await;
    shard.settle().await;
    shard.create("abc", THINGS, thing("a")).await.unwrap();
    let thing_value = || value(&shard, THINGS, None, "a");
    assert!(thing_value().is_some() && map_value(&shard, "kube-root-ca.crt").is_some());

    let give_up = |export: &mut Value| export["spec"]["permissionClaims"] = json!([things]);
    shard.change("provider", EXPORTS, None, "my-export", give_up).await;
    shard.until("the export gives a claim up", || applied(&shard) == ["things"]).await;
    assert_eq!(map_value(&shard, "kube-root-ca.crt"), None);
    assert!(thing_value().is_some());
    let valid = || {
        let binding = shard.get("abc", BINDINGS, None, "claims").unwrap();
        condition(&binding, condition_type::PERMISSION_CLAIMS_VALID).unwrap()
    };
    assert_eq!(valid().1, "InvalidPermissionClaims");

    shard.delete("abc", BINDINGS, None, "claims").await;
    let is_gone = || {
        let is_gone = shard.get("abc", BINDINGS, None, "claims").is_none();
        assert!(!is_gone || thing_value().is_none(), "the binding is gone before its labels");
        is_gone
    };
    shard.until("the binding is gone", is_gone).await;
    assert!(shard.get("abc", THINGS, None, "a").is_some());
}
