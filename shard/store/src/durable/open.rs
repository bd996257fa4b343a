//! Opening the file. Creation is atomic; a foreign or damaged file, or one of a newer format, is not changed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, StorageBackend, StorageError, TableError,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::directory::sync_directory;
use super::dry_run::DryRunFile;
use super::journal::JournalError;
use super::journal_path::JournalPath;
use super::layout::{CURRENT, FORMAT, HISTORY, LOG, META, OLDEST_FORMAT, Origin, meta, read_meta};
use super::owner;
use super::recovery::RecoveryError;
use crate::error::OpenError;

/// The first bytes of every redb file.
const SIGNATURE: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind<'a> {
    /// The only copy of a store. The file of another owner is refused, and a new file gets this one. `None`: of any owner.
    Store { owner: Option<&'a str> },
    /// A disposable copy; a new file gets this origin.
    Replica(Origin),
}

impl FileKind<'static> {
    /// The store of any owner.
    pub(super) const STORE: Self = Self::Store { owner: None };
}

impl FileKind<'_> {
    /// What the operator does with a file that cannot be used.
    fn remedy(self) -> &'static str {
        match self {
            Self::Store { .. } => "restore a backup, or move it away to start with an empty store",
            Self::Replica(_) => "move it away: it is only a copy, which is made again",
        }
    }
}

/// Opens `path`, or makes a new file there. Only a file that passed every check is opened for writing.
///
/// With `verify` every page is read and compared with its checksum first: redb itself does so only for a file that was
/// not closed, and would serve bytes that have changed on the disk. Costs about a second per GB in the page cache.
pub(super) fn open(
    path: &Path,
    kind: FileKind<'_>,
    cache_bytes: usize,
    verify: bool,
) -> Result<Database, OpenError> {
    open_through(path, kind, cache_bytes, verify, |file| file)
}

/// As [`open`]; redb uses the file through the backend that `wrap` returns.
pub(super) fn open_through<B: StorageBackend>(
    path: &Path,
    kind: FileKind<'_>,
    cache_bytes: usize,
    verify: bool,
    wrap: impl FnOnce(FileBackend) -> B,
) -> Result<Database, OpenError> {
    match File::open(path) {
        Ok(file) => check_signature(path, kind, file)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse_lonely_journal(path)?;
            create(path, kind)?;
        }
        Err(source) => {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
    }
    // redb may panic on a file that another program has changed.
    let opened = catch_panic(|| {
        let intact = check_without_writing(path, kind, cache_bytes, verify)?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let backend = FileBackend::new(file).map_err(|error| classify(path, kind, error))?;
        let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(wrap(backend));
        let mut database = database.map_err(|error| classify(path, kind, error))?;
        if !intact {
            // Every value is sound, but the record of free pages is not: this rebuilds it.
            database.check_integrity().map_err(|error| classify(path, kind, error))?;
        }
        Ok(database)
    });
    opened.unwrap_or_else(|| Err(damaged(path, kind, &"reading it failed unexpectedly")))
}

/// Runs `work`; `None` if it panics. The panic is not reported, because a damaged file is no bug of this program. Panics
/// of other threads are reported as usual.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    // The panic hook is global: two threads must not restore it in the wrong order.
    static HOOK_LOCK: Mutex<()> = Mutex::new(());
    let _guard = HOOK_LOCK.lock();
    let previous_hook = Arc::new(panic::take_hook());
    let (hook_of_others, this_thread) = (previous_hook.clone(), std::thread::current().id());
    panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != this_thread {
            hook_of_others(panic);
        }
    }));
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    drop(panic::take_hook());
    match Arc::try_unwrap(previous_hook) {
        Ok(hook) => panic::set_hook(hook),
        // Another thread is reporting a panic at this moment and holds a reference.
        Err(hook) => panic::set_hook(Box::new(move |panic| hook(panic))),
    }
    outcome
}

/// The error for a file with invalid content.
pub(super) fn damaged(path: &Path, kind: FileKind<'_>, cause: &dyn std::fmt::Display) -> OpenError {
    let hint = format!("it is damaged ({cause}); {}", kind.remedy());
    OpenError::Corrupt { path: path.to_owned(), hint }
}

/// A journal without its store file shows that the file is lost: an empty store would hide that.
fn refuse_lonely_journal(path: &Path) -> Result<(), OpenError> {
    let journal = JournalPath::of(path);
    if !journal.as_path().exists() {
        return Ok(());
    }
    let hint = format!(
        "it is missing, although its journal {} exists; restore a backup of both files, or move the journal away to start \
         with an empty store",
        journal.as_path().display()
    );
    Err(OpenError::Corrupt { path: path.to_owned(), hint })
}

/// The error for a journal that cannot be replayed.
pub(super) fn recovery_error(path: &Path, journal: &Path, error: RecoveryError) -> OpenError {
    let remedy = "restore a backup of both files, or move both away to start with an empty store";
    match error {
        RecoveryError::Missing => {
            let hint =
                format!("it was not closed, and its journal {} is missing; {remedy}", journal.display());
            OpenError::Corrupt { path: path.to_owned(), hint }
        }
        RecoveryError::Journal(JournalError::Damaged(fault)) => {
            let hint = format!("as the journal of {} it is damaged ({fault}); {remedy}", path.display());
            OpenError::Corrupt { path: journal.to_owned(), hint }
        }
        RecoveryError::Journal(JournalError::Io(source)) => {
            OpenError::Io { path: journal.to_owned(), source }
        }
        RecoveryError::Store(redb::Error::Io(source)) => OpenError::Io { path: path.to_owned(), source },
        RecoveryError::Store(error) => damaged(path, FileKind::STORE, &error),
    }
}

fn check_signature(path: &Path, kind: FileKind<'_>, file: File) -> Result<(), OpenError> {
    let mut begin = Vec::with_capacity(SIGNATURE.len());
    let read = file.take(SIGNATURE.len() as u64).read_to_end(&mut begin);
    read.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let is_store = matches!(kind, FileKind::Store { .. });
    let hint = match begin.as_slice() {
        begin if begin == SIGNATURE => return Ok(()),
        // A store file is never empty, so it was truncated: creating a new store could hide a loss.
        [] if is_store => {
            "it is empty; restore a backup, or remove it to start with an empty store".to_owned()
        }
        _ if is_store => {
            "it does not begin like a store file; check the path, or move it away to start with an empty store"
                .to_owned()
        }
        _ => format!("it does not begin like a store file; {}", kind.remedy()),
    };
    Err(OpenError::Corrupt { path: path.to_owned(), hint })
}

/// Whether the file can be used as it is; `false` if redb has to rebuild its record of free pages first.
fn check_without_writing(
    path: &Path,
    kind: FileKind<'_>,
    cache_bytes: usize,
    verify: bool,
) -> Result<bool, OpenError> {
    match Builder::new().set_cache_size(cache_bytes).open_read_only(path) {
        Ok(database) => check_format(path, kind, &database)?,
        Err(DatabaseError::RepairAborted) => return open_without_writing(path, kind, cache_bytes, verify),
        Err(error) => return Err(classify(path, kind, error)),
    }
    if verify { open_without_writing(path, kind, cache_bytes, verify) } else { Ok(true) }
}

/// Opens a [`DryRunFile`] over the file. Shows whether a file that was not closed can be repaired. The repair is cheap,
/// because every commit is written with redb's quick-repair data.
fn open_without_writing(
    path: &Path,
    kind: FileKind<'_>,
    cache_bytes: usize,
    verify: bool,
) -> Result<bool, OpenError> {
    let file = File::open(path).and_then(DryRunFile::of);
    let file = file.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(file);
    let mut database = database.map_err(|error| classify(path, kind, error))?;
    check_format(path, kind, &database)?;
    if verify { database.check_integrity().map_err(|error| classify(path, kind, error)) } else { Ok(true) }
}

fn check_format(path: &Path, kind: FileKind<'_>, database: &impl ReadableDatabase) -> Result<(), OpenError> {
    let read = || -> Result<(u64, Option<Origin>), redb::Error> {
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(META) {
            Err(TableError::Storage(error)) => return Err(error.into()),
            Err(_) => {
                return Err(redb::Error::Corrupted("it was written by another program".to_owned()));
            }
            Ok(table) => table,
        };
        let origin = match table.get(meta::CLUSTER)? {
            Some(cluster) => Some(Origin { cluster: cluster.value(), part: read_meta(&table, meta::PART)? }),
            None => None,
        };
        Ok((read_meta(&table, meta::FORMAT)?, origin))
    };
    let (format, found) = read().map_err(|error| damaged(path, kind, &error))?;
    let misplaced = |hint: &str| OpenError::Corrupt { path: path.to_owned(), hint: hint.to_owned() };
    match (kind, found) {
        (FileKind::Store { .. }, None) => {}
        (FileKind::Replica(origin), Some(found)) if found == origin => {}
        (FileKind::Replica(_), Some(found)) => {
            return Err(OpenError::Foreign { path: path.to_owned(), cluster: found.cluster });
        }
        (FileKind::Store { .. }, Some(_)) => {
            return Err(misplaced("it is the copy of a store on a server; choose another file"));
        }
        (FileKind::Replica(_), None) => {
            return Err(misplaced("it is a store of its own and no copy; choose another file"));
        }
    }
    match format {
        OLDEST_FORMAT..=FORMAT => {}
        found if found > FORMAT => {
            return Err(OpenError::NewerFormat { path: path.to_owned(), found, supported: FORMAT });
        }
        found => return Err(damaged(path, kind, &format_args!("format version {found}"))),
    }
    let FileKind::Store { owner: Some(owner) } = kind else { return Ok(()) };
    match owner::read(database).map_err(|error| damaged(path, kind, &error))? {
        Some(found) if found != owner => {
            Err(OpenError::OtherOwner { path: path.to_owned(), found, expected: owner.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The owner of a store file that nothing is written to. `None` also if the file cannot be read.
pub(super) fn recorded_owner(path: &Path) -> Option<String> {
    let read = || {
        let file = DryRunFile::of(File::open(path).ok()?).ok()?;
        let database = Builder::new().create_with_backend(file).ok()?;
        owner::read(&database).ok()?
    };
    catch_panic(read).flatten()
}

fn classify(path: &Path, kind: FileKind<'_>, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            OpenError::InUse { path: path.to_owned() }
        }
        // redb reports a file that is shorter than its header says as an I/O error.
        DatabaseError::Storage(StorageError::Io(source))
            if !matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) =>
        {
            OpenError::Io { path: path.to_owned(), source }
        }
        other => damaged(path, kind, &other),
    }
}

/// Creates an empty store in a temporary file, syncs it and renames it to `path`, so that a file at `path` is always
/// complete, also after a crash. If another process creates `path` first, its file is used.
fn create(path: &Path, kind: FileKind<'_>) -> Result<(), OpenError> {
    let fail = |source: std::io::Error| OpenError::Io { path: path.to_owned(), source };
    let temporary = temporary_path(path);
    let created = write_empty(&temporary, kind).and_then(|()| {
        match renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => Ok(()),
            renamed => Ok(renamed?),
        }
    });
    // After the rename there is no file to remove.
    let removed = std::fs::remove_file(&temporary);
    created.map_err(fail)?;
    if let Err(error) = removed
        && error.kind() != ErrorKind::NotFound
    {
        return Err(fail(error));
    }
    sync_directory(path).map_err(fail)
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    PathBuf::from(name)
}

fn write_empty(path: &Path, kind: FileKind<'_>) -> std::io::Result<()> {
    // Values contain secrets, so only the owner may read the file.
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let write = || -> Result<(), redb::Error> {
        let database = Builder::new().create_with_backend(FileBackend::new(file)?)?;
        initialize(&database, kind)?;
        database.close()?;
        Ok(())
    };
    write().map_err(|error| match error {
        redb::Error::Io(error) => error,
        error => std::io::Error::other(error),
    })?;
    File::open(path)?.sync_all()
}

pub(super) fn initialize(database: &Database, kind: FileKind<'_>) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(META)?;
        table.insert(meta::FORMAT, FORMAT)?;
        table.insert(meta::REVISION, 0)?;
        table.insert(meta::COMPACTED, 0)?;
        table.insert(meta::JOURNAL, meta::NO_JOURNAL)?;
        if let FileKind::Replica(origin) = kind {
            table.insert(meta::CLUSTER, origin.cluster)?;
            table.insert(meta::PART, origin.part)?;
        }
        if let FileKind::Store { owner: Some(owner) } = kind {
            owner::write(&transaction, owner)?;
        }
        transaction.open_table(CURRENT)?;
        transaction.open_table(HISTORY)?;
        transaction.open_table(LOG)?;
    }
    transaction.commit()?;
    Ok(())
}
