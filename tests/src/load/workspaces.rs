//! Concurrent creation of workspaces: the time until they are ready, their cost, and whether they can be used as soon as
//! the client receives Ready.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairlead_client::{
    Client, ClientError, Endpoint, Event, Ignored, ListWatch, ObjectMeta, Reflector, ReflectorOptions,
    RetryPolicy, WriteOptions, retry,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::proc::{cpu_rows, mebibytes, sample_all};
use super::{Latencies, LoadError, Sample, Table, Target};

/// Creations in the workspace that the kubeconfig's context names.
#[derive(Debug, Clone)]
pub struct WorkspaceLoad {
    /// Number of clients, each with one creation at a time.
    pub clients: usize,
    /// Total number of workspaces.
    pub count: usize,
    /// Number of workspaces after which the memory comparison starts.
    pub settled_after: usize,
    /// Names are `<prefix>-<number>`.
    pub name_prefix: String,
    /// The type, below root.
    pub type_name: String,
}

/// Creates workspaces, waits for Ready through one watch, and reads from each workspace at once.
pub async fn measure_workspaces(target: &Target, load: &WorkspaceLoad) -> Result<Table, LoadError> {
    let waiting = Arc::new(Waiting::default());
    let follower = tokio::spawn(follow(target.connection(), waiting.clone()));
    let course = Arc::new(MemoryCourse::new(target, load.settled_after)?);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let creators: Vec<_> = (0..load.clients)
        .map(|_| {
            let creator = Creator {
                client: target.connection(),
                foreign: target.without_prefix().connection(),
                load: load.clone(),
                waiting: waiting.clone(),
                course: course.clone(),
                next: next.clone(),
            };
            tokio::spawn(creator.run())
        })
        .collect();
    let mut outcome = Outcome::default();
    for creator in creators {
        outcome.merge(creator.await??);
    }
    let elapsed = start.elapsed().as_secs_f64();
    follower.abort();
    outcome.table(target, load, &course, elapsed)
}

/// A client that creates workspaces.
struct Creator {
    client: Client,
    /// A client of the server's root: workspaces are addressed by the path in their URL.
    foreign: Client,
    load: WorkspaceLoad,
    waiting: Arc<Waiting>,
    course: Arc<MemoryCourse>,
    next: Arc<AtomicUsize>,
}

impl Creator {
    async fn run(self) -> Result<Outcome, LoadError> {
        let mut outcome = Outcome::default();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.load.count {
                return Ok(outcome);
            }
            let name = format!("{}-{number}", self.load.name_prefix);
            let ready = self.waiting.for_ready(&name);
            let start = Instant::now();
            self.create(&name).await?;
            outcome.created.add(start.elapsed());
            let patience = Duration::from_secs(120);
            let Ok(Ok(url)) = tokio::time::timeout(patience, ready).await else {
                return Err(LoadError::Unexpected(format!(
                    "workspace {name} did not become ready in {patience:?}"
                )));
            };
            outcome.ready.add(start.elapsed());
            outcome.note_first_read(self.read_from(&url).await);
            self.course.one_more()?;
        }
    }

    async fn create(&self, name: &str) -> Result<(), ClientError> {
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": { "name": name },
            "spec": { "type": { "name": self.load.type_name, "path": "root" } },
        });
        let options = WriteOptions::default();
        // Repeating the name is harmless: after a lost acknowledgement the response is AlreadyExists.
        let policy = RetryPolicy::default();
        let create = || async { self.client.create::<Value>(COLLECTION, &object, &options).await };
        match retry(&policy, create).await {
            Err(error) if error.is_already_exists() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn read_from(&self, url: &str) -> Result<(), ClientError> {
        let prefix = Endpoint::parse(url).map(|endpoint| endpoint.prefix().to_owned()).unwrap_or_default();
        let path = format!("{prefix}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster");
        self.foreign.get(&path).await.map(drop)
    }
}

const COLLECTION: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// The results of the clients.
#[derive(Default)]
struct Outcome {
    created: Latencies,
    ready: Latencies,
    forbidden: usize,
    failed: usize,
    example: Option<String>,
}

impl Outcome {
    fn note_first_read(&mut self, read: Result<(), ClientError>) {
        let Err(error) = read else { return };
        if error.code() == Some(403) {
            self.forbidden += 1;
        } else {
            self.failed += 1;
        }
        self.example.get_or_insert_with(|| error.to_string());
    }

    fn merge(&mut self, other: Self) {
        self.created.merge(other.created);
        self.ready.merge(other.ready);
        self.forbidden += other.forbidden;
        self.failed += other.failed;
        self.example = self.example.take().or(other.example);
    }

    fn table(
        mut self,
        target: &Target,
        load: &WorkspaceLoad,
        course: &MemoryCourse,
        elapsed: f64,
    ) -> Result<Table, LoadError> {
        let mut table = Table::default();
        let note = format!("{} workspaces, {} clients", load.count, load.clients);
        table.push("workspaces ready per second", format!("{:.0}", load.count as f64 / elapsed), &note);
        table.push("workspace ready", self.ready.summary(), format!("p50 / p90 / p99 / max; {note}"));
        table.push("workspace created", self.created.summary(), "p50 / p90 / p99 / max until acknowledged");
        let example = self.example.take().unwrap_or_default();
        table.push(
            "403s after Ready",
            format!("{}", self.forbidden),
            format!("of {}; {example}", load.count),
        );
        table.push("other failures after Ready", format!("{}", self.failed), "");
        cpu_rows(&mut table, "workspace", &target.processes, &course.begin, load.count as u64, &note);
        course.memory_rows(&mut table)?;
        Ok(table)
    }
}

/// Memory at the start, after the workspaces that fill caches, and at the end.
struct MemoryCourse {
    target: Target,
    begin: Vec<Sample>,
    settled_after: usize,
    settled: Mutex<Option<Vec<Sample>>>,
    done: AtomicUsize,
}

impl MemoryCourse {
    fn new(target: &Target, settled_after: usize) -> Result<Self, LoadError> {
        let begin = sample_all(&target.processes)?;
        Ok(Self {
            target: target.clone(),
            begin,
            settled_after,
            settled: Mutex::default(),
            done: AtomicUsize::new(0),
        })
    }

    fn one_more(&self) -> Result<(), LoadError> {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done == self.settled_after {
            let samples = sample_all(&self.target.processes)?;
            *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(samples);
        }
        if done.is_multiple_of(1000) {
            eprintln!("{done} workspaces are ready");
        }
        Ok(())
    }

    fn memory_rows(&self, table: &mut Table) -> Result<(), LoadError> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (from, before) = match settled {
            Some(samples) => (self.settled_after, samples),
            None => (0, self.begin.clone()),
        };
        let done = self.done.load(Ordering::Relaxed);
        for ((process, before), after) in
            self.target.processes.iter().zip(before).zip(sample_all(&self.target.processes)?)
        {
            let grown = after.resident as f64 - before.resident as f64;
            let each = grown / (done - from).max(1) as f64 / 1024.0;
            let (low, high) = (mebibytes(before.resident), mebibytes(after.resident));
            let note = format!("slope from {from} to {done} workspaces; RSS {low} to {high}");
            table.push(format!("{} memory per workspace", process.name), format!("{each:.2} KiB"), note);
        }
        Ok(())
    }
}

/// The clients that wait for a workspace to become ready, by its name.
#[derive(Default)]
struct Waiting(Mutex<HashMap<String, oneshot::Sender<String>>>);

impl Waiting {
    fn for_ready(&self, name: &str) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), sender);
        receiver
    }

    fn see(&self, workspace: Workspace) {
        if workspace.status.phase != "Ready" {
            return;
        }
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&workspace.metadata.name);
        if let Some(sender) = sender {
            // A client that stopped waiting has reported the timeout already.
            let _ = sender.send(workspace.spec.url);
        }
    }
}

#[derive(Deserialize)]
struct Workspace {
    metadata: ObjectMeta<Ignored>,
    #[serde(default)]
    spec: WorkspaceSpec,
    #[serde(default)]
    status: WorkspaceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkspaceSpec {
    #[serde(rename = "URL")]
    url: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkspaceStatus {
    phase: String,
}

/// Follows one watch for all clients, as a controller would.
async fn follow(client: Client, waiting: Arc<Waiting>) {
    let mut reflector =
        Reflector::<Workspace>::new(client, ListWatch::new(COLLECTION), ReflectorOptions::default());
    loop {
        match reflector.next().await {
            Event::Replaced { items, .. } => items.into_iter().for_each(|workspace| waiting.see(workspace)),
            Event::Applied(workspace) => waiting.see(workspace),
            Event::Deleted(_) | Event::Progress(_) => {}
        }
    }
}
