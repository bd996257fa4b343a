//! Import and export of the table's records for snapshots.

use std::sync::Arc;

use crate::routing::table::bucket::{Flags, is_counted_record};
use crate::routing::table::bucket_builder::BucketBuilder;
use crate::routing::table::shards::{ShardIndex, ShardSpec};
use crate::routing::table::{BUCKETS, TableView, bucket_index};

/// One record: a logical cluster or a workspace as a shard reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRecord<'r> {
    /// The shard that reports it.
    pub(crate) shard: ShardIndex,
    /// The record's flags.
    pub(crate) flags: u16,
    /// The stored key.
    pub(crate) key: &'r [u8],
    /// The stored value.
    pub(crate) value: &'r [u8],
}

/// A snapshot contains a record that this version cannot have written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the snapshot contains a record of a newer version")]
pub(crate) struct InvalidRecord;

impl TableView {
    /// All records, in no particular order.
    pub(crate) fn records(&self) -> impl Iterator<Item = StoredRecord<'_>> {
        self.buckets().flat_map(|bucket| bucket.entries()).map(|entry| StoredRecord {
            shard: ShardIndex(entry.shard),
            flags: entry.flags.bits(),
            key: entry.key,
            value: entry.value,
        })
    }

    /// The workspace types, indexed by number; records of logical clusters have such a number as their value.
    pub(crate) fn types(&self) -> &[Arc<str>] {
        &self.types
    }
}

/// A table that is being restored from a snapshot. Its shards are not synced: records that it has are used for routing; a
/// record that it lacks may exist all the same.
pub(crate) struct Restoration {
    root: TableView,
    builders: Vec<BucketBuilder>,
}

impl Restoration {
    /// Starts from an empty table.
    pub(super) fn new(root: TableView) -> Self {
        Self { root, builders: Vec::new() }
    }

    /// Allocates room for the expected records and bytes of keys and values; to be called before the first record. Keys are
    /// spread evenly, so that buckets rarely have to grow.
    pub(crate) fn reserve(&mut self, records: usize, bytes: usize) {
        let share = |all: usize| (all / BUCKETS) + (all / BUCKETS).isqrt() * 2;
        let builder = || BucketBuilder::with_capacity(share(records), share(bytes) + share(bytes) / 8);
        self.builders = (0..BUCKETS).map(|_| builder()).collect();
    }

    /// Adds the next shard.
    ///
    /// # Errors
    /// If there are too many shards, or two of the same name.
    pub(crate) fn add_shard(&mut self, spec: ShardSpec) -> Result<ShardIndex, InvalidRecord> {
        if self.root.shards.find(&spec.name).is_some() {
            return Err(InvalidRecord);
        }
        let index = Arc::make_mut(&mut self.root.shards).add(spec).ok_or(InvalidRecord)?;
        self.root.resize_counts();
        Ok(index)
    }

    /// Adds the next workspace type.
    pub(crate) fn add_type(&mut self, name: Arc<str>) {
        Arc::make_mut(&mut self.root.types).push(name);
    }

    /// Adds a record, in any order.
    ///
    /// # Errors
    /// If the record is not valid, or `reserve` was not called.
    pub(crate) fn add(&mut self, record: StoredRecord<'_>) -> Result<(), InvalidRecord> {
        let flags = Flags::from_bits(record.flags).ok_or(InvalidRecord)?;
        let is_text = std::str::from_utf8(record.key).is_ok();
        if !is_text || self.root.shards.get(record.shard).is_none() {
            return Err(InvalidRecord);
        }
        let kind = flags.kind();
        let number = self.root.stored_key_hash(kind, record.key);
        let builder = self.builders.get_mut(bucket_index(number)).ok_or(InvalidRecord)?;
        if !builder.restore(number as u32, record.shard.0, flags, record.key, record.value) {
            return Err(InvalidRecord);
        }
        if is_counted_record(flags, record.key)
            && let Some(counter) = self.root.counter(record.shard, kind)
        {
            *counter += 1;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> TableView {
        let Self { mut root, builders } = self;
        root.version += 1;
        for (index, builder) in builders.into_iter().enumerate() {
            if let Some(bucket) = builder.finish_restored() {
                root.set_bucket(index, bucket);
            }
        }
        root
    }
}
