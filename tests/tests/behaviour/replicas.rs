//! Replicas of root's shard on one etcd: all serve, one leads the controllers, and another one replaces it.

use fairlead_client::{Client, DeleteOptions, PatchType, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings, is_left_out};
use serde_json::{Value, json};

use crate::installation::{WORKSPACES, next, until, until_ready, within};

const ROLES: &str = "/clusters/system:admin/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CHANGED_ROLE: &str = "system:discovery";
const REMOVED_ROLE: &str = "system:public-info-viewer";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_serve_together_and_replace_their_leader() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = EtcdCluster::start(directory.path(), 1, &[]).await.unwrap();
    let settings = ShardSettings {
        etcd: Some(EtcdSettings { endpoints: etcd.endpoints(), prefix: "/registry".to_owned() }),
        ..ShardSettings::default()
    };
    // Both find an empty etcd.
    let mut replicas = Shard::start_replicas(directory.path(), 2, &settings).await.unwrap();
    for replica in &replicas {
        let shards: Value = root(replica).get_json("/apis/core.kcp.io/v1alpha1/shards").await.unwrap();
        assert_eq!(shards["items"][0]["metadata"]["name"], "root", "a shard is ready once it is registered");
    }
    let first = leader(&replicas).await;
    for (index, replica) in replicas.iter().enumerate() {
        create_workspace(replica, &format!("of-{index}")).await;
        until_ready(&root(&replicas[1 - index]), &format!("of-{index}")).await;
    }
    assert_eq!(leader(&replicas).await, first, "the leader stays");
    watches_see_writes_of_the_other_replica(&replicas).await;
    updates_are_based_on_those_of_the_other_replica(&replicas).await;

    replicas[first].process.kill().await.unwrap();
    let second = 1 - first;
    create_workspace(&replicas[second], "after-a-death").await;
    until_ready(&root(&replicas[second]), "after-a-death").await;
    assert!(replicas[second].leads().await.unwrap());

    let leader = replicas[second].client("").unwrap();
    // The replica that starts is older than the version that has filled the store, and then it is not.
    for (version, is_kept) in [("1000000", true), ("0", false)] {
        define_as_another_version(&leader, version).await;
        replicas[first].process.restart().await.unwrap();
        replicas[first].until_ready().await.unwrap();
        let role: Value = leader.get_json(&format!("{ROLES}/{CHANGED_ROLE}")).await.unwrap();
        assert_eq!(role["rules"].is_null(), is_kept, "version {version}: {role}");
        leader.get(&format!("{ROLES}/{REMOVED_ROLE}")).await.unwrap();
        if is_kept {
            replicas[first].process.kill().await.unwrap();
        }
    }
    assert!(!replicas[first].leads().await.unwrap(), "the leader stays");
    until_ready(&root(&replicas[first]), "after-a-death").await;
    let drained = replicas[second].process.terminate().await.unwrap();
    assert!(drained.success(), "{drained}");
    let log = replicas[second].process.log();
    assert!(log.contains("resigned from leading the controllers of the shard"), "{log}");
    create_workspace(&replicas[first], "after-a-drain").await;
    until_ready(&root(&replicas[first]), "after-a-drain").await;
    assert!(replicas[first].leads().await.unwrap());
}

/// Changes a role of the system, removes another one, and says that a version of Fairlead has done so.
async fn define_as_another_version(client: &Client, version: &str) {
    let options = WriteOptions::default();
    let rules = json!({ "rules": [] });
    let _: Value =
        client.patch(&format!("{ROLES}/{CHANGED_ROLE}"), PatchType::Merge, &rules, &options).await.unwrap();
    client.delete(&format!("{ROLES}/{REMOVED_ROLE}"), &DeleteOptions::default()).await.unwrap();
    let record = format!("/clusters/system:shard{CONFIG_MAPS}/fairlead-bootstrap");
    let data = json!({ "data": { "version": version } });
    let _: Value = client.patch(&record, PatchType::Merge, &data, &options).await.unwrap();
}

/// The index of the replica that leads. Fails if several do.
async fn leader(replicas: &[Shard]) -> usize {
    until("the election of a leader", || async {
        let mut leaders = Vec::new();
        for (index, replica) in replicas.iter().enumerate() {
            if replica.leads().await.unwrap() {
                leaders.push(index);
            }
        }
        match leaders[..] {
            [leader] => Ok(leader),
            _ => Err(format!("leaders: {leaders:?}")),
        }
    })
    .await
}

fn root(replica: &Shard) -> Client {
    replica.client("/clusters/root").unwrap()
}

async fn create_workspace(replica: &Shard, name: &str) {
    let workspace = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": "universal", "path": "root" } },
    });
    let client = root(replica);
    until("the creation of a workspace", || async {
        client.create::<Value>(WORKSPACES, &workspace, &WriteOptions::default()).await
    })
    .await;
}

/// Updates an object by the replicas in turn, each time from the response of the other one.
async fn updates_are_based_on_those_of_the_other_replica(replicas: &[Shard]) {
    let options = WriteOptions::default();
    let clients: Vec<_> = replicas.iter().map(root).collect();
    let config_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "in-turn" } });
    let mut object: Value = clients[0].create(CONFIG_MAPS, &config_map, &options).await.unwrap();
    for turn in 1..=200 {
        object["data"] = json!({ "turn": turn.to_string() });
        let updated = clients[turn % 2].replace(&format!("{CONFIG_MAPS}/in-turn"), &object, &options).await;
        object = updated.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

async fn watches_see_writes_of_the_other_replica(replicas: &[Shard]) {
    for (writer, watcher) in [(0, 1), (1, 0)] {
        let name = format!("from-{writer}");
        let query = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut watch = root(&replicas[watcher]).watch(&query).await.unwrap();
        let config_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        let created: Value =
            root(&replicas[writer]).create(CONFIG_MAPS, &config_map, &WriteOptions::default()).await.unwrap();
        let (kind, seen) = within("an event of the other replica", next(&mut watch)).await;
        assert_eq!((kind.as_str(), &seen), ("ADDED", &created));
    }
}
