//! `fairlead up --store etcd`, and `fairlead store copy` between files and etcd.

use std::process::Output;

use fairlead_client::WriteOptions;
use fairlead_tests::harness::{EtcdCluster, is_left_out};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::installation::{Installation, until, until_object};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_on_etcd_keeps_its_objects_and_ends_with_up() {
    if is_left_out("etcd") {
        return;
    }
    let mut installation = Installation::start_on(1, "etcd").await;
    let harbour = installation.workspace("root", "harbour", "root").await;
    write(&installation, &harbour, "before").await;
    let etcd = installation.server("etcd");
    assert!(etcd.ready, "{etcd:?}");
    // An etcd that syncs a slow disk may not answer in the time that `status` allows.
    until("etcd is ready in the status", || async {
        let shown = succeeded(&installation.fairlead(["status", "--dir=site"]).await);
        let is_ready = |line: &str| line.starts_with("etcd") && line.contains("ready");
        if shown.lines().any(is_ready) { Ok(()) } else { Err(shown) }
    })
    .await;
    assert!(!installation.directory().join("data/root/store.redb").exists());

    // It is supervised as the servers are.
    installation.signal("etcd", Signal::KILL);
    installation.until_server("etcd", |now| now.ready && now.pid != etcd.pid).await;
    until_object(&installation.admin(&harbour), CONFIG_MAPS, "before", |_| true).await;
    // It ends even if `up` is killed.
    installation.lose().await;
    let refused = installation.fairlead(["up", "--dir=site", "--store=file"]).await;
    let refused = failed(&refused);
    assert!(
        refused.contains("is in etcd, not in files") && refused.contains("fairlead store copy"),
        "{refused}"
    );
    installation.start_again().await;
    until_object(&installation.admin(&harbour), CONFIG_MAPS, "before", |_| true).await;
    write(&installation, &harbour, "after").await;
    assert!(succeeded(&installation.fairlead(["down", "--dir=site"]).await).contains("Stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_carried_into_etcd_and_back() {
    if is_left_out("etcd") {
        return;
    }
    let mut installation = Installation::start(1).await;
    let harbour = installation.workspace("root", "harbour", "root").await;
    let before = write(&installation, &harbour, "before").await;
    let folder = installation.scratch("etcd");
    let cluster = EtcdCluster::start(&folder, 1, &[]).await.unwrap();
    let prefix = format!("{}/shards/root", cluster.endpoints()[0]);
    let copy = |from: &str, to: &str, more: &[&str]| {
        let fixed = ["store", "copy", from, to].into_iter().chain(more.iter().copied());
        fixed.map(str::to_owned).collect::<Vec<_>>()
    };

    let into = copy("site/data/root", &prefix, &[]);
    let refused = installation.fairlead(into.clone()).await;
    assert!(failed(&refused).contains("is in use by another process"), "{refused:?}");
    installation.stop().await;
    let copied = succeeded(&installation.fairlead(into.clone()).await);
    assert!(copied.contains(" records with SHA-256 ") && copied.contains(&prefix), "{copied}");
    let again = failed(&installation.fairlead(into).await);
    assert!(again.contains("the prefix /shards/root in etcd has keys already\n  hint: "), "{again}");
    let nowhere = format!("{}/nowhere", cluster.endpoints()[0]);
    for (from, to, message) in [
        ("nowhere", prefix.as_str(), "there is no store nowhere/store.redb"),
        (nowhere.as_str(), "copied", "the prefix /nowhere in etcd has no store"),
        (prefix.as_str(), "site/data/root", "store.redb exists"),
    ] {
        let refused = failed(&installation.fairlead(copy(from, to, &[])).await);
        assert!(refused.contains(message), "{refused}");
    }
    for (from, to) in [("site/data/root", nowhere.as_str()), (prefix.as_str(), "copied")] {
        let refused = failed(&installation.fairlead(copy(from, to, &["--shard=other"])).await);
        assert!(
            refused.contains("belongs to \"shard root\", not to \"shard other\"\n  hint: leave out --shard"),
            "{refused}"
        );
    }

    let back = succeeded(&installation.fairlead(copy(&prefix, "site/data/root", &["--replace"])).await);
    let digest = |line: &str| line.split(" are in ").next().unwrap().to_owned();
    assert_eq!(digest(&back), digest(&copied));
    installation.start_again().await;
    let admin = installation.admin(&harbour);
    let after = until_object(&admin, CONFIG_MAPS, "before", |_| true).await;
    assert_eq!(after["data"], before["data"]);
    let old = before["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(admin.get(&exact).await.unwrap_err().code(), Some(410));
    write(&installation, &harbour, "after").await;
}

async fn write(installation: &Installation, cluster: &str, name: &str) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "written": name },
    });
    installation.admin(cluster).create(CONFIG_MAPS, &map, &WriteOptions::default()).await.unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn failed(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
