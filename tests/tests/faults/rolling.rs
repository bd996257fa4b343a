//! Rolling upgrade: each replica of a shard on etcd is drained and replaced in turn, under load through the gateway.
//!
//! Every client reads what it has written, whatever replica serves it; watches are resumed where they ended. With the programs of
//! an older build, replicas of both versions serve side by side, and the upgrade is rolled back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairlead_client::{Client, ClientError, Request, WatchEventKind};
use fairlead_tests::harness::{
    EtcdCluster, EtcdSettings, Installation, ShardSettings, binary, is_left_out, replica,
};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::number;
use crate::site::{TIMEOUT, eventually};

const REPLICAS: usize = 3;
const WORKERS: u64 = 20;
const WATCHERS: usize = 6;
const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";
/// Names of the load's objects; the shard has others.
const PREFIX: &str = "rolling-";
/// The last object, by which a watcher knows that it has seen everything.
const END: &str = "rolling-end";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_replaced_in_turn_without_a_failed_request() {
    if is_left_out("etcd") {
        return;
    }
    let (rate, rounds) = (number("ROLLING_RATE", 100), number("ROLLING_ROUNDS", 1));
    let upgrades = upgrades(rounds);
    let directory = tempfile::tempdir().unwrap();
    let cluster = EtcdCluster::start(directory.path(), 1, &[]).await.unwrap();
    let etcd = EtcdSettings { endpoints: cluster.endpoints(), prefix: "/root".to_owned() };
    let settings = ShardSettings {
        verify_at_start: false,
        drain_window: "2s",
        etcd: Some(etcd),
        build: Some(upgrades[0].clone()),
        ..ShardSettings::default()
    };
    let mut installation = Installation::start_replicas(directory.path(), REPLICAS, &settings).await.unwrap();

    let load = Load::start(&installation, rate).await;
    load.until_more(rate).await;
    for build in &upgrades[1..] {
        println!("to {}", build.display());
        for name in (0..REPLICAS).map(replica) {
            installation.terminate(&name).await.unwrap();
            load.until_more(rate).await;
            installation.set_build(&name, build).unwrap();
            installation.restart(&name).await.unwrap();
            installation.until_ready().await.unwrap();
            let program = std::fs::read_link(format!("/proc/{}/exe", installation.id(&name))).unwrap();
            assert_eq!(program, build.join("fairlead-shard"));
            if upgrades.first() != upgrades.last() {
                // The gateway takes some seconds to use a replica again.
                until_all_have_served(&installation).await;
            }
            load.until_more(rate).await;
        }
    }
    let failures = load.end().await;
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}

/// The folders of the builds that the replicas run in turn. Without `ROLLING_OLD_BIN_DIR`, it is the same build again; otherwise
/// each round upgrades the older build in that folder, and all but the last one are rolled back: one at least.
fn upgrades(rounds: u64) -> Vec<PathBuf> {
    let folder = |program: PathBuf| program.canonicalize().unwrap().parent().unwrap().to_owned();
    let own = folder(binary("fairlead-shard").unwrap());
    let rounds = usize::try_from(rounds).unwrap();
    match std::env::var_os("ROLLING_OLD_BIN_DIR") {
        None => vec![own; rounds + 1],
        Some(old) => {
            let old = folder(PathBuf::from(old).join("fairlead-shard"));
            assert_ne!(old, own, "ROLLING_OLD_BIN_DIR is the folder of this build");
            [old, own].into_iter().cycle().take(2 * rounds.max(2)).collect()
        }
    }
}

/// Waits until each replica has responded to further requests of the load.
async fn until_all_have_served(installation: &Installation) {
    for name in (0..REPLICAS).map(replica) {
        let before = served(installation, &name).await;
        eventually(&format!("requests served by {name}"), || async {
            let now = served(installation, &name).await;
            if now > before { Ok(()) } else { Err(format!("{now} as before")) }
        })
        .await;
    }
}

/// The requests for config maps that a replica has responded to, by its metrics.
async fn served(installation: &Installation, name: &str) -> f64 {
    let client = installation.direct(name, "").unwrap();
    let metrics = client.get("/metrics").await.unwrap();
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let series = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("resource=\"configmaps\"")
    });
    series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Clients that write, read and watch config maps.
struct Load {
    shared: Arc<Shared>,
    client: Client,
    began: Instant,
    requests: watch::Receiver<u64>,
    workers: JoinSet<()>,
    watchers: JoinSet<BTreeMap<String, String>>,
}

struct Shared {
    is_over: AtomicBool,
    requests: watch::Sender<u64>,
    slowest_milliseconds: AtomicU64,
    resumed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    async fn start(installation: &Installation, rate: u64) -> Self {
        let (sender, requests) = watch::channel(0);
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            requests: sender,
            slowest_milliseconds: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            failures: Mutex::default(),
        });
        // Each has connections of its own, to different threads of the gateway.
        let client = || installation.admin("").unwrap();
        let (mut workers, mut watchers) = (JoinSet::new(), JoinSet::new());
        for _ in 0..WATCHERS {
            watchers.spawn(follow(shared.clone(), client()));
        }
        let pause = Duration::from_secs(1).mul_f64(WORKERS as f64 / rate.max(1) as f64);
        for index in 0..WORKERS {
            let worker = Worker { shared: shared.clone(), client: client(), index };
            workers.spawn(worker.run(pause));
        }
        Self { shared, client: client(), began: Instant::now(), requests, workers, watchers }
    }

    /// Waits for a number of further requests.
    async fn until_more(&self, count: u64) {
        let mut requests = self.requests.clone();
        let enough = *requests.borrow() + count;
        let reached = requests.wait_for(|count| *count >= enough);
        timeout(TIMEOUT, reached).await.expect("the clients make no progress").unwrap();
    }

    /// Ends the load and compares what the watchers have seen; returns the failures of all clients.
    async fn end(mut self) -> Vec<String> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(worker) = self.workers.join_next().await {
            worker.unwrap();
        }
        let (count, took) = (*self.requests.borrow(), self.began.elapsed());
        write(&self.client, Method::POST, CONFIG_MAPS, &config_map(END, "1")).await.unwrap();
        let (_, expected) = list(&self.client).await.unwrap();
        while let Some(seen) = timeout(TIMEOUT, self.watchers.join_next()).await.expect("a watcher is stuck")
        {
            let seen = seen.unwrap();
            if seen != expected {
                let message = format!("a watcher has seen {seen:?} in place of {expected:?}");
                self.shared.failures.lock().unwrap().push(message);
            }
        }
        println!(
            "{count} requests in {took:.1?} ({:.0} per second), slowest {} ms, {} watches resumed",
            count as f64 / took.as_secs_f64(),
            self.shared.slowest_milliseconds.load(Ordering::Relaxed),
            self.shared.resumed.load(Ordering::Relaxed),
        );
        std::mem::take(&mut *self.shared.failures.lock().unwrap())
    }
}

impl Shared {
    fn failed(&self, what: &str, error: &dyn std::fmt::Display) {
        self.failures.lock().unwrap().push(format!("{what}: {error}"));
    }

    /// Counts a request, and its failure.
    async fn observe<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Option<T> {
        let began = Instant::now();
        let outcome = request.await;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.slowest_milliseconds.fetch_max(took, Ordering::Relaxed);
        self.requests.send_modify(|count| *count += 1);
        outcome.inspect_err(|error| self.failed(what, error)).ok()
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: Client,
    index: u64,
}

impl Worker {
    async fn run(self, pause: Duration) {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0;
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let name = format!("rolling-{}-{round}", self.index);
            // A round ends with its first failure, which is recorded.
            let _ = self.round(&name, &mut ticks).await;
            round += 1;
        }
    }

    /// Writes an object and reads it after each write.
    async fn round(&self, name: &str, ticks: &mut tokio::time::Interval) -> Option<()> {
        let path = format!("{CONFIG_MAPS}/{name}");
        ticks.tick().await;
        let new = config_map(name, "1");
        let create = write(&self.client, Method::POST, CONFIG_MAPS, &new);
        let created = self.shared.observe("create", create).await?;
        ticks.tick().await;
        let read = self.shared.observe("get", read(&self.client, &path)).await?;
        self.expect("get after create", &version(&read), &version(&created));
        ticks.tick().await;
        let mut changed = config_map(name, "2");
        changed["metadata"]["resourceVersion"] = version(&created).into();
        let update = write(&self.client, Method::PUT, &path, &changed);
        let updated = self.shared.observe("update", update).await?;
        ticks.tick().await;
        let (_, listed) = self.shared.observe("list", list(&self.client)).await?;
        self.expect("list after update", listed.get(name).map_or("", String::as_str), &version(&updated));
        ticks.tick().await;
        let delete = self.client.request(Request::new(Method::DELETE, &path));
        self.shared.observe("delete", delete).await?;
        ticks.tick().await;
        let (_, listed) = self.shared.observe("list", list(&self.client)).await?;
        self.expect("list after delete", listed.get(name).map_or("", String::as_str), "");
        Some(())
    }

    fn expect(&self, what: &str, found: &str, expected: &str) {
        if found != expected {
            self.shared.failed(what, &format!("found version {found:?} in place of {expected:?}"));
        }
    }
}

/// Lists and watches until the last object; returns the versions of the objects that it has seen and that were not deleted.
async fn follow(shared: Arc<Shared>, client: Client) -> BTreeMap<String, String> {
    let (mut revision, mut seen) = list(&client).await.unwrap();
    loop {
        let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}");
        let mut events = match client.watch(&path).await {
            Ok(events) => events,
            Err(error) => {
                shared.failed("watch", &error);
                return seen;
            }
        };
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) if event.kind != WatchEventKind::Error => event,
                Ok(event) => {
                    shared.failed("watch event", &format!("{:?}", event.status()));
                    return seen;
                }
                Err(error) => {
                    shared.failed("watch event", &error);
                    return seen;
                }
            };
            let object: Value = serde_json::from_slice(&event.object).unwrap();
            revision = version(&object);
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match event.kind {
                _ if !name.starts_with(PREFIX) => {}
                WatchEventKind::Added | WatchEventKind::Modified => {
                    let is_end = name == END;
                    seen.insert(name, revision.clone());
                    if is_end {
                        return seen;
                    }
                }
                WatchEventKind::Deleted => _ = seen.remove(&name),
                WatchEventKind::Bookmark | WatchEventKind::Error => {}
            }
        }
        shared.resumed.fetch_add(1, Ordering::Relaxed);
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

async fn write(client: &Client, method: Method, path: &str, object: &Value) -> Result<Value, ClientError> {
    let request = Request::new(method, path).with_body("application/json", object.to_string());
    Ok(serde_json::from_slice(&client.request(request).await?.body).unwrap())
}

async fn read(client: &Client, path: &str) -> Result<Value, ClientError> {
    Ok(serde_json::from_slice(&client.get(path).await?.body).unwrap())
}

/// The revision of the list, and the versions of its objects by name.
async fn list(client: &Client) -> Result<(String, BTreeMap<String, String>), ClientError> {
    let list = read(client, CONFIG_MAPS).await?;
    let objects = list["items"].as_array().into_iter().flatten();
    let versions = objects
        .map(|object| (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(object)));
    Ok((version(&list), versions.filter(|(name, _)| name.starts_with(PREFIX)).collect()))
}
