//! The routing table: which shard has a logical cluster, and which logical cluster a workspace path means.
//!
//! One `ArcSwap` over a root of 4,096 shared buckets. A reader loads the root once and walks a whole path
//! on that one view: no lock, no allocation. The one writer copies the array of pointers and the touched buckets per
//! batch, then swaps. Some 110 bytes per workspace (a test holds it below 200).

mod bucket;
mod resolve;
mod shards;
mod write;

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use hashbrown::DefaultHashBuilder;

use bucket::{Bucket, Key, Kind};

pub(crate) use resolve::{Missing, Resolution};
pub(crate) use shards::{ShardCounts, ShardEntry, ShardIndex, ShardSpec};
pub(crate) use write::{Change, ClusterRecord, TableWriter, WorkspaceRecord, WorkspaceTarget};

const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// The current view, shared by all requests.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    root: ArcSwap<Root>,
}

impl RoutingTable {
    /// The view of this moment. Keep it for one walk, not across an await.
    pub(crate) fn load(&self) -> Guard<Arc<Root>> {
        self.root.load()
    }
}

/// One immutable view of the table.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    buckets: Box<[Arc<Bucket>]>,
    shards: Arc<shards::Shards>,
    counts: Box<[ShardCounts]>,
    /// Workspace types by number; they only ever grow.
    types: Arc<Vec<Arc<str>>>,
    hasher: DefaultHashBuilder,
}

/// The identity of something that the table may learn about: equal keys have equal numbers for the life of
/// the process. What [`Missing`] names and what a batch reports as touched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct TableKey(u64);

impl Root {
    /// The shards known, synced or not, in the order in which they appeared.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &ShardEntry> {
        self.shards.iter()
    }

    /// One shard by its index; `None` after its removal.
    pub(crate) fn shard(&self, index: ShardIndex) -> Option<&ShardEntry> {
        self.shards.get(index)
    }

    /// How much lives on a shard.
    pub(crate) fn counts(&self, index: ShardIndex) -> ShardCounts {
        self.counts.get(usize::from(index.0)).copied().unwrap_or_default()
    }

    /// Whether the list of shards and everything on them has been read once.
    pub(crate) fn is_synced(&self) -> bool {
        self.shards.listed && self.shards.iter().all(ShardEntry::is_synced)
    }

    /// Whether the list of shards has been read once.
    pub(crate) fn is_listed(&self) -> bool {
        self.shards.listed
    }

    /// Bytes on the heap for this view (without the allocator's overhead).
    pub(crate) fn heap_bytes(&self) -> usize {
        let buckets: usize =
            self.buckets.iter().map(|bucket| size_of::<Bucket>() + 16 + bucket.heap_bytes()).sum();
        buckets + size_of_val(&*self.buckets)
    }

    fn cluster_key(&self, id: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(id.as_bytes());
        hasher.finish()
    }

    fn workspace_key(&self, parent: &str, name: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(parent.as_bytes());
        hasher.write_u8(b'/');
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    fn bucket(&self, key: u64) -> &Bucket {
        &self.buckets[bucket_index(key)]
    }
}

fn bucket_index(key: u64) -> usize {
    (key >> (u64::BITS - BUCKET_BITS)) as usize
}

/// The part of a key's hash that orders the records of a bucket.
fn record_hash(key: u64) -> u32 {
    key as u32
}

fn cluster<'k>(key: u64, id: &'k str) -> Key<'k> {
    Key { kind: Kind::Cluster, hash: record_hash(key), first: id, second: "" }
}

fn workspace<'k>(key: u64, parent: &'k str, name: &'k str) -> Key<'k> {
    Key { kind: Kind::Workspace, hash: record_hash(key), first: parent, second: name }
}

#[cfg(test)]
mod tests;
