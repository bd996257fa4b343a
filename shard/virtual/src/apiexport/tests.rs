#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use fairlead_api::{AcceptedClaim, PermissionClaim, claim_label};
use fairlead_names::{Origin, ResourceName, export_hash};
use serde_json::{Value, json};

use super::source::{Binding, Export};
use crate::testing::{MASTER, TestShard, custom, events};

const VIEW: &str = "/services/apiexport/p/widgets/clusters";
const WIDGETS: &str = "/apis/example.com/v1alpha1/widgets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

fn claim(group: &str, resource: &str, verbs: &[&str], identity: &str) -> PermissionClaim {
    serde_json::from_value(
        json!({"group": group, "resource": resource, "verbs": verbs, "identityHash": identity}),
    )
    .unwrap()
}

fn claims() -> Vec<PermissionClaim> {
    vec![
        claim("", "configmaps", &["get", "list", "watch", "create", "update", "patch", "delete"], ""),
        claim("events.k8s.io", "events", &["*"], ""),
        claim("other.example.com", "gadgets", &["*"], "id2"),
        // Shadowed by the exported resource, of a missing provider, and not claimable.
        claim("example.com", "widgets", &["*"], "id3"),
        claim("absent.example.com", "things", &["*"], "id3"),
        claim("apis.kcp.io", "apiexportendpointslices", &["*"], ""),
    ]
}

/// A shard where `provider` may see the content of the export `p|widgets`, which claims config maps and the gadgets of `q|other`. The
/// logical clusters `c1` and `c2` bind it; `c1` has accepted its claims.
async fn shard() -> TestShard {
    let shard = TestShard::start();
    let access = &shard.shard;
    access.grants.lock().push(["provider", "p", "*", "widgets"]);
    let resource = |group: &str, plural: &str, kind: &str, identity: &str| {
        let origin = Origin::Identity(identity.into());
        Arc::new(custom(group, plural, kind, origin, access.registry.clone()))
    };
    let widgets = resource("example.com", "widgets", "Widget", "id1");
    let gadgets = resource("other.example.com", "gadgets", "Gadget", "id2");
    let export = |cluster: &str, name: &str, identity: &str, resources: Vec<_>, claims, policy| {
        Arc::new(Export {
            cluster: fairlead_apiserver::Scope::new(cluster),
            name: name.into(),
            identity: Some(identity.into()),
            claims,
            has_maximal_policy: policy,
            resources,
        })
    };
    access.exports.lock().extend([
        export("p", "widgets", "id1", vec![widgets.clone()], claims(), false),
        export("q", "other", "id2", vec![gadgets.clone()], Vec::new(), true),
    ]);
    for cluster in ["c1", "c2"] {
        access.bound.lock().insert(cluster.to_owned(), vec![widgets.clone(), gadgets.clone()]);
        shard
            .create(&format!("/clusters/{cluster}/api/v1/namespaces"), json!({"metadata": {"name": "n"}}))
            .await;
    }
    decide(&shard, "c1", "Accepted", &json!({"matchAll": true}));
    decide(&shard, "c2", "Rejected", &json!({"matchAll": true}));
    shard
}

/// Sets the decision of a consumer about all claims.
fn decide(shard: &TestShard, cluster: &str, state: &str, selector: &Value) {
    let decided = |claim: PermissionClaim| -> AcceptedClaim {
        let mut decided = serde_json::to_value(claim).unwrap();
        decided["state"] = state.into();
        decided["selector"] = selector.clone();
        serde_json::from_value(decided).unwrap()
    };
    let bound = vec![ResourceName::new("example.com", "widgets")];
    let binding = Binding { bound, claims: claims().into_iter().map(decided).collect() };
    let key = (cluster.to_owned(), "widgets".to_owned());
    shard.shard.bindings.lock().insert(key, Arc::new(binding));
}

/// The label of claimed config maps, which the shard's admission sets.
fn claimed(labels: &[(&str, &str)]) -> Value {
    let (key, value) = claim_label("p", "widgets", &claims()[0]);
    let mut all = json!({(key): value});
    for (key, value) in labels {
        all[*key] = (*value).into();
    }
    all
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items
        .iter()
        .map(|item| &item["metadata"])
        .map(|meta| format!("{}/{}", text(&meta["annotations"]["kcp.io/cluster"]), text(&meta["name"])))
        .collect()
}

fn widget() -> Value {
    json!({"apiVersion": "example.com/v1alpha1", "kind": "Widget", "metadata": {"name": "w"}})
}

async fn create_config_map(shard: &TestShard, cluster: &str, name: &str, labels: &Value) {
    let object = json!({"metadata": {"name": name, "labels": labels}});
    shard.create(&format!("/clusters/{cluster}{CONFIG_MAPS}"), object).await;
}

#[tokio::test(start_paused = true)]
async fn the_view_has_exported_and_claimed_resources_and_bindings() {
    let shard = shard().await;
    let resources = async |path: &str| {
        let list = shard.get("provider", &format!("{VIEW}/*{path}")).await.json();
        let names = |one: &Value| {
            format!("{}:{}", one["name"].as_str().unwrap(), one["verbs"].as_array().map_or(0, Vec::len))
        };
        list["resources"].as_array().map(|all| all.iter().map(names).collect::<Vec<_>>()).unwrap_or_default()
    };
    assert_eq!(resources("/apis/example.com/v1alpha1").await, ["widgets:8", "widgets/status:3"]);
    assert_eq!(resources("/apis/other.example.com/v1alpha1").await, ["gadgets:8", "gadgets/status:3"]);
    assert_eq!(resources("/apis/apis.kcp.io/v1alpha1").await, ["apibindings:3", "apibindings/status:0"]);
    assert_eq!(resources("/api/v1").await, ["configmaps:8", "events:8"]);
    assert_eq!(resources("/apis/events.k8s.io/v1").await, ["events:8"]);
    assert_eq!(resources("/apis/absent.example.com/v1alpha1").await, [""; 0]);
    let missing = shard.get("provider", &format!("{VIEW}/*/api/v1/secrets")).await;
    assert_eq!(missing.code, 404);
}

#[tokio::test(start_paused = true)]
async fn exported_objects_of_all_logical_clusters_are_seen() {
    let shard = shard().await;
    for cluster in ["c1", "c2"] {
        shard.create(&format!("/clusters/{cluster}{WIDGETS}"), widget()).await;
    }
    let list = shard.get("provider", &format!("{VIEW}/*{WIDGETS}")).await.json();
    assert_eq!(names(&list), ["c1/w", "c2/w"]);
    // An identity in the path opens nothing, and neither does a request for metadata.
    let other = shard.get("provider", &format!("{VIEW}/*{WIDGETS}:id2")).await;
    assert_eq!(other.code, 404);
    let own = shard.get("provider", &format!("{VIEW}/c1{WIDGETS}/w")).await;
    assert_eq!(own.code, 200);
    let absent = shard.get("provider", &format!("{VIEW}/c1{WIDGETS}/x")).await.outcome();
    assert_eq!(absent, (404, "widgets.example.com \"x\" not found".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn claimed_objects_are_seen_by_their_label() {
    let shard = shard().await;
    create_config_map(&shard, "c1", "claimed", &claimed(&[])).await;
    create_config_map(&shard, "c1", "private", &json!({})).await;
    create_config_map(&shard, "c2", "private", &json!({"a": "b"})).await;
    let path = format!("{VIEW}/*/api/v1/configmaps");
    assert_eq!(names(&shard.get("provider", &path).await.json()), ["c1/claimed"]);
    let mut watch = shard.open("provider", "GET", &format!("{path}?watch=1"), &[], "").await;
    let event = |kind: &str| (kind.to_owned(), "c1".to_owned(), false);
    assert_eq!(events(&mut watch), [event("ADDED")]);
    let object = format!("{CONFIG_MAPS}/claimed");
    let unlabelled = json!({"metadata": {"labels": null}}).to_string();
    shard.send(MASTER, "PATCH", &format!("/clusters/c1{object}"), &unlabelled).await;
    shard.settle().await;
    assert_eq!(events(&mut watch), [event("DELETED")]);
    for verb in ["GET", "PATCH", "DELETE"] {
        for name in ["claimed", "private"] {
            let path = format!("{VIEW}/c1{CONFIG_MAPS}/{name}");
            assert_eq!(shard.send("provider", verb, &path, "{}").await.code, 404, "{verb} {name}");
        }
    }
    create_config_map(&shard, "c1", "other", &claimed(&[])).await;
    let deleted = shard.send("provider", "DELETE", &format!("{VIEW}/c1{CONFIG_MAPS}"), "").await;
    assert_eq!(deleted.code, 403, "deletecollection is not among the verbs: {deleted:?}");
}

#[tokio::test(start_paused = true)]
async fn bindings_to_the_export_are_read() {
    let shard = shard().await;
    let path = "/apis/apis.kcp.io/v1alpha1/apibindings";
    for (cluster, name, export) in
        [("c1", "own", "widgets"), ("c2", "own", "widgets"), ("c2", "other", "other")]
    {
        let labels = json!({"internal.apis.kcp.io/export": export_hash("p", export)});
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding",
            "metadata": {"name": name, "labels": labels},
        });
        shard.create(&format!("/clusters/{cluster}{path}"), binding).await;
    }
    assert_eq!(names(&shard.get("provider", &format!("{VIEW}/*{path}")).await.json()), ["c1/own", "c2/own"]);
    assert_eq!(shard.get("provider", &format!("{VIEW}/c2{path}/own")).await.code, 200);
    assert_eq!(shard.get("provider", &format!("{VIEW}/c2{path}/other")).await.code, 404);
    assert_eq!(shard.send("provider", "DELETE", &format!("{VIEW}/c2{path}/own"), "").await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn permissions_of_a_provider() {
    let shard = shard().await;
    shard.create(&format!("/clusters/c1{WIDGETS}"), widget()).await;
    create_config_map(&shard, "c1", "m", &claimed(&[])).await;
    let gadgets = "/apis/other.example.com/v1alpha1/gadgets";
    for (user, cluster, method, path, code) in [
        ("provider", "c1", "GET", WIDGETS, 200),
        ("provider", "c2", "GET", WIDGETS, 200),
        ("provider", "c3", "GET", WIDGETS, 403),
        ("nobody", "c1", "GET", WIDGETS, 403),
        ("nobody", "*", "GET", WIDGETS, 403),
        ("provider", "c1", "GET", CONFIG_MAPS, 200),
        // c2 has rejected the claim.
        ("provider", "c2", "GET", CONFIG_MAPS, 403),
        ("provider", "c2", "GET", "/api/v1/namespaces/n/events", 403),
        ("provider", "c1", "GET", "/api/v1/namespaces/n/events", 403),
        // The policy of the provider of gadgets permits to get them.
        ("provider", "c1", "GET", gadgets, 403),
        ("provider", "c1", "GET", "/apis/other.example.com/v1alpha1/gadgets/g", 404),
        ("provider", "c1", "GET", "/api/v1/namespaces", 403),
        ("provider", "c1", "GET", "/apis", 200),
        ("nobody", "c1", "GET", "/apis", 403),
    ] {
        shard.shard.grants.lock().push(["provider", "policy", "get", "other"]);
        let response = shard.send(user, method, &format!("{VIEW}/{cluster}{path}"), "").await;
        assert_eq!(response.code, code, "{user} {cluster} {method} {path}: {response:?}");
    }
    let denied = shard.get("provider", &format!("{VIEW}/c1{gadgets}")).await.outcome().1;
    assert_eq!(
        denied,
        "gadgets.other.example.com is forbidden: User \"provider\" cannot list resource \"gadgets\" in API group \
         \"other.example.com\" at the cluster scope: access denied"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_is_that_of_the_provider_with_a_warrant() {
    let shard = shard().await;
    let created = shard.send("provider", "POST", &format!("{VIEW}/c1{WIDGETS}"), &widget().to_string()).await;
    assert_eq!(created.code, 201, "{created:?}");
    let writer = shard.shard.writers.lock().last().cloned().unwrap();
    assert_eq!(writer.name, "provider");
    let warrant: Value = serde_json::from_str(&writer.extra["authorization.kcp.io/warrant"][0]).unwrap();
    let extra = json!({"authentication.kcp.io/cluster-name": ["c1"]});
    let account = "system:serviceaccount:default:rest";
    assert_eq!(warrant, json!({"user": account, "groups": ["system:kcp:admin"], "extra": extra}));
    let refused = shard.send("provider", "POST", &format!("{VIEW}/*{WIDGETS}"), "{}").await;
    assert_eq!(refused.code, 405);
}

#[tokio::test(start_paused = true)]
async fn the_selector_of_a_claim_restricts_writes() {
    let shard = shard().await;
    let selector = json!({"matchLabels": {"team": "a"},
                          "matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}]});
    decide(&shard, "c1", "Accepted", &selector);
    let path = format!("{VIEW}/c1{CONFIG_MAPS}");
    let create = async |name: &str, labels: Value| {
        let object = json!({"metadata": {"name": name, "labels": labels}}).to_string();
        shard.send("provider", "POST", &path, &object).await
    };
    let made = create("m", claimed(&[("tier", "x")])).await;
    assert_eq!((made.code.as_u16(), &made.json()["metadata"]["labels"]["team"]), (201, &json!("a")));
    let forbidden = |name: &str, reason: &str| (403, format!("configmaps {name:?} is forbidden: {reason}"));
    let unselected = "object does not match required labels";
    assert_eq!(create("n", json!({"team": "a"})).await.outcome(), forbidden("n", unselected));
    let protected = "protected label team must have value a";
    assert_eq!(create("o", json!({"team": "b", "tier": "x"})).await.outcome(), forbidden("o", protected));
    let object = format!("{path}/m");
    let patch = json!({"metadata": {"labels": {"team": "b"}}}).to_string();
    assert_eq!(shard.send("provider", "PATCH", &object, &patch).await.outcome(), forbidden("m", protected));
    let patch = json!({"metadata": {"labels": {"tier": "z"}}}).to_string();
    assert_eq!(shard.send("provider", "PATCH", &object, &patch).await.outcome(), forbidden("m", unselected));
    // The consumer relabels it, and the provider can no longer delete it.
    shard.send(MASTER, "PATCH", &format!("/clusters/c1{CONFIG_MAPS}/m"), &patch).await;
    assert_eq!(shard.send("provider", "DELETE", &object, "").await.outcome(), forbidden("m", unselected));
}

#[tokio::test(start_paused = true)]
async fn an_export_without_identity_has_nothing() {
    let shard = shard().await;
    let replaced = {
        let exports = shard.shard.exports.lock();
        let old = &exports[0];
        Export {
            cluster: old.cluster.clone(),
            name: old.name.clone(),
            identity: None,
            claims: old.claims.clone(),
            has_maximal_policy: false,
            resources: old.resources.clone(),
        }
    };
    shard.shard.exports.lock()[0] = Arc::new(replaced);
    assert_eq!(shard.get("provider", &format!("{VIEW}/*/apis")).await.json()["groups"], json!([]));
    assert_eq!(shard.get("provider", &format!("{VIEW}/*{WIDGETS}")).await.code, 404);
    shard.shard.exports.lock().clear();
    assert_eq!(shard.get("provider", &format!("{VIEW}/*{WIDGETS}")).await.code, 404);
    assert_eq!(shard.get("nobody", &format!("{VIEW}/*{WIDGETS}")).await.code, 403);
}
