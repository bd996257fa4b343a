//! A bucket under change.

use crate::routing::table::bucket::{Bucket, Flags, Key, Kind, Record, is_counted};
use crate::routing::table::relocations::OwnerChange;

/// A bucket's records in parts that can be changed.
#[derive(Debug)]
pub(super) struct BucketBuilder {
    records: Vec<Record>,
    /// Keys and values somewhere in it: of the block that was copied, then what is new. [`BucketBuilder::finish`] leaves the rest.
    bytes: Vec<u8>,
    changed: bool,
    owners: Vec<OwnerChange>,
}

/// How the number of a shard's records of one kind moved. Clusters that are nobody's workspace (`root`,
/// `system:…`) are not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Relocated {
    Added,
    Removed,
    Same,
}

impl BucketBuilder {
    pub(super) fn of(bucket: &Bucket) -> Self {
        // One more may well follow; a record takes at least twice as much of a block as here.
        let mut records = Vec::with_capacity(bucket.bytes().len() / size_of::<Record>() / 2 + 1);
        records.extend(bucket.records());
        Self { records, bytes: bucket.bytes().to_vec(), changed: false, owners: Vec::new() }
    }

    /// A draft for about so many restored records and bytes.
    pub(super) fn with_capacity(records: usize, bytes: usize) -> Self {
        Self {
            records: Vec::with_capacity(records),
            bytes: Vec::with_capacity(bytes),
            changed: false,
            owners: Vec::new(),
        }
    }

    /// Adds a record as a snapshot holds it, in no order; only before [`BucketBuilder::finish_restored`]. Refused as `false`
    /// if it is too long.
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

    /// Takes what became of owners so far.
    pub(super) fn take_owner_changes(&mut self) -> Vec<OwnerChange> {
        std::mem::take(&mut self.owners)
    }

    /// Sets the shard's record for this key. Setting what is there already changes nothing. A key or value
    /// beyond 64 KiB is refused as [`Relocated::Same`]; the parsers in front never produce one.
    pub(super) fn put(&mut self, key: Key<'_>, shard: u16, flags: Flags, value: &[u8]) -> Relocated {
        let (Ok(key_length), Ok(value_length), Ok(offset)) =
            (u16::try_from(key.length()), u16::try_from(value.len()), u32::try_from(self.bytes.len()))
        else {
            return Relocated::Same;
        };
        let flags = flags.with(Flags::of(key.kind));
        let found = self.position(key, shard);
        if let Some(at) = found {
            let old = self.records[at].entry(&self.bytes);
            if old.flags.without(Flags::OWNER) == flags && old.value == value {
                return Relocated::Same;
            }
        }
        key.write_to(&mut self.bytes);
        self.bytes.extend_from_slice(value);
        self.changed = true;
        let record = Record { hash: key.hash(), offset, key_length, value_length, shard, flags };
        let moved = match found {
            Some(at) => {
                let kept =
                    if self.records[at].flags.has(Flags::OWNER) { Flags::OWNER } else { Flags::default() };
                self.records[at] = Record { flags: flags.with(kept), ..record };
                Relocated::Same
            }
            None => {
                let at = first_not_below(&self.records, key.hash());
                self.records.insert(at, record);
                if key.is_counted() { Relocated::Added } else { Relocated::Same }
            }
        };
        self.elect(key, None);
        moved
    }

    /// Keeps what is a mount, with other flags, and removes anything else.
    pub(super) fn keep_mount(&mut self, key: Key<'_>, shard: u16, flags: Flags) -> Relocated {
        let known = self.position(key, shard).map(|at| self.records[at].entry(&self.bytes));
        match known.filter(|entry| entry.flags.has(Flags::MOUNT)).map(|entry| entry.value.to_vec()) {
            Some(url) => self.put(key, shard, flags.with(Flags::MOUNT), &url),
            None => self.remove(key, shard),
        }
    }

    /// Removes the shard's record for this key; what other shards say about the key stays.
    pub(super) fn remove(&mut self, key: Key<'_>, shard: u16) -> Relocated {
        let Some(at) = self.position(key, shard) else {
            return Relocated::Same;
        };
        let removed = self.records.remove(at);
        self.changed = true;
        self.elect(key, removed.flags.has(Flags::OWNER).then_some(shard));
        if key.is_counted() { Relocated::Removed } else { Relocated::Same }
    }

    /// Removes all of a shard's records of one kind (of any kind for `None`) that are not to be kept. `number` tells
    /// the number of a stored key. Returns how many counted ones went.
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
            let kept = keep(number);
            if !kept && record.flags.has(Flags::OWNER) {
                orphans.push((number, stored.to_vec()));
            }
            removed += u32::from(!kept && is_counted(record.kind(), stored));
            kept
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
        let start = first_not_below(&self.records, key.hash());
        (start..self.records.len()).take_while(move |at| self.records[*at].hash == key.hash()).filter(
            move |at| {
                let record = &self.records[*at];
                record.kind() == key.kind && key.matches(record.entry(&self.bytes).key)
            },
        )
    }

    /// Decides which of the shards that have this logical cluster answers for it: one where it is not being
    /// moved, then the one that did so far, so that a resync never flips a route and the removal at the old
    /// shard is what completes a move. `left` is the owner that has just gone, if it was that.
    fn elect(&mut self, key: Key<'_>, left: Option<u16>) {
        if key.kind != Kind::Cluster {
            return;
        }
        let claims: Vec<usize> = self.positions(key).collect();
        let owned = claims.iter().map(|at| &self.records[*at]).find(|record| record.flags.has(Flags::OWNER));
        let before = owned.map(|record| record.shard).or(left);
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

/// Hashes are spread evenly, so the place is guessed from the hash and lies a few records off.
fn first_not_below(records: &[Record], hash: u32) -> usize {
    let mut at = ((u64::from(hash) * records.len() as u64) >> 32) as usize;
    while at > 0 && records[at - 1].hash >= hash {
        at -= 1;
    }
    while at < records.len() && records[at].hash < hash {
        at += 1;
    }
    at
}
