//! Reader of a snapshot. All input is validated before it is used: no allocation is larger than the file's
//! size allows, and the checksum is verified last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Take};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::routing::index::snapshot::{BUFFER, CHECKSUM, Header, MAGIC, SnapshotError};
use crate::routing::table::{PlacementConstraints, Restoration, ShardIndex, ShardSpec, StoredRecord};

/// Length of the four fixed fields of a record.
const RECORD_FIELDS: u64 = 8;

pub(super) fn read(
    path: &Path,
    empty: Restoration,
    selection: &str,
) -> Result<(Header, Restoration), SnapshotError> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let content = length.checked_sub(CHECKSUM as u64).ok_or(SnapshotError::Version)?;
    let checked = ChecksumReader { file: file.take(content), checksum: Sha256::new() };
    let mut fields = Fields { input: BufReader::with_capacity(BUFFER, checked), buffer: Vec::new() };
    if fields.array::<{ MAGIC.len() }>()? != MAGIC {
        return Err(SnapshotError::Version);
    }
    let header = read_header(&mut fields)?;
    if header.selection != selection {
        return Err(SnapshotError::Selection);
    }
    let restoration = read_table(&mut fields, empty, content)?;
    let ChecksumReader { file, checksum } = fields.finish()?;
    let mut expected = [0; CHECKSUM];
    file.into_inner().read_exact(&mut expected)?;
    if checksum.finalize()[..] != expected {
        return Err(SnapshotError::Damaged);
    }
    Ok((header, restoration))
}

fn read_header(fields: &mut Fields) -> Result<Header, SnapshotError> {
    let seconds = Duration::from_secs(fields.u64()?);
    let written_at = SystemTime::UNIX_EPOCH.checked_add(seconds).ok_or(SnapshotError::Damaged)?;
    let identity = Some(fields.text()?).filter(|identity| !identity.is_empty()).map(Arc::from);
    Ok(Header { written_at, identity, selection: fields.text()?.to_owned() })
}

fn read_table(
    fields: &mut Fields,
    mut restoration: Restoration,
    content: u64,
) -> Result<Restoration, SnapshotError> {
    let shards = (0..fields.u16()?).map(|_| read_shard(fields)).collect::<Result<Vec<_>, _>>()?;
    let mut types: Vec<Arc<str>> = Vec::new();
    for _ in 0..fields.u32()? {
        types.push(fields.text()?.into());
    }
    let (records, bytes) = (fields.u64()?, fields.u64()?);
    // Do not allocate more than the file can hold.
    if bytes > content || records > content / RECORD_FIELDS {
        return Err(SnapshotError::Damaged);
    }
    let sizes = (usize::try_from(records), usize::try_from(bytes));
    let (Ok(expected), Ok(bytes)) = sizes else { return Err(SnapshotError::Damaged) };
    restoration.reserve(expected, bytes);
    let shards = shards.into_iter().map(|shard| restoration.add_shard(shard));
    let indices: Vec<ShardIndex> = shards.collect::<Result<_, _>>()?;
    types.into_iter().for_each(|name| restoration.add_type(name));
    let mut key = Vec::new();
    for _ in 0..records {
        let shard = *indices.get(usize::from(fields.u16()?)).ok_or(SnapshotError::Damaged)?;
        let flags = fields.u16()?;
        key.clear();
        key.extend_from_slice(fields.bytes()?);
        let value = fields.bytes()?;
        restoration.add(StoredRecord { shard, flags, key: &key, value })?;
    }
    Ok(restoration)
}

fn read_shard(fields: &mut Fields) -> Result<ShardSpec, SnapshotError> {
    let name = fields.text()?.into();
    let url = fields.text()?.into();
    let cordoned = fields.u16()? != 0;
    let draining = fields.u16()? != 0;
    let weight = Some(fields.u32()?).filter(|weight| *weight > 0);
    let capacity = match fields.u64()?.checked_sub(1).map(u32::try_from) {
        None => None,
        Some(Ok(capacity)) => Some(capacity),
        Some(Err(_)) => return Err(SnapshotError::Damaged),
    };
    let mut labels = BTreeMap::new();
    for _ in 0..fields.u32()? {
        let key = fields.text()?.to_owned();
        labels.insert(key, fields.text()?.to_owned());
    }
    Ok(ShardSpec {
        name,
        url,
        labels: Arc::new(labels),
        cordoned,
        constraints: PlacementConstraints { draining, weight, capacity },
    })
}

/// Reads fields in little endian; texts and bytes are preceded by their length.
struct Fields {
    input: BufReader<ChecksumReader>,
    buffer: Vec<u8>,
}

impl Fields {
    fn u16(&mut self) -> Result<u16, SnapshotError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&str, SnapshotError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| SnapshotError::Damaged)
    }

    fn bytes(&mut self) -> Result<&[u8], SnapshotError> {
        let length = self.u16()?;
        self.buffer.resize(usize::from(length), 0);
        self.input.read_exact(&mut self.buffer).map_err(read_error)?;
        Ok(&self.buffer)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(read_error)?;
        Ok(bytes)
    }

    /// Checks that the end of the content has been reached.
    fn finish(mut self) -> Result<ChecksumReader, SnapshotError> {
        match self.input.read(&mut [0])? {
            0 => Ok(self.input.into_inner()),
            _ => Err(SnapshotError::Damaged),
        }
    }
}

fn read_error(error: io::Error) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Damaged,
        _ => SnapshotError::Io(error),
    }
}

/// A reader that computes the checksum of the bytes read.
struct ChecksumReader {
    file: Take<File>,
    checksum: Sha256,
}

impl Read for ChecksumReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.checksum.update(&into[..count]);
        Ok(count)
    }
}
