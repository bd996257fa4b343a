//! Where workspace paths lead, as far as this shard knows.

use std::sync::Arc;

use fairlead_api::{Phase, WorkspaceHead};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_names::{ClusterName, WorkspacePath};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::ClusterIndex;
use crate::names::WORKSPACES;

/// The edges from a logical cluster to those of its workspaces.
#[derive(Default)]
pub(crate) struct PathIndex(RwLock<FxHashMap<Box<str>, Children>>);

/// The edges of one logical cluster by the names of its workspaces.
type Children = FxHashMap<Box<str>, Edge>;

#[derive(Clone, Debug)]
struct Edge {
    cluster: Box<str>,
    is_unavailable: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Resolution {
    /// To this logical cluster of this shard.
    Local(ClusterName),
    /// To a logical cluster of another shard.
    OtherShard,
    /// To a workspace that is out of order.
    Unavailable,
    /// Nowhere.
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

    /// Takes a stored Workspace in.
    pub(crate) fn load(&self, parent: &str, json: &[u8]) {
        match WorkspaceHead::decode(json) {
            Ok(head) => self.put(parent, &head),
            Err(error) => tracing::error!(parent, %error, "a stored Workspace cannot be read"),
        }
    }

    /// Walks a path from its first label, a logical cluster. One look-up per label.
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

    fn put(&self, parent: &str, head: &WorkspaceHead<'_>) {
        let Some(cluster) = head.cluster.as_deref().filter(|_| head.phase != Some(Phase::Scheduling)) else {
            return;
        };
        let edge = Edge { cluster: cluster.into(), is_unavailable: head.phase == Some(Phase::Unavailable) };
        self.0.write().entry(parent.into()).or_default().insert(head.name.as_ref().into(), edge);
    }
}
