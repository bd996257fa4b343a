//! The only writer of the table.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use crate::routing::table::bucket::{Flags, Key, Kind};
use crate::routing::table::bucket_builder::{BucketBuilder, CountChange};
use crate::routing::table::change::{Change, ClusterRecord, Page, WorkspaceRecord, WorkspaceTarget};
use crate::routing::table::relocations::Relocations;
use crate::routing::table::restore::Restoration;
use crate::routing::table::shards::{ShardIndex, ShardSpec};
use crate::routing::table::types::{NO_TYPE, TypeNumbers};
use crate::routing::table::{
    BUCKETS, RoutingTable, ShardCounts, TableKey, TableView, bucket_index, cluster, workspace,
};

/// Changes the table. There is exactly one writer, so that batches cannot overwrite each other.
#[derive(Debug)]
pub(crate) struct TableWriter {
    table: Arc<RoutingTable>,
    types: TypeNumbers,
    relocations: Relocations,
    /// Objects named so far by the lists that are being read, as hashes of their keys: 9 to 18 bytes per object until
    /// the list is complete.
    listed: FxHashMap<(ShardIndex, Kind), FxHashSet<u64>>,
}

impl TableWriter {
    /// An empty table: every look-up returns `NotSynced`.
    pub(crate) fn new() -> Self {
        let table = Arc::new(RoutingTable { root: ArcSwap::from_pointee(TableView::empty()) });
        Self {
            table,
            types: TypeNumbers::default(),
            relocations: Relocations::default(),
            listed: FxHashMap::default(),
        }
    }

    /// The table for readers.
    pub(crate) fn table(&self) -> Arc<RoutingTable> {
        Arc::clone(&self.table)
    }

    /// An empty restoration for this table.
    pub(crate) fn restoration(&self) -> Restoration {
        Restoration::new(self.copy())
    }

    /// Replaces a table to which nothing has been written yet with a restored one.
    pub(crate) fn restore(&mut self, restored: Restoration) {
        let root = restored.finish();
        self.types = TypeNumbers::of(&root.types);
        self.swap(root);
    }

    /// Adds a shard, or updates its spec; its records stay. `None` if there is no index left for
    /// another shard.
    pub(crate) fn put_shard(&mut self, spec: ShardSpec) -> Option<ShardIndex> {
        let mut root = self.copy();
        let known = root.shards.find(&spec.name).map(|shard| (shard.index, shard.spec == spec));
        let index = match known {
            Some((index, true)) => return Some(index),
            Some((index, false)) => {
                if let Some(shard) = Arc::make_mut(&mut root.shards).get_mut(index) {
                    shard.spec = spec;
                }
                index
            }
            None => Arc::make_mut(&mut root.shards).add(spec)?,
        };
        root.resize_counts();
        root.version += 1;
        self.swap(root);
        Some(index)
    }

    /// Removes a shard and all of its records.
    pub(crate) fn remove_shard(&mut self, index: ShardIndex) {
        self.listed.retain(|(shard, _), _| *shard != index);
        let mut batch = WriteBatch::of(self.copy());
        batch.retain(index, None, |_| false);
        Arc::make_mut(&mut batch.root.shards).remove(index);
        if let Some(counts) = batch.root.counts.get_mut(usize::from(index.0)) {
            *counts = ShardCounts::default();
        }
        batch.root.version += 1;
        self.finish(batch);
    }

    /// Marks the list of shards as complete.
    pub(crate) fn mark_shards_listed(&mut self) {
        let mut root = self.copy();
        if !root.shards.listed {
            Arc::make_mut(&mut root.shards).listed = true;
            self.swap(root);
        }
    }

    /// The time of the next [`TableWriter::expire_relocations`].
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.relocations.next_expiry()
    }

    /// Removes expired relocations.
    pub(crate) fn expire_relocations(&mut self) {
        let mut root = self.copy();
        self.relocations.expire(&mut root.relocations, Instant::now());
        self.swap(root);
    }

    /// Applies a batch atomically and returns the keys that it touched. Costs one copy of 128 pointers, and per touched
    /// bucket a copy of the bucket and at most one of its page's 128 pointers. The last page of a list scans all of the
    /// shard's records. Changes of an unknown or removed shard are dropped.
    pub(crate) fn apply(&mut self, changes: Vec<(ShardIndex, Change)>) -> Vec<TableKey> {
        let mut batch = WriteBatch::of(self.copy());
        for (shard, change) in changes {
            if batch.root.shards.get(shard).is_none() {
                continue;
            }
            match change {
                Change::PutCluster(record) => _ = self.put_cluster(&mut batch, shard, &record),
                Change::RemoveCluster(id) => {
                    let key = batch.root.cluster_key(&id);
                    batch.change(shard, cluster(key, &id), |builder, key| builder.remove(key, shard.0));
                }
                Change::ListClusters(page) => self.list_clusters(&mut batch, shard, &page),
                Change::PutWorkspace(record) => _ = put_workspace(&mut batch, shard, &record),
                Change::RemoveWorkspace { parent, name } => {
                    let key = batch.root.workspace_key(&parent, &name);
                    let key = workspace(key, &parent, &name);
                    batch.change(shard, key, |builder, key| builder.remove(key, shard.0));
                }
                Change::ListWorkspaces(page) => self.list_workspaces(&mut batch, shard, &page),
            }
        }
        let touched = std::mem::take(&mut batch.touched);
        self.finish(batch);
        touched
    }

    fn list_clusters(&mut self, batch: &mut WriteBatch, shard: ShardIndex, page: &Page<ClusterRecord>) {
        let mut seen = self.begin_page(shard, Kind::Cluster, page.is_first);
        for record in &page.records {
            seen.insert(self.put_cluster(batch, shard, record));
        }
        if page.is_last {
            batch.retain(shard, Some(Kind::Cluster), |number| seen.contains(&number));
            batch.mark_synced(shard, Kind::Cluster);
        } else {
            self.listed.insert((shard, Kind::Cluster), seen);
        }
    }

    fn list_workspaces(&mut self, batch: &mut WriteBatch, shard: ShardIndex, page: &Page<WorkspaceRecord>) {
        let mut seen = self.begin_page(shard, Kind::Workspace, page.is_first);
        for record in &page.records {
            seen.insert(put_workspace(batch, shard, record));
        }
        if page.is_last {
            batch.retain(shard, Some(Kind::Workspace), |number| seen.contains(&number));
            batch.mark_synced(shard, Kind::Workspace);
        } else {
            self.listed.insert((shard, Kind::Workspace), seen);
        }
    }

    fn begin_page(&mut self, shard: ShardIndex, kind: Kind, is_first: bool) -> FxHashSet<u64> {
        let seen = self.listed.remove(&(shard, kind));
        if is_first { FxHashSet::default() } else { seen.unwrap_or_default() }
    }

    fn put_cluster(&mut self, batch: &mut WriteBatch, shard: ShardIndex, record: &ClusterRecord) -> u64 {
        let number = match record.workspace_type.as_deref() {
            Some(name) => self.types.number(&mut batch.root.types, name),
            None => NO_TYPE,
        };
        let flags = if record.migrating { Flags::MIGRATING } else { Flags::default() };
        let key = batch.root.cluster_key(&record.id);
        batch.change(shard, cluster(key, &record.id), |builder, key| {
            builder.put(key, shard.0, flags, &number.to_le_bytes())
        });
        key
    }

    fn finish(&mut self, batch: WriteBatch) {
        let WriteBatch { mut root, builders, .. } = batch;
        let now = Instant::now();
        for (index, mut builder) in builders {
            self.relocations.record(&mut root.relocations, &builder.take_owner_changes(), now);
            if let Some(changed) = builder.finish() {
                root.set_bucket(index, changed);
                root.version += 1;
            }
        }
        if self.types.should_sweep() {
            let used = root.used_types();
            self.types.sweep(&mut root.types, &used);
        }
        self.swap(root);
    }

    fn copy(&self) -> TableView {
        TableView::clone(&self.table.root.load())
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "two writers at once would lose changes")]
    fn swap(&mut self, root: TableView) {
        self.table.root.store(Arc::new(root));
    }
}

impl Default for TableWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// A copy of a view, with the buckets that are being changed.
struct WriteBatch {
    root: TableView,
    builders: FxHashMap<usize, BucketBuilder>,
    touched: Vec<TableKey>,
}

impl WriteBatch {
    fn of(root: TableView) -> Self {
        Self { root, builders: FxHashMap::default(), touched: Vec::new() }
    }

    fn change(
        &mut self,
        shard: ShardIndex,
        key: Key<'_>,
        change: impl FnOnce(&mut BucketBuilder, Key<'_>) -> CountChange,
    ) {
        self.touched.push(TableKey(key.number));
        let index = bucket_index(key.number);
        let builder =
            self.builders.entry(index).or_insert_with(|| BucketBuilder::of(self.root.bucket_at(index)));
        let count_change = change(builder, key);
        if let Some(counter) = self.root.counter(shard, key.kind) {
            *counter = match count_change {
                CountChange::Added => *counter + 1,
                CountChange::Removed => counter.saturating_sub(1),
                CountChange::Unchanged => *counter,
            };
        }
    }

    /// Removes the records of a shard and kind (of all kinds for `None`) that `keep` rejects. Copies only buckets that
    /// lose a record.
    fn retain(&mut self, shard: ShardIndex, kind: Option<Kind>, keep: impl Fn(u64) -> bool) {
        for index in 0..BUCKETS {
            let root = &self.root;
            let number = |kind: Kind, stored: &[u8]| root.stored_key_hash(kind, stored);
            let builder = match self.builders.entry(index) {
                Entry::Occupied(builder) => builder.into_mut(),
                Entry::Vacant(place) => {
                    let bucket = root.bucket_at(index);
                    let loses = bucket.entries().any(|entry| {
                        let of = entry.flags.kind();
                        entry.shard == shard.0
                            && kind.is_none_or(|kind| kind == of)
                            && !keep(number(of, entry.key))
                    });
                    if !loses {
                        continue;
                    }
                    place.insert(BucketBuilder::of(bucket))
                }
            };
            let removed = builder.retain(shard.0, kind, number, &keep);
            // Without a kind the whole shard is removed, together with its counts.
            if let Some(counter) = kind.and_then(|kind| self.root.counter(shard, kind)) {
                *counter = counter.saturating_sub(removed);
            }
        }
    }

    fn mark_synced(&mut self, shard: ShardIndex, kind: Kind) {
        let is_known = self.root.shards.get(shard).is_none_or(|entry| entry.was_listed(kind));
        if !is_known && let Some(entry) = Arc::make_mut(&mut self.root.shards).get_mut(shard) {
            entry.mark_listed(kind);
        }
    }
}

fn put_workspace(batch: &mut WriteBatch, shard: ShardIndex, record: &WorkspaceRecord) -> u64 {
    let number = batch.root.workspace_key(&record.parent, &record.name);
    let flags = if record.unavailable { Flags::UNAVAILABLE } else { Flags::default() };
    batch.change(shard, workspace(number, &record.parent, &record.name), |builder, key| {
        match &record.target {
            WorkspaceTarget::Cluster(id) => builder.put(key, shard.0, flags, id.as_bytes()),
            WorkspaceTarget::Mount(url) => {
                builder.put(key, shard.0, flags.with(Flags::MOUNT), url.as_bytes())
            }
            WorkspaceTarget::None | WorkspaceTarget::Unmounted => builder.remove(key, shard.0),
            WorkspaceTarget::KeptMount => builder.keep_mount(key, shard.0, flags),
            WorkspaceTarget::Pending => CountChange::Unchanged,
        }
    });
    number
}

impl TableView {
    pub(super) fn resize_counts(&mut self) {
        let mut counts = std::mem::take(&mut self.counts).into_vec();
        counts.resize(self.shards.slots(), ShardCounts::default());
        self.counts = counts.into();
    }

    pub(super) fn counter(&mut self, shard: ShardIndex, kind: Kind) -> Option<&mut u32> {
        let counts = self.counts.get_mut(usize::from(shard.0))?;
        Some(match kind {
            Kind::Cluster => &mut counts.clusters,
            Kind::Workspace => &mut counts.workspaces,
        })
    }

    fn used_types(&self) -> FxHashSet<u32> {
        let clusters = self
            .buckets()
            .flat_map(|bucket| bucket.entries())
            .filter(|entry| entry.flags.kind() == Kind::Cluster);
        clusters.filter_map(|entry| Some(u32::from_le_bytes(entry.value.try_into().ok()?))).collect()
    }
}
