//! The store under test: in memory, a file, or a prefix of an etcd. `FAIRLEAD_TEST_STORE` chooses it.
//!
//! The clock of the tests is paused: it jumps to the next timer as soon as every task waits. A file and an etcd take real
//! time, so their work is done on a runtime of its own, and the clock stands still meanwhile.

use std::collections::VecDeque;
use std::future::Future;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use fairlead_store::{
    Advance, Batch, Change, Changes, CommitError, CompactError, Expect, FollowError, Follower, Limits, Log,
    MemoryStore, Mutation, Page, Range, ReadError, Record, RecordRef, RedbOptions, RedbStore, Revision,
    Stats, Store,
};
use fairlead_store_etcd::{EtcdOptions, EtcdStore, Timing};
use fairlead_tests::harness::{TestStore, shared_etcd};
use futures_util::FutureExt as _;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{RwLock, watch};
use tokio::task::JoinHandle;

/// Batches that a follower reads at once.
const CHUNK: usize = 64;

/// The runtime of files and etcds. Its clock is the real one.
static REAL_TIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// A store without keys, of the chosen kind; in memory if none is chosen.
pub(crate) fn new_store() -> Arc<dyn Store> {
    match TestStore::chosen().unwrap() {
        None | Some(TestStore::Memory) => Arc::new(MemoryStore::new()),
        Some(TestStore::Redb) => {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store.redb");
            let store = RedbStore::open(path, RedbOptions::default()).unwrap();
            Arc::new(RealTimeStore::new(store, Some(folder)))
        }
        Some(TestStore::Etcd) => {
            let etcd = shared_etcd().unwrap();
            // Nothing is written behind the back of a test, and a slow machine is no outage.
            let long = Duration::from_secs(3600);
            let timing = Timing {
                barrier: long,
                heartbeat: long,
                request: Duration::from_secs(60),
                ..Timing::default()
            };
            let (endpoints, prefix) = (etcd.endpoints(), etcd.new_prefix());
            let options = EtcdOptions { endpoints, prefix, timing, ..EtcdOptions::default() };
            Arc::new(RealTimeStore::new(wait(open_in_etcd(options)), None))
        }
    }
}

/// Held by compactions. One of them compacts the history of every test's prefix.
static COMPACTION: RwLock<()> = RwLock::const_new(());

/// Opens a store whose watch has caught up with etcd. A compaction ends watches that have not, and the hub with them: in a
/// shard it is minutes behind the latest revision, here it is not.
async fn open_in_etcd(options: EtcdOptions) -> EtcdStore {
    let _no_compaction = COMPACTION.read().await;
    let store = EtcdStore::open(options).await.unwrap();
    for change in [Change::Put("".into()), Change::Delete] {
        // It returns when the watch has delivered it.
        store.commit(vec![Mutation { key: "/watched".into(), expect: Expect::Any, change }]).await.unwrap();
    }
    store
}

/// Blocks the thread, and so the paused clock, until a future has completed on the other runtime.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    REAL_TIME.spawn(async move { sender.send(future.await) });
    receiver.recv().unwrap()
}

/// A store on the other runtime, for tasks whose clock is paused. A commit returns when its followers can read it: the clock
/// would jump while they wait for the feed.
struct RealTimeStore {
    store: Arc<dyn Store>,
    /// The feed has delivered everything up to this revision; followers were woken before.
    delivered: watch::Receiver<Revision>,
    /// The same for followers.
    latest_revision: watch::Receiver<Revision>,
    feed: JoinHandle<()>,
    /// It is removed with the store. The parts of a server refer to each other in a circle, so some stores are never dropped.
    _folder: Option<TempDir>,
}

impl RealTimeStore {
    fn new(store: impl Store, folder: Option<TempDir>) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let revision = store.revision();
        let mut follower = store.follow(revision).unwrap();
        let (announce, latest_revision) = watch::channel(revision);
        let (deliver, delivered) = watch::channel(revision);
        let feed = REAL_TIME.spawn(async move {
            while follower.advance().await.is_ok() {
                // The order matters: a commit that has returned has woken the followers.
                announce.send_replace(follower.position());
                deliver.send_replace(follower.position());
            }
        });
        Self { store, delivered, latest_revision, feed, _folder: folder }
    }
}

/// Runs a future on the other runtime. The paused clock of the calling one stands still: it does so while a blocking task
/// runs.
async fn in_real_time<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    tokio::task::spawn_blocking(move || REAL_TIME.block_on(future)).await.unwrap()
}

#[async_trait]
impl Store for RealTimeStore {
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        let (store, mut delivered) = (Arc::clone(&self.store), self.delivered.clone());
        in_real_time(async move {
            let revision = store.commit(mutations).await?;
            // An error: the store is closed, and so is its feed.
            let _ = delivered.wait_for(|delivered| *delivered >= revision).await;
            Ok(revision)
        })
        .await
    }

    fn limits(&self) -> Limits {
        self.store.limits()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.store.get(key)
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.store.scan(range, at, visit)
    }

    fn list(
        &self,
        range: &Range,
        limit: Option<NonZeroUsize>,
        at: Option<Revision>,
    ) -> Result<Page, ReadError> {
        self.store.list(range, limit, at)
    }

    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn compacted(&self) -> Revision {
        self.store.compacted()
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.store.follow(after)?;
        let log = Arc::new(Feed(Arc::clone(&self.store)));
        Ok(Follower::new(log, after, self.latest_revision.clone()))
    }

    fn changes(&self, range: &Range, after: Revision, max_rows: usize) -> Result<Option<Changes>, ReadError> {
        self.store.changes(range, after, max_rows)
    }

    async fn compact(&self, below: Revision) -> Result<(), CompactError> {
        let store = Arc::clone(&self.store);
        in_real_time(async move {
            let _no_opening = COMPACTION.write().await;
            store.compact(below).await
        })
        .await
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}

impl Drop for RealTimeStore {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

/// The log of a store, read without waiting.
struct Feed(Arc<dyn Store>);

impl Log for Feed {
    fn batches(&self, after: Revision) -> Result<VecDeque<Arc<Batch>>, FollowError> {
        let mut follower = self.0.follow(after)?;
        let mut batches = VecDeque::new();
        while batches.len() < CHUNK {
            match follower.advance().now_or_never() {
                Some(Ok(Advance::Batch(batch))) => batches.push_back(batch),
                Some(Ok(Advance::Position(_))) => {}
                Some(Err(error)) if batches.is_empty() => return Err(error),
                Some(Err(_)) | None => break,
            }
        }
        Ok(batches)
    }
}
