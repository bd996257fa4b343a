//! Builder for changed and restored buckets.

use crate::routing::table::bucket::{Bucket, Flags, Key, Kind, Record, is_counted};
use crate::routing::table::relocations::OwnerChange;

/// The records of a bucket in a form that can be changed.
#[derive(Debug)]
pub(super) struct BucketBuilder {
    records: Vec<Record>,
    /// Buffer with keys and values: the copied block, then new ones. [`BucketBuilder::finish`] drops the unused bytes.
    bytes: Vec<u8>,
    changed: bool,
    owners: Vec<OwnerChange>,
}

/// Change of the number of a shard's records of one kind. Logical clusters without a workspace (`root`,
/// `system:…`) are not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountChange {
    Added,
    Removed,
    Unchanged,
}

impl BucketBuilder {
    pub(super) fn of(bucket: &Bucket) -> Self {
        // Room for one more record. A record takes at least twice as much space in a block as here.
        let mut records = Vec::with_capacity(bucket.bytes().len() / size_of::<Record>() / 2 + 1);
        records.extend(bucket.records());
        Self { records, bytes: bucket.bytes().to_vec(), changed: false, owners: Vec::new() }
    }

    /// A builder with room for restored records and bytes.
    pub(super) fn with_capacity(records: usize, bytes: usize) -> Self {
        Self {
            records: Vec::with_capacity(records),
            bytes: Vec::with_capacity(bytes),
            changed: false,
            owners: Vec::new(),
        }
    }

    /// Adds a record from a snapshot, in any order; only before [`BucketBuilder::finish_restored`]. Returns `false`
    /// if the record is too long.
    pub(super) fn restore(&mut self, hash: u32, shard: u16, flags: Flags, key: &[u8], value: &[u8]) -> bool {
        let (Ok(key_length), Ok(value_length), Ok(offset)) =
            (u16::try_from(key.len()), u16::try_from(value.len()), u32::try_from(self.bytes.len()))
        else {
            return false;
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.records.push(Record { hash, offset, key_length, value_length, shard, flags });
        true
    }

    /// The bucket of restored records; `None` if there are none.
    pub(super) fn finish_restored(self) -> Option<Bucket> {
        let Self { mut records, bytes, .. } = self;
        if records.is_empty() {
            return None;
        }
        records.sort_by_key(|record| record.hash);
        Some(Bucket::of(&records, &bytes))
    }

    /// Takes the owner changes recorded so far.
    pub(super) fn take_owner_changes(&mut self) -> Vec<OwnerChange> {
        std::mem::take(&mut self.owners)
    }

    /// Sets the shard's record for this key. An equal record changes nothing. A key or value
    /// beyond 64 KiB is ignored ([`CountChange::Unchanged`]); the parsers never produce one.
    pub(super) fn put(&mut self, key: Key<'_>, shard: u16, flags: Flags, value: &[u8]) -> CountChange {
        let (Ok(key_length), Ok(value_length), Ok(offset)) =
            (u16::try_from(key.length()), u16::try_from(value.len()), u32::try_from(self.bytes.len()))
        else {
            return CountChange::Unchanged;
        };
        let flags = flags.with(Flags::of(key.kind));
        let found = self.position(key, shard);
        if let Some(at) = found {
            let old = self.records[at].entry(&self.bytes);
            if old.flags.without(Flags::OWNER) == flags && old.value == value {
                return CountChange::Unchanged;
            }
        }
        key.write_to(&mut self.bytes);
        self.bytes.extend_from_slice(value);
        self.changed = true;
        let record = Record { hash: key.hash(), offset, key_length, value_length, shard, flags };
        let count_change = match found {
            Some(at) => {
                let owner =
                    if self.records[at].flags.has(Flags::OWNER) { Flags::OWNER } else { Flags::default() };
                self.records[at] = Record { flags: flags.with(owner), ..record };
                CountChange::Unchanged
            }
            None => {
                let at = lower_bound(&self.records, key.hash());
                self.records.insert(at, record);
                if key.is_counted() { CountChange::Added } else { CountChange::Unchanged }
            }
        };
        self.elect(key, None);
        count_change
    }

    /// Updates the flags of a mount, and removes any other record.
    pub(super) fn keep_mount(&mut self, key: Key<'_>, shard: u16, flags: Flags) -> CountChange {
        let known = self.position(key, shard).map(|at| self.records[at].entry(&self.bytes));
        match known.filter(|entry| entry.flags.has(Flags::MOUNT)).map(|entry| entry.value.to_vec()) {
            Some(url) => self.put(key, shard, flags.with(Flags::MOUNT), &url),
            None => self.remove(key, shard),
        }
    }

    /// Removes the shard's record for this key; the records of other shards stay.
    pub(super) fn remove(&mut self, key: Key<'_>, shard: u16) -> CountChange {
        let Some(at) = self.position(key, shard) else {
            return CountChange::Unchanged;
        };
        let removed = self.records.remove(at);
        self.changed = true;
        self.elect(key, removed.flags.has(Flags::OWNER).then_some(shard));
        if key.is_counted() { CountChange::Removed } else { CountChange::Unchanged }
    }

    /// Removes the shard's records of one kind (of all kinds for `None`) that `keep` rejects. `number` returns
    /// the hash of a stored key. Returns the number of removed records that count towards the load.
    pub(super) fn retain(
        &mut self,
        shard: u16,
        kind: Option<Kind>,
        number: impl Fn(Kind, &[u8]) -> u64,
        keep: impl Fn(u64) -> bool,
    ) -> u32 {
        let mut orphans = Vec::new();
        let before = self.records.len();
        let mut removed = 0;
        let bytes = &self.bytes;
        self.records.retain(|record| {
            if record.shard != shard || kind.is_some_and(|kind| kind != record.kind()) {
                return true;
            }
            let stored = record.entry(bytes).key;
            let number = number(record.kind(), stored);
            let is_kept = keep(number);
            if !is_kept && record.flags.has(Flags::OWNER) {
                orphans.push((number, stored.to_vec()));
            }
            removed += u32::from(!is_kept && is_counted(record.kind(), stored));
            is_kept
        });
        for (number, id) in orphans {
            if let Ok(first) = std::str::from_utf8(&id) {
                self.elect(Key { kind: Kind::Cluster, number, first, second: "" }, Some(shard));
            }
        }
        self.changed |= self.records.len() < before;
        removed
    }

    /// The finished bucket; `None` when nothing changed.
    pub(super) fn finish(self) -> Option<Bucket> {
        if !self.changed {
            return None;
        }
        Some(Bucket::of(&self.records, &self.bytes))
    }

    fn position(&self, key: Key<'_>, shard: u16) -> Option<usize> {
        self.positions(key).find(|at| self.records[*at].shard == shard)
    }

    fn positions<'d>(&'d self, key: Key<'d>) -> impl Iterator<Item = usize> + 'd {
        let start = lower_bound(&self.records, key.hash());
        (start..self.records.len()).take_while(move |at| self.records[*at].hash == key.hash()).filter(
            move |at| {
                let record = &self.records[*at];
                record.kind() == key.kind && key.matches(record.entry(&self.bytes).key)
            },
        )
    }

    /// Elects the owner among the shards that have this logical cluster: first a shard where it is not being
    /// migrated, then the previous owner, so that a resync never changes a route and the removal on the old
    /// shard completes a migration. `removed_owner` is the shard whose record has just been removed, if it was the owner.
    fn elect(&mut self, key: Key<'_>, removed_owner: Option<u16>) {
        if key.kind != Kind::Cluster {
            return;
        }
        let claims: Vec<usize> = self.positions(key).collect();
        let owned = claims.iter().map(|at| &self.records[*at]).find(|record| record.flags.has(Flags::OWNER));
        let before = owned.map(|record| record.shard).or(removed_owner);
        let winner = claims.iter().copied().min_by_key(|at| {
            let record = &self.records[*at];
            (record.flags.has(Flags::MIGRATING), !record.flags.has(Flags::OWNER), record.shard)
        });
        let after = winner.map(|at| self.records[at].shard);
        if before == after {
            return;
        }
        self.owners.push(OwnerChange { cluster: key.number, before, after });
        for at in claims {
            let flags = &mut self.records[at].flags;
            *flags = if Some(at) == winner { flags.with(Flags::OWNER) } else { flags.without(Flags::OWNER) };
        }
    }
}

/// Index of the first record whose hash is not below `hash`. Hashes are spread evenly, so interpolation finds it within a
/// few records.
fn lower_bound(records: &[Record], hash: u32) -> usize {
    let mut at = ((u64::from(hash) * records.len() as u64) >> 32) as usize;
    while at > 0 && records[at - 1].hash >= hash {
        at -= 1;
    }
    while at < records.len() && records[at].hash < hash {
        at += 1;
    }
    at
}
