//! A full disk of the local copy of etcd: the replica ends, another one takes over at once, also for the index of the gateway, and
//! the replica does not start before there is room.

use std::path::{Path, PathBuf};

use fairlead_client::{Client, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Installation, ShardSettings, is_left_out, replica};
use serde_json::{Value, json};

use crate::site::{eventually, workspace};

const REPLICAS: usize = 2;
const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";
/// Less than a copy needs, in blocks of `ulimit -f`.
const TOO_FEW_BLOCKS: &str = "256";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_copy_finds_no_room_ends_and_another_one_takes_over() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cluster = EtcdCluster::start(directory.path(), 1, &[]).await.unwrap();
    let etcd = EtcdSettings { endpoints: cluster.endpoints(), prefix: "/root".to_owned() };
    let settings = ShardSettings { etcd: Some(etcd), ..ShardSettings::default() };
    let mut installation = Installation::start_replicas(directory.path(), REPLICAS, &settings).await.unwrap();
    let admin = installation.admin("").unwrap();
    for name in (0..REPLICAS).map(replica) {
        installation.restart_with_file_limit(&name, "unlimited").await.unwrap();
        installation.until_ready().await.unwrap();
    }
    // The gateway may read its index from either replica at first. In the second round it does so from the one that has stayed, which
    // also leads.
    for round in 0..2 {
        let leader = leader(&installation).await;
        let copy = copy(directory.path(), &leader);
        installation.limit_files(&leader, std::fs::metadata(&copy).unwrap().len()).unwrap();
        let (reader, writer) = (installation.direct(&leader, "").unwrap(), admin.clone());
        let load = tokio::spawn(async move { tokio::join!(read(&reader), fill(&writer, round)) });
        let end = installation.until_end(&leader).await;
        load.abort();
        assert_eq!(end.unwrap().code(), Some(1));
        let internal_errors = load.await.err().filter(|error| error.is_panic());
        assert!(internal_errors.is_none(), "{internal_errors:?}");
        let log = installation.log(&leader);
        assert_full(&log, &copy);
        // By itself, or because the lease was not renewed any more in the same moment.
        let ends = ["resigned from leading", "no longer leading"];
        assert!(ends.iter().any(|end| log.contains(end)), "{log}");

        workspace(&admin, &format!("after-{round}")).await;

        // Without room it does not start, and says why.
        std::fs::remove_file(&copy).unwrap();
        let log = installation.log(&leader).len();
        installation.restart_with_file_limit(&leader, TOO_FEW_BLOCKS).await.unwrap();
        assert_eq!(installation.until_end(&leader).await.unwrap().code(), Some(1));
        let log = installation.log(&leader).split_off(log);
        assert_full(&log, &copy);
        assert!(!log.contains("etcd cannot be reached"), "{log}");

        installation.restart_with_file_limit(&leader, "unlimited").await.unwrap();
        installation.until_ready().await.unwrap();
    }
}

fn copy(directory: &Path, replica: &str) -> PathBuf {
    directory.join("data").join(replica).join("store.redb")
}

/// The last sentence names the file, the error of the system, and the remedy.
fn assert_full(log: &str, copy: &Path) {
    let sentence = log.lines().rfind(|line| line.starts_with("fairlead-shard: ")).unwrap_or_default();
    assert!(sentence.contains(copy.to_str().unwrap()) && sentence.contains("File too large"), "{log}");
    assert!(log.trim_end().lines().last().unwrap().contains("hint: make room on its disk"), "{log}");
}

/// The replica that leads.
async fn leader(installation: &Installation) -> String {
    eventually("a leader", || async {
        for name in (0..REPLICAS).map(replica) {
            let client = installation.direct(&name, "").map_err(|error| error.to_string())?;
            let metrics = client.get("/metrics").await.map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            if text.lines().any(|line| line == "fairlead_shard_leader{shard=\"root\"} 1") {
                return Ok(name);
            }
        }
        Err("no replica leads".to_owned())
    })
    .await
}

/// Writes until the task is aborted.
async fn fill(admin: &Client, round: usize) {
    for number in 0.. {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("filler-{round}-{number}") },
            "data": { "filler": "x".repeat(200_000) },
        });
        // Some are refused, or lost with the replica.
        let _ = admin.create::<Value>(CONFIG_MAPS, &object, &WriteOptions::default()).await;
    }
}

/// Reads from the replica until the task is aborted. A replica that cannot be read is unavailable, which is no internal error.
async fn read(replica: &Client) {
    loop {
        if let Err(error) = replica.get(&format!("{CONFIG_MAPS}/kube-root-ca.crt")).await {
            assert_ne!(error.code(), Some(500), "{error}");
            tokio::task::yield_now().await;
        }
    }
}
