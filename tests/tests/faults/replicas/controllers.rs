//! Actions of controllers, seen through the API: each of them once, whichever replica does it.
//!
//! A client creates workspaces, one after the other. Observers receive every change of Workspaces, LogicalClusters and service
//! accounts, from which two replicas that do the same show as a second object, or as a write that changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlead_client::{Client, ClientError, WatchEventKind, WriteOptions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::site::{Site, TIMEOUT, eventually};

const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
const LOGICAL_CLUSTERS: &str = "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters";
const OBSERVED: [&str; 3] = [WORKSPACES, LOGICAL_CLUSTERS, "/clusters/*/api/v1/serviceaccounts"];

/// The workspaces of a run, and what was seen of their controllers.
pub struct Controllers {
    creator: JoinHandle<Vec<String>>,
    stop: watch::Sender<bool>,
    observers: Vec<JoinHandle<()>>,
    changes: Changes,
    clients: Vec<Client>,
}

/// Changes by path, logical cluster and name, in their order.
type Changes = Arc<Mutex<BTreeMap<[String; 3], Vec<(WatchEventKind, Value)>>>>;

impl Controllers {
    pub async fn start(site: &Site) -> Self {
        let changes = Changes::default();
        let mut observers = Vec::new();
        for path in OBSERVED {
            let list: Value = site.clients[0].get_json(path).await.unwrap();
            let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            observers.push(tokio::spawn(observe(site.new_clients(), path, revision, changes.clone())));
        }
        let (stop, is_stopped) = watch::channel(false);
        let creator = tokio::spawn(create_workspaces(site.new_clients(), is_stopped));
        Self { creator, stop, observers, changes, clients: site.new_clients() }
    }

    /// Ends the creation, and judges what happened. The replicas must run.
    pub async fn check(self) {
        self.stop.send_replace(true);
        let created = tokio::time::timeout(TIMEOUT, self.creator).await.expect("the creation ends").unwrap();
        assert!(!created.is_empty(), "no workspace became Ready");
        for client in &self.clients {
            let logical_clusters: Value = client.get_json(LOGICAL_CLUSTERS).await.unwrap();
            for name in &created {
                let workspace: Value = client.get_json(&format!("{WORKSPACES}/{name}")).await.unwrap();
                assert_eq!(workspace["status"]["phase"], "Ready", "{workspace}");
                let owned = logical_clusters["items"].as_array().unwrap().iter();
                let owned: Vec<_> = owned
                    .filter(|one| one["spec"]["owner"]["name"] == **name)
                    .map(|one| &one["metadata"]["annotations"]["kcp.io/cluster"])
                    .collect();
                assert_eq!(owned, [&workspace["spec"]["cluster"]], "the logical clusters of {name}");
                let accounts = format!(
                    "/clusters/{}/api/v1/namespaces/default/serviceaccounts",
                    workspace["spec"]["cluster"].as_str().unwrap()
                );
                let accounts: Value = client.get_json(&accounts).await.unwrap();
                let accounts = accounts["items"].as_array().unwrap();
                assert_eq!(accounts.len(), 1, "the service accounts of {name}: {accounts:?}");
            }
        }
        for observer in &self.observers {
            assert!(!observer.is_finished(), "an observer has failed");
            observer.abort();
        }
        let changes = self.changes.lock().unwrap();
        let mut events = 0;
        for (object, changes) in &*changes {
            events += changes.len();
            let added = changes.iter().filter(|(kind, _)| *kind == WatchEventKind::Added).count();
            assert!(added <= 1, "{object:?} was created {added} times");
            for pair in changes.windows(2).filter(|pair| pair[1].0 == WatchEventKind::Modified) {
                assert_ne!(pair[0].1, pair[1].1, "{object:?} was written again without a change");
            }
        }
        println!("{} workspaces became Ready, {events} changes of controllers", created.len());
    }
}

/// Creates workspaces, each through the next replica, and waits for each through the one after it.
async fn create_workspaces(clients: Vec<Client>, is_stopped: watch::Receiver<bool>) -> Vec<String> {
    let mut created = Vec::new();
    let mut replica = 0;
    while !*is_stopped.borrow() {
        let name = format!("controlled-{}", created.len());
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
            "spec": { "type": { "name": "universal", "path": "root" } },
        });
        eventually("a workspace", || {
            replica = (replica + 1) % clients.len();
            let client = &clients[replica];
            let object = &object;
            async move {
                match client.create::<Value>(WORKSPACES, object, &WriteOptions::default()).await {
                    Err(error) if !error.is_already_exists() => Err(error),
                    _ => Ok(()),
                }
            }
        })
        .await;
        let path = format!("{WORKSPACES}/{name}");
        eventually("the workspace is Ready", || {
            replica = (replica + 1) % clients.len();
            let client = &clients[replica];
            let path = &path;
            async move {
                let workspace: Value = client.get_json(path).await.map_err(|error| error.to_string())?;
                if workspace["status"]["phase"] == "Ready" { Ok(()) } else { Err(workspace.to_string()) }
            }
        })
        .await;
        created.push(name);
    }
    created
}

/// Records all changes after a revision, on another replica after each failure.
async fn observe(clients: Vec<Client>, path: &'static str, mut revision: String, changes: Changes) {
    for client in clients.iter().cycle() {
        let result = observe_at(client, path, &mut revision, &changes).await;
        if let Err(error) = result {
            assert!(error.is_retryable(), "{path}: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn observe_at(
    client: &Client,
    path: &'static str,
    revision: &mut String,
    changes: &Changes,
) -> Result<(), ClientError> {
    let mut watch =
        client.watch(&format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}")).await?;
    while let Some(event) = watch.next().await {
        let event = event?;
        if event.kind == WatchEventKind::Error {
            return Err(ClientError::Status(Box::new(event.status())));
        }
        let mut object: Value = serde_json::from_slice(&event.object).unwrap();
        let metadata = &mut object["metadata"];
        revision.clear();
        revision.push_str(metadata["resourceVersion"].as_str().unwrap());
        if event.kind == WatchEventKind::Bookmark {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = text(&metadata["annotations"]["kcp.io/cluster"]);
        let name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
        for volatile in ["resourceVersion", "managedFields"] {
            metadata.as_object_mut().unwrap().remove(volatile);
        }
        let key = [path.to_owned(), cluster, name];
        changes.lock().unwrap().entry(key).or_default().push((event.kind, object));
    }
    Ok(())
}
