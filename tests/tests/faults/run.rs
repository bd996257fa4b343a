//! Writers and watchers of a site, and the check of what they did and saw.

use std::collections::HashMap;
use std::sync::Arc;

use fairlead_tests::history::{
    Action, History, Key, Outcome, Register, Revision, Version, Violation, WatchEntry, WatchLog,
};
use serde_json::json;
use tokio::sync::watch;

use crate::recorder::{Recorder, data};
use crate::site::{Collection, Site, TIMEOUT, eventually};
use crate::watchers::{Initial, ListRevision, Watcher, list};
use crate::writers::Writer;

const WRITERS: usize = 32;

/// Watchers of a run with one replica: two for each collection, and two of all logical clusters together.
pub const WATCHERS: usize = 14;

/// The object of each collection that only the test itself writes.
const MARKER: &str = "ours-marker";

/// A site with writers and watchers, and the state that was checked last.
pub struct Run {
    pub site: Site,
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
    recorder: Recorder,
    acknowledged: Arc<watch::Sender<u64>>,
    random: fastrand::Rng,
    watchers_are_free: watch::Sender<bool>,
    initial: HashMap<Key, Register>,
    /// The times at which the shard was ready again.
    ready_at: Vec<u64>,
    unknown: usize,
}

impl Run {
    pub async fn start(site: Site, mut random: fastrand::Rng, watchers: usize) -> Self {
        let collections = Arc::new(site.collections.clone());
        let recorder = Recorder::new();
        let acknowledged = Arc::new(watch::Sender::new(0));
        let writers = (0..WRITERS).map(|_| Writer {
            clients: site.new_clients(),
            replica: 0,
            collections: collections.clone(),
            recorder: recorder.clone(),
            random: random.fork(),
            acknowledged: acknowledged.clone(),
            known: HashMap::new(),
        });
        let writers = writers.collect();
        let (watchers_are_free, is_free) = watch::channel(true);
        let mut run = Self {
            watchers: start_watchers(&site, &is_free, watchers),
            watchers_are_free,
            site,
            writers,
            recorder,
            acknowledged,
            random,
            initial: HashMap::new(),
            ready_at: Vec::new(),
            unknown: 0,
        };
        // The watchers begin with empty collections.
        run.check(0).await;
        run
    }

    /// Lets the writers work, kills the replica after a number of acknowledgements, on request together with a member of etcd, and
    /// starts them again.
    pub async fn work_and_kill(
        &mut self,
        acknowledgements: u64,
        member: Option<usize>,
        is_killed_while_starting: bool,
    ) {
        let tasks = self.spawn_writers();
        self.until_acknowledged(acknowledgements).await;
        if let (Some(etcd), Some(member)) = (&mut self.site.etcd, member) {
            etcd.kill(member).await.unwrap();
        }
        let process = &mut self.site.replicas[0].process;
        process.kill().await.unwrap();
        self.writers = join(tasks).await;
        if is_killed_while_starting {
            process.restart().await.unwrap();
            // A random time, because nothing announces the steps of a start.
            let pause = std::time::Duration::from_millis(self.random.u64(..250));
            tokio::time::sleep(pause).await;
            process.kill().await.unwrap();
        }
        if let (Some(etcd), Some(member)) = (&mut self.site.etcd, member) {
            etcd.restart(member).await.unwrap();
        }
        process.restart().await.unwrap();
        self.until_ready().await;
        // The first writes of the new process.
        let tasks = self.writers.drain(..).map(|mut writer| {
            tokio::spawn(async move {
                writer.some(5).await;
                writer
            })
        });
        let tasks = tasks.collect();
        self.writers = join(tasks).await;
    }

    /// Waits until the writers have got this number of further responses.
    pub async fn until_acknowledged(&self, count: u64) {
        let mut acknowledged = self.acknowledged.subscribe();
        let enough = *acknowledged.borrow() + count;
        let reached = tokio::time::timeout(TIMEOUT, acknowledged.wait_for(|count| *count >= enough)).await;
        reached.expect("the writers work").unwrap();
    }

    /// Watchers that lose their connection do not come back until they are freed.
    pub fn hold_watchers(&self) {
        self.watchers_are_free.send_replace(false);
    }

    /// Frees watchers that are held, when the revisions from which they want to resume have expired.
    pub async fn free_watchers(&self) {
        if *self.watchers_are_free.borrow() {
            return;
        }
        // The markers are the latest changes that every watcher has received.
        let markers = self.initial.iter().filter(|(key, _)| *key.name == *MARKER);
        let oldest = markers.map(|(_, register)| register.revision).min().unwrap_or_default();
        let path =
            format!("{}?resourceVersion={oldest}&resourceVersionMatch=Exact", self.site.collections[0].path);
        eventually("the expiry of a revision", || async {
            match self.site.clients[0].get(&path).await {
                Err(error) if error.is_gone() => Ok(()),
                Err(error) => Err(error.to_string()),
                Ok(_) => Err(format!("revision {oldest} is still served")),
            }
        })
        .await;
        self.watchers_are_free.send_replace(true);
    }

    /// Starts all writers, divided among the replicas; each works until `is_stopped`.
    pub fn spawn_writers_until(
        &mut self,
        is_stopped: &watch::Receiver<bool>,
    ) -> Vec<tokio::task::JoinHandle<Writer>> {
        let writers = self.writers.drain(..).enumerate().map(|(number, mut writer)| {
            let is_stopped = is_stopped.clone();
            writer.replica = number % writer.clients.len();
            tokio::spawn(async move {
                writer.until_stopped(is_stopped).await;
                writer
            })
        });
        writers.collect()
    }

    /// Starts all writers; each works until the shard does not respond.
    pub fn spawn_writers(&mut self) -> Vec<tokio::task::JoinHandle<Writer>> {
        let writers = self.writers.drain(..).map(|mut writer| {
            tokio::spawn(async move {
                writer.until_failure().await;
                writer
            })
        });
        writers.collect()
    }

    /// Waits until each writer has ended.
    pub async fn join(&mut self, tasks: Vec<tokio::task::JoinHandle<Writer>>) {
        self.writers = join(tasks).await;
    }

    pub async fn until_ready(&mut self) {
        for replica in &mut self.site.replicas {
            replica.until_ready().await.unwrap();
        }
        if let Some(etcd) = &mut self.site.etcd {
            for member in 0..etcd.len() {
                etcd.until_healthy(member).await.unwrap();
            }
        } else {
            self.ready_at.push(self.recorder.now());
        }
    }

    /// Lets all watchers catch up, lists everything, and judges what happened since the last check.
    pub async fn check(&mut self, round: u64) {
        let mut last: HashMap<Arc<str>, Revision> = HashMap::new();
        for (number, collection) in self.site.collections.clone().iter().enumerate() {
            let replica = number % self.site.replicas.len();
            last.insert(collection.path.clone(), self.write_marker(replica, collection).await);
        }
        let objects = self.final_lists(&last).await;
        for watcher in &mut self.watchers {
            let marker = watcher.collections().iter().map(|collection| last[&collection.path]).max();
            watcher.until(marker.unwrap()).await;
        }
        let logs = self.take_logs(&objects);
        let operations = self.recorder.take(&self.ready_at);
        self.ready_at.clear();
        let unknown = operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count();
        self.unknown += unknown;
        let next = registers(&objects);
        let initial = std::mem::replace(&mut self.initial, next);
        let (operations_count, events) =
            (operations.len(), logs.iter().map(|log| log.entries.len()).sum::<usize>());
        let history = History { initial, operations, watches: logs };
        // Judging takes CPU time, not I/O.
        let judged = tokio::task::spawn_blocking(move || (history.check(), history)).await;
        let (violations, history) = judged.unwrap();
        if let Some(Violation::NotLinearizable { key, .. }) = violations.first() {
            let mut operations: Vec<_> =
                history.operations.iter().filter(|operation| operation.key == *key).collect();
            operations.sort_by_key(|operation| operation.start);
            println!("the operations of {key}, initially {:?}:", history.initial.get(key));
            operations.iter().for_each(|operation| println!("    {operation}"));
        }
        let shown: Vec<_> = violations.iter().take(10).map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "round {round}: {} violations\n{}",
            violations.len(),
            shown.join("\n")
        );
        println!(
            "round {round}: {operations_count} operations, {unknown} without a response, {events} entries of watches"
        );
    }

    pub fn report(&self) {
        let (mut lists, mut connections, mut expired) = (0, 0, 0);
        for counts in self.watchers.iter().map(Watcher::counts) {
            lists += counts.lists;
            connections += counts.connections;
            expired += counts.expired;
        }
        println!(
            "{} watchers: {connections} connections, {lists} lists, {expired} expired revisions; {} operations without a response",
            self.watchers.len(),
            self.unknown
        );
        assert!(self.unknown > 0, "no write was interrupted");
    }

    /// Changes an object that only the test itself writes; returns its revision, for which watchers wait.
    async fn write_marker(&self, replica: usize, collection: &Collection) -> Revision {
        let key = Key { collection: collection.path.clone(), name: MARKER.into() };
        let client = &self.site.clients[replica];
        let content = self.recorder.content();
        let start = self.recorder.now();
        let exists = self.initial.get(&key).is_some_and(|register| register.content.is_some());
        let options = fairlead_client::WriteOptions::default();
        let (action, written) = if exists {
            let patch = json!({ "data": data(content) });
            let path = format!("{}/{MARKER}", collection.path);
            let patched = eventually("the marker", || {
                let kind = fairlead_client::PatchType::Merge;
                client.patch::<serde_json::Value>(&path, kind, &patch, &options)
            });
            (Action::Patch(content), patched.await)
        } else {
            let object = crate::recorder::object(collection, MARKER, content);
            let created = client.create(&collection.path, &object, &options).await;
            (Action::Create(content), created.unwrap())
        };
        let (_, version) = crate::recorder::read(&written);
        self.recorder.record(&key, replica, action, start, Outcome::Written(version.revision));
        version.revision
    }

    /// The lists of all collections at the revisions of their markers, from every replica. The history of a run reaches until
    /// there, so a list shows deletions that no watcher received. If it is compacted already, a later list has the same objects.
    async fn final_lists(&self, markers: &HashMap<Arc<str>, Revision>) -> Vec<(Collection, WatchEntry)> {
        let mut lists = Vec::new();
        for collection in &self.site.collections {
            let marker = markers[&collection.path];
            for (replica, client) in self.site.clients.iter().enumerate() {
                let start = self.recorder.now();
                let (path, only) = (&collection.path, std::slice::from_ref(collection));
                let list = eventually("the final list", || async {
                    match list(client, path, Some(ListRevision::Exactly(marker)), only).await {
                        Err(error) if error.is_gone() => {
                            list(client, path, Some(ListRevision::NotOlderThan(marker)), only).await
                        }
                        listed => listed,
                    }
                })
                .await;
                let WatchEntry::Listed { objects, .. } = list else { continue };
                let list = WatchEntry::Listed { revision: marker, objects };
                self.record_reads(collection, replica, marker, start, &list);
                lists.push((collection.clone(), list));
            }
        }
        lists
    }

    /// A list is a read of every object that may exist.
    fn record_reads(
        &self,
        collection: &Collection,
        replica: usize,
        marker: Revision,
        start: u64,
        list: &WatchEntry,
    ) {
        let WatchEntry::Listed { objects, .. } = list else { return };
        let names = (0..6).map(|number| format!("ours-{number}")).chain([MARKER.to_owned()]);
        for name in names {
            let key = Key { collection: collection.path.clone(), name: name.into() };
            let outcome =
                objects.get(&key).map_or(Outcome::NotFound, |version: &Version| Outcome::Found(*version));
            self.recorder.record(&key, replica, Action::ReadSince(marker), start, outcome);
        }
    }

    /// The logs of all watchers, and the final lists as one more.
    fn take_logs(&self, objects: &[(Collection, WatchEntry)]) -> Vec<WatchLog> {
        let log = |watcher: &Watcher| {
            let watched = |path: &Arc<str>| watcher.collections().iter().any(|one| one.path == *path);
            let lists = objects.iter().filter(|(collection, _)| watched(&collection.path));
            watcher.take_log(merged(lists.map(|(_, list)| list)))
        };
        let final_lists = objects.iter().map(|(collection, list)| WatchLog {
            watcher: format!("the final list of {}", collection.path),
            collections: vec![collection.path.clone()],
            entries: vec![list.clone()],
        });
        self.watchers.iter().map(log).chain(final_lists).collect()
    }
}

async fn join(tasks: Vec<tokio::task::JoinHandle<Writer>>) -> Vec<Writer> {
    let mut writers = Vec::new();
    for task in tasks {
        writers.push(tokio::time::timeout(TIMEOUT, task).await.expect("the writer ends").unwrap());
    }
    writers
}

/// Watchers of each collection, and of all logical clusters together, with both kinds of initial state. They begin with
/// different replicas.
fn start_watchers(site: &Site, is_free: &watch::Receiver<bool>, count: usize) -> Vec<Watcher> {
    let everywhere: Vec<_> = site.collections.iter().filter(|one| one.is_built_in()).cloned().collect();
    let mut watched: Vec<(&str, Vec<Collection>)> =
        site.collections.iter().map(|collection| (&*collection.path, vec![collection.clone()])).collect();
    watched.push((everywhere[0].everywhere.unwrap(), everywhere.clone()));
    let start = |number: usize| {
        let initial = if number.is_multiple_of(2) { Initial::List } else { Initial::Stream };
        let (path, collections) = watched[number / 2 % watched.len()].clone();
        let mut clients = site.new_clients();
        clients.rotate_left(number % site.replicas.len());
        Watcher::start(clients, path, collections, initial, is_free.clone())
    };
    (0..count).map(start).collect()
}

/// One list of several collections. Nothing was written to a collection after its marker, so the latest revision is right for
/// all.
fn merged<'a>(lists: impl Iterator<Item = &'a WatchEntry>) -> WatchEntry {
    let (mut latest, mut all) = (0, std::collections::BTreeMap::new());
    for list in lists {
        let WatchEntry::Listed { revision, objects } = list else { continue };
        latest = latest.max(*revision);
        all.extend(objects.clone());
    }
    WatchEntry::Listed { revision: latest, objects: all }
}

fn registers(objects: &[(Collection, WatchEntry)]) -> HashMap<Key, Register> {
    let mut registers = HashMap::new();
    for (collection, list) in objects {
        let WatchEntry::Listed { revision, objects } = list else { continue };
        for number in 0..6 {
            let name = format!("ours-{number}").into();
            let key = Key { collection: collection.path.clone(), name };
            registers.insert(key, Register { content: None, revision: *revision });
        }
        for (key, version) in objects {
            let register = Register { content: Some(version.content), revision: version.revision };
            registers.insert(key.clone(), register);
        }
    }
    registers
}
