//! Metrics, readiness and status of stores: of a file, and of an etcd that goes away and comes back.

use std::path::Path;

use fairlead_client::{Client, ClientError, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings, is_left_out};
use serde_json::{Value, json};

use crate::installation::{Installation, until};

const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

async fn metrics(client: &Client) -> String {
    String::from_utf8(client.get("/metrics").await.unwrap().body.to_vec()).unwrap()
}

/// The value of a series, with its labels as in the text.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// Waits until a series has a value that the check accepts.
async fn until_value(client: &Client, series: &str, is_reached: impl Fn(f64) -> bool) -> f64 {
    until(series, || async {
        let found = value(&metrics(client).await, series);
        found.filter(|value| is_reached(*value)).ok_or(found)
    })
    .await
}

async fn create(client: &Client, name: &str) -> Result<Value, ClientError> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    client.create(CONFIG_MAPS, &object, &WriteOptions::default()).await
}

/// The status code and the text of a health endpoint.
async fn probe(client: &Client, path: &str) -> (u16, String) {
    match client.get(path).await {
        Ok(response) => (response.status.as_u16(), String::from_utf8_lossy(&response.body).into_owned()),
        Err(error) => (error.code().unwrap_or_else(|| panic!("{path}: {error}")), error.to_string()),
    }
}

#[tokio::test]
async fn a_shard_on_a_file_shows_its_commits_and_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let shard = Shard::start(folder.path(), &ShardSettings::default()).await.unwrap();
    let client = shard.client("").unwrap();
    let committed = "fairlead_store_commits_total{outcome=\"committed\"}";
    let before = value(&metrics(&client).await, committed).unwrap();
    for number in 0..5 {
        create(&client, &format!("map-{number}")).await.unwrap();
    }
    let text = metrics(&client).await;
    let of = |series: &str| value(&text, series).unwrap_or_else(|| panic!("no {series} in\n{text}"));
    assert!(of(committed) >= before + 5.0);
    assert_eq!(of("fairlead_store_info{backend=\"file\"}"), 1.0);
    assert_eq!(of("fairlead_store_failed"), 0.0);
    assert_eq!(of("fairlead_store_view_age_seconds"), 0.0);
    for phase in ["queue", "apply", "durable", "visible"] {
        let count = of(&format!("fairlead_store_commit_phase_duration_seconds_count{{phase=\"{phase}\"}}"));
        assert!(count >= before + 5.0, "{phase}: {count}");
    }
    assert!(of("fairlead_store_file_bytes") >= 4096.0 && of("fairlead_store_keys") >= 5.0);
    assert_eq!(
        of("apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"}"),
        of("fairlead_store_file_bytes")
    );
    assert!(!text.contains("fairlead_store_etcd_"));
    assert_eq!(probe(&client, "/readyz/store").await, (200, "ok".to_owned()));
    assert_eq!(probe(&client, "/readyz/store-current").await.0, 404, "a file is always current");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fairlead_status_shows_the_store_of_each_server_and_the_replicas_of_each_shard() {
    let installation = Installation::start_on(2, "file").await;
    // The gateway knows the addresses of a shard when it has forwarded a request to it.
    installation.workspace("root", "dock", "shard-1").await;
    installation.admin("/clusters/root:dock").get("/api/v1/namespaces").await.unwrap();
    let status = until("the addresses of both shards", || async {
        let output = installation.fairlead(["status", "--dir=site", "-o", "json"]).await;
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let shards = found["gateway"]["shards"].as_array().cloned().unwrap_or_default();
        let is_known = |shard: &Value| shard["addresses"].as_u64() >= Some(1);
        if shards.len() == 2 && shards.iter().all(is_known) { Ok(found) } else { Err(found) }
    })
    .await;
    for process in status["processes"].as_array().unwrap() {
        let (name, store) = (process["name"].as_str().unwrap(), &process["store"]);
        if matches!(name, "gateway" | "issuer") {
            assert!(store.is_null(), "{name}: {store}");
            continue;
        }
        assert_eq!((&store["backend"], &store["failed"]), (&json!("file"), &json!(false)), "{name}: {store}");
        assert!(store["revision"].as_u64() > Some(0) && store["sizeBytes"].as_u64() > Some(4096), "{store}");
    }
    let replicas: Vec<_> =
        status["gateway"]["shards"].as_array().unwrap().iter().map(|shard| &shard["addresses"]).collect();
    assert_eq!(replicas.len(), 2);
    assert!(replicas.iter().all(|addresses| addresses.as_u64() >= Some(1)), "{replicas:?}");
    let output = installation.fairlead(["status", "--dir=site"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("STORE") && text.contains("REPLICAS"), "{text}");
}

/// Sets a limit to how long the shard is ready without etcd, and starts it again.
async fn limit_readiness(shard: &mut Shard, limit: &str) {
    let path = shard.store().with_file_name("shard.yaml");
    let mut configuration: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    configuration["store"]["etcd"]["readyWithoutEtcd"] = limit.into();
    std::fs::write(&path, configuration.to_string()).unwrap();
    shard.process.kill().await.unwrap();
    shard.process.restart().await.unwrap();
    shard.until_ready().await.unwrap();
}

async fn on_etcd(folder: &Path) -> (EtcdCluster, Shard) {
    let etcd = EtcdCluster::start(folder, 1, &[]).await.unwrap();
    let place = EtcdSettings { endpoints: etcd.endpoints(), prefix: "/root".to_owned() };
    let settings = ShardSettings { etcd: Some(place), ..ShardSettings::default() };
    let shard = Shard::start(folder, &settings).await.unwrap();
    (etcd, shard)
}

#[tokio::test]
async fn a_shard_shows_that_etcd_is_lost_and_that_it_is_back() {
    if is_left_out("etcd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut etcd, mut shard) = on_etcd(folder.path()).await;
    let client = shard.client("").unwrap();
    create(&client, "before").await.unwrap();
    let connected = format!("fairlead_store_etcd_connected{{endpoint=\"{}\"}}", etcd.endpoints()[0]);
    let age = "fairlead_store_view_age_seconds";
    let lost = "fairlead_store_etcd_disconnected_seconds";
    let text = metrics(&client).await;
    for (series, expected) in [
        ("fairlead_store_info{backend=\"etcd\"}", 1.0),
        (&*connected, 1.0),
        (lost, 0.0),
        ("fairlead_store_failed", 0.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
    }
    // The shard itself may be writing.
    until_value(&client, "fairlead_store_view_revisions_behind", |behind| behind == 0.0).await;
    let connections = "fairlead_store_etcd_connections_total";
    let before = value(&text, connections).unwrap();
    until_value(&client, "fairlead_store_etcd_database_bytes", |bytes| bytes > 0.0).await;
    until_value(&client, age, |age| age < 5.0).await;
    let (code, text) = probe(&client, "/readyz?verbose").await;
    assert!(code == 200 && text.contains("[+]store-current ok"), "{code} {text}");

    etcd.kill(0).await.unwrap();
    until_value(&client, &connected, |connected| connected == 0.0).await;
    until_value(&client, lost, |seconds| seconds > 1.0).await;
    // The proof is older than any that a shard with etcd has.
    until_value(&client, age, |age| age > 6.0).await;
    let refused = create(&client, "during").await.unwrap_err();
    assert_eq!(refused.code(), Some(503), "{refused:?}");
    let unavailable = "fairlead_store_commits_total{outcome=\"unavailable\"}";
    assert!(value(&metrics(&client).await, unavailable).unwrap() >= 1.0);
    client.get(&format!("{CONFIG_MAPS}/before")).await.unwrap();
    let (code, text) = probe(&client, "/readyz?verbose").await;
    assert!(code == 200 && text.contains("[!]store-current etcd has been lost for"), "{code} {text}");
    assert_eq!(probe(&client, "/livez").await.0, 200);

    etcd.restart(0).await.unwrap();
    // An attempt whose outcome was unknown may have created it.
    until("a write", || async {
        match create(&client, "after").await {
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    })
    .await;
    until_value(&client, age, |age| age < 5.0).await;
    let text = metrics(&client).await;
    assert_eq!((value(&text, &connected), value(&text, lost)), (Some(1.0), Some(0.0)));
    assert!(value(&text, connections).unwrap() > before);
    drop(etcd);
    shard.process.kill().await.unwrap();
}

#[tokio::test]
async fn a_shard_with_a_limit_is_not_ready_without_etcd_for_longer_and_stays_alive() {
    if is_left_out("etcd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut etcd, mut shard) = on_etcd(folder.path()).await;
    limit_readiness(&mut shard, "500ms").await;
    let client = shard.client("").unwrap();
    assert_eq!(probe(&client, "/readyz/store-current").await, (200, "ok".to_owned()));
    etcd.kill(0).await.unwrap();
    until("not ready", || async {
        match probe(&client, "/readyz").await {
            (500, _) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    for (path, expected) in [
        ("/readyz/store-current", 500),
        ("/readyz/store", 200),
        ("/readyz?exclude=store-current", 200),
        ("/healthz", 200),
        ("/livez", 200),
    ] {
        assert_eq!(probe(&client, path).await.0, expected, "{path}");
    }
    client.get(CONFIG_MAPS).await.unwrap();
    etcd.restart(0).await.unwrap();
    shard.until_ready().await.unwrap();
}
