//! One of the table's buckets: a few hundred records and the bytes of their keys and values, in two
//! allocations. Immutable once built; a change copies the bucket.

/// What a record is about. Both kinds live side by side, told apart by their flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
        if self.flags.has(Flags::WORKSPACE) { Kind::Workspace } else { Kind::Cluster }
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
    pub(super) hash: u32,
    /// The cluster id, or the parent's id.
    pub(super) first: &'k str,
    /// The workspace's name; empty for clusters.
    pub(super) second: &'k str,
}

impl Key<'_> {
    const SEPARATOR: u8 = b'/';

    fn matches(&self, stored: &[u8]) -> bool {
        match self.kind {
            Kind::Cluster => stored == self.first.as_bytes(),
            Kind::Workspace => stored
                .strip_prefix(self.first.as_bytes())
                .and_then(|rest| rest.strip_prefix(&[Self::SEPARATOR]))
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
            bytes.push(Self::SEPARATOR);
            bytes.extend_from_slice(self.second.as_bytes());
        }
    }
}

fn is_counted(kind: Kind, key: &[u8]) -> bool {
    kind == Kind::Workspace || !(key == b"root" || key.starts_with(b"system:"))
}

/// Records sorted by hash. An empty bucket allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    records: Box<[Record]>,
    bytes: Box<[u8]>,
}

impl Bucket {
    /// All records with this key (one per shard that claims it). A binary search and a short walk; no
    /// allocation.
    pub(super) fn find<'b>(&'b self, key: Key<'b>) -> impl Iterator<Item = Entry<'b>> {
        let start = self.records.partition_point(|record| record.hash < key.hash);
        self.records[start..]
            .iter()
            .take_while(move |record| record.hash == key.hash)
            .filter(move |record| record.kind() == key.kind)
            .map(|record| self.entry(record))
            .filter(move |entry| key.matches(entry.key))
    }

    /// Bytes on the heap, without the allocator's overhead.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.records) + self.bytes.len()
    }

    fn entry(&self, record: &Record) -> Entry<'_> {
        entry(record, &self.bytes)
    }
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
        Self { records: bucket.records.to_vec(), bytes: bucket.bytes.to_vec(), changed: false }
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
        let record = Record { hash: key.hash, offset, key_length, value_length, shard, flags };
        let moved = match found {
            Some(at) => {
                let kept =
                    if self.records[at].flags.has(Flags::OWNER) { Flags::OWNER } else { Flags::default() };
                self.records[at] = Record { flags: flags.with(kept), ..record };
                Moved::Same
            }
            None => {
                let at = self.records.partition_point(|other| other.hash < key.hash);
                self.records.insert(at, record);
                if key.is_counted() { Moved::Added } else { Moved::Same }
            }
        };
        self.elect(key);
        moved
    }

    /// Removes the shard's record for this key; what other shards say about the key stays.
    pub(super) fn remove(&mut self, key: Key<'_>, shard: u16) -> Moved {
        let Some(at) = self.position(key, shard) else {
            return Moved::Same;
        };
        self.records.remove(at);
        self.changed = true;
        self.elect(key);
        if key.is_counted() { Moved::Removed } else { Moved::Same }
    }

    /// Removes all of a shard's records of one kind (of any kind for `None`) whose key is not in `keep`, which
    /// is sorted. Returns how many counted ones went.
    pub(super) fn retain(&mut self, shard: u16, kind: Option<Kind>, keep: &[(u32, &str, &str)]) -> u32 {
        let mut orphans = Vec::new();
        let before = self.records.len();
        let mut removed = 0;
        let bytes = &self.bytes;
        self.records.retain(|record| {
            if record.shard != shard || kind.is_some_and(|kind| kind != record.kind()) {
                return true;
            }
            let stored = entry(record, bytes).key;
            let from = keep.partition_point(|(hash, _, _)| *hash < record.hash);
            let kept = keep[from..].iter().take_while(|(hash, _, _)| *hash == record.hash).any(|kept| {
                let (hash, first, second) = *kept;
                Key { kind: record.kind(), hash, first, second }.matches(stored)
            });
            if !kept && record.flags.has(Flags::OWNER) {
                orphans.push((record.hash, stored.to_vec()));
            }
            removed += u32::from(!kept && is_counted(record.kind(), stored));
            kept
        });
        for (hash, id) in orphans {
            if let Ok(first) = std::str::from_utf8(&id) {
                self.elect(Key { kind: Kind::Cluster, hash, first, second: "" });
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
        let start = self.records.partition_point(|record| record.hash < key.hash);
        (start..self.records.len()).take_while(move |at| self.records[*at].hash == key.hash).filter(
            move |at| {
                let record = &self.records[*at];
                record.kind() == key.kind && key.matches(entry(record, &self.bytes).key)
            },
        )
    }

    /// Decides which of the shards that have this logical cluster answers for it: one where it is not being
    /// moved, then the one that did so far, so that a resync never flips a route and the removal at the old
    /// shard is what completes a move.
    fn elect(&mut self, key: Key<'_>) {
        if key.kind != Kind::Cluster {
            return;
        }
        let claims: Vec<usize> = self.positions(key).collect();
        let winner = claims.iter().copied().min_by_key(|at| {
            let record = &self.records[*at];
            (record.flags.has(Flags::MIGRATING), !record.flags.has(Flags::OWNER), record.shard)
        });
        for at in claims {
            let flags = &mut self.records[at].flags;
            *flags = if Some(at) == winner { flags.with(Flags::OWNER) } else { flags.without(Flags::OWNER) };
        }
    }
}
