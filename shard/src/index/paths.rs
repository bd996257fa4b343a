//! Resolves workspace paths with the Workspaces of this shard.

use std::sync::Arc;

use fairlead_api::{PartialWorkspace, Phase};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_names::{ClusterName, WorkspacePath};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::ClusterIndex;
use crate::names::WORKSPACES;

/// The logical clusters of the Workspaces in each logical cluster.
#[derive(Default)]
pub(crate) struct PathIndex(RwLock<FxHashMap<Box<str>, Children>>);

/// The edges from one logical cluster, by the names of its Workspaces.
type Children = FxHashMap<Box<str>, Edge>;

#[derive(Clone, Debug)]
struct Edge {
    cluster: Box<str>,
    is_unavailable: bool,
}

/// Result of the resolution of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Resolution {
    /// The path leads to this logical cluster of this shard.
    Local(ClusterName),
    /// The path leads to a logical cluster of another shard.
    OtherShard,
    /// The path leads to a workspace in phase Unavailable, or passes one.
    Unavailable,
    /// The path does not exist.
    NotFound,
}

impl PathIndex {
    /// An index that follows the hub. It is filled by [`load`](Self::load).
    pub(crate) fn follow(hub: &Hub) -> Arc<Self> {
        let index = Arc::new(Self::default());
        let follower = index.clone();
        hub.observe(WORKSPACES.clone(), Box::new(move |event| follower.apply(event)));
        index
    }

    /// Adds a stored Workspace.
    pub(crate) fn load(&self, parent: &str, json: &[u8]) {
        match PartialWorkspace::decode(json) {
            Ok(workspace) => self.put(parent, &workspace),
            Err(error) => tracing::error!(parent, %error, "a stored Workspace cannot be read"),
        }
    }

    /// Resolves a path. Its first label is the name of a logical cluster. Costs one map look-up per label.
    pub(crate) fn resolve(&self, path: &WorkspacePath, clusters: &ClusterIndex) -> Resolution {
        let mut labels = path.labels();
        let Some(first) = labels.next() else { return Resolution::NotFound };
        let edges = self.0.read();
        let mut cluster: &str = first;
        let mut unavailable = false;
        for label in labels {
            let Some(edge) = edges.get(cluster).and_then(|children| children.get(label)) else {
                // Children of a logical cluster on another shard are in that shard's index.
                return if clusters.get(cluster).is_none() && cluster != first {
                    Resolution::OtherShard
                } else {
                    Resolution::NotFound
                };
            };
            unavailable |= edge.is_unavailable;
            cluster = &edge.cluster;
        }
        if unavailable {
            return Resolution::Unavailable;
        }
        if clusters.get(cluster).is_none() {
            return Resolution::OtherShard;
        }
        ClusterName::parse(cluster).map_or(Resolution::NotFound, Resolution::Local)
    }

    fn apply(&self, event: &ObjectEvent) {
        if event.is_deletion() {
            let mut edges = self.0.write();
            if let Some(children) = edges.get_mut(&*event.scope) {
                children.remove(&*event.name);
                if children.is_empty() {
                    edges.remove(&*event.scope);
                }
            }
        } else {
            self.load(&event.scope, event.object().json());
        }
    }

    fn put(&self, parent: &str, workspace: &PartialWorkspace<'_>) {
        let Some(cluster) =
            workspace.cluster.as_deref().filter(|_| workspace.phase != Some(Phase::Scheduling))
        else {
            return;
        };
        let edge =
            Edge { cluster: cluster.into(), is_unavailable: workspace.phase == Some(Phase::Unavailable) };
        self.0.write().entry(parent.into()).or_default().insert(workspace.name.as_ref().into(), edge);
    }
}
