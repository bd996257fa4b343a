//! Watchers, as informers: a list, then a watch that is resumed by resourceVersion, and a new list after 410.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlead_client::{Client, ClientError, WatchEventKind};
use fairlead_tests::history::{Change, Key, Revision, Version, WatchEntry, WatchLog};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::recorder::{is_ours, read};
use crate::site::Collection;

/// A running watcher. It ends when dropped.
pub struct Watcher {
    shared: Arc<Shared>,
    position: watch::Receiver<Revision>,
    task: JoinHandle<()>,
}

/// The way to get the initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// A list, then a watch.
    List,
    /// A watch with `sendInitialEvents` (KEP-3157).
    Stream,
}

struct Shared {
    name: String,
    path: String,
    initial: Initial,
    collections: Vec<Collection>,
    entries: Mutex<Vec<WatchEntry>>,
    /// Lists, connections and expired revisions.
    counts: Mutex<Counts>,
    position: watch::Sender<Revision>,
    /// Whether it may connect.
    is_free: watch::Receiver<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub lists: u64,
    pub connections: u64,
    pub expired: u64,
}

impl Watcher {
    /// Starts a watcher of some collections at one path, with clients of all replicas. It uses the first one until a request
    /// fails, then the next one. It connects only while it is free.
    pub fn start(
        clients: Vec<Client>,
        path: &str,
        collections: Vec<Collection>,
        initial: Initial,
        is_free: watch::Receiver<bool>,
    ) -> Self {
        let (sender, position) = watch::channel(0);
        let shared = Arc::new(Shared {
            name: format!("watcher of {path} ({initial:?})"),
            path: path.to_owned(),
            initial,
            collections,
            entries: Mutex::default(),
            counts: Mutex::default(),
            position: sender,
            is_free,
        });
        let task = tokio::spawn(shared.clone().run(clients));
        Self { shared, position, task }
    }

    /// Waits until the watcher has received a revision.
    pub async fn until(&mut self, revision: Revision) {
        let name = &self.shared.name;
        let reached = self.position.wait_for(|position| *position >= revision);
        match tokio::time::timeout(crate::site::TIMEOUT, reached).await {
            Ok(reached) => drop(reached.expect("the watcher has ended")),
            Err(_) => panic!(
                "{name} has not received revision {revision}: {:?}",
                self.shared.entries.lock().unwrap().last()
            ),
        }
    }

    /// The collections.
    pub fn collections(&self) -> &[Collection] {
        &self.shared.collections
    }

    /// Takes the log. The next one begins with the given list, which must be the state that this one has reached.
    pub fn take_log(&self, next: WatchEntry) -> WatchLog {
        let entries = std::mem::replace(&mut *self.shared.entries.lock().unwrap(), vec![next]);
        let collections = self.shared.collections.iter().map(|collection| collection.path.clone()).collect();
        WatchLog { watcher: self.shared.name.clone(), collections, entries }
    }

    pub fn counts(&self) -> Counts {
        *self.shared.counts.lock().unwrap()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn run(self: Arc<Self>, clients: Vec<Client>) {
        let mut revision = None;
        let mut replica = 0;
        let mut is_free = self.is_free.clone();
        while is_free.wait_for(|is_free| *is_free).await.is_ok() {
            match self.follow(&clients[replica], &mut revision).await {
                Ok(()) => {}
                Err(error) if error.is_gone() => {
                    self.counts.lock().unwrap().expired += 1;
                    revision = None;
                }
                Err(error) if error.is_retryable() => {
                    replica = (replica + 1) % clients.len();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }

    /// One connection of the watch, with the list before it if there is no revision.
    async fn follow(&self, client: &Client, revision: &mut Option<Revision>) -> Result<(), ClientError> {
        let mut query = format!("{}?watch=1&allowWatchBookmarks=true", self.path);
        // The objects of a streamed initial state, until its end.
        let mut streamed = None;
        match (*revision, self.initial) {
            (None, Initial::List) => {
                // On a replica that is behind, the list must not show less than was received before.
                let reached = Some(*self.position.borrow()).filter(|revision| *revision > 0);
                let list =
                    list(client, &self.path, reached.map(ListRevision::NotOlderThan), &self.collections)
                        .await?;
                *revision = Some(self.received(list));
            }
            (None, Initial::Stream) => {
                query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                let reached = *self.position.borrow();
                if reached > 0 {
                    query = format!("{query}&resourceVersion={reached}");
                }
                streamed = Some(BTreeMap::new());
            }
            (Some(_), _) => {}
        }
        if let Some(revision) = *revision {
            query = format!("{query}&resourceVersion={revision}");
        }
        self.counts.lock().unwrap().connections += 1;
        let mut watch = client.watch(&query).await?;
        while let Some(event) = watch.next().await {
            let event = event?;
            let change = match event.kind {
                WatchEventKind::Added => Change::Added,
                WatchEventKind::Modified => Change::Modified,
                WatchEventKind::Deleted => Change::Deleted,
                WatchEventKind::Error => return Err(ClientError::Status(Box::new(event.status()))),
                WatchEventKind::Bookmark => {
                    let object: Value = serde_json::from_slice(&event.object).unwrap();
                    let reached = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                    let entry = match streamed.take() {
                        Some(objects) => WatchEntry::Listed { revision: reached, objects },
                        None => WatchEntry::Bookmark(reached),
                    };
                    *revision = Some(self.received(entry));
                    continue;
                }
            };
            let object: Value = serde_json::from_slice(&event.object).unwrap();
            let Some((key, version)) = self.key(&object) else { continue };
            match &mut streamed {
                Some(objects) => {
                    assert_eq!(change, Change::Added, "{}: in the initial state: {object}", self.name);
                    assert!(objects.insert(key, version).is_none(), "{}: twice: {object}", self.name);
                }
                None => *revision = Some(self.received(WatchEntry::Event { change, key, version })),
            }
        }
        Ok(())
    }

    fn key(&self, object: &Value) -> Option<(Key, Version)> {
        key(object, &self.collections)
    }

    /// Appends an entry; returns the revision that the watcher has reached with it.
    fn received(&self, entry: WatchEntry) -> Revision {
        let revision = match &entry {
            WatchEntry::Listed { revision, .. } | WatchEntry::Bookmark(revision) => *revision,
            WatchEntry::Event { version, .. } => version.revision,
        };
        if matches!(entry, WatchEntry::Listed { .. }) {
            self.counts.lock().unwrap().lists += 1;
        }
        self.entries.lock().unwrap().push(entry);
        self.position.send_replace(revision);
        revision
    }
}

/// The revision that a list must have.
#[derive(Debug, Clone, Copy)]
pub enum ListRevision {
    Exactly(Revision),
    NotOlderThan(Revision),
}

/// A list of the objects at a path, as an entry of a log.
pub async fn list(
    client: &Client,
    path: &str,
    at: Option<ListRevision>,
    collections: &[Collection],
) -> Result<WatchEntry, ClientError> {
    let path = match at {
        None => path.to_owned(),
        Some(ListRevision::Exactly(at)) => format!("{path}?resourceVersion={at}&resourceVersionMatch=Exact"),
        Some(ListRevision::NotOlderThan(at)) => {
            format!("{path}?resourceVersion={at}&resourceVersionMatch=NotOlderThan")
        }
    };
    let list: Value = client.get_json(&path).await?;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let objects = list["items"].as_array().unwrap().iter().filter_map(|object| key(object, collections));
    Ok(WatchEntry::Listed { revision, objects: objects.collect() })
}

/// The key and version of an object, if the test made it.
fn key(object: &Value, collections: &[Collection]) -> Option<(Key, Version)> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let cluster = object["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    let collection = collections.iter().find(|collection| *collection.cluster == *cluster)?;
    if !is_ours(name) {
        return None;
    }
    let (name, version) = read(object);
    Some((Key { collection: collection.path.clone(), name: name.into() }, version))
}
