//! Snapshot of the index on disk: the shards, the identity hash of the workspaces' export, and the whole table. A gateway
//! that starts while the root shard is down routes by its snapshot.
//!
//! The file is always replaced as a whole. It is written and read as a stream: beside the table itself, both
//! need only a buffer. The checksum covers every byte; a snapshot that fails the check is not used.

mod read;
mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::routing::table::{InvalidRecord, Restoration, TableView};

/// Magic bytes of the file. The last byte is the version of the format.
const MAGIC: [u8; 8] = *b"flindex\x02";
const BUFFER: usize = 256 << 10;
/// Length of the SHA-256 at the end of the file.
const CHECKSUM: usize = 32;

/// The snapshot file of a gateway.
#[derive(Clone, Debug)]
pub(super) struct SnapshotFile(PathBuf);

/// The parts of a snapshot before the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) written_at: SystemTime,
    /// Identity hash of the export that serves workspaces.
    pub(super) identity: Option<Arc<str>>,
    /// The selection of shards that the gateway followed; a snapshot with another selection is not used.
    pub(super) selection: String,
}

/// The snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not a snapshot, or has another version.
    #[error("the file is not a snapshot of this version")]
    Version,
    /// The snapshot was written with another selection of shards.
    #[error("the snapshot was written with another selection of shards")]
    Selection,
    /// The file is truncated, has bytes left over, or fails the checksum.
    #[error("the file is damaged")]
    Damaged,
    /// The snapshot holds an invalid record.
    #[error(transparent)]
    InvalidRecord(#[from] InvalidRecord),
}

impl SnapshotFile {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Replaces the file. Blocking.
    ///
    /// # Errors
    /// [`SnapshotError::Io`]; the previous file is then unchanged.
    pub(super) fn write(&self, header: &Header, table: &TableView) -> Result<(), SnapshotError> {
        Ok(write::replace(&self.0, header, table)?)
    }

    /// Reads the file, if it exists, into an empty restoration. Blocking.
    ///
    /// # Errors
    /// [`SnapshotError`] if the snapshot cannot be used.
    pub(super) fn read(
        &self,
        empty: Restoration,
        selection: &str,
    ) -> Result<Option<(Header, Restoration)>, SnapshotError> {
        match read::read(&self.0, empty, selection) {
            Err(SnapshotError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            outcome => outcome.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::time::{Duration, Instant};

    use super::*;
    use crate::request::Reference;
    use crate::routing::table::{
        Change, ClusterRecord, Page, PlacementConstraints, Resolution, ShardSpec, TableWriter,
        WorkspaceRecord, WorkspaceTarget, table_of,
    };

    fn header() -> Header {
        Header {
            written_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            identity: Some("1de17174".into()),
            selection: String::new(),
        }
    }

    fn file() -> (tempfile::TempDir, SnapshotFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = SnapshotFile::new(directory.path().join("index"));
        (directory, file)
    }

    fn shard(name: &str) -> ShardSpec {
        ShardSpec {
            name: name.into(),
            url: format!("https://{name}.example").into(),
            labels: Arc::new([("region".to_owned(), "eu".to_owned())].into()),
            cordoned: name == "b",
            constraints: match name {
                "a" => PlacementConstraints { draining: true, weight: Some(3), capacity: Some(0) },
                _ => PlacementConstraints::default(),
            },
        }
    }

    /// A table with all kinds of records, and an empty slot of a removed shard.
    fn table() -> TableWriter {
        let mut writer = TableWriter::new();
        let gone = writer.put_shard(shard("gone")).unwrap();
        let [a, b] = ["a", "b"].map(|name| writer.put_shard(shard(name)).unwrap());
        writer.remove_shard(gone);
        let cluster = |id: &str, migrating| ClusterRecord {
            id: id.into(),
            workspace_type: (id != "root").then(|| "root:universal".into()),
            migrating,
        };
        let workspace = |name: &str, target, unavailable| WorkspaceRecord {
            parent: "root".into(),
            name: name.into(),
            target,
            unavailable,
        };
        let mount = WorkspaceTarget::Mount("https://x.example/clusters/y".into());
        writer.apply(vec![
            (a, Change::ListClusters(Page::whole(vec![cluster("root", false), cluster("c1", true)]))),
            (b, Change::ListClusters(Page::whole(vec![cluster("c1", false), cluster("c2", false)]))),
            (a, Change::PutWorkspace(workspace("org", WorkspaceTarget::Cluster("c1".into()), false))),
            (a, Change::PutWorkspace(workspace("closed", WorkspaceTarget::Cluster("c2".into()), true))),
            (a, Change::PutWorkspace(workspace("mount", mount, false))),
        ]);
        writer
    }

    fn describe(writer: &TableWriter) -> Vec<String> {
        let table = writer.table();
        let root = table.load();
        let shards = root.shards().map(|shard| format!("{:?} {:?}", shard.spec, root.counts(shard.index)));
        let mut lines: Vec<String> = shards.collect();
        for reference in ["root", "root:org", "root:closed", "root:mount", "root:nope", "c1", "c2"] {
            let reference = Reference::parse(reference).unwrap();
            lines.push(match root.resolve(&reference) {
                Resolution::Found(found) => {
                    format!("{} {} {:?}", found.shard.spec.name, found.cluster, found.workspace_type)
                }
                Resolution::Mount(mount) => format!("mount {}", mount.url),
                Resolution::Unavailable => "unavailable".to_owned(),
                Resolution::NotSynced | Resolution::NotFound(_) => "nothing".to_owned(),
            });
        }
        lines
    }

    fn restored(file: &SnapshotFile) -> (Header, TableWriter) {
        let mut writer = TableWriter::new();
        let (header, restoration) = file.read(writer.restoration(), "").unwrap().unwrap();
        writer.restore(restoration);
        (header, writer)
    }

    #[test]
    fn a_snapshot_is_restored_as_written() {
        let (_directory, file) = file();
        assert!(file.read(TableWriter::new().restoration(), "").unwrap().is_none(), "there is none yet");
        let written = table();
        file.write(&header(), &written.table().load()).unwrap();
        let (read, mut restored) = restored(&file);
        assert_eq!(read, header());
        assert_eq!(describe(&restored), describe(&written));
        // The restored table can be changed. What it lacks is not synced instead of not found.
        let table = restored.table();
        let reference = Reference::parse("root:nope").unwrap();
        assert!(matches!(table.load().resolve(&reference), Resolution::NotSynced));
        let b = restored.table().load().shards().find(|shard| &*shard.spec.name == "b").unwrap().index;
        restored.apply(vec![(b, Change::RemoveCluster("c2".into()))]);
        assert_eq!(restored.table().load().counts(b).clusters, 1);
        assert!(matches!(
            restored.table().load().resolve(&Reference::parse("c2").unwrap()),
            Resolution::NotSynced
        ));
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let (_directory, file) = file();
        file.write(&header(), &table().table().load()).unwrap();
        let good = std::fs::read(file.path()).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(file.path(), &bad).unwrap();
            assert!(file.read(TableWriter::new().restoration(), "").is_err(), "byte {at} changed");
            std::fs::write(file.path(), &good[..at]).unwrap();
            assert!(file.read(TableWriter::new().restoration(), "").is_err(), "cut at {at}");
        }
        std::fs::write(file.path(), [&good[..], b"more"].concat()).unwrap();
        assert!(file.read(TableWriter::new().restoration(), "").is_err(), "trailing bytes");
        std::fs::write(file.path(), &good).unwrap();
        assert!(matches!(
            file.read(TableWriter::new().restoration(), "name=a"),
            Err(SnapshotError::Selection)
        ));
        assert!(file.read(TableWriter::new().restoration(), "").is_ok());
    }

    #[test]
    fn a_failed_write_keeps_the_previous_snapshot() {
        let (directory, file) = file();
        let table = table();
        file.write(&header(), &table.table().load()).unwrap();
        // A directory has the name of the new file.
        std::fs::create_dir(directory.path().join("index.new")).unwrap();
        let newer = Header { identity: None, ..header() };
        assert!(file.write(&newer, &table.table().load()).is_err());
        assert_eq!(restored(&file).0, header());
    }

    #[test]
    #[ignore = "a measurement: make figures"]
    fn figures_of_a_snapshot_of_a_million_workspaces() {
        let (_directory, file) = file();
        let (writer, _) = table_of(1_000_000);
        let table = writer.table().load_full();
        let began = Instant::now();
        file.write(&header(), &table).unwrap();
        println!("written in {:?}: {} bytes", began.elapsed(), std::fs::metadata(file.path()).unwrap().len());
        drop((table, writer));
        let before = resident_memory();
        let began = Instant::now();
        let (_, restored) = restored(&file);
        println!("read in {:?}", began.elapsed());
        let heap = restored.table().load().heap_bytes();
        let (grown, peak) = (resident_memory().0 - before.0, resident_memory().1 - before.0);
        println!("table {} MiB, resident {} MiB more, at most {} MiB", heap >> 20, grown >> 10, peak >> 10);
    }

    /// Current and peak resident memory in KiB.
    fn resident_memory() -> (u64, u64) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}
