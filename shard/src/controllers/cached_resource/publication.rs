//! The objects that ClusterCachedResources publish, and the known state of their copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::ServedResource;
use fairlead_apiserver::request::LabelSelector;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};

use super::CachedResourceKey;
use crate::global::CacheResource;
use crate::replication::Replicas;

/// The parts of a ClusterCachedResource that determine its copies, besides the resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PublicationSpec {
    pub(super) version: Box<str>,
    pub(super) identity: Box<str>,
    pub(super) selector: LabelSelector,
}

/// The objects of one ClusterCachedResource and their copies.
pub(super) struct Publication {
    pub(super) key: CachedResourceKey,
    spec: PublicationSpec,
    /// The published resource of the logical cluster.
    pub(super) source: Arc<ServedResource>,
    /// Where the copies are.
    pub(super) target: CacheResource,
    pub(super) replicas: Replicas,
    stopped: watch::Sender<bool>,
    writes: AtomicUsize,
}

/// A write of a copy. A publication that is stopped lets no others begin.
pub(super) struct CopyWrite<'p>(&'p Publication);

impl Publication {
    pub(super) fn version(&self) -> &str {
        &self.spec.version
    }

    pub(super) fn labels(&self) -> &LabelSelector {
        &self.spec.selector
    }

    /// Whether an object is published.
    pub(super) fn selects(&self, meta: &ObjectMetaRef<'_>) -> bool {
        self.spec.selector.selects(|key| meta.label(key))
    }

    /// Begins a write. `None`: the publication is stopped.
    pub(super) fn begin_write(&self) -> Option<CopyWrite<'_>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let write = CopyWrite(self);
        (!*self.stopped.borrow()).then_some(write)
    }

    /// Completes when the publication is stopped.
    pub(super) async fn stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        // The sender is part of this publication.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    fn stop(&self) {
        self.stopped.send_replace(true);
    }
}

impl Drop for CopyWrite<'_> {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The publications of this shard.
pub(super) struct Publications {
    known: Mutex<FxHashMap<CachedResourceKey, Arc<Publication>>>,
    started: mpsc::UnboundedSender<Arc<Publication>>,
}

impl Publications {
    /// `started` gets each new publication.
    pub(super) fn new(started: mpsc::UnboundedSender<Arc<Publication>>) -> Self {
        Self { known: Mutex::default(), started }
    }

    pub(super) fn get(&self, key: &CachedResourceKey) -> Option<Arc<Publication>> {
        self.known.lock().get(key).cloned()
    }

    /// The publication of a ClusterCachedResource. It is started if there is none, or another one.
    pub(super) fn start(
        &self,
        key: &CachedResourceKey,
        spec: PublicationSpec,
        source: Arc<ServedResource>,
    ) -> Arc<Publication> {
        let mut known = self.known.lock();
        if let Some(publication) = known.get(key) {
            let is_same = publication.spec == spec
                && publication.source.key == source.key
                && publication.source.origin == source.origin;
            if is_same && !*publication.stopped.borrow() {
                return Arc::clone(publication);
            }
            publication.stop();
        }
        let publication = Arc::new(Publication {
            key: key.clone(),
            target: CacheResource::published(&source.name, &spec.version, &spec.identity),
            spec,
            source,
            replicas: Replicas::default(),
            stopped: watch::Sender::new(false),
            writes: AtomicUsize::new(0),
        });
        known.insert(key.clone(), Arc::clone(&publication));
        // The receiver is gone only while the process drains.
        let _ = self.started.send(Arc::clone(&publication));
        publication
    }

    /// Stops a publication. Returns whether a write is running that has begun before.
    pub(super) fn stop(&self, key: &CachedResourceKey) -> bool {
        let publication = self.get(key);
        publication.is_some_and(|publication| {
            publication.stop();
            publication.writes.load(Ordering::SeqCst) > 0
        })
    }

    /// Stops and forgets a publication.
    pub(super) fn remove(&self, key: &CachedResourceKey) {
        if let Some(publication) = self.known.lock().remove(key) {
            publication.stop();
        }
    }
}
