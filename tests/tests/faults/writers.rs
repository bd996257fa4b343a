//! Writers: creations, updates with and without resourceVersion, patches, deletions and reads of few objects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Client, ClientError, DeleteOptions, PatchType, Preconditions, WriteOptions};
use fairlead_tests::history::{Action, Key, Outcome, Revision};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::recorder::{Recorder, data, object, read};
use crate::site::Collection;

/// Objects per collection. Few, so that writers meet.
const OBJECTS: usize = 6;

/// One client with random operations.
pub struct Writer {
    /// Clients of all replicas.
    pub clients: Vec<Client>,
    /// The replica that it uses until one of its requests fails.
    pub replica: usize,
    pub collections: Arc<Vec<Collection>>,
    pub recorder: Recorder,
    pub random: fastrand::Rng,
    /// Number of acknowledged operations of all writers.
    pub acknowledged: Arc<watch::Sender<u64>>,
    /// The revisions that this writer knows.
    pub known: HashMap<Key, Revision>,
}

impl Writer {
    /// Works until the shard does not respond.
    pub async fn until_failure(&mut self) {
        while self.one().await != Outcome::Unknown {
            self.acknowledged.send_modify(|count| *count += 1);
        }
    }

    /// Works until told to stop, with another replica after each failure.
    pub async fn until_stopped(&mut self, is_stopped: watch::Receiver<bool>) {
        while !*is_stopped.borrow() {
            match self.one().await {
                Outcome::Unknown => {
                    self.replica = (self.replica + 1) % self.clients.len();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                _ => self.acknowledged.send_modify(|count| *count += 1),
            }
        }
    }

    /// Works until this number of operations has a response.
    pub async fn some(&mut self, mut count: usize) {
        while count > 0 {
            match self.one().await {
                // The listener of a process that is starting refuses connections.
                Outcome::Unknown => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => count -= 1,
            }
        }
    }

    /// One random operation.
    async fn one(&mut self) -> Outcome {
        let collection = self.collections[self.random.usize(..self.collections.len())].clone();
        let name = format!("ours-{}", self.random.usize(..OBJECTS));
        let key = Key { collection: collection.path.clone(), name: name.as_str().into() };
        let known = self.known.get(&key).copied();
        let content = self.recorder.content();
        let action = match (self.random.u8(..20), known) {
            (0..5, _) => Action::Create(content),
            (5..9, Some(expected)) => Action::Update { content, expected: Some(expected) },
            (9..11, _) if collection.is_built_in() => Action::Update { content, expected: None },
            (9..13, _) => Action::Patch(content),
            (13, _) => Action::Delete { expected: None },
            (14, Some(expected)) => Action::Delete { expected: Some(expected) },
            // What this writer has seen, it also sees on another replica.
            (15..17, Some(known)) => Action::ReadSince(known),
            _ => Action::Read,
        };
        let start = self.recorder.now();
        let outcome = outcome(self.send(&collection, &name, action).await, action);
        self.recorder.record(&key, self.replica, action, start, outcome);
        match outcome {
            Outcome::Written(revision) => drop(self.known.insert(key, revision)),
            Outcome::Found(version) => drop(self.known.insert(key, version.revision)),
            Outcome::NotFound | Outcome::Deleted => drop(self.known.remove(&key)),
            Outcome::AlreadyExists | Outcome::Conflict | Outcome::Unknown => {}
        }
        outcome
    }

    async fn send(
        &self,
        collection: &Collection,
        name: &str,
        action: Action,
    ) -> Result<Option<Value>, ClientError> {
        let path = format!("{}/{name}", collection.path);
        let (client, options) = (&self.clients[self.replica], WriteOptions::default());
        match action {
            Action::Create(content) => {
                client.create(&collection.path, &object(collection, name, content), &options).await
            }
            Action::Update { content, expected } => {
                let mut object = object(collection, name, content);
                if let Some(expected) = expected {
                    object["metadata"]["resourceVersion"] = expected.to_string().into();
                }
                client.replace(&path, &object, &options).await
            }
            Action::Patch(content) => {
                client.patch(&path, PatchType::Merge, &json!({ "data": data(content) }), &options).await
            }
            Action::Delete { expected } => {
                let preconditions = expected.map(|expected| Preconditions {
                    uid: None,
                    resource_version: Some(expected.to_string()),
                });
                let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
                return client.delete(&path, &options).await.map(|()| None);
            }
            Action::Read => client.get_json(&path).await,
            Action::ReadSince(revision) => {
                client.get_json(&format!("{path}?resourceVersion={revision}")).await
            }
        }
        .map(Some)
    }
}

/// The outcome of a response. Panics for a refusal that no fault explains.
fn outcome(response: Result<Option<Value>, ClientError>, action: Action) -> Outcome {
    match response {
        Ok(None) => Outcome::Deleted,
        Ok(Some(object)) => match action {
            Action::Read | Action::ReadSince(_) => Outcome::Found(read(&object).1),
            _ => Outcome::Written(read(&object).1.revision),
        },
        Err(error) if error.is_not_found() => Outcome::NotFound,
        Err(error) if error.is_already_exists() => Outcome::AlreadyExists,
        Err(error) if error.is_conflict() => Outcome::Conflict,
        Err(error) if error.is_retryable() => Outcome::Unknown,
        Err(error) => panic!("{action:?}: {error}"),
    }
}
