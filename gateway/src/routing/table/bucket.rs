//! A bucket of the table: about thirty records with their keys and values in one block of memory. Immutable; a change
//! copies the bucket.

use std::hint::black_box;
use std::sync::Arc;

/// The kind of a record. Records of both kinds share buckets and differ in a flag.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Kind {
    /// A logical cluster on a shard: id → workspace type.
    Cluster,
    /// A workspace below its parent: (parent id, name) → child id or mount URL.
    Workspace,
}

/// Properties of a record, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Flags(u16);

impl Flags {
    const WORKSPACE: Self = Self(1);
    /// The workspace is unavailable through this path (phase Unavailable).
    pub(super) const UNAVAILABLE: Self = Self(1 << 1);
    /// The value is the URL of a mount, not the id of a child.
    pub(super) const MOUNT: Self = Self(1 << 2);
    /// The logical cluster is being migrated to another shard.
    pub(super) const MIGRATING: Self = Self(1 << 3);
    /// This shard owns the logical cluster, among several shards that have it.
    pub(super) const OWNER: Self = Self(1 << 4);

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The representation in a snapshot.
    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    /// Decodes the representation in a snapshot; `None` if it has a bit that this version does not know.
    pub(super) const fn from_bits(bits: u16) -> Option<Self> {
        if bits < Self::OWNER.0 << 1 { Some(Self(bits)) } else { None }
    }

    pub(super) const fn kind(self) -> Kind {
        if self.has(Self::WORKSPACE) { Kind::Workspace } else { Kind::Cluster }
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Cluster => Self(0),
            Kind::Workspace => Self::WORKSPACE,
        }
    }
}

/// A record as a look-up returns it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'b> {
    pub(super) shard: u16,
    pub(super) flags: Flags,
    pub(super) key: &'b [u8],
    pub(super) value: &'b [u8],
}

/// A key with its hash. A bucket stores the two parts one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'k> {
    pub(super) kind: Kind,
    /// The hash of the key: its upper bits select the bucket, its lower ones the position in the bucket.
    pub(super) number: u64,
    /// The id of the logical cluster, or of the parent.
    pub(super) first: &'k str,
    /// The workspace's name; empty for clusters.
    pub(super) second: &'k str,
}

/// Separates the parts of a stored workspace key; ids never contain it.
pub(super) const SEPARATOR: u8 = b'/';

impl Key<'_> {
    pub(super) fn hash(&self) -> u32 {
        self.number as u32
    }

    pub(super) fn matches(&self, stored: &[u8]) -> bool {
        let (first, second) = (self.first.as_bytes(), self.second.as_bytes());
        match self.kind {
            Kind::Cluster => stored == first,
            Kind::Workspace => {
                stored.len() == self.length()
                    && stored.starts_with(first)
                    && stored[first.len()] == SEPARATOR
                    && stored.ends_with(second)
            }
        }
    }

    /// Whether the record counts towards the load of its shard: kcp's own logical clusters do not.
    pub(super) fn is_counted(&self) -> bool {
        is_counted(self.kind, self.first.as_bytes())
    }

    pub(super) fn length(&self) -> usize {
        match self.kind {
            Kind::Cluster => self.first.len(),
            Kind::Workspace => self.first.len() + 1 + self.second.len(),
        }
    }

    pub(super) fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.first.as_bytes());
        if self.kind == Kind::Workspace {
            bytes.push(SEPARATOR);
            bytes.extend_from_slice(self.second.as_bytes());
        }
    }
}

pub(super) fn is_counted(kind: Kind, key: &[u8]) -> bool {
    kind == Kind::Workspace || !(key == b"root" || key.starts_with(b"system:"))
}

/// Whether a stored record counts towards the load of its shard.
pub(super) fn is_counted_record(flags: Flags, key: &[u8]) -> bool {
    is_counted(flags.kind(), key)
}

/// A record without its key and value, which are stored one after the other at `offset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) hash: u32,
    pub(super) offset: u32,
    pub(super) key_length: u16,
    pub(super) value_length: u16,
    pub(super) shard: u16,
    pub(super) flags: Flags,
}

/// Length of the header that precedes a key in a block: the fields of [`Record`] except the offset.
const RECORD_HEADER: usize = 12;

impl Record {
    pub(super) fn kind(&self) -> Kind {
        self.flags.kind()
    }

    pub(super) fn entry<'b>(&self, bytes: &'b [u8]) -> Entry<'b> {
        let start = self.offset as usize;
        let middle = start + usize::from(self.key_length);
        Entry {
            shard: self.shard,
            flags: self.flags,
            key: &bytes[start..middle],
            value: &bytes[middle..self.end()],
        }
    }

    fn end(&self) -> usize {
        self.offset as usize + usize::from(self.key_length) + usize::from(self.value_length)
    }

    /// Reads the record at this position; `None` if there is none.
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let head: [u8; RECORD_HEADER] = *bytes.get(at..)?.first_chunk()?;
        let [h0, h1, h2, h3, k0, k1, v0, v1, s0, s1, f0, f1] = head;
        let flags = u16::from_le_bytes([f0, f1]);
        (flags != u16::from_le_bytes([EMPTY_BYTE; 2])).then_some(Self {
            hash: u32::from_le_bytes([h0, h1, h2, h3]),
            offset: (at + RECORD_HEADER) as u32,
            key_length: u16::from_le_bytes([k0, k1]),
            value_length: u16::from_le_bytes([v0, v1]),
            shard: u16::from_le_bytes([s0, s1]),
            flags: Flags(flags),
        })
    }

    /// Writes the record, whose key and value are in `bytes`, to a slice of its length.
    fn write_to(&self, place: &mut [u8], bytes: &[u8]) {
        let (head, rest) = place.split_at_mut(RECORD_HEADER);
        head[..4].copy_from_slice(&self.hash.to_le_bytes());
        head[4..6].copy_from_slice(&self.key_length.to_le_bytes());
        head[6..8].copy_from_slice(&self.value_length.to_le_bytes());
        head[8..10].copy_from_slice(&self.shard.to_le_bytes());
        head[10..].copy_from_slice(&self.flags.0.to_le_bytes());
        rest.copy_from_slice(&bytes[self.offset as usize..self.end()]);
    }

    /// Length in a block, in bytes.
    fn length(&self) -> usize {
        RECORD_HEADER + usize::from(self.key_length) + usize::from(self.value_length)
    }
}

/// Records sorted by hash, in one block of memory. An empty bucket allocates nothing.
///
/// A few records are stored one after the other. Many are spread over cells, so that a look-up waits for memory only once:
/// the hash selects the cell, and all cache lines of the cell are loaded at the same time. A cell begins with the position of
/// the first record whose hash selects the cell. That record is mostly in the cell itself; records that do not fit go to the
/// cells behind it. A record never crosses the end of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// The length is a multiple of [`CELL`] if the bucket has cells.
    block: Arc<[u8]>,
}

/// Length of a cell, in bytes.
const CELL: usize = 256;
/// Header of a cell: the offset from the beginning of the cell to its first record, two bytes, little-endian;
/// [`EMPTY_BYTE`] if there is none.
const CELL_HEADER: usize = 2;
/// Maximum offset of a record from the beginning of its cell.
const MAX_RECORD_DISTANCE: usize = i16::MAX as usize;
/// Up to this many bytes, records are stored sequentially.
const MAX_SEQUENTIAL_BYTES: usize = 2 * CELL;
/// Average number of bytes used per cell.
const TARGET_CELL_FILL: usize = 192;
/// Size of a CPU cache line.
const CACHE_LINE: usize = 64;
/// Fill byte of unused space.
const EMPTY_BYTE: u8 = 0xff;

impl Bucket {
    /// Builds a bucket from records sorted by hash, whose keys and values are in `bytes`.
    pub(super) fn of(records: &[Record], bytes: &[u8]) -> Self {
        if records.is_empty() {
            return Self::default();
        }
        let length = records.iter().map(Record::length).sum();
        let block =
            cell_layout(records, bytes, length).unwrap_or_else(|| sequential_layout(records, bytes, length));
        Self { block: block.into() }
    }

    /// All records with this key (one per shard that has it). No allocation.
    pub(super) fn find<'b>(&'b self, key: Key<'b>) -> impl Iterator<Item = Entry<'b>> {
        self.prefetch(key);
        let hash = key.hash();
        self.records_from(self.start(hash))
            .skip_while(move |record| record.hash < hash)
            .take_while(move |record| record.hash == hash)
            .filter(move |record| record.kind() == key.kind)
            .map(|record| record.entry(&self.block))
            .filter(move |entry| key.matches(entry.key))
    }

    /// Loads the memory for [`Bucket::find`] into the CPU caches ahead of time.
    pub(super) fn prefetch(&self, key: Key<'_>) {
        let cell = self.cell(key.hash()).unwrap_or(0);
        black_box(
            [0, CACHE_LINE, 2 * CACHE_LINE, 3 * CACHE_LINE].map(|line| self.block.get(cell + line).copied()),
        );
    }

    /// All records with their keys and values.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.records().map(|record| record.entry(&self.block))
    }

    /// All records, sorted by hash; their keys and values are in [`Bucket::bytes`].
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        self.records_from(if self.has_cells() { CELL_HEADER } else { 0 })
    }

    /// The whole block.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// Whether both share one block.
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }

    /// Bytes on the heap, without the allocator's overhead.
    pub(super) fn heap_bytes(&self) -> usize {
        let counters = 2 * size_of::<usize>();
        if self.block.is_empty() { 0 } else { counters + self.block.len() }
    }

    fn has_cells(&self) -> bool {
        !self.block.is_empty() && self.block.len().is_multiple_of(CELL)
    }

    /// Offset of the cell of a hash, if there are cells.
    fn cell(&self, hash: u32) -> Option<usize> {
        self.has_cells().then(|| cell_of(hash, self.block.len() / CELL))
    }

    /// Offset of the first record that may have this hash.
    fn start(&self, hash: u32) -> usize {
        let Some(cell) = self.cell(hash) else {
            return 0;
        };
        match self.block[cell..].first_chunk() {
            Some(&[EMPTY_BYTE, EMPTY_BYTE]) | None => self.block.len(),
            Some(start) => cell + usize::from(u16::from_le_bytes(*start)),
        }
    }

    fn records_from(&self, mut at: usize) -> impl Iterator<Item = Record> {
        let end = self.block.len();
        let has_cells = self.has_cells();
        std::iter::from_fn(move || {
            loop {
                let end_of_cell = if has_cells { at.next_multiple_of(CELL) } else { end };
                if let Some(record) = Record::read(&self.block[..end_of_cell], at) {
                    at = record.end();
                    return Some(record);
                }
                if end_of_cell >= end {
                    return None;
                }
                at = end_of_cell + CELL_HEADER;
            }
        })
    }
}

/// Layout in cells. `None` for few bytes, for a record longer than a cell, and for many records with the same hash, as of a
/// logical cluster that every shard has.
fn cell_layout(records: &[Record], bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    if length <= MAX_SEQUENTIAL_BYTES || records.iter().any(|record| record.length() > CELL - CELL_HEADER) {
        return None;
    }
    let least = length.div_ceil(TARGET_CELL_FILL);
    let (cells, places) = (least..=least + least.div_ceil(4))
        .find_map(|cells| offsets_in_cells(records, cells).map(|places| (cells, places)))?;
    let mut block = vec![EMPTY_BYTE; cells * CELL];
    for (record, at) in records.iter().zip(places) {
        record.write_to(&mut block[at..at + record.length()], bytes);
        let cell = cell_of(record.hash, cells);
        let head = &mut block[cell..cell + CELL_HEADER];
        if head == [EMPTY_BYTE; CELL_HEADER] {
            head.copy_from_slice(&((at - cell) as u16).to_le_bytes());
        }
    }
    Some(block)
}

/// Offset of each record; `None` if there are too few cells.
fn offsets_in_cells(records: &[Record], cells: usize) -> Option<Vec<usize>> {
    let mut places = Vec::with_capacity(records.len());
    let mut end = 0_usize;
    for record in records {
        let cell = cell_of(record.hash, cells);
        let free = end.max(cell);
        let at = match free % CELL {
            0 => free + CELL_HEADER,
            taken if taken + record.length() > CELL => free.next_multiple_of(CELL) + CELL_HEADER,
            _ => free,
        };
        end = at + record.length();
        if end > cells * CELL || at - cell > MAX_RECORD_DISTANCE {
            return None;
        }
        places.push(at);
    }
    Some(places)
}

fn sequential_layout(records: &[Record], bytes: &[u8], length: usize) -> Vec<u8> {
    // The length must not look like one with cells.
    let padding = usize::from(length.is_multiple_of(CELL));
    let mut block = vec![EMPTY_BYTE; length + padding];
    let mut at = 0;
    for record in records {
        record.write_to(&mut block[at..at + record.length()], bytes);
        at += record.length();
    }
    block
}

/// Offset of the cell of a hash. Hashes are spread evenly. No hash selects the last few cells; they take the records that do
/// not fit into the cells before.
fn cell_of(hash: u32, cells: usize) -> usize {
    let leading = cells - cells / 16;
    (((u64::from(hash) * leading as u64) >> u32::BITS) as usize) * CELL
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::bucket_builder::BucketBuilder;
    use super::*;

    /// Logical clusters with these hashes and values, each on a separate shard.
    fn bucket(records: &[(u32, String)]) -> Bucket {
        let mut builder = BucketBuilder::with_capacity(0, 0);
        for (shard, (hash, value)) in (0..).zip(records) {
            assert!(builder.restore(*hash, shard, Flags::OWNER, id(*hash).as_bytes(), value.as_bytes()));
        }
        builder.finish_restored().unwrap()
    }

    fn id(hash: u32) -> String {
        format!("id-{hash}")
    }

    fn found(bucket: &Bucket, hash: u32) -> Vec<(u16, String)> {
        let key = Key { kind: Kind::Cluster, number: hash.into(), first: &id(hash), second: "" };
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        bucket.find(key).map(|entry| (entry.shard, text(entry.value))).collect()
    }

    fn spread(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b9)
    }

    fn assert_all_found(bucket: &Bucket, records: &[(u32, String)]) {
        assert_eq!(bucket.entries().count(), records.len());
        for (shard, (hash, value)) in (0..).zip(records) {
            assert!(found(bucket, *hash).contains(&(shard, value.clone())), "{hash} of {}", records.len());
        }
    }

    #[test]
    fn few_records_are_sequential_and_many_are_in_cells() {
        for (count, has_cells) in [(1, false), (5, false), (40, true), (122, true), (3000, true)] {
            let records: Vec<_> =
                (0..count).map(|number| (spread(number), "v".repeat(number as usize % 90))).collect();
            let bucket = bucket(&records);
            assert_eq!(bucket.has_cells(), has_cells, "{count}");
            assert_all_found(&bucket, &records);
            for unknown in count..2 * count {
                assert_eq!(found(&bucket, spread(unknown)), [], "{unknown} of {count}");
            }
        }
    }

    #[test]
    fn sequential_records_may_be_as_long_as_a_cell() {
        // A header of 12 bytes, an id of 4, the value.
        let records = [(7, "v".repeat(CELL - RECORD_HEADER - 4))];
        let bucket = bucket(&records);
        assert!(!bucket.has_cells());
        assert_all_found(&bucket, &records);
    }

    #[test]
    fn records_that_do_not_fit_into_cells_are_found() {
        let ordinary = || (0..100).map(|number| (spread(number), "value".to_owned()));
        let long = [(spread(200), "v".repeat(60_000))];
        let one_hash = |hash| (0..3000).map(move |_| (hash, "on every shard".to_owned()));
        for records in [
            ordinary().chain(long).collect::<Vec<_>>(),
            ordinary().chain(one_hash(0)).collect(),
            ordinary().chain(one_hash(u32::MAX / 2)).collect(),
            ordinary().chain(one_hash(u32::MAX)).collect(),
        ] {
            assert_all_found(&bucket(&records), &records);
        }
    }
}
