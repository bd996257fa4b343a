//! A stream of the objects of a shared API over all shards.

use std::collections::BTreeSet;

use fairlead_client::{DeleteOptions, WriteOptions};
use fairlead_multicluster::{Change, Provider};
use futures_util::StreamExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::config;
use crate::installation::{Installation, within};
use crate::sharing::{bind, one_version, publish};

const ANCHORS: &str = "/apis/harbour.example.com/v1/namespaces/default/anchors";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_all_shards_appear_once_each_through_restarts_of_every_server() {
    let mut installation = Installation::start(2).await;
    let provider = installation.workspace("root", "harbour", "root").await;
    publish(&installation, &provider, one_version(), json!([])).await;
    let mut consumers = Vec::new();
    for (name, shard) in [("near", "root"), ("far", "shard-1")] {
        let consumer = installation.workspace("root", name, shard).await;
        bind(&installation, &consumer, json!([])).await;
        consumers.push(consumer);
    }
    let mut changes = follow(&installation, &provider).await;
    for server in ["shard-1", "root", "cache", "gateway"] {
        for consumer in &consumers {
            create(&installation, consumer, "before").await;
        }
        changes.expect(server, &["+before", "+before"]).await;
        installation.kill(server).await;
        for consumer in &consumers {
            create(&installation, consumer, "after").await;
            delete(&installation, consumer, "before").await;
        }
        changes.expect(server, &["+after", "+after", "-before", "-before"]).await;
        for consumer in &consumers {
            delete(&installation, consumer, "after").await;
        }
        changes.expect(server, &["-after", "-after"]).await;
    }
}

/// The changes of the stream, which a task reads.
struct Changes(mpsc::UnboundedReceiver<Change<DynamicObject>>);

impl Changes {
    /// The next changes by name, in any order; each of them of another version or logical cluster.
    async fn expect(&mut self, after: &str, expected: &[&str]) {
        let mut names = Vec::new();
        let mut versions = BTreeSet::new();
        while names.len() < expected.len() {
            let change = within(&format!("changes after {names:?}"), self.0.recv()).await.unwrap();
            let (sign, key, object) = match &change {
                Change::Applied(key, object) => ('+', key, object),
                Change::Gone(key, object) => ('-', key, object),
            };
            let version = object.metadata.resource_version.clone();
            assert!(versions.insert((key.clone(), sign, version)), "{key} was given twice after {after}");
            names.push(format!("{sign}{}", key.name));
        }
        names.sort();
        assert_eq!(names, expected, "{after}");
    }
}

async fn follow(installation: &Installation, provider: &str) -> Changes {
    let provider = Provider::new(config(installation, provider).await, "harbour").unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Anchor"));
    let mut objects = provider.objects::<DynamicObject>(&resource);
    let (sender, changes) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(change) = objects.next().await {
            if sender.send(change).is_err() {
                return;
            }
        }
    });
    Changes(changes)
}

async fn create(installation: &Installation, consumer: &str, name: &str) {
    let anchor = json!({
        "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "name": name },
    });
    // A client of its own: connections to a server that was killed are not used again.
    let admin = installation.admin(consumer);
    admin.create::<Value>(ANCHORS, &anchor, &WriteOptions::default()).await.unwrap();
}

async fn delete(installation: &Installation, consumer: &str, name: &str) {
    let admin = installation.admin(consumer);
    admin.delete(&format!("{ANCHORS}/{name}"), &DeleteOptions::default()).await.unwrap();
}
