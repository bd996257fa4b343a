//! Writer of a snapshot: writes a new file and renames it over the old one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};

use crate::routing::index::snapshot::{BUFFER, Header, MAGIC};
use crate::routing::table::{ShardIndex, ShardSpec, TableView};

pub(super) fn replace(path: &Path, header: &Header, table: &TableView) -> io::Result<()> {
    let new = temporary_path(path);
    let outcome = write_new(&new, header, table).and_then(|()| {
        std::fs::rename(&new, path)?;
        // Without syncing the directory, a power failure may undo the rename.
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    });
    if outcome.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    outcome
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn write_new(path: &Path, header: &Header, table: &TableView) -> io::Result<()> {
    // Readable by the owner only: the names of workspaces are confidential.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut out = Fields(BufWriter::with_capacity(BUFFER, ChecksumWriter { file, checksum: Sha256::new() }));
    out.0.write_all(&MAGIC)?;
    write_header(&mut out, header)?;
    let indices = write_shards(&mut out, table)?;
    out.u32(table.types().len() as u32)?;
    table.types().iter().try_for_each(|name| out.text(name))?;
    write_records(&mut out, table, &indices)?;
    let ChecksumWriter { mut file, checksum } = out.0.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.write_all(&checksum.finalize())?;
    file.sync_all()
}

fn write_header(out: &mut Fields, header: &Header) -> io::Result<()> {
    let written_at = header.written_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    out.u64(written_at.as_secs())?;
    out.text(header.identity.as_deref().unwrap_or_default())?;
    out.text(&header.selection)
}

/// Writes the shards and numbers them without holes.
fn write_shards(out: &mut Fields, table: &TableView) -> io::Result<FxHashMap<ShardIndex, u16>> {
    let indices: FxHashMap<ShardIndex, u16> = table.shards().map(|shard| shard.index).zip(0..).collect();
    out.u16(indices.len() as u16)?;
    for ShardSpec { name, url, labels, cordoned, constraints } in table.shards().map(|shard| &shard.spec) {
        out.text(name)?;
        out.text(url)?;
        out.u16(u16::from(*cordoned))?;
        out.u16(u16::from(constraints.draining))?;
        // A weight is at least 1 and a capacity is stored plus one, so that 0 means none.
        out.u32(constraints.weight.unwrap_or(0))?;
        out.u64(constraints.capacity.map_or(0, |capacity| u64::from(capacity) + 1))?;
        out.u32(labels.len() as u32)?;
        for (key, value) in labels.iter() {
            out.text(key)?;
            out.text(value)?;
        }
    }
    Ok(indices)
}

fn write_records(
    out: &mut Fields,
    table: &TableView,
    indices: &FxHashMap<ShardIndex, u16>,
) -> io::Result<()> {
    let known = || table.records().filter(|record| indices.contains_key(&record.shard));
    out.u64(known().count() as u64)?;
    out.u64(known().map(|record| (record.key.len() + record.value.len()) as u64).sum())?;
    for record in known() {
        out.u16(indices.get(&record.shard).copied().unwrap_or_default())?;
        out.u16(record.flags)?;
        out.bytes(record.key)?;
        out.bytes(record.value)?;
    }
    Ok(())
}

/// Writes fields in little endian; texts and bytes are preceded by their length.
struct Fields(BufWriter<ChecksumWriter>);

impl Fields {
    fn u16(&mut self, value: u16) -> io::Result<()> {
        self.0.write_all(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> io::Result<()> {
        self.0.write_all(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> io::Result<()> {
        self.0.write_all(&value.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u16::try_from(bytes.len()).map_err(|_| io::Error::other("a text is too long"))?;
        self.u16(length)?;
        self.0.write_all(bytes)
    }
}

/// A writer that computes the checksum of the bytes written.
#[derive(Debug)]
struct ChecksumWriter {
    file: File,
    checksum: Sha256,
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
