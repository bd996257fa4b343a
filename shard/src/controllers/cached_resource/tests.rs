#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fairlead_process::Metrics;
use serde_json::json;

use super::super::testing::{Shard, condition, thing};
use super::*;
use crate::global::test_cache::TestCache;
use crate::replication::{Replication, ReplicationMetrics};

const CACHED: &str = "clustercachedresources.cache.kcp.io";
const THINGS: &str = "things.example.com";

fn cached(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResource", "metadata": {"name": name},
        "spec": {"group": "example.com", "version": "v1", "resource": "things"},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn labelled(name: &str, color: &str) -> Value {
    let mut thing = thing(name);
    thing["metadata"]["labels"] = json!({"color": color});
    thing
}

/// A shard `s1` that replicates to a cache server.
async fn shard(cache: &TestCache) -> Shard {
    let shard = Shard::start().await;
    let metrics = ReplicationMetrics::new(&Metrics::new("shard", "0").unwrap()).unwrap();
    let (objects, hub) = (shard.objects.clone(), shard.hub.clone());
    let identities = shard.root_exports.identities();
    let replication =
        Replication::new("s1", objects.clone(), hub.clone(), &identities, cache.client(), &metrics);
    shard.tasks.spawn("replication", replication.run(shard.shutdown.clone()));
    let controllers = CachedResourceControllers {
        objects,
        hub,
        definitions: shard.definitions.clone(),
        clusters: shard.clusters.clone(),
        cache: cache.client(),
        shard: "s1".to_owned(),
    };
    controllers.start(&shard.tasks, &shard.shutdown);
    shard
}

fn read(shard: &Shard) -> Value {
    shard.get("abc", CACHED, None, "mine").unwrap_or_default()
}

/// Waits until the status has this number of objects and of copies.
async fn until_counted(shard: &Shard, local: u64, copies: u64) {
    let counts = json!({"local": local, "cache": copies});
    shard.until("the objects are counted", || read(shard)["status"]["resourceCounts"] == counts).await;
}

/// The names of the copies that the cache server has.
async fn copies(cache: &TestCache, identity: &str) -> Vec<String> {
    let path = format!("/services/cache/shards/s1/clusters/abc/apis/example.com/v1/things:{identity}");
    let list: Value = cache.client().get_json(&path).await.unwrap();
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn selected_objects_are_copied_until_the_cached_resource_is_deleted() {
    let cache = TestCache::start().await;
    let shard = shard(&cache).await;
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    for (name, color) in [("a", "red"), ("b", "red"), ("c", "blue")] {
        shard.create("abc", THINGS, labelled(name, color)).await.unwrap();
    }
    let spec = json!({"labelSelector": {"matchLabels": {"color": "red"}}});
    shard.create("abc", CACHED, cached("mine", spec)).await.unwrap();
    until_counted(&shard, 2, 2).await;
    let object = read(&shard);
    assert_eq!(object["status"]["phase"], "Ready");
    for kind in ["IdentityValid", "ReplicationStarted", "ResourceValid"] {
        assert!(condition(&object, kind).unwrap().0, "{kind}");
    }
    assert_eq!(object["metadata"]["finalizers"], json!(["cache.kcp.io/clustercachedresource"]));
    assert_eq!(object["spec"]["identity"]["secretRef"], json!({"namespace": "kcp-system", "name": "mine"}));
    let identity = object["status"]["identityHash"].as_str().unwrap();
    assert_eq!(copies(&cache, identity).await, ["a", "b"]);

    // An object that is selected no more loses its copy.
    let recolor =
        |color: &'static str| move |object: &mut Value| object["metadata"]["labels"]["color"] = color.into();
    shard.delete("abc", THINGS, None, "b").await;
    shard.change("abc", THINGS, None, "a", recolor("blue")).await;
    shard.change("abc", THINGS, None, "c", recolor("red")).await;
    for name in ["d", "e"] {
        shard.create("abc", THINGS, labelled(name, "red")).await.unwrap();
    }
    until_counted(&shard, 3, 3).await;
    assert_eq!(copies(&cache, identity).await, ["c", "d", "e"]);

    // So do those that another selector does not select.
    let select = |object: &mut Value| object["spec"]["labelSelector"]["matchLabels"]["color"] = "blue".into();
    shard.change("abc", CACHED, None, "mine", select).await;
    until_counted(&shard, 1, 1).await;
    assert_eq!(copies(&cache, identity).await, ["a"]);

    shard.delete("abc", CACHED, None, "mine").await;
    shard.until("it is gone", || shard.get("abc", CACHED, None, "mine").is_none()).await;
    let published = cached(
        "mine",
        json!({"labelSelector": {"matchLabels": {"color": "none"}}, "identity": {
        "secretRef": {"namespace": "kcp-system", "name": "mine"}}}),
    );
    shard.create("abc", CACHED, published).await.unwrap();
    until_counted(&shard, 0, 0).await;
    assert_eq!(read(&shard)["status"]["identityHash"], identity);
}

#[tokio::test]
async fn a_cached_resource_waits_for_its_definition_and_its_secret() {
    let cache = TestCache::start().await;
    let shard = shard(&cache).await;
    shard.workspace("abc").await;
    let spec = json!({"identity": {"secretRef": {"namespace": "default", "name": "key"}}});
    shard.create("abc", CACHED, cached("mine", spec)).await.unwrap();
    let has = |kind: &str, reason: &str| {
        condition(&read(&shard), kind).is_some_and(|(is_met, found, _)| !is_met && found == reason)
    };
    shard.until("the resource is missing", || has("ResourceValid", "NoResources")).await;
    shard.define("abc", "things", "Cluster").await;
    shard.until("the secret is missing", || has("IdentityValid", "IdentityVerificationFailed")).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
        "type": "Opaque", "data": {"key": "a2V5"},
    });
    shard.create("abc", "secrets", secret).await.unwrap();
    shard.create("abc", THINGS, thing("a")).await.unwrap();
    until_counted(&shard, 1, 1).await;
    assert_eq!(copies(&cache, &fairlead_names::hex_sha256(b"key")).await, ["a"]);
}

#[tokio::test]
async fn copies_are_deleted_with_their_workspace() {
    let cache = TestCache::start().await;
    let shard = shard(&cache).await;
    shard.workspace("abc").await;
    shard.define("abc", "things", "Cluster").await;
    shard.create("abc", THINGS, thing("a")).await.unwrap();
    shard.create("abc", CACHED, cached("mine", json!({}))).await.unwrap();
    until_counted(&shard, 1, 1).await;
    shard.delete_cluster("abc").await;
    shard.until("the workspace is gone", || shard.logical_cluster("abc").is_none()).await;
    assert_eq!(shard.keys("abc"), [""; 0]);
}

fn observed(resource: ResourceState) -> Observed {
    let (selector, key) = (Ok(LabelSelector::default()), IdentityKey::Known(b"key".to_vec()));
    Observed { resource, selector, key, has_namespace: true, counts: None }
}

#[test]
fn unusable_resources_are_reported() {
    let found = || ResourceState::Found { kind: "Thing".into() };
    let object = cached("mine", json!({}));
    for (observed, kind, reason, message) in [
        (
            observed(ResourceState::Missing),
            "ResourceValid",
            "NoResources",
            r#"Resource things.example.com is not served in version "v1""#,
        ),
        (
            observed(ResourceState::Namespaced),
            "ResourceValid",
            "ResourceNotClusterScoped",
            "Resource things.example.com is not cluster-scoped",
        ),
        (
            Observed { selector: Err("invalid".to_owned()), ..observed(found()) },
            "ResourceValid",
            "InvalidLabelSelector",
            "invalid",
        ),
        (
            Observed { key: IdentityKey::Empty, ..observed(found()) },
            "IdentityValid",
            "IdentityVerificationFailed",
            "secret is missing data.key",
        ),
    ] {
        let planned = plan::plan(&object, &observed, None, Timestamp::UNIX_EPOCH).object;
        let expected = (false, reason.to_owned(), message.to_owned());
        assert_eq!(condition(&planned, kind), Some(expected));
        assert!(plan::recorded_identity(&planned, &observed).is_none());
    }
}

#[test]
fn objects_are_copied_once_the_cache_server_can_know_their_resource() {
    let observed = observed(ResourceState::Found { kind: "Thing".into() });
    let object = cached("mine", json!({}));
    assert!(plan::recorded_identity(&object, &observed).is_none());
    let planned = plan::plan(&object, &observed, None, Timestamp::UNIX_EPOCH).object;
    let identity = plan::recorded_identity(&planned, &observed).unwrap();
    assert_eq!(*identity, *fairlead_names::hex_sha256(b"key"));
    for field in ["finalizers", "annotations"] {
        let mut incomplete = planned.clone();
        incomplete["metadata"].as_object_mut().unwrap().remove(field);
        assert!(plan::recorded_identity(&incomplete, &observed).is_none(), "{field}");
    }
    let again = plan::plan(&planned, &observed, None, Timestamp::UNIX_EPOCH).object;
    assert_eq!(again, planned);
}
