//! Versions of the events of a watch. A client resumes a watch after the version of the last event that it got, so an event
//! with the same version as the one before would be lost if the watch broke between them.

use fairlead_client::{Client, DeleteOptions, WatchStream, WriteOptions};
use fairlead_tests::harness::{EtcdSettings, Shard, ShardSettings, is_left_out};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::installation::{WORKSPACES, next, until, until_gone, until_object, until_ready};
use crate::sharing::{bind_in, one_version, publish_in};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICE_ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const NAMESPACES: &str = "/api/v1/namespaces";
const COUNT: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_watch_have_growing_versions_on_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let shard = Shard::start(directory.path(), &ShardSettings::default()).await.unwrap();
    events_have_growing_versions(&shard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_watch_have_growing_versions_on_etcd() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let settings = ShardSettings { etcd: Some(EtcdSettings::shared().unwrap()), ..ShardSettings::default() };
    let shard = Shard::start(directory.path(), &settings).await.unwrap();
    events_have_growing_versions(&shard).await;
}

/// The shard itself changes many objects: it fills and deletes workspaces and namespaces, and labels what an export claims.
async fn events_have_growing_versions(shard: &Shard) {
    let all = shard.client("/clusters/*").unwrap();
    let mut watches = Vec::new();
    for collection in ["configmaps", "serviceaccounts", "namespaces"] {
        let list: Value = all.get_json(&format!("/api/v1/{collection}")).await.unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = all.watch(&format!("/api/v1/{collection}?watch=1&resourceVersion={version}")).await;
        watches.push((collection, watch.unwrap()));
    }
    let root = shard.client("/clusters/root").unwrap();
    let claim = json!({ "group": "", "resource": "configmaps", "verbs": ["*"] });
    workspace(&root, "harbour").await;
    publish_in(&shard.client("/clusters/root:harbour").unwrap(), one_version(), json!([claim])).await;
    workspace(&root, "fleet").await;
    let fleet = shard.client("/clusters/root:fleet").unwrap();
    let emptied = "/api/v1/namespaces/emptied/configmaps";
    let deleted = "/api/v1/namespaces/deleted/configmaps";
    for name in ["emptied", "deleted"] {
        create(&fleet, NAMESPACES, "Namespace", name).await;
    }
    for collection in [CONFIG_MAPS, emptied, deleted] {
        let names: Vec<_> = (0..COUNT).map(|number| format!("map-{number}")).collect();
        join_all(names.iter().map(|name| create(&fleet, collection, "ConfigMap", name))).await;
    }

    let mut accepted = claim.clone();
    accepted["state"] = "Accepted".into();
    accepted["selector"] = json!({ "matchAll": true });
    bind_in(&fleet, "root:harbour", json!([accepted])).await;
    let is_claimed = |map: &Value| {
        let labels = map["metadata"]["labels"].as_object();
        labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with("claimed.internal.apis.kcp.io/")))
    };
    for number in 0..COUNT {
        until_object(&fleet, CONFIG_MAPS, &format!("map-{number}"), is_claimed).await;
    }
    fleet.delete(emptied, &DeleteOptions::default()).await.unwrap();
    fleet.delete(&format!("{NAMESPACES}/deleted"), &DeleteOptions::default()).await.unwrap();
    until_gone(&fleet, NAMESPACES, "deleted").await;
    root.delete(&format!("{WORKSPACES}/fleet"), &DeleteOptions::default()).await.unwrap();
    until_gone(&root, WORKSPACES, "fleet").await;

    // The last events.
    create(&root, CONFIG_MAPS, "ConfigMap", "last").await;
    create(&root, SERVICE_ACCOUNTS, "ServiceAccount", "last").await;
    create(&root, NAMESPACES, "Namespace", "last").await;
    let mut repeated = Vec::new();
    for (collection, watch) in &mut watches {
        let count = until_last(watch, &mut repeated).await;
        assert!(*collection != "configmaps" || count >= 7 * COUNT, "{count} events");
    }
    assert!(repeated.is_empty(), "events with the version of the event before:\n{}", repeated.join("\n"));
}

/// Reads up to the event of the last object. Returns the number of events, and adds those that do not have a greater version than the
/// one before.
async fn until_last(watch: &mut WatchStream, repeated: &mut Vec<String>) -> usize {
    let (mut last, mut count) = (0, 0);
    loop {
        let (kind, object) = next(watch).await;
        let metadata = &object["metadata"];
        let version: u64 = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        let cluster = &metadata["annotations"]["kcp.io/cluster"];
        if version <= last {
            let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
            repeated.push(format!("{version}: {kind} {} {namespace}/{name} in {cluster}", object["kind"]));
        }
        count += 1;
        if metadata["name"] == "last" {
            return count;
        }
        last = version;
    }
}

async fn workspace(root: &Client, name: &str) {
    let workspace = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": "universal", "path": "root" } },
    });
    until("the creation of a workspace", || async {
        root.create::<Value>(WORKSPACES, &workspace, &WriteOptions::default()).await
    })
    .await;
    until_ready(root, name).await;
}

async fn create(client: &Client, collection: &str, kind: &str, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    client.create::<Value>(collection, &object, &WriteOptions::default()).await.unwrap();
}
