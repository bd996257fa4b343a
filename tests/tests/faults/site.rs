//! The shard, or its replicas, with the workspaces and resources that the clients use.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Client, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings};
use serde_json::{Value, json};

const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A running shard with three workspaces.
pub struct Site {
    /// Its replicas: one, unless the store is on etcd.
    pub replicas: Vec<Shard>,
    /// The etcd of the store, if it is not a file.
    pub etcd: Option<EtcdCluster>,
    /// A client of each replica's root path, without a logical cluster.
    pub clients: Vec<Client>,
    pub collections: Vec<Collection>,
}

/// A resource in a logical cluster.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Its whole path.
    pub path: Arc<str>,
    pub api_version: &'static str,
    pub kind: &'static str,
    /// The path across all logical clusters, for built-in resources.
    pub everywhere: Option<&'static str>,
    /// The logical cluster.
    pub cluster: Arc<str>,
}

impl Collection {
    /// Custom resources cannot be watched across logical clusters without the identity of an export, and their updates need
    /// a resourceVersion.
    pub fn is_built_in(&self) -> bool {
        self.everywhere.is_some()
    }
}

/// Limit for everything that a test waits for.
pub const TIMEOUT: Duration = Duration::from_secs(120);

impl Site {
    /// A shard with its objects in a file.
    pub async fn start(directory: &Path, settings: &ShardSettings) -> Self {
        let shard = Shard::start(directory, settings).await.unwrap();
        Self::with_workspaces(vec![shard], None).await
    }

    /// Replicas of a shard on an etcd of some members.
    pub async fn start_on_etcd(
        directory: &Path,
        members: usize,
        replicas: usize,
        settings: &ShardSettings,
    ) -> Self {
        let etcd = EtcdCluster::start(directory, members, &[]).await.unwrap();
        let place = EtcdSettings { endpoints: etcd.endpoints(), prefix: "/registry".to_owned() };
        let settings = ShardSettings { etcd: Some(place), ..settings.clone() };
        let folder = |number: usize| {
            let folder = directory.join(format!("replica-{number}"));
            std::fs::create_dir(&folder).unwrap();
            folder
        };
        let mut shards = vec![Shard::start(&folder(0), &settings).await.unwrap()];
        for number in 1..replicas {
            let replica = shards[0].start_replica(&folder(number), &settings).await.unwrap();
            shards.push(replica);
        }
        Self::with_workspaces(shards, Some(etcd)).await
    }

    async fn with_workspaces(replicas: Vec<Shard>, etcd: Option<EtcdCluster>) -> Self {
        let clients: Vec<_> = replicas.iter().map(|replica| replica.client("").unwrap()).collect();
        let mut collections = Vec::new();
        for name in ["red", "green", "blue"] {
            let cluster: Arc<str> = workspace(&clients[0], name).await.into();
            define_ships(&clients, &cluster).await;
            let collection = |path: &str, api_version, kind, everywhere| Collection {
                path: format!("/clusters/{cluster}{path}").into(),
                api_version,
                kind,
                everywhere,
                cluster: cluster.clone(),
            };
            collections.extend([
                collection(
                    "/api/v1/namespaces/default/configmaps",
                    "v1",
                    "ConfigMap",
                    Some("/clusters/*/api/v1/namespaces/default/configmaps"),
                ),
                collection("/apis/sea.example.com/v1/ships", "sea.example.com/v1", "Ship", None),
            ]);
        }
        Self { replicas, etcd, clients, collections }
    }

    /// New clients of all replicas, with connections of their own.
    pub fn new_clients(&self) -> Vec<Client> {
        self.replicas.iter().map(|replica| replica.client("").unwrap()).collect()
    }
}

/// Repeats an attempt that must succeed soon, such as the first request to a new resource.
pub async fn eventually<T, E: Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let mut pause = Duration::from_millis(5);
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("{what}: {error}"),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Creates a universal workspace; returns its logical cluster when it is ready.
pub async fn workspace(client: &Client, name: &str) -> String {
    let object = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        "spec": { "type": { "name": "universal", "path": "root" } },
    });
    let options = WriteOptions::default();
    eventually("the workspace's creation", || client.create::<Value>(WORKSPACES, &object, &options)).await;
    let path = format!("{WORKSPACES}?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut watch = client.watch(&path).await.unwrap();
    let ready = async {
        loop {
            let event = watch.next().await.expect("the watch ended").unwrap();
            let workspace: Value = serde_json::from_slice(&event.object).unwrap();
            if workspace["status"]["phase"] == "Ready" {
                return workspace["spec"]["cluster"].as_str().unwrap().to_owned();
            }
        }
    };
    tokio::time::timeout(TIMEOUT, ready).await.expect("the workspace is ready")
}

async fn define_ships(clients: &[Client], cluster: &str) {
    let text = json!({ "type": "string" });
    let properties = json!({ "content": text, "copy": text, "filler": text });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "ships.sea.example.com" },
        "spec": {
            "group": "sea.example.com", "scope": "Cluster",
            "names": { "plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "data": { "type": "object", "properties": properties } },
                } },
            }],
        },
    });
    let path = format!("/clusters/{cluster}{DEFINITIONS}");
    clients[0].create::<Value>(&path, &definition, &WriteOptions::default()).await.unwrap();
    let ships = format!("/clusters/{cluster}/apis/sea.example.com/v1/ships");
    for client in clients {
        eventually("the new resource", || client.get(&ships)).await;
    }
}
