//! What other shards publish through the cache server, kept in memory: few objects, looked at often.
//!
//! One reflector per resource reads the replicas of all shards. With the cache server down the last
//! state stays; without one the view is empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlead_api::annotation;
use fairlead_client::{Client, Event, ListWatch, Query, Reflector, ReflectorOptions};
use fairlead_names::ResourceName;
use fairlead_process::Shutdown;
use futures_util::future::join_all;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::sync::watch;

/// The resources that are read, with the version they are replicated in.
const RESOURCES: [(&str, &str, &str); 7] = [
    ("core.kcp.io", "v1alpha1", "shards"),
    ("core.kcp.io", "v1alpha1", "logicalclusters"),
    ("tenancy.kcp.io", "v1alpha1", "workspacetypes"),
    ("apis.kcp.io", "v1alpha2", "apiexports"),
    ("apis.kcp.io", "v1alpha1", "apiresourceschemas"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
];

/// Is told of the logical cluster whose objects of a resource changed.
pub(crate) type OnChange = Box<dyn Fn(&str) + Send + Sync>;

/// The replicas of all shards.
pub(crate) struct GlobalView {
    objects: RwLock<FxHashMap<ResourceName, Replicas>>,
    observers: RwLock<FxHashMap<ResourceName, Vec<OnChange>>>,
    generation: watch::Sender<u64>,
    synced: AtomicUsize,
}

/// By logical cluster, then name.
type Replicas = FxHashMap<Box<str>, FxHashMap<Box<str>, Arc<Value>>>;

impl GlobalView {
    /// An empty view.
    pub(crate) fn new() -> Arc<Self> {
        let (generation, _) = watch::channel(0);
        Arc::new(Self {
            objects: RwLock::default(),
            observers: RwLock::default(),
            generation,
            synced: AtomicUsize::new(0),
        })
    }

    /// One replica.
    pub(crate) fn get(&self, resource: &ResourceName, cluster: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.read().get(resource)?.get(cluster)?.get(name).cloned()
    }

    /// The replicas of a resource, of one logical cluster or of all.
    pub(crate) fn list(&self, resource: &ResourceName, cluster: Option<&str>) -> Vec<Arc<Value>> {
        let objects = self.objects.read();
        let Some(replicas) = objects.get(resource) else { return Vec::new() };
        match cluster {
            Some(cluster) => replicas.get(cluster).into_iter().flat_map(FxHashMap::values).cloned().collect(),
            None => replicas.values().flat_map(FxHashMap::values).cloned().collect(),
        }
    }

    /// Counts up with every change.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Registers somebody who derives something from a resource.
    pub(crate) fn on_change(&self, resource: ResourceName, observer: OnChange) {
        self.observers.write().entry(resource).or_default().push(observer);
    }

    /// Whether every resource was read at least once.
    pub(crate) fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) == RESOURCES.len()
    }

    /// Follows the cache server until the process drains.
    pub(crate) async fn run(&self, client: Client, shutdown: Shutdown) {
        let reflectors = RESOURCES.map(|(group, version, resource)| {
            let path = format!("/services/cache/shards/*/clusters/*/apis/{group}/{version}/{resource}");
            let source = ListWatch::new(Query::new(&path).as_str());
            let reflector = Reflector::<Value>::new(client.clone(), source, ReflectorOptions::default());
            self.follow(ResourceName::new(group, resource), reflector)
        });
        tokio::select! {
            () = shutdown.draining() => {}
            _ = join_all(reflectors) => {}
        }
    }

    async fn follow(&self, resource: ResourceName, mut reflector: Reflector<Value>) {
        let mut is_first = true;
        loop {
            let touched = match reflector.next().await {
                Event::Replaced { items, .. } => self.replace(&resource, items),
                Event::Applied(item) => self.put(&resource, item),
                Event::Deleted(item) => self.remove(&resource, &item),
                Event::Progress(_) => continue,
            };
            for observer in self.observers.read().get(&resource).into_iter().flatten() {
                for cluster in &touched {
                    observer(cluster);
                }
            }
            if is_first {
                is_first = false;
                self.synced.fetch_add(1, Ordering::AcqRel);
            }
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    fn replace(&self, resource: &ResourceName, items: Vec<Value>) -> Vec<Box<str>> {
        let mut replicas = Replicas::default();
        for item in items {
            if let Some((cluster, name)) = place_of(&item) {
                replicas.entry(cluster).or_default().insert(name, Arc::new(item));
            }
        }
        let mut touched: Vec<Box<str>> = replicas.keys().cloned().collect();
        let before = self.objects.write().insert(resource.clone(), replicas);
        touched.extend(before.into_iter().flat_map(FxHashMap::into_keys));
        touched
    }

    fn put(&self, resource: &ResourceName, item: Value) -> Vec<Box<str>> {
        let Some((cluster, name)) = place_of(&item) else { return Vec::new() };
        let mut objects = self.objects.write();
        let replicas = objects.entry(resource.clone()).or_default();
        replicas.entry(cluster.clone()).or_default().insert(name, Arc::new(item));
        vec![cluster]
    }

    fn remove(&self, resource: &ResourceName, item: &Value) -> Vec<Box<str>> {
        let Some((cluster, name)) = place_of(item) else { return Vec::new() };
        let mut objects = self.objects.write();
        if let Some(replicas) = objects.get_mut(resource)
            && let Some(in_cluster) = replicas.get_mut(&cluster)
        {
            in_cluster.remove(&name);
            if in_cluster.is_empty() {
                replicas.remove(&cluster);
            }
        }
        vec![cluster]
    }
}

fn place_of(item: &Value) -> Option<(Box<str>, Box<str>)> {
    let metadata = &item["metadata"];
    Some((metadata["annotations"][annotation::CLUSTER].as_str()?.into(), metadata["name"].as_str()?.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_are_found_by_logical_cluster_and_name() {
        let view = GlobalView::new();
        let resource = ResourceName::new("core.kcp.io", "shards");
        let shard =
            |name: &str| json!({"metadata": {"name": name, "annotations": {annotation::CLUSTER: "root"}}});
        view.replace(&resource, vec![shard("a"), shard("b")]);
        view.put(&resource, shard("c"));
        view.remove(&resource, &shard("a"));
        assert_eq!(view.list(&resource, Some("root")).len(), 2);
        assert!(view.get(&resource, "root", "c").is_some() && view.get(&resource, "root", "a").is_none());
        assert_eq!(view.replace(&resource, Vec::new()), ["root".into()] as [Box<str>; 1]);
        assert!(view.list(&resource, None).is_empty());
    }
}
