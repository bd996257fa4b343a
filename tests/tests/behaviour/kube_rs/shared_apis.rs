//! A stream and a controller of the objects of a shared API over all shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use fairlead_client::{Client, ClientError, DeleteOptions, PatchType, WriteOptions};
use fairlead_multicluster::{Action, Change, Controller, ObjectKey, Objects, Provider, Request};
use futures_util::StreamExt;
use futures_util::future::join_all;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::config;
use crate::installation::{Installation, WORKSPACES, until, within};
use crate::sharing::{bind, one_version, publish};

const SERVERS: [&str; 4] = ["shard-1", "root", "cache", "gateway"];
const ANCHORS: &str = "/apis/harbour.example.com/v1/namespaces/default/anchors";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_all_shards_appear_once_each_through_restarts_of_every_server() {
    let (mut installation, provider, consumers) = shared_api().await;
    let mut changes = follow(&installation, &provider, &consumers).await;
    for server in SERVERS {
        for consumer in &consumers {
            consumer.create("before").await;
        }
        changes.expect(server, &["+before"]).await;
        let writes = join_all(consumers.iter().map(|consumer| consumer.create("during")));
        tokio::join!(installation.kill(server), writes);
        for consumer in &consumers {
            consumer.create("after").await;
            consumer.delete("before").await;
        }
        changes.expect(server, &["+after", "+during", "-before"]).await;
        for consumer in &consumers {
            consumer.delete("during").await;
            consumer.delete("after").await;
        }
        changes.expect(server, &["-after", "-during"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_reconciles_every_object_through_restarts_of_every_server() {
    let (mut installation, provider, consumers) = shared_api().await;
    let record = Arc::new(Record::default());
    let controller = Controller::new(anchors(&installation, &provider).await);
    let reconciled = record.clone();
    tokio::spawn(
        controller
            .run_until(move |request| reconcile(reconciled.clone(), request), std::future::pending::<()>()),
    );
    for server in SERVERS {
        let writes = join_all(consumers.iter().map(|consumer| async move {
            let (kept, gone) = (format!("{server}-kept"), format!("{server}-gone"));
            consumer.create(&kept).await;
            consumer.create(&gone).await;
            consumer.patch(&kept, json!({ "spec": { "weight": 2 } })).await;
            consumer.delete(&gone).await;
        }));
        tokio::join!(installation.kill(server), writes);
    }
    for consumer in &consumers {
        until(&format!("the reports in {}", consumer.name), || consumer.check_reports()).await;
    }
    until("the end of deleted objects", || async { record.check(&consumers) }).await;
}

/// A workspace that has bound the API.
struct Consumer {
    name: &'static str,
    cluster: String,
    admin: Client,
}

impl Consumer {
    async fn create(&self, name: &str) {
        let anchor = json!({
            "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "name": name },
            "spec": { "weight": 1, "cluster": self.cluster },
        });
        // Servers may be restarting. A request without a response may have succeeded.
        let attempt = || async {
            match self.admin.create::<Value>(ANCHORS, &anchor, &WriteOptions::default()).await {
                Err(error) if error.is_already_exists() => Ok(()),
                result => result.map(|_| ()),
            }
        };
        until(&format!("the creation of {name}"), attempt).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        let path = format!("{ANCHORS}/{name}");
        let attempt = || async {
            self.admin.patch::<Value>(&path, PatchType::Merge, &patch, &WriteOptions::default()).await
        };
        until(&format!("the change of {name}"), attempt).await;
    }

    async fn delete(&self, name: &str) {
        let path = format!("{ANCHORS}/{name}");
        let attempt = || async {
            match self.admin.delete(&path, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => Ok(()),
                result => result,
            }
        };
        until(&format!("the deletion of {name}"), attempt).await;
    }

    /// One object per server exists, and the status of each is that of its last spec in this logical cluster.
    async fn check_reports(&self) -> Result<(), String> {
        let list: Result<Value, ClientError> = self.admin.get_json(ANCHORS).await;
        let list = list.map_err(|error| error.to_string())?;
        let items = list["items"].as_array().unwrap();
        let reported = items.iter().filter(|item| item["status"]["report"] == report_of(&self.cluster, 2));
        if items.len() == SERVERS.len() && reported.count() == items.len() {
            Ok(())
        } else {
            Err(list.to_string())
        }
    }
}

/// What the controller has seen.
#[derive(Default)]
struct Record(Mutex<RecordContent>);

#[derive(Default)]
struct RecordContent {
    running: BTreeSet<ObjectKey>,
    /// Whether the last reconciliation of an object found it.
    last: BTreeMap<ObjectKey, bool>,
    mistakes: Vec<String>,
}

impl Record {
    fn begin(&self, request: &Request<DynamicObject>) {
        let mut content = self.0.lock().unwrap();
        if !content.running.insert(request.key.clone()) {
            content.mistakes.push(format!("{} was reconciled twice at the same time", request.key));
        }
        let other =
            request.object.as_ref().filter(|object| object.data["spec"]["cluster"] != *request.key.cluster);
        if let Some(object) = other {
            content.mistakes.push(format!("{} was given for {}", object.data["spec"], request.key));
        }
        content.last.insert(request.key.clone(), request.object.is_some());
    }

    fn end(&self, key: &ObjectKey) {
        self.0.lock().unwrap().running.remove(key);
    }

    /// The controller has found exactly the objects that exist.
    fn check(&self, consumers: &[Consumer]) -> Result<(), String> {
        let content = self.0.lock().unwrap();
        assert_eq!(content.mistakes, Vec::<String>::new());
        let found = content.last.iter().filter(|(_, is_found)| **is_found);
        let found: BTreeSet<_> = found.map(|(key, _)| key.to_string()).collect();
        let existing = consumers.iter().flat_map(|consumer| {
            SERVERS.iter().map(|server| format!("{}|default/{server}-kept", consumer.cluster))
        });
        let existing: BTreeSet<_> = existing.collect();
        if found == existing { Ok(()) } else { Err(format!("{found:?} instead of {existing:?}")) }
    }
}

async fn reconcile(record: Arc<Record>, request: Request<DynamicObject>) -> Result<Action, kube::Error> {
    record.begin(&request);
    let key = request.key.clone();
    let result = report(request).await;
    record.end(&key);
    result.map(|()| Action::AwaitChange)
}

/// Writes the status of an object.
async fn report(request: Request<DynamicObject>) -> Result<(), kube::Error> {
    let Request { key, object: Some(object), client: Some(client) } = request else { return Ok(()) };
    let weight = object.data["spec"]["weight"].as_i64().unwrap();
    let anchors = Api::<DynamicObject>::namespaced_with(client, "default", &resource());
    let patch = Patch::Merge(json!({ "status": { "report": report_of(&key.cluster, weight) } }));
    match anchors.patch_status(&key.name, &PatchParams::default(), &patch).await {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}

fn report_of(cluster: &str, weight: i64) -> String {
    format!("weight {weight} in {cluster}")
}

/// The changes of the stream, which a task reads.
struct Changes {
    receiver: mpsc::UnboundedReceiver<Change<DynamicObject>>,
    clusters: BTreeMap<String, &'static str>,
}

impl Changes {
    /// The next changes: each of these names in each consumer, in any order.
    async fn expect(&mut self, after: &str, expected: &[&str]) {
        let consumers = self.clusters.values();
        let expected = consumers.flat_map(|name| expected.iter().map(move |one| format!("{one} in {name}")));
        let mut expected: Vec<_> = expected.collect();
        expected.sort();
        let mut changes = Vec::new();
        while changes.len() < expected.len() {
            let change = within(&format!("changes after {changes:?}"), self.receiver.recv()).await.unwrap();
            let (sign, key) = match &change {
                Change::Applied(key, _) => ('+', key),
                Change::Gone(key, _) => ('-', key),
            };
            changes.push(format!("{sign}{} in {}", key.name, self.clusters[&key.cluster]));
        }
        changes.sort();
        assert_eq!(changes, expected, "{after}");
    }
}

async fn follow(installation: &Installation, provider: &str, consumers: &[Consumer]) -> Changes {
    let mut objects = anchors(installation, provider).await;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(change) = objects.next().await {
            if sender.send(change).is_err() {
                return;
            }
        }
    });
    let clusters = consumers.iter().map(|consumer| (consumer.cluster.clone(), consumer.name)).collect();
    Changes { receiver, clusters }
}

async fn anchors(installation: &Installation, provider: &str) -> Objects<DynamicObject> {
    let provider = Provider::new(config(installation, provider).await, "harbour").unwrap();
    provider.objects(&resource())
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Anchor"))
}

/// An installation of two shards, the path of the provider, and a consumer on each shard.
async fn shared_api() -> (Installation, String, Vec<Consumer>) {
    let installation = Installation::start(2).await;
    let provider = installation.workspace("root", "harbour", "root").await;
    publish(&installation, &provider, one_version(), json!([])).await;
    let mut consumers = Vec::new();
    for (name, shard) in [("near", "root"), ("far", "shard-1")] {
        let path = installation.workspace("root", name, shard).await;
        bind(&installation, &path, json!([])).await;
        let root = installation.admin("/clusters/root");
        let workspace: Value = root.get_json(&format!("{WORKSPACES}/{name}")).await.unwrap();
        let cluster = workspace["spec"]["cluster"].as_str().unwrap().to_owned();
        consumers.push(Consumer { name, cluster, admin: installation.admin(&path) });
    }
    (installation, provider, consumers)
}
