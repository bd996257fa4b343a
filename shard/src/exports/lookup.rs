//! Look-up of APIExports by path, logical cluster or identity, on this shard and among the replicas of others.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ClusterReference;
use fairlead_process::Status;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::{PublishedExport, RootExports};
use crate::global::GlobalView;
use crate::index::{ClusterCache, ClusterIndex, PathIndex, Resolution};
use crate::names::{API_CONVERSIONS, API_EXPORTS, API_RESOURCE_SCHEMAS, CUSTOM, LOGICAL_CLUSTERS};

/// Number of logical clusters whose exports are cached.
const CACHED_CLUSTERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// Finds APIExports. A known export costs two map look-ups; the first look-up in a logical cluster reads its exports and schemas.
pub(crate) struct ExportLookup {
    objects: ObjectStore,
    clusters: Arc<ClusterIndex>,
    paths: Arc<PathIndex>,
    global: Arc<GlobalView>,
    cached: Arc<ClusterCache<ClusterExports>>,
    /// Replicas by path, under one key.
    replicated: Arc<ClusterCache<ReplicatedPaths>>,
    identities: Arc<IdentityIndex>,
    /// Root's exports, for a shard that has no replicas of them yet.
    root: RwLock<RootExports>,
}

/// The exports of one logical cluster, by name.
type ClusterExports = FxHashMap<Box<str>, Arc<PublishedExport>>;

/// The names and logical clusters of exports of other shards, by the path of their workspace.
type ReplicatedPaths = FxHashMap<Box<str>, Vec<(Box<str>, Box<str>)>>;

impl ExportLookup {
    /// A look-up that follows the hub and the replicas of other shards.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(
        objects: ObjectStore,
        hub: &Hub,
        clusters: Arc<ClusterIndex>,
        paths: Arc<PathIndex>,
        global: Arc<GlobalView>,
    ) -> Result<Arc<Self>, Status> {
        let cached = Arc::new(ClusterCache::new(CACHED_CLUSTERS));
        for resource in [&*API_EXPORTS, &*API_RESOURCE_SCHEMAS] {
            let (local, replicated) = (Arc::clone(&cached), Arc::clone(&cached));
            hub.observe(
                resource.clone(),
                Box::new(move |event: &ObjectEvent| local.invalidate(&event.scope)),
            );
            global.on_change(resource.clone(), Box::new(move |cluster| replicated.invalidate(cluster)));
        }
        let replicated = Arc::new(ClusterCache::new(NonZeroUsize::MIN));
        let paths_of_replicas = Arc::clone(&replicated);
        global.on_change(API_EXPORTS.clone(), Box::new(move |_| paths_of_replicas.invalidate("")));
        let identities = IdentityIndex::follow(&objects, hub)?;
        let root = RwLock::default();
        Ok(Arc::new(Self { objects, clusters, paths, global, cached, replicated, identities, root }))
    }

    /// Sets root's exports as this shard knows them before it has replicas.
    pub(crate) fn set_root(&self, root: RootExports) {
        *self.root.write() = root;
        self.cached.invalidate("root");
    }

    /// The export at a path or in a logical cluster.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn find(&self, path: &str, name: &str) -> Result<Option<Arc<PublishedExport>>, Status> {
        let Some(cluster) = self.cluster_of(path, name)? else { return Ok(None) };
        self.in_cluster(&cluster, name)
    }

    /// The export in a logical cluster.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn in_cluster(
        &self,
        cluster: &str,
        name: &str,
    ) -> Result<Option<Arc<PublishedExport>>, Status> {
        let exports = self.cached.get(cluster, |_| self.read(cluster).map(Arc::new))?;
        Ok(exports.get(name).cloned())
    }

    /// Whether an export of a logical cluster has this schema, or lacks one. `true` if the store cannot be read.
    pub(crate) fn may_use_schema(&self, cluster: &str, schema: &str) -> bool {
        let Ok(exports) = self.cached.get(cluster, |_| self.read(cluster).map(Arc::new)) else { return true };
        exports.values().any(|export| {
            export.missing_schema.is_some() || export.schemas.iter().any(|known| *known.name == *schema)
        })
    }

    /// The exports with this identity, by logical cluster and name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn by_identity(&self, identity: &str) -> Result<Vec<Arc<PublishedExport>>, Status> {
        let mut keys = self.identities.exports(identity);
        let replicas = self.global.list(&API_EXPORTS, None);
        keys.extend(
            replicas.iter().filter(|replica| replica["status"]["identityHash"] == identity).filter_map(
                |replica| {
                    let metadata = &replica["metadata"];
                    Some((
                        metadata["annotations"][annotation::CLUSTER].as_str()?.into(),
                        metadata["name"].as_str()?.into(),
                    ))
                },
            ),
        );
        keys.sort_unstable();
        keys.dedup();
        let mut found = Vec::new();
        for (cluster, name) in keys {
            let export = self.in_cluster(&cluster, &name)?;
            found.extend(export.filter(|export| export.identity.as_deref() == Some(identity)));
        }
        Ok(found)
    }

    /// The paths by which bindings refer to exports of a logical cluster of another shard.
    pub(crate) fn paths_of_replicas(&self, cluster: &str) -> Vec<Box<str>> {
        let path =
            |export: Arc<Value>| export["metadata"]["annotations"][annotation::PATH].as_str().map(Into::into);
        let mut paths: Vec<Box<str>> =
            self.global.list(&API_EXPORTS, Some(cluster)).into_iter().filter_map(path).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// The logical cluster at a path, whether or not it has exports. Other shards' are known if they publish something.
    pub(crate) fn workspace(&self, path: &str) -> Option<Box<str>> {
        let replica = |is_meant: &dyn Fn(&Value) -> bool| {
            let replicas = self.global.list(&LOGICAL_CLUSTERS, None);
            let found = replicas.iter().find(|replica| is_meant(&replica["metadata"]["annotations"]))?;
            found["metadata"]["annotations"][annotation::CLUSTER].as_str().map(Into::into)
        };
        match ClusterReference::parse(path) {
            Ok(ClusterReference::Name(name)) if name.as_str() == "root" || self.is_local(name.as_str()) => {
                Some(name.as_str().into())
            }
            Ok(ClusterReference::Name(name)) => {
                replica(&|annotations| annotations[annotation::CLUSTER] == name.as_str())
            }
            Ok(ClusterReference::Path(workspace)) => match self.paths.resolve(&workspace, &self.clusters) {
                Resolution::Local(cluster) => Some(cluster.as_str().into()),
                Resolution::OtherShard | Resolution::Unavailable | Resolution::NotFound => {
                    replica(&|annotations| annotations[annotation::PATH] == path)
                }
            },
            Ok(ClusterReference::Wildcard) | Err(_) => None,
        }
    }

    /// An APIResourceSchema of a logical cluster of this or another shard.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn schema(&self, cluster: &str, name: &str) -> Result<Option<Arc<Value>>, Status> {
        if self.is_local(cluster) {
            let stored =
                self.objects.get(&API_RESOURCE_SCHEMAS, &CUSTOM, &Scope::new(cluster), None, name)?;
            return stored.map(|stored| self.objects.tree(&stored).map(Arc::new)).transpose();
        }
        Ok(self.global.get(&API_RESOURCE_SCHEMAS, cluster, name))
    }

    /// The APIConversion of a logical cluster of this or another shard for its schema of the same name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn conversion(&self, cluster: &str, schema: &str) -> Result<Option<Arc<Value>>, Status> {
        if self.is_local(cluster) {
            let stored = self.objects.get(&API_CONVERSIONS, &CUSTOM, &Scope::new(cluster), None, schema)?;
            return stored.map(|stored| self.objects.tree(&stored).map(Arc::new)).transpose();
        }
        Ok(self.global.get(&API_CONVERSIONS, cluster, schema))
    }

    /// The logical cluster that a reference to an export means.
    fn cluster_of(&self, path: &str, name: &str) -> Result<Option<Box<str>>, Status> {
        match ClusterReference::parse(path) {
            Ok(ClusterReference::Name(cluster)) => Ok(Some(cluster.as_str().into())),
            Ok(ClusterReference::Path(workspace)) => match self.paths.resolve(&workspace, &self.clusters) {
                Resolution::Local(cluster) => Ok(Some(cluster.as_str().into())),
                Resolution::OtherShard | Resolution::Unavailable | Resolution::NotFound => {
                    self.replicated_cluster(path, name)
                }
            },
            Ok(ClusterReference::Wildcard) | Err(_) => Ok(None),
        }
    }

    /// The logical cluster of an export of another shard. Costs a map look-up, and a visit of all replicas after one has changed.
    fn replicated_cluster(&self, path: &str, name: &str) -> Result<Option<Box<str>>, Status> {
        let paths = self.replicated.get("", |_| Ok(Arc::new(self.replicated_paths())))?;
        let found = paths.get(path).and_then(|exports| exports.iter().find(|(export, _)| **export == *name));
        Ok(found.map(|(_, cluster)| cluster.clone()))
    }

    fn replicated_paths(&self) -> ReplicatedPaths {
        let mut paths = ReplicatedPaths::default();
        for replica in self.global.list(&API_EXPORTS, None) {
            let metadata = &replica["metadata"];
            let text = |key: &str| metadata["annotations"][key].as_str();
            if let (Some(path), Some(cluster), Some(name)) =
                (text(annotation::PATH), text(annotation::CLUSTER), metadata["name"].as_str())
            {
                paths.entry(path.into()).or_default().push((name.into(), cluster.into()));
            }
        }
        paths
    }

    fn read(&self, cluster: &str) -> Result<ClusterExports, Status> {
        let mut objects = Vec::new();
        if self.is_local(cluster) {
            let one = ScopeSelector::One(Scope::new(cluster));
            for stored in self.objects.list(&API_EXPORTS, &CUSTOM, &one, None)? {
                objects.push(Arc::new(self.objects.tree(&stored)?));
            }
        } else {
            objects = self.global.list(&API_EXPORTS, Some(cluster));
        }
        let mut exports = ClusterExports::default();
        for object in objects {
            let export = PublishedExport::read(cluster, object, |name| self.schema(cluster, name))?;
            exports.insert(export.name.clone(), Arc::new(export));
        }
        if cluster == "root" {
            let root = self.root.read();
            for name in fairlead_api::root_export_names() {
                if let Some(known) = root.get(name)
                    && exports.get(name).is_none_or(|export| export.missing_schema.is_some())
                {
                    exports.insert(name.into(), Arc::clone(known));
                }
            }
        }
        Ok(exports)
    }

    /// Whether exports of a logical cluster may exist that are not found, because it is on another shard and this shard has not read
    /// the replicas yet.
    pub(crate) fn is_unread(&self, cluster: &str) -> bool {
        !self.is_local(cluster) && !self.global.is_synced()
    }

    /// Whether a logical cluster is on this shard.
    pub(crate) fn is_local(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some()
    }
}

/// Logical clusters and names of this shard's exports, by identity.
#[derive(Default)]
struct IdentityIndex(RwLock<Identities>);

#[derive(Default)]
struct Identities {
    by_identity: FxHashMap<Box<str>, Vec<ExportKey>>,
    by_key: FxHashMap<ExportKey, Box<str>>,
}

/// Logical cluster and name of an export.
type ExportKey = (Box<str>, Box<str>);

impl IdentityIndex {
    fn follow(objects: &ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let index = Arc::new(Self::default());
        objects.for_each(&API_EXPORTS, &CUSTOM, &ScopeSelector::all(), &mut |listed| {
            let Ok(object) = serde_json::from_slice::<Value>(listed.object.json()) else { return };
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            index.put((listed.scope.into(), name.into()), identity_of(&object));
        })?;
        let follower = Arc::clone(&index);
        hub.observe(
            API_EXPORTS.clone(),
            Box::new(move |event: &ObjectEvent| {
                let key = ((*event.scope).into(), event.name.clone());
                let object = serde_json::from_slice::<Value>(event.object().json()).unwrap_or_default();
                follower.put(key, if event.is_deletion() { None } else { identity_of(&object) });
            }),
        );
        Ok(index)
    }

    fn exports(&self, identity: &str) -> Vec<ExportKey> {
        self.0.read().by_identity.get(identity).cloned().unwrap_or_default()
    }

    fn put(&self, key: ExportKey, identity: Option<Box<str>>) {
        let mut index = self.0.write();
        if index.by_key.get(&key) == identity.as_ref() {
            return;
        }
        if let Some(before) = index.by_key.remove(&key)
            && let Some(keys) = index.by_identity.get_mut(&before)
        {
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                index.by_identity.remove(&before);
            }
        }
        if let Some(identity) = identity {
            index.by_identity.entry(identity.clone()).or_default().push(key.clone());
            index.by_key.insert(key, identity);
        }
    }
}

fn identity_of(export: &Value) -> Option<Box<str>> {
    export["status"]["identityHash"].as_str().filter(|hash| !hash.is_empty()).map(Into::into)
}
