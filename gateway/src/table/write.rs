//! The one writer of the table.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustc_hash::FxHashMap;

use super::bucket::{Draft, Flags, Key, Kind, Moved};
use super::shards::{ShardIndex, ShardSpec};
use super::{BUCKETS, Root, RoutingTable, TableKey, bucket_index, cluster, record_hash, workspace};

/// A logical cluster as one shard shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterRecord {
    /// Its id.
    pub(crate) id: Box<str>,
    /// The type of its workspace, `path:name`.
    pub(crate) workspace_type: Option<Box<str>>,
    /// It is being moved to another shard.
    pub(crate) migrating: bool,
}

/// A workspace as its parent's shard shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WorkspaceRecord {
    /// The id of the logical cluster that holds the object.
    pub(crate) parent: Box<str>,
    /// Its name in the parent.
    pub(crate) name: Box<str>,
    /// What it leads to.
    pub(crate) target: WorkspaceTarget,
    /// It is not to be entered.
    pub(crate) unavailable: bool,
}

/// What a workspace leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WorkspaceTarget {
    /// The logical cluster with this id.
    Cluster(Box<str>),
    /// A URL served by something else.
    Mount(Box<str>),
    /// Nothing yet.
    None,
}

/// One thing that a shard's watch said.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A logical cluster exists.
    PutCluster(ClusterRecord),
    /// A logical cluster is gone.
    RemoveCluster(Box<str>),
    /// These are all logical clusters of the shard.
    ReplaceClusters(Vec<ClusterRecord>),
    /// A workspace exists.
    PutWorkspace(WorkspaceRecord),
    /// The workspace `name` in `parent` is gone.
    RemoveWorkspace {
        /// The id of the logical cluster that held the object.
        parent: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// The workspace `name` in `parent` is about to lead somewhere; nothing to route to yet.
    TouchWorkspace {
        /// The id of the logical cluster that holds the object.
        parent: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// These are all workspaces of the shard.
    ReplaceWorkspaces(Vec<WorkspaceRecord>),
}

/// Changes the table. There is exactly one, so that batches cannot overwrite each other.
#[derive(Debug)]
pub(crate) struct TableWriter {
    table: Arc<RoutingTable>,
    type_numbers: FxHashMap<Arc<str>, u32>,
}

impl TableWriter {
    /// An empty table: every look-up answers that it is not synced.
    pub(crate) fn new() -> Self {
        let empty = Arc::default();
        let root = Root {
            buckets: vec![empty; BUCKETS].into(),
            shards: Arc::default(),
            counts: Box::default(),
            types: Arc::default(),
            hasher: hashbrown::DefaultHashBuilder::default(),
        };
        let table = Arc::new(RoutingTable { root: ArcSwap::from_pointee(root) });
        Self { table, type_numbers: FxHashMap::default() }
    }

    /// The table for readers.
    pub(crate) fn table(&self) -> Arc<RoutingTable> {
        Arc::clone(&self.table)
    }

    /// Makes a shard known, or changes what is known about it; its entries stay. `None` if there is no room for
    /// another shard.
    pub(crate) fn put_shard(&mut self, spec: ShardSpec) -> Option<ShardIndex> {
        let mut root = self.copy();
        let shards = Arc::make_mut(&mut root.shards);
        let found = shards.find(&spec.name).map(|shard| shard.index);
        let index = match found {
            Some(index) => {
                if let Some(shard) = shards.get_mut(index) {
                    shard.spec = spec;
                }
                index
            }
            None => shards.add(spec)?,
        };
        let mut counts = root.counts.into_vec();
        counts.resize(root.shards.slots(), super::ShardCounts::default());
        root.counts = counts.into();
        self.swap(root);
        Some(index)
    }

    /// Forgets a shard and everything that it told.
    pub(crate) fn remove_shard(&mut self, index: ShardIndex) {
        let mut root = self.copy();
        for bucket in &mut root.buckets {
            let mut draft = Draft::of(bucket);
            draft.retain(index.0, None, &[]);
            if let Some(changed) = draft.finish() {
                *bucket = Arc::new(changed);
            }
        }
        Arc::make_mut(&mut root.shards).remove(index);
        if let Some(counts) = root.counts.get_mut(usize::from(index.0)) {
            *counts = super::ShardCounts::default();
        }
        self.swap(root);
    }

    /// The list of shards is complete.
    pub(crate) fn shards_listed(&mut self) {
        let mut root = self.copy();
        Arc::make_mut(&mut root.shards).listed = true;
        self.swap(root);
    }

    /// Applies a batch atomically and returns the keys that it touched. Costs one copy of the array of 4,096
    /// pointers, plus the touched buckets; a replacement rebuilds all buckets. Changes of a shard that is not known (any
    /// more) are dropped.
    pub(crate) fn apply(&mut self, batch: Vec<(ShardIndex, Change)>) -> Vec<TableKey> {
        let mut root = self.copy();
        let mut touched = Vec::with_capacity(batch.len());
        let mut drafts: FxHashMap<usize, Draft> = FxHashMap::default();
        for (shard, change) in batch {
            if root.shards.get(shard).is_none() {
                continue;
            }
            match change {
                Change::PutCluster(record) => {
                    let key = root.cluster_key(&record.id);
                    touched.push(TableKey(key));
                    let (flags, value) = self.cluster_value(&mut root, &record);
                    let moved =
                        draft(&mut drafts, &root, key).put(cluster(key, &record.id), shard.0, flags, &value);
                    count(&mut root, shard, Kind::Cluster, moved);
                }
                Change::RemoveCluster(id) => {
                    let key = root.cluster_key(&id);
                    touched.push(TableKey(key));
                    let moved = draft(&mut drafts, &root, key).remove(cluster(key, &id), shard.0);
                    count(&mut root, shard, Kind::Cluster, moved);
                }
                Change::PutWorkspace(record) => {
                    let key = root.workspace_key(&record.parent, &record.name);
                    touched.push(TableKey(key));
                    let draft = draft(&mut drafts, &root, key);
                    let moved =
                        put_workspace(draft, workspace(key, &record.parent, &record.name), shard, &record);
                    count(&mut root, shard, Kind::Workspace, moved);
                }
                Change::RemoveWorkspace { parent, name } => {
                    let key = root.workspace_key(&parent, &name);
                    touched.push(TableKey(key));
                    let moved =
                        draft(&mut drafts, &root, key).remove(workspace(key, &parent, &name), shard.0);
                    count(&mut root, shard, Kind::Workspace, moved);
                }
                Change::TouchWorkspace { parent, name } => {
                    touched.push(TableKey(root.workspace_key(&parent, &name)));
                }
                Change::ReplaceClusters(records) => {
                    let values: Vec<_> =
                        records.iter().map(|record| self.cluster_value(&mut root, record)).collect();
                    let keys = records.iter().map(|record| {
                        let key = root.cluster_key(&record.id);
                        (key, cluster(key, &record.id))
                    });
                    let keys: Vec<_> = keys.collect();
                    touched.extend(keys.iter().map(|(key, _)| TableKey(*key)));
                    replace(&mut drafts, &mut root, shard, Kind::Cluster, &keys, |draft, at| {
                        let (flags, value) = values[at];
                        draft.put(keys[at].1, shard.0, flags, &value)
                    });
                    if let Some(entry) = Arc::make_mut(&mut root.shards).get_mut(shard) {
                        entry.clusters_synced = true;
                    }
                }
                Change::ReplaceWorkspaces(records) => {
                    let keys = records.iter().map(|record| {
                        let key = root.workspace_key(&record.parent, &record.name);
                        (key, workspace(key, &record.parent, &record.name))
                    });
                    let keys: Vec<_> = keys.collect();
                    touched.extend(keys.iter().map(|(key, _)| TableKey(*key)));
                    replace(&mut drafts, &mut root, shard, Kind::Workspace, &keys, |draft, at| {
                        put_workspace(draft, keys[at].1, shard, &records[at])
                    });
                    if let Some(entry) = Arc::make_mut(&mut root.shards).get_mut(shard) {
                        entry.workspaces_synced = true;
                    }
                }
            }
        }
        for (index, draft) in drafts {
            if let Some(changed) = draft.finish() {
                root.buckets[index] = Arc::new(changed);
            }
        }
        self.swap(root);
        touched
    }

    fn cluster_value(&mut self, root: &mut Root, record: &ClusterRecord) -> (Flags, [u8; 4]) {
        let number = match record.workspace_type.as_deref() {
            Some(text) => self.type_number(root, text),
            None => u32::MAX,
        };
        let flags = if record.migrating { Flags::MIGRATING } else { Flags::default() };
        (flags, number.to_le_bytes())
    }

    fn type_number(&mut self, root: &mut Root, text: &str) -> u32 {
        if let Some(number) = self.type_numbers.get(text) {
            return *number;
        }
        let types = Arc::make_mut(&mut root.types);
        let number = types.len() as u32;
        let text: Arc<str> = text.into();
        types.push(Arc::clone(&text));
        self.type_numbers.insert(text, number);
        number
    }

    fn copy(&self) -> Root {
        Root::clone(&self.table.root.load())
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "two writers at once would lose changes")]
    fn swap(&mut self, root: Root) {
        self.table.root.store(Arc::new(root));
    }
}

impl Default for TableWriter {
    fn default() -> Self {
        Self::new()
    }
}

fn draft<'d>(drafts: &'d mut FxHashMap<usize, Draft>, root: &Root, key: u64) -> &'d mut Draft {
    draft_at(drafts, root, bucket_index(key))
}

fn draft_at<'d>(drafts: &'d mut FxHashMap<usize, Draft>, root: &Root, index: usize) -> &'d mut Draft {
    drafts.entry(index).or_insert_with(|| Draft::of(&root.buckets[index]))
}

fn put_workspace(draft: &mut Draft, key: Key<'_>, shard: ShardIndex, record: &WorkspaceRecord) -> Moved {
    let flags = if record.unavailable { Flags::UNAVAILABLE } else { Flags::default() };
    match &record.target {
        WorkspaceTarget::Cluster(id) => draft.put(key, shard.0, flags, id.as_bytes()),
        WorkspaceTarget::Mount(url) => draft.put(key, shard.0, flags.with(Flags::MOUNT), url.as_bytes()),
        WorkspaceTarget::None => draft.remove(key, shard.0),
    }
}

/// Makes `keys` all that the shard has of this kind.
fn replace(
    drafts: &mut FxHashMap<usize, Draft>,
    root: &mut Root,
    shard: ShardIndex,
    kind: Kind,
    keys: &[(u64, Key<'_>)],
    mut put: impl FnMut(&mut Draft, usize) -> Moved,
) {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|at| (bucket_index(keys[*at].0), record_hash(keys[*at].0)));
    let mut order = order.as_slice();
    for index in 0..BUCKETS {
        let end = order.partition_point(|at| bucket_index(keys[*at].0) <= index);
        let (here, later) = order.split_at(end);
        order = later;
        let keep: Vec<_> =
            here.iter().map(|at| &keys[*at].1).map(|key| (key.hash, key.first, key.second)).collect();
        let draft = draft_at(drafts, root, index);
        let removed = draft.retain(shard.0, Some(kind), &keep);
        let mut added = 0_u32;
        let mut unset = 0_u32;
        for at in here {
            match put(draft, *at) {
                Moved::Added => added += 1,
                Moved::Removed => unset += 1,
                Moved::Same => {}
            }
        }
        if let Some(counter) = counter(root, shard, kind) {
            *counter = (*counter + added).saturating_sub(removed + unset);
        }
    }
}

fn count(root: &mut Root, shard: ShardIndex, kind: Kind, moved: Moved) {
    if let Some(counter) = counter(root, shard, kind) {
        *counter = match moved {
            Moved::Added => *counter + 1,
            Moved::Removed => counter.saturating_sub(1),
            Moved::Same => *counter,
        };
    }
}

fn counter(root: &mut Root, shard: ShardIndex, kind: Kind) -> Option<&mut u32> {
    let counts = root.counts.get_mut(usize::from(shard.0))?;
    Some(match kind {
        Kind::Cluster => &mut counts.clusters,
        Kind::Workspace => &mut counts.workspaces,
    })
}
