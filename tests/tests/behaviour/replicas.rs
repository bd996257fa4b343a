//! Replicas of root's shard on one etcd: all serve, one leads the controllers, and another one replaces it.

use fairlead_client::{Client, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings, is_left_out};
use serde_json::{Value, json};

use crate::installation::{WORKSPACES, next, until, until_ready, within};

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
    let first = leader(&replicas).await;
    for (index, replica) in replicas.iter().enumerate() {
        create_workspace(replica, &format!("of-{index}")).await;
        until_ready(&root(&replicas[1 - index]), &format!("of-{index}")).await;
    }
    assert_eq!(leader(&replicas).await, first, "the leader stays");
    watches_see_writes_of_the_other_replica(&replicas).await;

    replicas[first].process.kill().await.unwrap();
    let second = 1 - first;
    create_workspace(&replicas[second], "after-a-death").await;
    until_ready(&root(&replicas[second]), "after-a-death").await;
    assert!(replicas[second].leads().await.unwrap());

    replicas[first].process.restart().await.unwrap();
    replicas[first].until_ready().await.unwrap();
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
