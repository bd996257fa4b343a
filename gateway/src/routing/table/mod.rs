//! The routing table: maps logical clusters to shards, and workspace paths to logical clusters.
//!
//! One `ArcSwap` holds a view: 128 shared pages of 128 shared buckets. A reader loads the view once and resolves a whole
//! path on that view, without a lock or an allocation. The single writer copies, per batch, the two pointer arrays above each
//! changed bucket and the changed buckets, then swaps the view. A workspace costs about 130 bytes (a test keeps it below 200).

mod ancestry;
mod bucket;
mod bucket_builder;
mod change;
mod relocations;
mod resolve;
mod restore;
mod shards;
mod types;
mod write;

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use hashbrown::DefaultHashBuilder;

use bucket::{Bucket, Key, Kind, SEPARATOR};

pub(crate) use change::{Change, ClusterRecord, Page, WorkspaceRecord, WorkspaceTarget};
pub(crate) use resolve::{Missing, Resolution};
pub(crate) use restore::{InvalidRecord, Restoration, StoredRecord};
pub(crate) use shards::{PlacementConstraints, ShardCounts, ShardEntry, ShardIndex, ShardSpec};
pub(crate) use write::TableWriter;

const PAGE_BITS: u32 = 7;
const BUCKETS_PER_PAGE: usize = 1 << PAGE_BITS;
const BUCKET_BITS: u32 = 2 * PAGE_BITS;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// The current view, shared by all requests.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    root: ArcSwap<TableView>,
}

impl RoutingTable {
    /// The current view. Keep it for one resolution, not across an await.
    pub(crate) fn load(&self) -> Guard<Arc<TableView>> {
        self.root.load()
    }

    /// The current view, to be kept for longer: it keeps the memory of replaced buckets alive.
    pub(crate) fn load_full(&self) -> Arc<TableView> {
        self.root.load_full()
    }
}

type BucketPage = [Bucket];

/// One immutable view of the table.
#[derive(Clone, Debug)]
pub(crate) struct TableView {
    pages: Box<[Arc<BucketPage>]>,
    shards: Arc<shards::Shards>,
    counts: Box<[ShardCounts]>,
    types: types::TypeNames,
    relocations: relocations::RecentRelocations,
    hasher: DefaultHashBuilder,
    version: u64,
}

/// The hash of a record's key, whether the table has the record or not. Equal keys have equal hashes for the life of the process.
/// [`Missing`] names it, and a batch reports the keys that it touched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct TableKey(u64);

impl TableView {
    fn empty() -> Self {
        let page: Arc<BucketPage> = vec![Bucket::default(); BUCKETS_PER_PAGE].into();
        Self {
            pages: vec![page; BUCKETS / BUCKETS_PER_PAGE].into(),
            shards: Arc::default(),
            counts: Box::default(),
            types: Arc::default(),
            relocations: Arc::default(),
            hasher: DefaultHashBuilder::default(),
            version: 0,
        }
    }

    /// The known shards, synced or not, in the order in which they appeared.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &ShardEntry> {
        self.shards.iter()
    }

    /// One shard by its index; `None` after its removal.
    pub(crate) fn shard(&self, index: ShardIndex) -> Option<&ShardEntry> {
        self.shards.get(index)
    }

    /// Number of objects on a shard.
    pub(crate) fn counts(&self, index: ShardIndex) -> ShardCounts {
        self.counts.get(usize::from(index.0)).copied().unwrap_or_default()
    }

    /// Whether the list of shards and all lists of every shard have been read once.
    pub(crate) fn is_synced(&self) -> bool {
        self.shards.listed && self.shards.iter().all(ShardEntry::is_synced)
    }

    /// Whether the list of shards has been read once.
    pub(crate) fn is_listed(&self) -> bool {
        self.shards.listed
    }

    /// Views with equal versions hold the same records and shards.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Bytes on the heap for this view (without the allocator's overhead).
    pub(crate) fn heap_bytes(&self) -> usize {
        let buckets: usize = self.buckets().map(Bucket::heap_bytes).sum();
        let types: usize = self.types.iter().map(|name| size_of::<Arc<str>>() + 16 + name.len()).sum();
        buckets + BUCKETS * size_of::<Bucket>() + size_of_val(&*self.pages) + types
    }

    fn cluster_key(&self, id: &str) -> u64 {
        self.key_hash(Kind::Cluster, id.as_bytes(), &[])
    }

    fn workspace_key(&self, parent: &str, name: &str) -> u64 {
        self.key_hash(Kind::Workspace, parent.as_bytes(), name.as_bytes())
    }

    /// The hash of a key as a bucket stores it.
    fn stored_key_hash(&self, kind: Kind, stored: &[u8]) -> u64 {
        match (kind, stored.iter().position(|byte| *byte == SEPARATOR)) {
            (Kind::Workspace, Some(at)) => self.key_hash(kind, &stored[..at], &stored[at + 1..]),
            _ => self.key_hash(Kind::Cluster, stored, &[]),
        }
    }

    fn key_hash(&self, kind: Kind, first: &[u8], second: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(first);
        if kind == Kind::Workspace {
            hasher.write_u8(SEPARATOR);
            hasher.write(second);
        }
        hasher.finish()
    }

    fn bucket(&self, key: u64) -> &Bucket {
        self.bucket_at(bucket_index(key))
    }

    fn bucket_at(&self, index: usize) -> &Bucket {
        &self.pages[index / BUCKETS_PER_PAGE][index % BUCKETS_PER_PAGE]
    }

    fn set_bucket(&mut self, index: usize, bucket: Bucket) {
        let page = Arc::make_mut(&mut self.pages[index / BUCKETS_PER_PAGE]);
        page[index % BUCKETS_PER_PAGE] = bucket;
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.pages.iter().flat_map(|page| page.iter())
    }
}

fn bucket_index(key: u64) -> usize {
    (key >> (u64::BITS - BUCKET_BITS)) as usize
}

fn cluster<'k>(number: u64, id: &'k str) -> Key<'k> {
    Key { kind: Kind::Cluster, number, first: id, second: "" }
}

fn workspace<'k>(number: u64, parent: &'k str, name: &'k str) -> Key<'k> {
    Key { kind: Kind::Workspace, number, first: parent, second: name }
}

#[cfg(test)]
mod figures;
#[cfg(test)]
pub(crate) use figures::table_of;
#[cfg(test)]
mod tests;
