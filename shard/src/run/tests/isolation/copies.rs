//! Objects that a provider publishes by a ClusterCachedResource, in the logical clusters of its consumers.

use serde_json::{Value, json};

use super::changes::Events;
use super::installation::{CONSUMER, Installation, MASTER, PROVIDER};
use crate::global::test_cache::{TestCache, until_view};
use crate::names::{API_EXPORTS, CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, CLUSTER_CACHED_RESOURCES};

const THINGS: &str = "/apis/example.com/v1/things";
const APIS: &str = "apis/apis.kcp.io";
const CACHE: &str = "apis/cache.kcp.io/v1alpha1";
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const UNRESOLVED: &str = "Internal error occurred: error resolving resource things.example.com; please contact APIExport owner \
    to resolve";

/// `provider` publishes its things with the label `public`, and `accepted` has bound them. `unbound` has not.
async fn start() -> (TestCache, Installation) {
    let cache = TestCache::start().await;
    let mut installation = Installation::bare(cache.client()).await;
    installation.workspaces(&["provider", "other", "accepted", "absent", "unbound"]).await;
    for workspace in ["accepted", "absent", "unbound"] {
        let subject = json!({"kind": "User", "name": CONSUMER});
        installation.bind_role(workspace, "administrators", "cluster-admin", &subject).await;
    }
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let openapi = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": openapi}}],
        },
    });
    let definitions = "/clusters/<provider>/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    installation.create(definitions, definition).await;
    let is_met = |kind: &'static str| {
        move |found: &Value| {
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
        }
    };
    installation.until(&format!("{definitions}/things.example.com"), is_met("Established")).await;
    let published = json!({
        "apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResource", "metadata": {"name": "things"},
        "spec": {
            "group": "example.com", "version": "v1", "resource": "things",
            "labelSelector": {"matchLabels": {"public": "true"}},
        },
    });
    installation.create(&format!("/clusters/<provider>/{CACHE}/clustercachedresources"), published).await;
    let identity = identity(&installation).await;
    export(&installation, "provider", &identity).await;
    installation.bind("accepted", "provider", "things", json!([])).await;
    for (name, public) in [("a", "true"), ("hidden", "false")] {
        create_thing(&installation, name, public).await;
    }
    until_code(&installation, &format!("/clusters/<accepted>{THINGS}"), 200).await;
    (cache, installation)
}

async fn identity(installation: &Installation) -> String {
    let path = format!("/clusters/<provider>/{CACHE}/clustercachedresources/things");
    let found = installation.until(&path, |found| found["status"]["phase"] == "Ready").await;
    found["status"]["identityHash"].as_str().unwrap().to_owned()
}

/// Exports the things of the ClusterCachedResource of `provider` from a workspace, and waits until the shard has the replicas.
async fn export(installation: &Installation, workspace: &str, identity: &str) {
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": "v1.things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }],
        },
    });
    let base = format!("/clusters/<{workspace}>");
    installation.create(&format!("{base}/{APIS}/v1alpha1/apiresourceschemas"), schema).await;
    let reference = json!({
        "apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "things",
    });
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "things"},
        "spec": {"resources": [{
            "group": "example.com", "name": "things", "schema": "v1.things.example.com",
            "storage": {"virtual": {"reference": reference, "identityHash": identity}},
        }]},
    });
    installation.create(&format!("{base}/{APIS}/v1alpha2/apiexports"), export).await;
    let slice = json!({
        "apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResourceEndpointSlice",
        "metadata": {"name": "things"},
        "spec": {"clusterCachedResource": {"path": "root:provider", "name": "things"}, "export": {"name": "things"}},
    });
    installation.create(&format!("{base}/{CACHE}/clustercachedresourceendpointslices"), slice).await;
    let (cluster, global) = (installation.resolved(&format!("<{workspace}>")), installation.global());
    let provider = installation.resolved("<provider>");
    until_view(global, "the export", || {
        let cached = global.get(&CLUSTER_CACHED_RESOURCES, &provider, "things");
        global
            .get(&API_EXPORTS, &cluster, "things")
            .is_some_and(|export| export["status"]["identityHash"].is_string())
            && global.get(&CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, &cluster, "things").is_some()
            && cached.is_some_and(|cached| cached["status"]["identityHash"].is_string())
    })
    .await;
}

async fn create_thing(installation: &Installation, name: &str, public: &str) {
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name, "labels": {"public": public}},
        "spec": {"size": 1},
    });
    installation.create(&format!("/clusters/<provider>{THINGS}"), thing).await;
}

/// Repeats a read until it has a result: indexes follow a write with a delay.
async fn until_code(installation: &Installation, path: &str, code: u16) -> Value {
    let reading = async {
        loop {
            let (found, body) = get(installation, CONSUMER, path).await;
            if found == code {
                return body;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), reading).await.unwrap()
}

async fn get(installation: &Installation, user: &str, path: &str) -> (u16, Value) {
    let response = installation.send(user, "GET", path, &Value::Null).await;
    (response.code.as_u16(), response.json())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_read_published_objects_as_their_own() {
    let (mut cache, installation) = start().await;
    let things = format!("/clusters/<accepted>{THINGS}");
    let mut watch = Events::of(&installation, CONSUMER, &format!("{things}?watch=1")).await;
    let added = watch.next().await;
    assert_eq!((&added["type"], &added["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    let accepted = installation.resolved("<accepted>");
    assert_eq!(added["object"]["metadata"]["annotations"], json!({"kcp.io/cluster": accepted}));
    let (_, list) = get(&installation, CONSUMER, &things).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["spec"], json!({"size": 1}));
    let (_, one) = get(&installation, CONSUMER, &format!("{things}/a")).await;
    assert_eq!(one["metadata"]["annotations"], json!({"kcp.io/cluster": accepted}));
    assert_eq!(get(&installation, CONSUMER, &format!("{things}/hidden")).await.0, 404);

    let original = format!("/clusters/<provider>{THINGS}/a");
    let larger = json!({"spec": {"size": 2}});
    assert_eq!(installation.open(MASTER, "PATCH", &original, &[MERGE], &larger).await.status(), 200);
    let modified = watch.next().await;
    assert_eq!((&modified["type"], &modified["object"]["spec"]["size"]), (&json!("MODIFIED"), &json!(2)));
    assert_eq!(modified["object"]["metadata"]["annotations"], json!({"kcp.io/cluster": accepted}));
    // A watch that resumes gets the same events.
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{things}?watch=1&resourceVersion={version}");
    let mut resumed = Events::of(&installation, CONSUMER, &path).await;
    assert_eq!(resumed.next().await, modified);
    let hidden = json!({"metadata": {"labels": {"public": "false"}}});
    assert_eq!(installation.open(MASTER, "PATCH", &original, &[MERGE], &hidden).await.status(), 200);
    for watch in [&mut watch, &mut resumed] {
        let deleted = watch.next().await;
        assert_eq!(deleted["type"], "DELETED", "{deleted}");
        assert_eq!(deleted["object"]["metadata"]["annotations"], json!({"kcp.io/cluster": accepted}));
    }
    // They stay readable while the cache server is down.
    create_thing(&installation, "b", "true").await;
    assert_eq!(watch.next().await["object"]["metadata"]["name"], "b");
    cache.stop().await;
    let (code, list) = get(&installation, CONSUMER, &things).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_objects_are_read_with_a_binding_only_and_never_written() {
    let (_cache, installation) = start().await;
    let path = format!("/clusters/<accepted>{THINGS}");
    let mut watch = Events::of(&installation, CONSUMER, &format!("{path}?watch=1")).await;
    watch.next().await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "new"}});
    let export = "/services/apiexport/<provider>/things/clusters";
    let slice = "/services/replication/<provider>/things/clusters";
    let (_, found) =
        get(&installation, MASTER, &format!("/clusters/<provider>/{APIS}/v1alpha2/apiexports/things")).await;
    let identity = found["status"]["identityHash"].as_str().unwrap().to_owned();
    for (user, method, path, code) in [
        (CONSUMER, "GET", path.clone(), 200),
        ("stranger", "GET", path.clone(), 403),
        (CONSUMER, "GET", format!("/clusters/<unbound>{THINGS}"), 404),
        (MASTER, "GET", format!("/clusters/<unbound>{THINGS}"), 404),
        (CONSUMER, "GET", format!("/clusters/<provider>{THINGS}"), 403),
        (CONSUMER, "POST", path.clone(), 405),
        (MASTER, "POST", path.clone(), 405),
        (MASTER, "DELETE", format!("{path}/a"), 405),
        (MASTER, "DELETE", path.clone(), 405),
        (MASTER, "GET", format!("/clusters/*/apis/example.com/v1/things:{identity}"), 400),
        (MASTER, "GET", format!("{export}/<accepted>{THINGS}"), 200),
        (MASTER, "GET", format!("{export}/*{THINGS}"), 400),
        (MASTER, "POST", format!("{export}/<accepted>{THINGS}"), 405),
        (PROVIDER, "GET", format!("{export}/<accepted>{THINGS}"), 403),
        (MASTER, "GET", format!("{slice}/<accepted>{THINGS}"), 200),
        (MASTER, "GET", format!("{slice}/*{THINGS}"), 400),
        (MASTER, "POST", format!("{slice}/<accepted>{THINGS}"), 405),
        // Neither the provider's workspace nor the content of its export is open to this user.
        (CONSUMER, "GET", format!("{slice}/<accepted>{THINGS}"), 403),
        (PROVIDER, "GET", format!("{slice}/<accepted>{THINGS}"), 403),
    ] {
        let body = if method == "POST" { thing.clone() } else { Value::Null };
        let response = installation.send(user, method, &path, &body).await;
        assert_eq!(response.code, code, "{user} {method} {path}: {}", response.text);
        if code == 200 {
            let list = response.json();
            assert_eq!(list["items"].as_array().unwrap().len(), 1, "{path} {list}");
            let cluster = &list["items"][0]["metadata"]["annotations"]["kcp.io/cluster"];
            assert_eq!(*cluster, installation.resolved("<accepted>"), "{path}");
        }
    }
    // A watch ends with the binding.
    let binding = format!("/clusters/<accepted>/{APIS}/v1alpha2/apibindings/things");
    assert_eq!(installation.send(CONSUMER, "DELETE", &binding, &Value::Null).await.code, 200);
    assert!(watch.end().await);
    until_code(&installation, &path, 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_must_know_the_identity_of_published_objects() {
    let (_cache, installation) = start().await;
    export(&installation, "other", "guessed").await;
    installation.bind("absent", "other", "things", json!([])).await;
    let path = format!("/clusters/<absent>{THINGS}");
    let refusal = until_code(&installation, &path, 500).await;
    assert_eq!(refusal["message"].as_str(), Some(UNRESOLVED));
    let slice = format!("/services/replication/<other>/things/clusters/<absent>{THINGS}");
    assert_eq!(get(&installation, MASTER, &slice).await.0, 404);

    // A workspace that was told the identity may pass the objects on, as with exports.
    let identity = identity(&installation).await;
    let storage = json!({
        "reference": {"apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "things"},
        "identityHash": identity,
    });
    let resources = json!([{
        "group": "example.com", "name": "things", "schema": "v1.things.example.com", "storage": {"virtual": storage},
    }]);
    let export = format!("/clusters/<other>/{APIS}/v1alpha2/apiexports/things");
    let patch = json!({"spec": {"resources": resources}});
    assert_eq!(installation.open(MASTER, "PATCH", &export, &[MERGE], &patch).await.status(), 200);
    until_code(&installation, &path, 200).await;
    let mut watch = Events::of(&installation, CONSUMER, &format!("{path}?watch=1")).await;
    assert_eq!(watch.next().await["object"]["metadata"]["name"], "a");
}
