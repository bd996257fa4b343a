//! The logical clusters of this shard and their state.

use std::sync::Arc;

use fairlead_api::{LOGICAL_CLUSTER_NAME, PartialLogicalCluster, Phase};
use fairlead_apiserver::ScopeSelector;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::names::{CUSTOM, LOGICAL_CLUSTERS};

/// The LogicalClusters of this shard. Costs some 250 bytes for each.
#[derive(Default)]
pub(crate) struct ClusterIndex(RwLock<FxHashMap<Box<str>, Arc<ClusterState>>>);

/// The fields of a LogicalCluster that requests use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterState {
    pub(crate) phase: Option<Phase>,
    pub(crate) is_deleted: bool,
    pub(crate) is_inactive: bool,
    /// The limit of its objects, if it has one of its own; 0 or less means none.
    pub(crate) max_total_objects: Option<i64>,
    /// The canonical path, such as `root:org:team`.
    pub(crate) path: Option<Box<str>>,
    /// The type, such as `root:universal`.
    pub(crate) type_reference: Option<Box<str>>,
    pub(crate) required_groups: Option<Box<str>>,
}

impl ClusterState {
    pub(crate) fn of(logical_cluster: &PartialLogicalCluster<'_>) -> Self {
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(Into::into);
        Self {
            phase: logical_cluster.phase,
            is_deleted: logical_cluster.is_deleted,
            is_inactive: logical_cluster.is_inactive,
            max_total_objects: logical_cluster.max_total_objects,
            path: text(&logical_cluster.path),
            type_reference: text(&logical_cluster.type_reference),
            required_groups: text(&logical_cluster.required_groups),
        }
    }
}

impl ClusterIndex {
    /// Creates an index that follows the hub.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn follow(objects: &ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let index = Arc::new(Self::default());
        let follower = index.clone();
        hub.observe(LOGICAL_CLUSTERS.clone(), Box::new(move |event| follower.apply(event)));
        objects.for_each(&LOGICAL_CLUSTERS, &CUSTOM, &ScopeSelector::all(), &mut |listed| {
            index.put(listed.scope, listed.object.json());
        })?;
        Ok(index)
    }

    /// The state of a logical cluster of this shard. Costs one map look-up.
    pub(crate) fn get(&self, cluster: &str) -> Option<Arc<ClusterState>> {
        self.0.read().get(cluster).cloned()
    }

    /// The names of all logical clusters of this shard.
    pub(crate) fn names(&self) -> Vec<Box<str>> {
        self.0.read().keys().cloned().collect()
    }

    fn apply(&self, event: &ObjectEvent) {
        if &*event.name != LOGICAL_CLUSTER_NAME {
            return;
        }
        if event.is_deletion() {
            self.0.write().remove(&*event.scope);
        } else {
            self.put(&event.scope, event.object().json());
        }
    }

    fn put(&self, cluster: &str, json: &[u8]) {
        match PartialLogicalCluster::decode(json) {
            Ok(logical_cluster) => {
                self.0.write().insert(cluster.into(), Arc::new(ClusterState::of(&logical_cluster)));
            }
            Err(error) => tracing::error!(cluster, %error, "a stored LogicalCluster cannot be read"),
        }
    }
}
