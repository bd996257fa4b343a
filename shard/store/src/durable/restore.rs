//! Stores from backups. A store file gets its name, or its new content, only when the whole backup has been verified.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redb::backends::FileBackend;
use redb::{BackendError, Builder, Database, Durability, ReadableTable, StorageBackend};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::directory::sync_directory;
use super::journal_path::JournalPath;
use super::layout::{CURRENT, FORMAT, META, meta, read_meta};
use super::open::{self, FileKind, initialize};
use super::packing::{self, pack};
use super::tables::set_meta;
use super::view::View;
use super::{RedbOptions, RedbStore};
use crate::backup::{BackupContent, BackupError, BackupHeader, BackupReader, Ownership, restored_revision};
use crate::error::OpenError;
use crate::record::Revision;

/// Pages kept in memory while a store is written, in bytes.
const CACHE_BYTES: usize = 8 << 20;

/// The treatment of a store that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingStore {
    /// It is an error.
    Refuse,
    /// It is replaced when the new one is complete. It must not be in use.
    Replace,
}

/// A backup that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// The backup's header.
    pub header: BackupHeader,
    /// Records that were written.
    pub records: u64,
    /// Shared records that the store had already.
    pub kept: u64,
    /// The revision of the store; all earlier ones are compacted.
    pub revision: Revision,
}

/// The error of a restore. No store was made or changed, except if the last step failed: to make the new name of a file durable.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The backup has only a part of a store.
    #[error("it has only {name}, which can be restored only into the store that it comes from")]
    Part {
        /// The name of the part.
        name: String,
    },
    /// The backup has a whole store.
    #[error("it has a whole store, which cannot be added to another one")]
    Whole,
    /// There is a store already.
    #[error("{} exists", path.display())]
    Exists {
        /// The file, or its journal.
        path: PathBuf,
    },
    /// There is no store to which the part could be added.
    #[error("{} does not exist", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// The part comes from another store.
    #[error("it does not come from the store {}", path.display())]
    OtherStore {
        /// The store.
        path: PathBuf,
    },
    /// The store has records of the part.
    #[error("{} has {key:?} already", path.display())]
    Present {
        /// The store.
        path: PathBuf,
        /// The first key.
        key: String,
    },
    /// The journal of the store could not be written into its file.
    #[error("{} was not closed, and its journal cannot be written into it", path.display())]
    NotClosed {
        /// The store.
        path: PathBuf,
    },
    /// The store that was written does not have what the backup has.
    #[error("{} was not written as it should be", path.display())]
    Unsound {
        /// The file.
        path: PathBuf,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read or written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl RedbStore {
    /// Makes the store file `path` of the backup of a whole store. The records keep their revisions; the store is at a later one
    /// ([`restored_revision`]), with everything before it compacted.
    ///
    /// The file gets `owner` as its owner, if there is one, and replaces no store of another owner.
    ///
    /// Blocks for the time to write the new file and to read it once more. Memory does not grow with the store; the new store needs
    /// room beside an existing one. `examples/backup_cost.rs` measures both.
    ///
    /// # Errors
    /// [`RestoreError`]; so for the others.
    pub fn restore<R: Read>(
        path: impl AsRef<Path>,
        mut backup: BackupReader<R>,
        existing: ExistingStore,
        owner: Option<&str>,
    ) -> Result<RestoreSummary, RestoreError> {
        let path = path.as_ref();
        if let BackupContent::Part { name } = &backup.header().content {
            return Err(RestoreError::Part { name: name.clone() });
        }
        let replaced = match existing {
            ExistingStore::Refuse => {
                refuse_existing(path)?;
                None
            }
            ExistingStore::Replace => lock_existing(path)?,
        };
        let recorded = replaced.as_ref().and_then(|_| open::recorded_owner(path));
        if let (Some(expected), Some(found)) = (owner, recorded)
            && expected != found
        {
            let (path, expected) = (path.to_owned(), expected.to_owned());
            return Err(OpenError::OtherOwner { path, found, expected }.into());
        }
        let temporary = TemporaryFile::beside(path)?;
        let summary = fill(&temporary.0, FileKind::Store { owner }, &mut backup)?;
        // No process may open the store by its new name while the journal of its predecessor is there.
        let locked = lock(&temporary.0)?;
        locked.sync_data().map_err(io_error(&temporary.0))?;
        // Only what is locked may be replaced.
        let flags = if replaced.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &temporary.0, CWD, path, flags) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(RestoreError::Exists { path: path.to_owned() }),
            Err(error) => return Err(io_error(path)(error.into())),
        }
        sync_directory(path).map_err(io_error(path))?;
        if existing == ExistingStore::Replace {
            // The replaced store needs its journal until the new name is durable. The new one names none, so a crash before this is
            // harmless.
            remove_if_present(JournalPath::of(path).as_path())?;
            sync_directory(path).map_err(io_error(path))?;
        }
        drop((locked, replaced));
        Ok(summary)
    }

    /// Adds the backup of a part to the closed store from which it was taken, in one transaction. The records get new revisions in
    /// their old order, and everything before the last one is compacted. Reads `input` twice: the first time to verify it.
    ///
    /// Needs 16 bytes of memory per record besides those of [`restore`](Self::restore).
    pub fn restore_part<R: Read + Seek>(
        path: impl AsRef<Path>,
        input: &mut R,
    ) -> Result<RestoreSummary, RestoreError> {
        let path = path.as_ref();
        let begin = input.stream_position().map_err(BackupError::Io)?;
        let revisions = verified_revisions(BackupReader::open(&mut *input)?)?;
        input.seek(SeekFrom::Start(begin)).map_err(BackupError::Io)?;
        let mut backup = BackupReader::open(input)?;
        if backup.header().content == BackupContent::Whole {
            return Err(RestoreError::Whole);
        }
        if !path.exists() {
            return Err(RestoreError::NoStore { path: path.to_owned() });
        }
        // Replays the journal if the store was not closed.
        drop(Self::open(path, RedbOptions { cache_bytes: CACHE_BYTES, ..RedbOptions::default() })?);
        let database = open::open(path, FileKind::STORE, CACHE_BYTES, false)?;
        add(&database, path, &mut backup, &revisions)
    }

    /// Verifies a backup by making a store of it in `folder`, which is opened and removed.
    pub fn verify_backup<R: Read>(
        folder: impl AsRef<Path>,
        mut backup: BackupReader<R>,
    ) -> Result<RestoreSummary, RestoreError> {
        let temporary = TemporaryFile::beside(&folder.as_ref().join("backup"))?;
        fill(&temporary.0, FileKind::STORE, &mut backup)
    }
}

fn refuse_existing(path: &Path) -> Result<(), RestoreError> {
    for path in [path, JournalPath::of(path).as_path()] {
        if path.symlink_metadata().is_ok() {
            return Err(RestoreError::Exists { path: path.to_owned() });
        }
    }
    Ok(())
}

/// Locks a store that is to be replaced, also a damaged one. `None` if there is none.
fn lock_existing(path: &Path) -> Result<Option<FileBackend>, RestoreError> {
    match lock(path) {
        Err(RestoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        locked => locked.map(Some),
    }
}

/// Locks a file against processes that open it as a store, until the result is dropped. Fails if one has it open.
fn lock(path: &Path) -> Result<FileBackend, RestoreError> {
    let failed = io_error(path);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(&failed)?;
    let backend = FileBackend::new(file).map_err(|error| storage_error(path)(error.into()))?;
    match backend.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
        Ok(true) => Ok(backend),
        Ok(false) => Err(OpenError::InUse { path: path.to_owned() }.into()),
        Err(BackendError::Io(source)) => Err(failed(source)),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

/// Writes all records into an empty file, then opens and reads it as a shard does at its start.
fn fill<R: Read>(
    path: &Path,
    kind: FileKind<'_>,
    backup: &mut BackupReader<R>,
) -> Result<RestoreSummary, RestoreError> {
    let revision = restored_revision(backup.header().revision, SystemTime::now());
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error(path))?;
    write_all(file, kind, backup, revision).map_err(storage_error(path))??;

    let records = backup.records();
    let written = open::open(path, kind, CACHE_BYTES, true)?;
    let view = View::open(&written).map_err(storage_error(path))?;
    if (view.revision(), view.compacted(), view.counts()) != (revision, revision, (records, 0, 0)) {
        return Err(RestoreError::Unsound { path: path.to_owned() });
    }
    Ok(RestoreSummary { header: backup.header().clone(), records, kept: 0, revision })
}

fn write_all<R: Read>(
    file: File,
    kind: FileKind<'_>,
    backup: &mut BackupReader<R>,
    revision: Revision,
) -> Result<Result<(), BackupError>, redb::Error> {
    let mut builder = Builder::new();
    let database = builder.set_cache_size(CACHE_BYTES).create_with_backend(FileBackend::new(file)?)?;
    initialize(&database, kind)?;
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    {
        let mut current = transaction.open_table(CURRENT)?;
        let mut packed = Vec::new();
        loop {
            match backup.next_record() {
                Ok(None) => break,
                Ok(Some(found)) => {
                    let record = found.record;
                    let row = pack(record.created, record.modified, record.value, &mut packed);
                    current.insert(record.key, row)?;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    set_meta(&transaction, meta::REVISION, revision.0)?;
    set_meta(&transaction, meta::COMPACTED, revision.0)?;
    transaction.commit()?;
    database.close()?;
    Ok(Ok(()))
}

/// All revisions of a backup in their order, when it has been read to its end.
fn verified_revisions<R: Read>(mut backup: BackupReader<R>) -> Result<Vec<u64>, BackupError> {
    let mut revisions = Vec::new();
    while let Some(found) = backup.next_record()? {
        revisions.extend([found.record.created.0, found.record.modified.0]);
    }
    revisions.sort_unstable();
    revisions.dedup();
    Ok(revisions)
}

/// Adds the records of a part. A transaction that is not committed leaves no trace.
fn add<R: Read>(
    database: &Database,
    path: &Path,
    backup: &mut BackupReader<R>,
    revisions: &[u64],
) -> Result<RestoreSummary, RestoreError> {
    let begin = || -> Result<_, redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);
        let numbers = transaction.open_table(META)?;
        let last = read_meta(&numbers, meta::REVISION)?;
        let journal = numbers.get(meta::JOURNAL)?.map_or(meta::NO_JOURNAL, |row| row.value());
        drop(numbers);
        Ok((transaction, last, journal))
    };
    let failed = storage_error(path);
    let (transaction, last, journal) = begin().map_err(&failed)?;
    if journal != meta::NO_JOURNAL {
        // Its commits would be taken for those that are added now.
        return Err(RestoreError::NotClosed { path: path.to_owned() });
    }
    let renumbered = |old: Revision| last + 1 + revisions.partition_point(|known| *known < old.0) as u64;
    let (mut records, mut kept) = (0, 0);
    {
        let mut current = transaction.open_table(CURRENT).map_err(|error| failed(error.into()))?;
        let is_from_here = backup.header().anchor.as_ref().map_or(Ok(false), |anchor| {
            let found = current.get(anchor.key.as_bytes()).map_err(|error| failed(error.into()))?;
            let value = found.map(|row| packing::value(row.value())).transpose().map_err(&failed)?;
            Ok::<_, RestoreError>(value.is_some_and(|value| anchor.is_in(&value)))
        })?;
        if !is_from_here {
            return Err(RestoreError::OtherStore { path: path.to_owned() });
        }
        let mut packed = Vec::new();
        while let Some(found) = backup.next_record()? {
            let record = found.record;
            let is_present = current.get(record.key).map_err(|error| failed(error.into()))?.is_some();
            match (is_present, found.ownership) {
                (true, Ownership::Own) => {
                    let key = String::from_utf8_lossy(record.key).into_owned();
                    return Err(RestoreError::Present { path: path.to_owned(), key });
                }
                (true, Ownership::Shared) => kept += 1,
                (false, _) => {
                    let (created, modified) = (renumbered(record.created), renumbered(record.modified));
                    let row = pack(Revision(created), Revision(modified), record.value, &mut packed);
                    let inserted = current.insert(record.key, row);
                    inserted.map_err(|error| failed(error.into()))?;
                    records += 1;
                }
            }
        }
    }
    let revision = Revision(last + revisions.len() as u64);
    // The store may have been of an older format, without compressed values.
    set_meta(&transaction, meta::FORMAT, FORMAT).map_err(&failed)?;
    set_meta(&transaction, meta::REVISION, revision.0).map_err(&failed)?;
    set_meta(&transaction, meta::COMPACTED, revision.0).map_err(&failed)?;
    transaction.commit().map_err(|error| failed(error.into()))?;
    Ok(RestoreSummary { header: backup.header().clone(), records, kept, revision })
}

/// A file that is removed unless it has got another name.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// An empty file.
    fn beside(path: &Path) -> Result<Self, RestoreError> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.restore", std::process::id()));
        let path = PathBuf::from(name);
        // That of a process with the same number that was killed.
        remove_if_present(&path)?;
        // Values contain secrets, so only the owner may read the file. A link of another user in its place is not followed.
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        created.map_err(io_error(&path))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn remove_if_present(path: &Path) -> Result<(), RestoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(path)(error)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::Io { path: path.clone(), source }
}

fn storage_error(path: &Path) -> impl Fn(redb::Error) -> RestoreError {
    let failed = io_error(path);
    move |error| match error {
        redb::Error::Io(source) => failed(source),
        other => failed(io::Error::other(other)),
    }
}
