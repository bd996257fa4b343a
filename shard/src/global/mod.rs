//! Replicas of other shards' objects, read from the cache server and held in memory: few objects, read often.
//!
//! One reflector per resource reads the replicas of all shards. While the cache server is down, the last state stays.
//! Without a cache server the view is empty.
//!
//! A cache server whose store was lost is empty at first, and its shards fill it again. What it does not have yet counts as
//! unknown, not as deleted: the view keeps a replica of the old store until its shard has had [`REFILL_TIME`] to write it.
//! Otherwise bindings would lose their exports for a moment, and tenants their rights. A shard that is down writes nothing,
//! so its replicas stay. An object that was deleted meanwhile stays that much longer.

mod cache_api;
mod mirror;
mod replicas;
#[cfg(test)]
pub(crate) mod test_cache;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fairlead_client::Client;
use fairlead_names::ResourceName;
use fairlead_process::Shutdown;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use self::replicas::Replicas;

pub(crate) use self::cache_api::CacheResource;
pub(crate) use self::mirror::{Mirror, MirrorEvent};

/// The replicated resources that are read, with their API version.
const RESOURCES: [(&str, &str, &str); 17] = [
    ("core.kcp.io", "v1alpha1", "shards"),
    ("core.kcp.io", "v1alpha1", "logicalclusters"),
    ("tenancy.kcp.io", "v1alpha1", "workspacetypes"),
    ("apis.kcp.io", "v1alpha1", "apiconversions"),
    ("apis.kcp.io", "v1alpha1", "apiexportendpointslices"),
    ("cache.kcp.io", "v1alpha1", "clustercachedresourceendpointslices"),
    ("cache.kcp.io", "v1alpha1", "clustercachedresources"),
    ("apis.kcp.io", "v1alpha2", "apiexports"),
    ("apis.kcp.io", "v1alpha1", "apiresourceschemas"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
];

/// How long a shard may take to write its replicas to a new store of the cache server, from its first one on.
const REFILL_TIME: Duration = Duration::from_secs(60);
/// How often it is checked whether a shard has had that time.
const REFILL_CHECKS: Duration = Duration::from_secs(10);

/// Called with the logical cluster whose objects of a resource changed, after the view shows the change.
pub(crate) type ChangeObserver = Box<dyn Fn(&str) + Send + Sync>;

/// The replicas of all shards.
pub(crate) struct GlobalView {
    objects: FxHashMap<ResourceName, RwLock<Replicas>>,
    observers: RwLock<FxHashMap<ResourceName, Vec<ChangeObserver>>>,
    generation: watch::Sender<u64>,
    synced: AtomicUsize,
    /// Shards whose replicas of an older store are kept, and since when they have been writing to the new one.
    refilling: Mutex<FxHashMap<Box<str>, Instant>>,
}

impl GlobalView {
    /// An empty view.
    pub(crate) fn new() -> Arc<Self> {
        let names = RESOURCES.map(|(group, _, resource)| ResourceName::new(group, resource));
        Arc::new(Self {
            objects: names.into_iter().map(|name| (name, RwLock::default())).collect(),
            observers: RwLock::default(),
            generation: watch::Sender::new(0),
            synced: AtomicUsize::new(0),
            refilling: Mutex::default(),
        })
    }

    /// The newest replica of an object. Costs two map look-ups.
    pub(crate) fn get(&self, resource: &ResourceName, cluster: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(resource)?.read().get(cluster, name)
    }

    /// The replicas of a resource, of one logical cluster or of all, in the order of logical clusters and names.
    pub(crate) fn list(&self, resource: &ResourceName, cluster: Option<&str>) -> Vec<Arc<Value>> {
        self.objects.get(resource).map(|replicas| replicas.read().list(cluster)).unwrap_or_default()
    }

    /// A counter that increases with every change.
    #[cfg(test)]
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Registers an observer for changes of a resource. It must return quickly and must not register other observers.
    pub(crate) fn on_change(&self, resource: ResourceName, observer: ChangeObserver) {
        self.observers.write().entry(resource).or_default().push(observer);
    }

    /// The number of observers of each resource.
    pub(crate) fn observers(&self) -> FxHashMap<ResourceName, usize> {
        self.observers
            .read()
            .iter()
            .map(|(resource, observers)| (resource.clone(), observers.len()))
            .collect()
    }

    /// Removes the observers that were registered after they were counted.
    pub(crate) fn remove_observers_after(&self, counts: &FxHashMap<ResourceName, usize>) {
        self.observers.write().retain(|resource, observers| {
            observers.truncate(counts.get(resource).copied().unwrap_or_default());
            !observers.is_empty()
        });
    }

    /// Whether every resource was read at least once.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) == RESOURCES.len()
    }

    /// Waits until every resource was read at least once.
    pub(crate) async fn synced(&self) {
        // The view owns the sender, so the channel is open.
        let _ = self.generation.subscribe().wait_for(|_| self.is_synced()).await;
    }

    /// Follows the cache server until the process drains.
    pub(crate) async fn run(&self, client: Client, shutdown: Shutdown) {
        let following = RESOURCES.map(|(group, version, resource)| {
            self.follow(client.clone(), CacheResource::new(group, version, resource))
        });
        tokio::select! {
            () = shutdown.draining() => {}
            _ = join_all(following) => {}
            () = self.release_periodically() => {}
        }
    }

    async fn follow(&self, client: Client, resource: CacheResource) {
        let mut mirror = Mirror::<Value>::open(client, resource.collection("*", "*")).await;
        let mut is_first = true;
        loop {
            let event = mirror.next().await;
            let is_list = matches!(event, MirrorEvent::Replaced { .. });
            self.apply(&resource.name, event);
            if is_list && is_first {
                is_first = false;
                self.synced.fetch_add(1, Ordering::AcqRel);
                // Tasks that wait for the first sync are woken only by changes of the generation.
                self.generation.send_modify(|generation| *generation += 1);
            }
        }
    }

    fn apply(&self, resource: &ResourceName, event: MirrorEvent<Value>) {
        let Some(replicas) = self.objects.get(resource) else { return };
        let touched = match event {
            MirrorEvent::Replaced { items, is_new_store } => {
                if is_new_store {
                    self.refilling.lock().clear();
                }
                replicas.write().replace(items, is_new_store)
            }
            MirrorEvent::Applied(item) => replicas.write().put(item).into_iter().collect(),
            MirrorEvent::Deleted(item) => replicas.write().remove(&item).into_iter().collect(),
            MirrorEvent::Reopened => return,
        };
        self.notify(resource, &touched);
    }

    async fn release_periodically(&self) {
        let mut checks = tokio::time::interval(REFILL_CHECKS);
        loop {
            let now = checks.tick().await;
            self.release(now);
        }
    }

    /// Drops the replicas of an older store that their shards have not written to the new one in time.
    fn release(&self, now: Instant) {
        let (mut kept, mut current) = (BTreeSet::new(), BTreeSet::new());
        for replicas in self.objects.values() {
            replicas.read().kept_of(&mut kept);
        }
        if kept.is_empty() {
            return;
        }
        for replicas in self.objects.values() {
            replicas.read().current_of(&mut current);
        }
        let mut refilling = self.refilling.lock();
        for shard in kept.intersection(&current) {
            refilling.entry(shard.clone()).or_insert(now);
        }
        let is_filled = |since: &Instant| now.duration_since(*since) >= REFILL_TIME;
        let filled: BTreeSet<Box<str>> =
            refilling.extract_if(|_, since| is_filled(since)).map(|(shard, _)| shard).collect();
        drop(refilling);
        for (resource, replicas) in &self.objects {
            let touched = replicas.write().release(&filled);
            self.notify(resource, &touched);
        }
    }

    fn notify(&self, resource: &ResourceName, touched: &[Box<str>]) {
        if touched.is_empty() {
            return;
        }
        for observer in self.observers.read().get(resource).into_iter().flatten() {
            touched.iter().for_each(|cluster| observer(cluster));
        }
        self.generation.send_modify(|generation| *generation += 1);
    }
}
