//! Changes of certificates and settings under load.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fairlead_certs::{Client as Role, Server as Listener};
use fairlead_client::{Client, PatchType, WriteOptions};
use rustix::process::Signal;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::installation::{Installation, next, until, within};
use crate::wire::connect;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_under_load_without_a_failed_request() {
    let installation = Installation::start(2).await;
    let red = installation.workspace("root", "red", "root").await;
    let blue = installation.workspace("root", "blue", "shard-1").await;
    let load = Load::begin([installation.admin(&red), installation.admin(&blue)]).await;
    let mut watching = installation.admin(&blue).watch(&format!("{CONFIG_MAPS}?watch=1")).await.unwrap();
    for round in 0..2 {
        load.until_more(200).await;
        let before: Vec<_> = servers(&installation).into_iter().map(|(_, file, _)| leaf(&file)).collect();
        let arguments = ["certs", "init", "--renew", "--dir=site/pki", "--shards=root,shard-1"];
        let output = installation.fairlead(arguments).await;
        assert!(output.status.success(), "{output:?}");
        for ((name, file, url), before) in servers(&installation).into_iter().zip(before) {
            let renewed = leaf(&file);
            assert_ne!(renewed, before, "{name} has a new certificate");
            installation.signal(name, Signal::HUP);
            until(&format!("{name} shows its new certificate"), || async {
                let stream = connect(&url, &installation.anonymous(), "h2").await;
                let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                if shown == renewed { Ok(()) } else { Err("the old one") }
            })
            .await;
        }
        // New clients have new certificates. The old certificates are still valid.
        assert!(load.clients[0].set_credentials(installation.credentials(&Role::Admin)), "round {round}");
        load.until_more(400).await;
    }
    let requests = load.end().await;
    assert!(requests >= 1_200, "{requests}");
    // The watch survived all rotations.
    let last = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "last" } });
    let blue = installation.admin(&blue);
    blue.create::<Value>(CONFIG_MAPS, &last, &WriteOptions::default()).await.unwrap();
    while next(&mut watching).await.1["metadata"]["name"] != "last" {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_a_reload_of_the_gateways_settings() {
    let installation = Installation::start(1).await;
    let client = installation.admin("/clusters/root");
    let mut watching = client.watch(&format!("{CONFIG_MAPS}?watch=1")).await.unwrap();
    let config = installation.directory().join("config/gateway.yaml");
    let log = installation.directory().join("logs/gateway.log");
    let original = std::fs::read_to_string(&config).unwrap();
    let written =
        |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let changes = [
        ("good", original.replace("missWait: 500ms", "missWait: 400ms"), "reloaded"),
        // An invalid configuration is rejected, and the last valid one stays.
        ("bad", original.replace("missWait", "misswait"), "misswait"),
    ];
    for (name, text, sign) in changes {
        std::fs::write(&config, text).unwrap();
        installation.signal("gateway", Signal::HUP);
        until(&format!("{name}: {sign:?} in the log"), || async {
            let log = std::fs::read_to_string(&log).unwrap();
            if log.contains(sign) { Ok(()) } else { Err(log) }
        })
        .await;
        client.create::<Value>(CONFIG_MAPS, &written(name), &WriteOptions::default()).await.unwrap();
        while next(&mut watching).await.1["metadata"]["name"] != name {}
    }
}

/// Name, certificate and URL of each listener.
fn servers(installation: &Installation) -> Vec<(&'static str, PathBuf, String)> {
    [
        ("gateway", Listener::Gateway),
        ("root", Listener::Shard("root".parse().unwrap())),
        ("shard-1", Listener::Shard("shard-1".parse().unwrap())),
        ("cache", Listener::Cache),
    ]
    .map(|(name, listener)| {
        (name, installation.layout().serving_cert(&listener).certificate, installation.server(name).url)
    })
    .into()
}

fn leaf(file: &PathBuf) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

/// Reads and writes continuously. Every request must succeed.
struct Load {
    clients: [Client; 2],
    done: Arc<watch::Sender<u64>>,
    over: Arc<AtomicBool>,
    workers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    async fn begin(clients: [Client; 2]) -> Self {
        let (done, over) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicBool::new(false)));
        let mut workers = Vec::new();
        for number in 0..8 {
            let client = clients[number % 2].clone();
            let (done, over) = (done.clone(), over.clone());
            let name = format!("load-{number}");
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
            client.create::<Value>(CONFIG_MAPS, &object, &WriteOptions::default()).await.unwrap();
            workers.push(tokio::spawn(async move {
                let path = format!("{CONFIG_MAPS}/{name}");
                let count = AtomicU64::new(0);
                while !over.load(Ordering::Relaxed) {
                    let value = count.fetch_add(1, Ordering::Relaxed);
                    let patch = json!({ "data": { "count": value.to_string() } });
                    let options = WriteOptions::default();
                    client.patch::<Value>(&path, PatchType::Merge, &patch, &options).await.unwrap();
                    client.get(&path).await.unwrap();
                    done.send_modify(|done| *done += 2);
                }
            }));
        }
        Self { clients, done, over, workers }
    }

    /// Waits until this many more requests have succeeded.
    async fn until_more(&self, count: u64) {
        let goal = *self.done.borrow() + count;
        let mut done = self.done.subscribe();
        let reached = tokio::time::timeout(crate::installation::TIMEOUT, done.wait_for(|done| *done >= goal));
        assert!(reached.await.is_ok_and(|reached| reached.is_ok()), "the load stopped");
    }

    /// Stops the load and returns the number of requests. Panics if one failed.
    async fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        for worker in self.workers {
            within("a worker", worker).await.expect("a request failed");
        }
        *self.done.borrow()
    }
}
