//! Three replicas of a shard on etcd, whose leader is killed again and again while workspaces are created.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fairlead_client::{Client, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings, is_left_out};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::number;
use crate::site::{TIMEOUT, eventually};

const REPLICAS: usize = 3;
/// Workspaces that become Ready before and after each kill.
const WORKSPACES_EACH: usize = 3;
const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspaces_go_on_becoming_ready_while_leaders_are_killed() {
    if is_left_out("etcd") {
        return;
    }
    let rounds = number("FAULT_LEADER_ROUNDS", 2);
    let directory = tempfile::tempdir().unwrap();
    let (_etcd, mut replicas) = start(directory.path()).await;
    let mut pauses = Vec::new();
    for round in 0..rounds {
        let leader = leader(&replicas).await;
        // The clients of this round use a replica that survives it.
        let survivor = replicas[(leader + 1) % REPLICAS].client("").unwrap();
        let ready = Arc::new(watch::Sender::new(Vec::new()));
        let creating = tokio::spawn(create_workspaces(survivor, round, ready.clone()));
        until_ready(&ready, WORKSPACES_EACH).await;
        replicas[leader].process.kill().await.unwrap();
        let before = ready.borrow().len();
        until_ready(&ready, before + WORKSPACES_EACH).await;
        creating.abort();
        let times = ready.borrow().clone();
        pauses.push(times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default());
        replicas[leader].process.restart().await.unwrap();
        replicas[leader].until_ready().await.unwrap();
    }
    pauses.sort();
    println!(
        "{rounds} leaders killed; pause between two workspaces becoming Ready: median {:?}, longest {:?}",
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
    );
}

async fn start(directory: &Path) -> (EtcdCluster, Vec<Shard>) {
    let etcd = EtcdCluster::start(directory, 1, &[]).await.unwrap();
    let settings = ShardSettings {
        etcd: Some(EtcdSettings { endpoints: etcd.endpoints(), prefix: "/registry".to_owned() }),
        ..ShardSettings::default()
    };
    let replicas = Shard::start_replicas(directory, REPLICAS, &settings).await.unwrap();
    (etcd, replicas)
}

async fn leader(replicas: &[Shard]) -> usize {
    eventually("the election of a leader", || async {
        for (index, replica) in replicas.iter().enumerate() {
            if replica.leads().await.map_err(|error| error.to_string())? {
                return Ok(index);
            }
        }
        Err("no replica leads".to_owned())
    })
    .await
}

/// Creates one workspace after the other, and records the times at which they became Ready.
async fn create_workspaces(client: Client, round: u64, ready: Arc<watch::Sender<Vec<Instant>>>) {
    for count in 0_usize.. {
        let name = format!("w-{round}-{count}");
        let workspace = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
            "spec": { "type": { "name": "universal", "path": "root" } },
        });
        let options = WriteOptions::default();
        client.create::<Value>(WORKSPACES, &workspace, &options).await.unwrap();
        let path = format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}");
        let mut watch = client.watch(&path).await.unwrap();
        loop {
            let event = watch.next().await.expect("the watch ended").unwrap();
            let workspace: Value = serde_json::from_slice(&event.object).unwrap();
            if workspace["status"]["phase"] == "Ready" {
                break;
            }
        }
        ready.send_modify(|times| times.push(Instant::now()));
    }
}

async fn until_ready(ready: &watch::Sender<Vec<Instant>>, count: usize) {
    let mut times = ready.subscribe();
    let reached = times.wait_for(|times| times.len() >= count);
    drop(tokio::time::timeout(TIMEOUT, reached).await.expect("workspaces become Ready").unwrap());
}
