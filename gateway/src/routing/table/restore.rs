//! The table's records as a snapshot holds them, on their way out and back.

use std::sync::Arc;

use crate::routing::table::bucket::{Flags, is_load};
use crate::routing::table::bucket_builder::BucketBuilder;
use crate::routing::table::shards::{ShardIndex, ShardSpec};
use crate::routing::table::{BUCKETS, Root, bucket_index};

/// One record: what a shard says about a logical cluster or a workspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRecord<'r> {
    /// The shard.
    pub(crate) shard: ShardIndex,
    /// The facts about it, one bit each.
    pub(crate) flags: u16,
    /// What it is about.
    pub(crate) key: &'r [u8],
    /// What is said.
    pub(crate) value: &'r [u8],
}

/// A snapshot says something that this version cannot have written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it holds something that this version does not know")]
pub(crate) struct Unusable;

impl Root {
    /// All records, in no particular order.
    pub(crate) fn records(&self) -> impl Iterator<Item = StoredRecord<'_>> {
        self.buckets().flat_map(|bucket| bucket.entries()).map(|entry| StoredRecord {
            shard: ShardIndex(entry.shard),
            flags: entry.flags.bits(),
            key: entry.key,
            value: entry.value,
        })
    }

    /// The workspace types by their numbers, which the records of logical clusters have as their values.
    pub(crate) fn types(&self) -> &[Arc<str>] {
        &self.types
    }
}

/// A table that is being read from a snapshot. Its shards are not synced: what it has is routed to, what it lacks is
/// not known not to exist.
pub(crate) struct Restoration {
    root: Root,
    drafts: Vec<BucketBuilder>,
}

impl Restoration {
    /// Into an empty table.
    pub(super) fn new(root: Root) -> Self {
        Self { root, drafts: Vec::new() }
    }

    /// Makes room for about so many records and bytes of keys and values, before the first record: keys spread evenly,
    /// so that the buckets hardly ever have to grow.
    pub(crate) fn make_room(&mut self, records: usize, bytes: usize) {
        let share = |all: usize| (all / BUCKETS) + (all / BUCKETS).isqrt() * 2;
        let draft = || BucketBuilder::with_capacity(share(records), share(bytes) + share(bytes) / 8);
        self.drafts = (0..BUCKETS).map(|_| draft()).collect();
    }

    /// The next shard.
    ///
    /// # Errors
    /// When there are too many, or two of one name.
    pub(crate) fn add_shard(&mut self, spec: ShardSpec) -> Result<ShardIndex, Unusable> {
        if self.root.shards.find(&spec.name).is_some() {
            return Err(Unusable);
        }
        let index = Arc::make_mut(&mut self.root.shards).add(spec).ok_or(Unusable)?;
        self.root.make_room_for_counts();
        Ok(index)
    }

    /// The next workspace type.
    pub(crate) fn add_type(&mut self, name: Arc<str>) {
        Arc::make_mut(&mut self.root.types).push(name);
    }

    /// A record, in any order.
    ///
    /// # Errors
    /// When it cannot be one, or nothing was expected.
    pub(crate) fn add(&mut self, record: StoredRecord<'_>) -> Result<(), Unusable> {
        let flags = Flags::from_bits(record.flags).ok_or(Unusable)?;
        let is_text = std::str::from_utf8(record.key).is_ok();
        if !is_text || self.root.shards.get(record.shard).is_none() {
            return Err(Unusable);
        }
        let kind = flags.kind();
        let number = self.root.stored_number(kind, record.key);
        let draft = self.drafts.get_mut(bucket_index(number)).ok_or(Unusable)?;
        if !draft.restore(number as u32, record.shard.0, flags, record.key, record.value) {
            return Err(Unusable);
        }
        if is_load(flags, record.key)
            && let Some(counter) = self.root.counter(record.shard, kind)
        {
            *counter += 1;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Root {
        let Self { mut root, drafts } = self;
        root.version += 1;
        for (index, draft) in drafts.into_iter().enumerate() {
            if let Some(bucket) = draft.finish_restored() {
                root.set_bucket(index, bucket);
            }
        }
        root
    }
}
