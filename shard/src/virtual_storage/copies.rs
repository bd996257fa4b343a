//! The copies that the logical clusters of this shard read, in memory.
//!
//! A publication has few objects that many logical clusters read, so a shard reads them from the cache server once. A mirror begins with
//! the first request, and ends when no request has come for a while. A store in memory holds the objects, so that lists, watches, pages
//! and selectors work as for stored objects; its revisions increase from process to process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::object::{EncodedObject, ObjectMetaRef};
use fairlead_apiserver::registry::{ObjectStore, ReadOnly, Registry, StoreRegistry, is_built_in};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::Client;
use fairlead_names::{KeyCodec, Origin};
use fairlead_process::{Shutdown, Status};
use fairlead_store::{Expect, MemoryStore, Mutation, Revision, Store};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::sources::CopySource;
use crate::global::{CacheResource, Mirror, MirrorEvent};

/// The longest time that a request waits for the first read of its copies.
const FIRST_READ: Duration = Duration::from_secs(10);
/// The time without requests after which a mirror ends.
const IDLE: Duration = Duration::from_secs(600);
/// The pause between checks for idle mirrors.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// Commits per second of uptime up to which no revision is used again after a restart.
const REVISIONS_PER_SECOND: u64 = 1 << 20;

const CODEC: KeyCodec = KeyCodec::new("/copies", 1, is_built_in);
const ANNOTATIONS: &[&str] = &[annotation::CLUSTER];

/// The copies that are read.
pub(crate) struct PublishedCopies {
    objects: ObjectStore,
    hub: Hub,
    /// Reads the copies of a mirror in its scope.
    pub(super) registry: Arc<dyn Registry>,
    mirrors: Mutex<FxHashMap<CopySource, Arc<CopyMirror>>>,
    started: mpsc::UnboundedSender<Arc<CopyMirror>>,
    /// The number of mirrors that were started. Each has a scope of its own.
    count: AtomicU64,
}

/// Mirrors that are to be started.
pub(crate) struct NewMirrors(mpsc::UnboundedReceiver<Arc<CopyMirror>>);

/// The copies of one publication.
struct CopyMirror {
    source: CopySource,
    scope: Scope,
    state: watch::Sender<MirrorState>,
    usage: Mutex<Usage>,
}

struct Usage {
    readers: usize,
    last: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MirrorState {
    /// The copies have not been read yet.
    Reading,
    /// All copies were read once.
    Current,
    /// The mirror is being removed.
    Stopped,
}

/// A reader of a mirror, which does not end meanwhile.
pub(super) struct Reader(Arc<CopyMirror>);

impl Reader {
    fn of(mirror: &Arc<CopyMirror>) -> Self {
        mirror.usage.lock().readers += 1;
        Self(Arc::clone(mirror))
    }

    /// The scope and the origin of the copies.
    pub(super) fn location(&self) -> (Scope, Origin) {
        (self.0.scope.clone(), self.0.origin())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.readers -= 1;
        usage.last = Instant::now();
    }
}

impl CopyMirror {
    fn origin(&self) -> Origin {
        Origin::Identity(Arc::clone(&self.source.identity))
    }

    fn is_idle(&self, now: Instant) -> bool {
        let usage = self.usage.lock();
        usage.readers == 0 && now.duration_since(usage.last) >= IDLE
    }

    async fn stopped(&self) {
        let mut state = self.state.subscribe();
        // The sender is part of this mirror.
        let _ = state.wait_for(|state| *state == MirrorState::Stopped).await;
    }
}

impl PublishedCopies {
    /// No copies. They are read while [`run`](Self::run) and the hub are awaited.
    pub(crate) fn new() -> (Arc<Self>, NewMirrors) {
        let seconds = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let first = Revision(seconds.saturating_mul(REVISIONS_PER_SECOND));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::starting_at(first));
        let objects = ObjectStore::new(store.clone(), CODEC, ANNOTATIONS);
        let hub = Hub::new(store, CODEC, HubOptions::default());
        let registry = Arc::new(StoreRegistry::new(objects.clone(), hub.clone(), Arc::new(ReadOnly)));
        let (started, new) = mpsc::unbounded_channel();
        let (mirrors, count) = (Mutex::default(), AtomicU64::new(0));
        (Arc::new(Self { objects, hub, registry, mirrors, started, count }), NewMirrors(new))
    }

    /// The store, for its compaction.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.objects.store())
    }

    /// The hub of the watches of copies.
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The copies of a source. Waits for the first read of them.
    ///
    /// # Errors
    /// 503 if the cache server does not respond.
    pub(super) async fn open(&self, source: &CopySource) -> Result<Reader, Status> {
        let reader = self.reader(source);
        let mut state = reader.0.state.subscribe();
        let first_read =
            async { state.wait_for(|state| *state != MirrorState::Reading).await.map(|state| *state) };
        match timeout(FIRST_READ, first_read).await {
            Ok(Ok(MirrorState::Current)) => Ok(reader),
            _ => {
                let message = format!("the copies of {} cannot be read yet", source.resource);
                Err(Status::service_unavailable(message, 1))
            }
        }
    }

    fn reader(&self, source: &CopySource) -> Reader {
        let mut mirrors = self.mirrors.lock();
        if let Some(mirror) = mirrors.get(source) {
            return Reader::of(mirror);
        }
        let mirror = Arc::new(CopyMirror {
            source: source.clone(),
            scope: Scope::new(&self.count.fetch_add(1, Ordering::Relaxed).to_string()),
            state: watch::Sender::new(MirrorState::Reading),
            usage: Mutex::new(Usage { readers: 0, last: Instant::now() }),
        });
        mirrors.insert(source.clone(), Arc::clone(&mirror));
        // The receiver is gone only while the process drains.
        let _ = self.started.send(Arc::clone(&mirror));
        Reader::of(&mirror)
    }

    /// Reads copies from the cache server until the process drains.
    pub(crate) async fn run(self: Arc<Self>, client: Client, mut new: NewMirrors, shutdown: Shutdown) {
        let mut followed = FuturesUnordered::new();
        let mut checks = tokio::time::interval(IDLE_CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => return,
                Some(mirror) = new.0.recv() => followed.push(self.follow(client.clone(), mirror)),
                Some(()) = followed.next(), if !followed.is_empty() => {}
                now = checks.tick() => self.stop_idle(now),
            }
        }
    }

    fn stop_idle(&self, now: Instant) {
        // Under the lock, so that no reader comes between the check and the end.
        let mirrors = self.mirrors.lock();
        for mirror in mirrors.values().filter(|mirror| mirror.is_idle(now)) {
            mirror.state.send_replace(MirrorState::Stopped);
        }
    }

    async fn follow(&self, client: Client, mirror: Arc<CopyMirror>) {
        tokio::select! {
            () = mirror.stopped() => {}
            () = self.mirror(client, &mirror) => {}
        }
        // No later revision may continue a watch or a list of this mirror: its successor has no history of the time between.
        self.replace(&mirror, Vec::new()).await;
        let store = self.objects.store();
        let last = store.revision();
        // The hub ends if events are discarded before it has read them. It is closed only while the process drains.
        if self.hub.wait(last).await.is_ok()
            && let Err(error) = store.compact(last).await
        {
            tracing::error!(%error, "the store of copies cannot be compacted");
        }
        self.mirrors.lock().remove(&mirror.source);
    }

    async fn mirror(&self, client: Client, mirror: &CopyMirror) {
        let CopySource { shard, cluster, resource, version, identity } = &mirror.source;
        let collection = CacheResource::published(resource, version, identity).collection(shard, cluster);
        let mut events = Mirror::<Value>::open(client, collection).await;
        loop {
            match events.next().await {
                MirrorEvent::Replaced { items: copies, .. } => {
                    self.replace(mirror, copies).await;
                    mirror.state.send_if_modified(|state| {
                        let is_first = *state == MirrorState::Reading;
                        if is_first {
                            *state = MirrorState::Current;
                        }
                        is_first
                    });
                }
                MirrorEvent::Applied(copy) => {
                    self.commit(self.put(mirror, copy)).await;
                }
                MirrorEvent::Deleted(copy) => {
                    let name = copy["metadata"]["name"].as_str().unwrap_or_default();
                    self.commit([Mutation::delete(self.key(mirror, name), Expect::Any)]).await;
                }
                MirrorEvent::Reopened => {}
            }
        }
    }

    async fn replace(&self, mirror: &CopyMirror, copies: Vec<Value>) {
        let name = |copy: &Value| copy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let kept: std::collections::HashSet<String> = copies.iter().map(name).collect();
        let mut mutations = Vec::new();
        let one = ScopeSelector::One(mirror.scope.clone());
        let read = self.objects.for_each(&mirror.source.resource, &mirror.origin(), &one, &mut |listed| {
            if let Ok(meta) = ObjectMetaRef::parse(listed.object)
                && !kept.contains(&*meta.name)
            {
                mutations.push(Mutation::delete(self.key(mirror, &meta.name), Expect::Any));
            }
        });
        if let Err(status) = read {
            tracing::error!(%status, "copies cannot be listed");
        }
        self.commit(mutations).await;
        for copy in copies {
            self.commit(self.put(mirror, copy)).await;
        }
    }

    /// The write of a copy without what the cache server has added. `None` if it is stored already.
    fn put(&self, mirror: &CopyMirror, mut copy: Value) -> Option<Mutation> {
        let name = copy["metadata"]["name"].as_str()?.to_owned();
        if let Some(annotations) = copy["metadata"]["annotations"].as_object_mut() {
            for added in
                [annotation::CACHE_SHARD, annotation::ORIGINAL_RESOURCE_VERSION, annotation::ORIGINAL_UID]
            {
                annotations.remove(added);
            }
        }
        let owners = copy["metadata"]["managedFields"].take();
        let owners = if owners.is_array() { owners.to_string() } else { String::new() };
        let encoded: EncodedObject = match self.objects.encode_managed(copy, 0, owners.as_bytes()) {
            Ok(encoded) => encoded,
            Err(status) => {
                tracing::error!(%name, %status, "a copy is malformed");
                return None;
            }
        };
        let key = self.key(mirror, &name);
        let known = self.objects.get_by_key(&key, &mirror.scope).ok().flatten();
        let is_new = known.is_none_or(|known| known.object != encoded);
        is_new.then(|| Mutation::put(key, encoded.stored().clone()))
    }

    fn key(&self, mirror: &CopyMirror, name: &str) -> bytes::Bytes {
        let resource = &mirror.source.resource;
        self.objects.key(resource, &mirror.origin(), mirror.scope.as_str(), None, name)
    }

    async fn commit(&self, mutations: impl IntoIterator<Item = Mutation>) {
        if let Err(error) = self.objects.commit_each(mutations.into_iter().collect()).await {
            tracing::error!(%error, "copies cannot be stored");
        }
    }
}

#[cfg(test)]
impl PublishedCopies {
    /// The names of the copies of a source that are in memory.
    pub(super) fn names(&self, source: &CopySource) -> Vec<String> {
        let Some(mirror) = self.mirrors.lock().get(source).cloned() else { return Vec::new() };
        let mut names = Vec::new();
        let one = ScopeSelector::One(mirror.scope.clone());
        let listed = self.objects.for_each(&source.resource, &mirror.origin(), &one, &mut |listed| {
            names.extend(ObjectMetaRef::parse(listed.object).map(|meta| meta.name.to_string()));
        });
        listed.map_or_else(|_| Vec::new(), |()| names)
    }

    /// Stops the mirrors that will be idle after a time.
    pub(super) fn stop_idle_after(&self, time: Duration) {
        self.stop_idle(Instant::now() + time);
    }
}
