use std::sync::Arc;

use fairlead_client::{Client, Event, ListWatch, ObjectHead, Reflector, ReflectorOptions, WriteOptions};
use fairlead_store::{Range, Store};
use serde_json::{Value, json};

use crate::support::{Cache, code, collection, names, typed};

const CLUSTERS: &str = "core.kcp.io/v1alpha1/logicalclusters";
const EXPORTS: &str = "apis.kcp.io/v1alpha1/apiexports";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

async fn create(client: &Client, shard: &str, cluster: &str, resource: &str, name: &str) {
    let object = json!({"metadata": {"name": name, "labels": {"at": cluster}, "annotations": {"kcp.io/shard": shard}}});
    let object = typed(resource, object);
    client
        .create::<Value>(&collection(shard, cluster, resource), &object, &WriteOptions::default())
        .await
        .unwrap();
}

/// The origins of a list's items, as `shard/cluster/name`.
fn origins(list: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let origin = |item: &Value| {
        let metadata = &item["metadata"];
        let annotations = &metadata["annotations"];
        [&annotations["kcp.io/shard"], &annotations["kcp.io/cluster"], &metadata["name"]].map(text).join("/")
    };
    list["items"].as_array().unwrap().iter().map(origin).collect()
}

#[tokio::test]
async fn wildcards_select_shards_and_clusters() {
    let cache = Cache::start().await;
    let master = cache.master();
    for (shard, cluster) in [("s1", "a"), ("s1", "b"), ("s10", "a"), ("s2", "b")] {
        create(&master, shard, cluster, CLUSTERS, "cluster").await;
    }
    for (shard, cluster, expected) in [
        ("*", "*", &["s1/a/cluster", "s1/b/cluster", "s10/a/cluster", "s2/b/cluster"][..]),
        ("s1", "*", &["s1/a/cluster", "s1/b/cluster"]),
        // kcp returns the other clusters, too.
        ("*", "b", &["s1/b/cluster", "s2/b/cluster"]),
        ("s1", "b", &["s1/b/cluster"]),
        ("s3", "*", &[]),
    ] {
        let list: Value = master.get_json(&collection(shard, cluster, CLUSTERS)).await.unwrap();
        assert_eq!(origins(&list), expected, "{shard} {cluster}");
        let prefix = collection(shard, cluster, CLUSTERS);
        let unprefixed = prefix.strip_prefix("/services/cache").unwrap();
        assert_eq!(master.get_json::<Value>(unprefixed).await.unwrap(), list);
    }
    let labelled: Value =
        master.get_json(&format!("{}?labelSelector=at%3Da", collection("*", "*", CLUSTERS))).await.unwrap();
    assert_eq!(origins(&labelled), ["s1/a/cluster", "s10/a/cluster"]);

    let mut paged = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("{}?limit=3&continue={token}", collection("*", "*", CLUSTERS));
        let page: Value = master.get_json(&path).await.unwrap();
        paged.extend(origins(&page));
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(paged.len(), 4);
    // Only a single object can be read or written.
    assert_eq!(code(master.get(&format!("{}/cluster", collection("*", "a", CLUSTERS))).await), 405);
}

#[tokio::test]
async fn a_wildcard_watch_has_events_of_every_shard() {
    let cache = Cache::start().await;
    let master = cache.master();
    create(&master, "s1", "a", CLUSTERS, "cluster").await;
    let source = ListWatch::new(collection("*", "*", CLUSTERS));
    let mut reflector = Reflector::<ObjectHead>::new(master.clone(), source, ReflectorOptions::default());
    let Event::Replaced { items, .. } = reflector.next().await else { panic!("no list") };
    assert_eq!(items.len(), 1);
    create(&master, "s2", "b", CLUSTERS, "cluster").await;
    let Event::Applied(object) = reflector.next().await else { panic!("no event") };
    let annotations = &object.metadata.annotations;
    assert_eq!((&*annotations["kcp.io/shard"], &*annotations["kcp.io/cluster"]), ("s2", "b"));
    let path = format!("{}/cluster", collection("s1", "a", CLUSTERS));
    master.delete(&path, &Default::default()).await.unwrap();
    let Event::Deleted(object) = reflector.next().await else { panic!("no event") };
    assert_eq!(object.metadata.annotations["kcp.io/shard"], "s1");
}

#[tokio::test]
async fn a_watch_can_send_initial_events() {
    let cache = Cache::start().await;
    let master = cache.master();
    create(&master, "s1", "a", CLUSTERS, "cluster").await;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = master.watch(&format!("{}?{query}", collection("*", "*", CLUSTERS))).await.unwrap();
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let event = watch.next().await.unwrap().unwrap();
        let object: Value = serde_json::from_slice(&event.object).unwrap();
        kinds.push((format!("{:?}", event.kind), object["metadata"]["annotations"].clone()));
    }
    assert_eq!(kinds[0].0, "Added");
    assert_eq!(kinds[1], ("Bookmark".to_owned(), json!({"k8s.io/initial-events-end": "true"})));
}

#[tokio::test]
async fn an_object_is_served_in_every_version() {
    let cache = Cache::start().await;
    let master = cache.master();
    create(&master, "s1", "a", EXPORTS, "e").await;
    for version in ["v1alpha1", "v1alpha2"] {
        let path = collection("s1", "a", &format!("apis.kcp.io/{version}/apiexports/e"));
        let found: Value = master.get_json(&path).await.unwrap();
        assert_eq!(found["apiVersion"], format!("apis.kcp.io/{version}"));
    }
}

#[tokio::test]
async fn metadata_alone_can_be_listed() {
    let cache = Cache::start().await;
    let master = cache.master();
    create(&master, "s1", "a", CLUSTERS, "cluster").await;
    let source = ListWatch::new(collection("*", "*", CLUSTERS)).metadata_only();
    let mut reflector = Reflector::<Value>::new(master, source, ReflectorOptions::default());
    let Event::Replaced { items, .. } = reflector.next().await else { panic!("no list") };
    assert_eq!(items[0]["kind"], "PartialObjectMetadata");
    assert_eq!(items[0]["metadata"]["annotations"]["kcp.io/shard"], "s1");
}

#[tokio::test]
async fn definitions_are_stored_once() {
    let cache = Cache::start().await;
    let master = cache.master();
    let list: Value = master.get_json(&collection("*", "*", DEFINITIONS)).await.unwrap();
    assert_eq!(names(&list).len(), 21);
    for item in list["items"].as_array().unwrap() {
        let annotations = &item["metadata"]["annotations"];
        assert_eq!(annotations["kcp.io/shard"], "system:cache:server");
        assert_eq!(annotations["kcp.io/cluster"], "system:system-crds");
        let conditions = item["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True"));
    }
    let path = collection("system:cache:server", "system:system-crds", DEFINITIONS);
    let one = format!("{path}/shards.core.kcp.io");
    assert_eq!(code(master.delete(&one, &Default::default()).await), 405, "definitions are read-only");

    let keys = |store: &Arc<dyn Store>| -> Vec<String> {
        let page = store.list(&Range::prefix("/cache/"), None, None).unwrap();
        page.records.iter().map(|record| String::from_utf8_lossy(&record.key).into_owned()).collect()
    };
    create(&master, "s1", "root", "core.kcp.io/v1alpha1/shards", "s1").await;
    let keys = keys(&cache.store);
    let definition = "/cache/apiextensions.k8s.io/customresourcedefinitions/system:cache:server/system:system-crds/shards.core.kcp.io";
    assert!(keys.contains(&definition.to_owned()), "{keys:?}");
    assert!(keys.contains(&"/cache/core.kcp.io/shards/customresources/s1/root/s1".to_owned()), "{keys:?}");

    let (store, revision) = (cache.store.clone(), cache.store.revision());
    cache.stop().await;
    let again = Cache::with_store(store.clone()).await;
    assert_eq!(store.revision(), revision, "a second start writes nothing");
    again.stop().await;
}

#[tokio::test]
async fn discovery_is_the_same_in_every_scope() {
    let cache = Cache::start().await;
    let master = cache.master();
    for (shard, cluster) in [("*", "*"), ("root", "root"), ("*", "root")] {
        let at = |rest: &str| format!("/services/cache/shards/{shard}/clusters/{cluster}{rest}");
        let groups: Value = master.get_json(&at("/apis")).await.unwrap();
        let mut found: Vec<&str> = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "admissionregistration.k8s.io",
                "apiextensions.k8s.io",
                "apis.kcp.io",
                "cache.kcp.io",
                "core.kcp.io",
                "migration.kcp.io",
                "rbac.authorization.k8s.io",
                "tenancy.kcp.io"
            ]
        );
        let group: Value = master.get_json(&at("/apis/apis.kcp.io")).await.unwrap();
        assert_eq!(group["preferredVersion"]["version"], "v1alpha2");
        let resources: Value = master.get_json(&at("/apis/apis.kcp.io/v1alpha1")).await.unwrap();
        let names: Vec<&str> = resources["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas"]);
        let version: Value = master.get_json(&at("/version")).await.unwrap();
        assert_eq!(version["major"], "1");
    }
    let roles: Value =
        master.get_json("/shards/root/clusters/root/apis/rbac.authorization.k8s.io/v1").await.unwrap();
    let namespaced = |name: &str| {
        let all = roles["resources"].as_array().unwrap();
        all.iter().find(|resource| resource["name"] == name).unwrap()["namespaced"].clone()
    };
    assert_eq!((namespaced("roles"), namespaced("clusterroles")), (json!(true), json!(false)));
    assert_eq!(code(master.get(&collection("root", "root", "core.kcp.io/v1alpha1/nope")).await), 404);
    assert_eq!(code(master.get(&collection("root", "root", "core.kcp.io/v1alpha1/shards:hash")).await), 404);
}

#[tokio::test]
async fn draining_ends_watches_cleanly() {
    let cache = Cache::start().await;
    let master = cache.master();
    let mut watch = master.watch(&format!("{}?watch=true", collection("*", "*", CLUSTERS))).await.unwrap();
    let stopping = tokio::spawn(cache.stop());
    assert!(watch.next().await.is_none(), "the watch ends without an error");
    drop((watch, master));
    stopping.await.unwrap();
}
