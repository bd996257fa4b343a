//! SIGKILL at a random time under 32 writers, many times in a row.

use std::collections::HashMap;
use std::sync::Arc;

use fairlead_tests::harness::ShardSettings;
use fairlead_tests::history::{
    Action, History, Key, Outcome, Register, Revision, Version, WatchEntry, WatchLog,
};
use serde_json::json;
use tokio::sync::watch;

use crate::recorder::{Recorder, data};
use crate::site::{Collection, Site, TIMEOUT, eventually};
use crate::watchers::{Initial, Watcher, list};
use crate::writers::Writer;
use crate::{number, seed};

const WRITERS: usize = 32;

/// The object of each collection that only the test itself writes.
const MARKER: &str = "ours-marker";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kills_and_watches_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    // Compaction within the run, so that some watchers must list again.
    let settings =
        ShardSettings { compaction_interval: "1s", verify_at_start: false, ..ShardSettings::default() };
    let site = Site::start(directory.path(), &settings).await;
    let mut run = Run::start(site, random.fork()).await;
    for round in 1..=number("FAULT_ROUNDS", 5) {
        // In some rounds, watchers come back so late that their revisions have expired.
        if round % 20 == 3 {
            run.hold_watchers();
        }
        run.work_and_kill(random.u64(1..1_500), random.u8(..4) == 0).await;
        run.free_watchers().await;
        run.check(round).await;
    }
    run.report();
}

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
    pub async fn start(site: Site, mut random: fastrand::Rng) -> Self {
        let collections = Arc::new(site.collections.clone());
        let recorder = Recorder::new();
        let acknowledged = Arc::new(watch::Sender::new(0));
        let writers = (0..WRITERS).map(|_| Writer {
            client: site.shard.client("").unwrap(),
            collections: collections.clone(),
            recorder: recorder.clone(),
            random: random.fork(),
            acknowledged: acknowledged.clone(),
            known: HashMap::new(),
        });
        let writers = writers.collect();
        let (watchers_are_free, is_free) = watch::channel(true);
        let mut run = Self {
            watchers: watchers(&site, &is_free),
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

    /// Lets the writers work, kills the shard after a number of acknowledgements, and starts it again.
    async fn work_and_kill(&mut self, acknowledgements: u64, is_killed_while_starting: bool) {
        let mut acknowledged = self.acknowledged.subscribe();
        let enough = *acknowledged.borrow() + acknowledgements;
        let tasks = self.spawn_writers();
        tokio::time::timeout(TIMEOUT, acknowledged.wait_for(|count| *count >= enough))
            .await
            .expect("the writers work")
            .unwrap();
        self.site.shard.process.kill().await.unwrap();
        self.writers = join(tasks).await;
        if is_killed_while_starting {
            self.site.shard.process.restart().await.unwrap();
            // A random time, because nothing announces the steps of a start.
            let pause = std::time::Duration::from_millis(self.random.u64(..250));
            tokio::time::sleep(pause).await;
            self.site.shard.process.kill().await.unwrap();
        }
        self.site.shard.process.restart().await.unwrap();
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

    /// Watchers that lose their connection do not come back until they are freed.
    fn hold_watchers(&self) {
        self.watchers_are_free.send_replace(false);
    }

    /// Frees watchers that are held, when the revisions from which they want to resume have expired.
    async fn free_watchers(&self) {
        if *self.watchers_are_free.borrow() {
            return;
        }
        // The markers are the latest changes that every watcher has received.
        let markers = self.initial.iter().filter(|(key, _)| *key.name == *MARKER);
        let oldest = markers.map(|(_, register)| register.revision).min().unwrap_or_default();
        let path =
            format!("{}?resourceVersion={oldest}&resourceVersionMatch=Exact", self.site.collections[0].path);
        eventually("the expiry of a revision", || async {
            match self.site.client.get(&path).await {
                Err(error) if error.is_gone() => Ok(()),
                Err(error) => Err(error.to_string()),
                Ok(_) => Err(format!("revision {oldest} is still served")),
            }
        })
        .await;
        self.watchers_are_free.send_replace(true);
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

    /// Waits until each writer has met a failure.
    pub async fn join(&mut self, tasks: Vec<tokio::task::JoinHandle<Writer>>) {
        self.writers = join(tasks).await;
    }

    pub async fn until_ready(&mut self) {
        self.site.shard.until_ready().await.unwrap();
        self.ready_at.push(self.recorder.now());
    }

    /// Lets all watchers catch up, lists everything, and judges what happened since the last check.
    pub async fn check(&mut self, round: u64) {
        let mut last: HashMap<Arc<str>, Revision> = HashMap::new();
        for collection in &self.site.collections.clone() {
            last.insert(collection.path.clone(), self.write_marker(collection).await);
        }
        for watcher in &mut self.watchers {
            let marker = watcher.collections().iter().map(|collection| last[&collection.path]).max();
            watcher.until(marker.unwrap()).await;
        }
        let mut objects: Vec<(Collection, WatchEntry)> = Vec::new();
        for collection in &self.site.collections {
            let start = self.recorder.now();
            let list =
                list(&self.site.client, &collection.path, std::slice::from_ref(collection)).await.unwrap();
            self.record_reads(collection, start, &list);
            objects.push((collection.clone(), list));
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
        let violations = tokio::task::spawn_blocking(move || history.check()).await.unwrap();
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
    async fn write_marker(&self, collection: &Collection) -> Revision {
        let key = Key { collection: collection.path.clone(), name: MARKER.into() };
        let content = self.recorder.content();
        let start = self.recorder.now();
        let exists = self.initial.get(&key).is_some_and(|register| register.content.is_some());
        let options = fairlead_client::WriteOptions::default();
        let (action, written) = if exists {
            let patch = json!({ "data": data(content) });
            let path = format!("{}/{MARKER}", collection.path);
            let patched = eventually("the marker", || {
                let kind = fairlead_client::PatchType::Merge;
                self.site.client.patch::<serde_json::Value>(&path, kind, &patch, &options)
            });
            (Action::Patch(content), patched.await)
        } else {
            let object = crate::recorder::object(collection, MARKER, content);
            let created = self.site.client.create(&collection.path, &object, &options).await;
            (Action::Create(content), created.unwrap())
        };
        let (_, version) = crate::recorder::read(&written);
        self.recorder.record(&key, action, start, Outcome::Written(version.revision));
        version.revision
    }

    /// A list is a read of every object that may exist.
    fn record_reads(&self, collection: &Collection, start: u64, list: &WatchEntry) {
        let WatchEntry::Listed { objects, .. } = list else { return };
        let names = (0..6).map(|number| format!("ours-{number}")).chain([MARKER.to_owned()]);
        for name in names {
            let key = Key { collection: collection.path.clone(), name: name.into() };
            let outcome =
                objects.get(&key).map_or(Outcome::NotFound, |version: &Version| Outcome::Found(*version));
            self.recorder.record(&key, Action::Read, start, outcome);
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

/// Two watchers per collection, with both kinds of initial state, and two of all logical clusters together.
fn watchers(site: &Site, is_free: &watch::Receiver<bool>) -> Vec<Watcher> {
    let mut watchers = Vec::new();
    let mut start = |path: &str, collections: Vec<Collection>| {
        for initial in [Initial::List, Initial::Stream] {
            let client = site.shard.client("").unwrap();
            watchers.push(Watcher::start(client, path, collections.clone(), initial, is_free.clone()));
        }
    };
    for collection in &site.collections {
        start(&collection.path, vec![collection.clone()]);
    }
    let everywhere: Vec<_> = site.collections.iter().filter(|one| one.is_built_in()).cloned().collect();
    let path = everywhere[0].everywhere.unwrap();
    start(path, everywhere);
    watchers
}

/// One list of several collections. No write happened between them, so the oldest revision is right for all.
fn merged<'a>(lists: impl Iterator<Item = &'a WatchEntry>) -> WatchEntry {
    let (mut oldest, mut all) = (Revision::MAX, std::collections::BTreeMap::new());
    for list in lists {
        let WatchEntry::Listed { revision, objects } = list else { continue };
        oldest = oldest.min(*revision);
        all.extend(objects.clone());
    }
    WatchEntry::Listed { revision: oldest, objects: all }
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
