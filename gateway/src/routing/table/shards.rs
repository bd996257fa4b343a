//! The shards known to the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::routing::table::bucket::Kind;

/// Index of a shard in the table. Never reused during the life of the process, so that a late event of a removed shard
/// cannot change another one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ShardIndex(pub(super) u16);

/// The fields of a `Shard` object that routing and placement need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ShardSpec {
    /// The object's name.
    pub(crate) name: Arc<str>,
    /// `spec.baseURL`, without a trailing slash. Empty if no requests may be routed to the shard.
    pub(crate) url: Arc<str>,
    /// The object's labels; shard selectors are matched against them.
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    /// No new workspaces (annotation `experimental.core.kcp.io/unschedulable`).
    pub(crate) cordoned: bool,
    /// Constraints from Fairlead's own annotations.
    pub(crate) constraints: PlacementConstraints,
}

/// Constraints on placement from Fairlead's annotations, in addition to kcp's `unschedulable`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct PlacementConstraints {
    /// No new workspaces, because the shard is being drained (annotation `fairlead.dev/drain`).
    pub(crate) draining: bool,
    /// Weight relative to other shards, at least 1 (annotation `fairlead.dev/weight`).
    pub(crate) weight: Option<u32>,
    /// Maximum number of workspaces (annotation `fairlead.dev/capacity`).
    pub(crate) capacity: Option<u32>,
}

/// One known shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardEntry {
    /// The shard's index.
    pub(crate) index: ShardIndex,
    /// The fields of its `Shard` object.
    pub(crate) spec: ShardSpec,
    pub(super) clusters_synced: bool,
    pub(super) workspaces_synced: bool,
}

/// Number of objects on a shard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShardCounts {
    /// Logical clusters of workspaces on the shard, without `root` and `system:…`.
    pub(crate) clusters: u32,
    /// Workspaces whose parent lives on the shard.
    pub(crate) workspaces: u32,
}

impl ShardEntry {
    pub(super) fn was_listed(&self, kind: Kind) -> bool {
        match kind {
            Kind::Cluster => self.clusters_synced,
            Kind::Workspace => self.workspaces_synced,
        }
    }

    pub(super) fn mark_listed(&mut self, kind: Kind) {
        match kind {
            Kind::Cluster => self.clusters_synced = true,
            Kind::Workspace => self.workspaces_synced = true,
        }
    }

    /// Whether both lists of the shard have been read once.
    pub(crate) fn is_synced(&self) -> bool {
        self.clusters_synced && self.workspaces_synced
    }
}

/// All shards by index; the slot of a removed shard is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Shards {
    slots: Vec<Option<ShardEntry>>,
    /// Whether the list of shards has been read once.
    pub(super) listed: bool,
}

impl Shards {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ShardEntry> {
        self.slots.iter().flatten()
    }

    pub(super) fn get(&self, index: ShardIndex) -> Option<&ShardEntry> {
        self.slots.get(usize::from(index.0))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: ShardIndex) -> Option<&mut ShardEntry> {
        self.slots.get_mut(usize::from(index.0))?.as_mut()
    }

    pub(super) fn find(&self, name: &str) -> Option<&ShardEntry> {
        self.iter().find(|shard| &*shard.spec.name == name)
    }

    /// `None` after 65,535 shards in one process.
    pub(super) fn add(&mut self, spec: ShardSpec) -> Option<ShardIndex> {
        let index = ShardIndex(u16::try_from(self.slots.len()).ok()?);
        self.slots.push(Some(ShardEntry { index, spec, clusters_synced: false, workspaces_synced: false }));
        Some(index)
    }

    pub(super) fn remove(&mut self, index: ShardIndex) {
        if let Some(slot) = self.slots.get_mut(usize::from(index.0)) {
            *slot = None;
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }
}
