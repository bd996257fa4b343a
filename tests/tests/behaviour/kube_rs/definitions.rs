//! Definitions of custom resources that change while clients use them.

use fairlead_client::{Client, DeleteOptions, PatchType, WriteOptions};
use serde_json::{Value, json};

use crate::installation::{Installation, next, until_gone, until_object, within};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOATS: &str = "boats.example.com";
const V1: &str = "/apis/example.com/v1/boats";
const V1BETA1: &str = "/apis/example.com/v1beta1/boats";

/// A version with one string field per name below `spec`.
fn version(name: &str, fields: &[&str], is_storage: bool, has_status: bool) -> Value {
    let fields: serde_json::Map<_, _> =
        fields.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({
        "name": name, "served": true, "storage": is_storage,
        "subresources": if has_status { json!({"status": {}}) } else { json!({}) },
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }}},
    })
}

async fn define(client: &Client, versions: Value) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": BOATS},
        "spec": {
            "group": "example.com", "scope": "Cluster", "versions": versions,
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        },
    });
    let _: Value = client.create(DEFINITIONS, &definition, &WriteOptions::default()).await.unwrap();
    until_object(client, DEFINITIONS, BOATS, |definition| {
        let conditions = definition["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })
    })
    .await;
}

/// A CRD of the group `example.com`.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster", "versions": [version("v1", &[], true, false)],
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

fn condition<'d>(definition: &'d Value, kind: &str) -> &'d Value {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap()
}

async fn set_versions(client: &Client, versions: Value) {
    let path = format!("{DEFINITIONS}/{BOATS}");
    let patch = json!({"spec": {"versions": versions}});
    let _: Value = client.patch(&path, PatchType::Merge, &patch, &WriteOptions::default()).await.unwrap();
}

async fn create(client: &Client, path: &str, name: &str, spec: Value) -> Value {
    let version = path.split('/').nth(3).unwrap();
    let boat = json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Boat", "metadata": {"name": name}, "spec": spec,
    });
    client.create(path, &boat, &WriteOptions::default()).await.unwrap()
}

async fn resources(client: &Client, path: &str) -> Vec<String> {
    let list: Value = client.get_json(path).await.unwrap();
    let names = list["resources"].as_array().unwrap().iter();
    names.map(|resource| resource["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_and_open_api_follow_every_change_of_a_definition() {
    let installation = Installation::start(1).await;
    let client = installation.admin("/clusters/root");
    define(&client, json!([version("v1", &["name"], true, false)])).await;
    assert_eq!(resources(&client, "/apis/example.com/v1").await, ["boats"]);
    let open_api = async || -> Value { client.get_json("/openapi/v3/apis/example.com/v1").await.unwrap() };
    assert!(!open_api().await.to_string().contains("/boats/{name}/status"));

    set_versions(&client, json!([version("v1", &["name"], true, true)])).await;
    assert_eq!(resources(&client, "/apis/example.com/v1").await, ["boats", "boats/status"]);
    assert!(open_api().await.to_string().contains("/boats/{name}/status"));

    // Another scope needs another definition, with the same schema.
    client.delete(&format!("{DEFINITIONS}/{BOATS}"), &DeleteOptions::default()).await.unwrap();
    until_gone(&client, DEFINITIONS, BOATS).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": BOATS},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version("v1", &["name"], true, true)],
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        },
    });
    let _: Value = client.create(DEFINITIONS, &definition, &WriteOptions::default()).await.unwrap();
    let list: Value = client.get_json("/apis/example.com/v1").await.unwrap();
    assert_eq!(list["resources"][0]["namespaced"], true, "{list:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_when_its_definition_changes_and_the_next_has_the_new_fields() {
    let installation = Installation::start(1).await;
    let client = installation.admin("/clusters/root");
    define(&client, json!([version("v1", &["a", "b"], true, false)])).await;
    let mut watch = client.watch(&format!("{V1}?watch=1")).await.unwrap();
    create(&client, V1, "argo", json!({"a": "1"})).await;
    let (_, first) = next(&mut watch).await;
    assert_eq!(first["metadata"]["name"], "argo");

    set_versions(&client, json!([version("v1", &["a", "b", "c"], true, false)])).await;
    create(&client, V1, "boreas", json!({"a": "1", "b": "2", "c": "3"})).await;
    let end = within("the end of the watch", watch.next()).await;
    assert!(end.is_none(), "{end:?}");

    let revision = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = client.watch(&format!("{V1}?watch=1&resourceVersion={revision}")).await.unwrap();
    let (_, second) = next(&mut watch).await;
    assert_eq!(second["spec"], json!({"a": "1", "b": "2", "c": "3"}));
    // A change of labels is no change of the definition.
    let patch = json!({"metadata": {"labels": {"fleet": "north"}}});
    let path = format!("{DEFINITIONS}/{BOATS}");
    let _: Value = client.patch(&path, PatchType::Merge, &patch, &WriteOptions::default()).await.unwrap();
    create(&client, V1, "calais", json!({})).await;
    assert_eq!(next(&mut watch).await.1["metadata"]["name"], "calais");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_have_their_own_subresources_and_fields() {
    let installation = Installation::start(1).await;
    let client = installation.admin("/clusters/root");
    let versions = [version("v1", &["a"], true, true), version("v1beta1", &["a", "old"], false, false)];
    define(&client, json!(versions)).await;
    assert_eq!(resources(&client, "/apis/example.com/v1").await, ["boats", "boats/status"]);
    assert_eq!(resources(&client, "/apis/example.com/v1beta1").await, ["boats"]);
    let missing = client.get(&format!("{V1BETA1}/argo/status")).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");

    // A write in another version than the stored one is pruned by both.
    create(&client, V1BETA1, "argo", json!({"a": "1", "old": "2"})).await;
    let path = format!("{V1}/argo");
    let argo: Value = client.get_json(&path).await.unwrap();
    assert_eq!(argo["spec"], json!({"a": "1"}));
    assert_eq!(argo["apiVersion"], "example.com/v1");

    // Without a subresource the status is an ordinary field of its version, with one it is not.
    let status = json!({"status": {"phase": "afloat"}});
    let options = WriteOptions::default();
    let _: Value = client.patch(&path, PatchType::Merge, &status, &options).await.unwrap();
    assert!(client.get_json::<Value>(&path).await.unwrap()["status"].is_null());
    let beta = format!("{V1BETA1}/argo");
    let _: Value = client.patch(&beta, PatchType::Merge, &status, &options).await.unwrap();
    assert_eq!(client.get_json::<Value>(&path).await.unwrap()["status"]["phase"], "afloat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_definitions_with_one_kind_exactly_one_is_established() {
    const COUNT: usize = 12;
    let installation = Installation::start(1).await;
    let client = installation.admin("/clusters/root");
    let creations = (0..COUNT).map(|index| {
        let client = client.clone();
        tokio::spawn(async move {
            let boats = definition(&format!("boats{index}"), "Boat");
            client.create::<Value>(DEFINITIONS, &boats, &WriteOptions::default()).await.unwrap()
        })
    });
    let mut created = Vec::new();
    for creation in creations.collect::<Vec<_>>() {
        created.push(creation.await.unwrap());
    }
    let (served, waiting): (Vec<_>, Vec<_>) =
        created.iter().partition(|definition| condition(definition, "Established")["status"] == "True");
    assert_eq!((served.len(), waiting.len()), (1, COUNT - 1));
    for definition in &waiting {
        let accepted = condition(definition, "NamesAccepted");
        assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("ListKindConflict")));
    }
    let locks = async || -> Value {
        let cluster: Value =
            client.get_json("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await.unwrap();
        let locks = cluster["metadata"]["annotations"]["internal.apis.kcp.io/resource-bindings"].as_str();
        serde_json::from_str(locks.unwrap()).unwrap()
    };
    let first = served[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(locks().await[first], json!({"c": true}));

    // Another one gets the names when the first one is gone.
    client.delete(&format!("{DEFINITIONS}/{first}"), &DeleteOptions::default()).await.unwrap();
    until_gone(&client, DEFINITIONS, first).await;
    within("another one is established", async {
        loop {
            let list: Value = client.get_json(DEFINITIONS).await.unwrap();
            let items = list["items"].as_array().unwrap();
            let ours = items.iter().filter(|item| item["spec"]["group"] == "example.com");
            match ours.filter(|item| condition(item, "Established")["status"] == "True").count() {
                0 => tokio::task::yield_now().await,
                count => return assert_eq!(count, 1),
            }
        }
    })
    .await;
    assert_eq!(locks().await[first], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_cannot_have_the_names_of_a_bound_resource() {
    let installation = Installation::start(1).await;
    let path = installation.workspace("root", "shop", "root").await;
    let client = installation.admin(&path);
    let mut types = definition("workspaces", "Other");
    types["metadata"]["name"] = "workspaces.tenancy.kcp.io".into();
    types["spec"]["group"] = "tenancy.kcp.io".into();
    types["spec"]["names"]["singular"] = "other".into();
    let created: Value = client.create(DEFINITIONS, &types, &WriteOptions::default()).await.unwrap();
    let accepted = condition(&created, "NamesAccepted");
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("PluralConflict")));
    assert_eq!(condition(&created, "Established")["status"], "False");
}
