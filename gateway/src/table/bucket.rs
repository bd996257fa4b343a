//! One of the table's buckets: some hundred records and the bytes of their keys and values, in two
//! allocations. Immutable once built; a change copies the bucket.

use super::moves::OwnerChange;

/// What a record is about. Both kinds live side by side, told apart by their flag.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Kind {
    /// A logical cluster on a shard: id → workspace type.
    Cluster,
    /// A workspace below its parent: (parent id, name) → child id or mount URL.
    Workspace,
}

/// Facts about a record, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Flags(u16);

impl Flags {
    const WORKSPACE: Self = Self(1);
    /// The workspace is not to be entered through this path (phase Unavailable).
    pub(super) const UNAVAILABLE: Self = Self(1 << 1);
    /// The value is the URL of a mount, not the id of a child.
    pub(super) const MOUNT: Self = Self(1 << 2);
    /// The logical cluster is being moved to another shard.
    pub(super) const MIGRATING: Self = Self(1 << 3);
    /// Among several shards that have the logical cluster, the one that answers for it.
    pub(super) const OWNER: Self = Self(1 << 4);

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// As a snapshot stores them.
    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    /// What a snapshot stored; `None` if this version knows no such fact.
    pub(super) const fn from_bits(bits: u16) -> Option<Self> {
        if bits < Self::OWNER.0 << 1 { Some(Self(bits)) } else { None }
    }

    pub(super) const fn kind(self) -> Kind {
        if self.has(Self::WORKSPACE) { Kind::Workspace } else { Kind::Cluster }
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Cluster => Self(0),
            Kind::Workspace => Self::WORKSPACE,
        }
    }
}

/// 16 bytes; the key and then the value lie at `offset` in the bucket's bytes.
#[derive(Clone, Copy, Debug)]
struct Record {
    hash: u32,
    offset: u32,
    key_length: u16,
    value_length: u16,
    shard: u16,
    flags: Flags,
}

impl Record {
    fn kind(&self) -> Kind {
        self.flags.kind()
    }
}

/// What a look-up finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'b> {
    pub(super) shard: u16,
    pub(super) flags: Flags,
    pub(super) key: &'b [u8],
    pub(super) value: &'b [u8],
}

/// A key as the table passes it around: the parts are stored one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'k> {
    pub(super) kind: Kind,
    /// The whole hash: the bucket from its upper bits, the place in the bucket from its lower ones.
    pub(super) number: u64,
    /// The cluster id, or the parent's id.
    pub(super) first: &'k str,
    /// The workspace's name; empty for clusters.
    pub(super) second: &'k str,
}

/// Between the parts of a stored workspace key; no id holds one.
pub(super) const SEPARATOR: u8 = b'/';

impl Key<'_> {
    fn hash(&self) -> u32 {
        self.number as u32
    }

    fn matches(&self, stored: &[u8]) -> bool {
        match self.kind {
            Kind::Cluster => stored == self.first.as_bytes(),
            Kind::Workspace => stored
                .strip_prefix(self.first.as_bytes())
                .and_then(|rest| rest.strip_prefix(&[SEPARATOR]))
                .is_some_and(|rest| rest == self.second.as_bytes()),
        }
    }

    /// Whether the record counts as load of its shard: kcp's own clusters do not.
    fn is_counted(&self) -> bool {
        is_counted(self.kind, self.first.as_bytes())
    }

    fn length(&self) -> usize {
        match self.kind {
            Kind::Cluster => self.first.len(),
            Kind::Workspace => self.first.len() + 1 + self.second.len(),
        }
    }

    fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.first.as_bytes());
        if self.kind == Kind::Workspace {
            bytes.push(SEPARATOR);
            bytes.extend_from_slice(self.second.as_bytes());
        }
    }
}

fn is_counted(kind: Kind, key: &[u8]) -> bool {
    kind == Kind::Workspace || !(key == b"root" || key.starts_with(b"system:"))
}

/// Whether a stored record counts as load of its shard.
pub(super) fn is_load(flags: Flags, key: &[u8]) -> bool {
    is_counted(flags.kind(), key)
}

/// Records sorted by hash. An empty bucket allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    records: Box<[Record]>,
    bytes: Box<[u8]>,
}

impl Bucket {
    /// All records with this key (one per shard that claims it). Hashes are spread evenly, so the place is guessed
    /// from the hash and lies a few records off: some 70 bytes read, then the key. No allocation.
    pub(super) fn find<'b>(&'b self, key: Key<'b>) -> impl Iterator<Item = Entry<'b>> {
        let start = first_not_below(&self.records, key.hash());
        self.records[start..]
            .iter()
            .take_while(move |record| record.hash == key.hash())
            .filter(move |record| record.kind() == key.kind)
            .map(|record| self.entry(record))
            .filter(move |entry| key.matches(entry.key))
    }

    /// Everything in the bucket.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.records.iter().map(|record| self.entry(record))
    }

    /// Bytes on the heap, without the allocator's overhead.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.records) + self.bytes.len()
    }

    fn entry(&self, record: &Record) -> Entry<'_> {
        entry(record, &self.bytes)
    }
}

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

fn entry<'b>(record: &Record, bytes: &'b [u8]) -> Entry<'b> {
    let key_end = record.offset as usize + usize::from(record.key_length);
    let value_end = key_end + usize::from(record.value_length);
    Entry {
        shard: record.shard,
        flags: record.flags,
        key: &bytes[record.offset as usize..key_end],
        value: &bytes[key_end..value_end],
    }
}

/// A bucket under change.
#[derive(Debug)]
pub(super) struct Draft {
    records: Vec<Record>,
    /// Holds garbage of replaced records until [`Draft::finish`].
    bytes: Vec<u8>,
    changed: bool,
    owners: Vec<OwnerChange>,
}

/// How the number of a shard's records of one kind moved. Clusters that are nobody's workspace (`root`,
/// `system:…`) are not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Moved {
    Added,
    Removed,
    Same,
}

impl Draft {
    pub(super) fn of(bucket: &Bucket) -> Self {
        Self {
            records: bucket.records.to_vec(),
            bytes: bucket.bytes.to_vec(),
            changed: false,
            owners: Vec::new(),
        }
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

    /// Adds a record as a snapshot holds it, in no order; only before [`Draft::finish_restored`]. Refused as `false`
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
        Some(Bucket { records: records.into(), bytes: bytes.into() })
    }

    /// Takes what became of owners so far.
    pub(super) fn take_owner_changes(&mut self) -> Vec<OwnerChange> {
        std::mem::take(&mut self.owners)
    }

    /// Sets the shard's record for this key. Setting what is there already changes nothing. A key or value
    /// beyond 64 KiB is refused as [`Moved::Same`]; the parsers in front never produce one.
    pub(super) fn put(&mut self, key: Key<'_>, shard: u16, flags: Flags, value: &[u8]) -> Moved {
        let (Ok(key_length), Ok(value_length), Ok(offset)) =
            (u16::try_from(key.length()), u16::try_from(value.len()), u32::try_from(self.bytes.len()))
        else {
            return Moved::Same;
        };
        let flags = flags.with(Flags::of(key.kind));
        let found = self.position(key, shard);
        if let Some(at) = found {
            let old = entry(&self.records[at], &self.bytes);
            if old.flags.without(Flags::OWNER) == flags && old.value == value {
                return Moved::Same;
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
                Moved::Same
            }
            None => {
                let at = first_not_below(&self.records, key.hash());
                self.records.insert(at, record);
                if key.is_counted() { Moved::Added } else { Moved::Same }
            }
        };
        self.elect(key, None);
        moved
    }

    /// Removes the shard's record for this key; what other shards say about the key stays.
    pub(super) fn remove(&mut self, key: Key<'_>, shard: u16) -> Moved {
        let Some(at) = self.position(key, shard) else {
            return Moved::Same;
        };
        let removed = self.records.remove(at);
        self.changed = true;
        self.elect(key, removed.flags.has(Flags::OWNER).then_some(shard));
        if key.is_counted() { Moved::Removed } else { Moved::Same }
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
            let stored = entry(record, bytes).key;
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

    /// The finished bucket, compacted; `None` when nothing changed.
    pub(super) fn finish(self) -> Option<Bucket> {
        if !self.changed {
            return None;
        }
        let length = self
            .records
            .iter()
            .map(|record| usize::from(record.key_length) + usize::from(record.value_length));
        let mut bytes = Vec::with_capacity(length.sum());
        let mut records = self.records;
        for record in &mut records {
            let stored = entry(record, &self.bytes);
            let offset = bytes.len() as u32;
            bytes.extend_from_slice(stored.key);
            bytes.extend_from_slice(stored.value);
            record.offset = offset;
        }
        Some(Bucket { records: records.into(), bytes: bytes.into() })
    }

    fn position(&self, key: Key<'_>, shard: u16) -> Option<usize> {
        self.positions(key).find(|at| self.records[*at].shard == shard)
    }

    fn positions<'d>(&'d self, key: Key<'d>) -> impl Iterator<Item = usize> + 'd {
        let start = first_not_below(&self.records, key.hash());
        (start..self.records.len()).take_while(move |at| self.records[*at].hash == key.hash()).filter(
            move |at| {
                let record = &self.records[*at];
                record.kind() == key.kind && key.matches(entry(record, &self.bytes).key)
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
