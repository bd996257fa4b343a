//! What the clients do, and what must be there when they have done it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlead_client::{Client, ClientError, DeleteOptions, PatchType, WriteOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::site::{BINDINGS, EXPORTS, KINDS, Site};

/// The numbers of a consumer and of an export.
pub(super) type Pair = (usize, usize);

/// The resources whose claims a consumer accepts; it rejects the others.
pub(super) type Accepted = BTreeSet<&'static str>;

/// The claimed resources.
const CLAIMED: [&str; 2] = ["configmaps", "secrets"];

/// The state that clients have requested.
pub(super) struct Desired {
    pub(super) bindings: BTreeMap<Pair, Accepted>,
    /// Whether each export exists.
    pub(super) exports: Vec<bool>,
    round: usize,
}

/// A request, which is repeated until it has a response.
pub(super) struct Operation {
    request: Request,
    path: String,
    body: Value,
    /// The pair whose state is unclear if the request is refused.
    pair: Option<Pair>,
}

enum Request {
    Create,
    Patch,
    Delete,
    /// A create that may be refused, because its kind may not be served.
    Attempt,
}

impl Desired {
    pub(super) fn new(site: &Site) -> Self {
        Self { bindings: BTreeMap::new(), exports: vec![true; site.exports.len()], round: 0 }
    }

    /// Chooses the operations of a round, and records what they request.
    pub(super) fn plan(&mut self, site: &Site, random: &mut fastrand::Rng) -> Vec<Operation> {
        self.round += 1;
        let mut operations = Vec::new();
        for (number, export) in site.exports.iter().enumerate() {
            // Some exports are deleted in a round and created again in a later one.
            let exists = self.exports[number];
            if random.u8(..3) > 0 {
                continue;
            }
            self.exports[number] = !exists;
            let collection = export.provider.path(EXPORTS);
            operations.push(match exists {
                true => Operation::new(Request::Delete, format!("{collection}/{}", export.name), Value::Null),
                false => Operation::new(Request::Create, collection, export.object()),
            });
        }
        for consumer in 0..site.consumers.len() {
            for export in 0..site.exports.len() {
                operations.extend(self.of_pair(site, (consumer, export), random));
            }
            let name = format!("round-{}", self.round);
            for resource in CLAIMED {
                let path = site.consumers[consumer].path(&format!("/api/v1/namespaces/default/{resource}"));
                let object = json!({ "metadata": { "name": name } });
                operations.push(Operation::new(Request::Create, path, object));
            }
        }
        random.shuffle(&mut operations);
        operations
    }

    /// Reads the bindings of which no response says whether they exist.
    pub(super) async fn settle(&mut self, site: &Site, unclear: Vec<Pair>) {
        for pair in unclear {
            let path = site.consumers[pair.0].path(&format!("{BINDINGS}/{}", site.exports[pair.1].name));
            match site.admin("").get(&path).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => drop(self.bindings.remove(&pair)),
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }

    fn of_pair(&mut self, site: &Site, pair: Pair, random: &mut fastrand::Rng) -> Vec<Operation> {
        let (consumer, export) = (&site.consumers[pair.0], &site.exports[pair.1]);
        let collection = consumer.path(BINDINGS);
        let path = format!("{collection}/{}", export.name);
        let accepted: Accepted = CLAIMED.into_iter().filter(|_| random.bool()).collect();
        let claims = claims(&accepted);
        let is_bound = self.bindings.contains_key(&pair);
        match random.u8(..10) {
            // A binding to an export that does not exist is refused.
            0..8 if !is_bound && self.exports[pair.1] => {
                self.bindings.insert(pair, accepted);
                let object = json!({
                    "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": export.name },
                    "spec": { "reference": { "export": export.reference() }, "permissionClaims": claims },
                });
                let bind =
                    Operation { pair: Some(pair), ..Operation::new(Request::Create, collection, object) };
                let object = json!({ "metadata": { "name": format!("round-{}", self.round) } });
                let objects = KINDS.map(|kind| {
                    let path = consumer.path(&format!("/apis/{}/v1/{kind}", export.group()));
                    Operation::new(Request::Attempt, path, object.clone())
                });
                [bind].into_iter().chain(objects).collect()
            }
            0..3 if is_bound => {
                self.bindings.remove(&pair);
                vec![Operation::new(Request::Delete, path, Value::Null)]
            }
            3..8 if is_bound => {
                self.bindings.insert(pair, accepted);
                let patch = json!({ "spec": { "permissionClaims": claims } });
                vec![Operation::new(Request::Patch, path, patch)]
            }
            _ => Vec::new(),
        }
    }
}

impl Operation {
    fn new(request: Request, path: String, body: Value) -> Self {
        Self { request, path, body, pair: None }
    }
}

/// Sends operations.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) queue: Arc<Mutex<Vec<Operation>>>,
    /// The number of operations with a response.
    pub(super) acknowledged: Arc<watch::Sender<usize>>,
}

impl Worker {
    /// Works until the queue is empty; returns the pairs whose state is unclear.
    pub(super) async fn work(self) -> Vec<Pair> {
        let mut unclear = Vec::new();
        loop {
            let Some(operation) = self.queue.lock().unwrap().pop() else { return unclear };
            if !self.finish(&operation).await {
                unclear.extend(operation.pair);
            }
            self.acknowledged.send_modify(|count| *count += 1);
        }
    }

    /// Repeats a request until it has a response; returns whether it did what it should.
    async fn finish(&self, operation: &Operation) -> bool {
        loop {
            let error = match self.send(operation).await {
                Ok(()) => return true,
                Err(error) => error,
            };
            match (&operation.request, error.code()) {
                (Request::Create, Some(409)) | (Request::Delete, Some(404)) => return true,
                (Request::Attempt, _) => return false,
                // Meanwhile the export was deleted.
                (Request::Create, Some(403)) if operation.pair.is_some() => return false,
                (_, None | Some(408 | 409 | 429 | 500..)) => {}
                _ => panic!("{}: {error}", operation.path),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn send(&self, operation: &Operation) -> Result<(), ClientError> {
        let (path, body, options) = (&operation.path, &operation.body, WriteOptions::default());
        match operation.request {
            Request::Create | Request::Attempt => {
                self.client.create::<Value>(path, body, &options).await.map(drop)
            }
            Request::Patch => {
                self.client.patch::<Value>(path, PatchType::Merge, body, &options).await.map(drop)
            }
            Request::Delete => self.client.delete(path, &DeleteOptions::default()).await.map(drop),
        }
    }
}

fn claims(accepted: &Accepted) -> Vec<Value> {
    let claim = |resource| {
        let state = if accepted.contains(resource) { "Accepted" } else { "Rejected" };
        json!({
            "group": "", "resource": resource, "verbs": ["get", "list", "watch"], "state": state,
            "selector": { "matchAll": true },
        })
    };
    CLAIMED.into_iter().map(claim).collect()
}
