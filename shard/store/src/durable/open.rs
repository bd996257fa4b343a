//! Opening the file. Creation is atomic; a foreign or damaged file, or one of a newer format, is not changed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase, StorageError, TableError};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::directory::sync_directory;
use super::dry_run::DryRunFile;
use super::journal::JournalError;
use super::journal_path::JournalPath;
use super::layout::{CURRENT, FORMAT, HISTORY, LOG, META, OLDEST_FORMAT, meta, read_meta};
use super::recovery::RecoveryError;
use crate::error::OpenError;

/// The first bytes of every redb file.
const SIGNATURE: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// Opens `path`, or makes a new store there. Only a file that passed every check is opened for writing.
///
/// With `verify` every page is read and compared with its checksum first: redb itself does so only for a file that was
/// not closed, and would serve bytes that have changed on the disk. Costs about a second per GB in the page cache.
pub(super) fn open(path: &Path, cache_bytes: usize, verify: bool) -> Result<Database, OpenError> {
    match File::open(path) {
        Ok(file) => check_signature(path, file)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse_lonely_journal(path)?;
            create(path)?;
        }
        Err(source) => {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
    }
    // redb may panic on a file that another program has changed.
    let opened = catch_panic(|| {
        let intact = check_without_writing(path, cache_bytes, verify)?;
        let database = Builder::new().set_cache_size(cache_bytes).open(path);
        let mut database = database.map_err(|error| classify(path, error))?;
        if !intact {
            // Every value is sound, but the record of free pages is not: this rebuilds it.
            database.check_integrity().map_err(|error| classify(path, error))?;
        }
        Ok(database)
    });
    opened.unwrap_or_else(|| Err(damaged(path, &"reading it failed unexpectedly")))
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
pub(super) fn damaged(path: &Path, cause: &dyn std::fmt::Display) -> OpenError {
    let hint =
        format!("it is damaged ({cause}); restore a backup, or move it away to start with an empty store");
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
        RecoveryError::Store(error) => damaged(path, &error),
    }
}

fn check_signature(path: &Path, file: File) -> Result<(), OpenError> {
    let mut begin = Vec::with_capacity(SIGNATURE.len());
    let read = file.take(SIGNATURE.len() as u64).read_to_end(&mut begin);
    read.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let hint = match begin.as_slice() {
        begin if begin == SIGNATURE => return Ok(()),
        // A store file is never empty, so it was truncated: creating a new store could hide a loss.
        [] => "it is empty; restore a backup, or remove it to start with an empty store",
        _ => {
            "it does not begin like a store file; check the path, or move it away to start with an empty store"
        }
    };
    Err(OpenError::Corrupt { path: path.to_owned(), hint: hint.to_owned() })
}

/// Whether the file can be used as it is; `false` if redb has to rebuild its record of free pages first.
fn check_without_writing(path: &Path, cache_bytes: usize, verify: bool) -> Result<bool, OpenError> {
    match Builder::new().set_cache_size(cache_bytes).open_read_only(path) {
        Ok(database) => check_format(path, &database)?,
        Err(DatabaseError::RepairAborted) => return open_without_writing(path, cache_bytes, verify),
        Err(error) => return Err(classify(path, error)),
    }
    if verify { open_without_writing(path, cache_bytes, verify) } else { Ok(true) }
}

/// Opens a [`DryRunFile`] over the file. Shows whether a file that was not closed can be repaired. The repair is cheap,
/// because every commit is written with redb's quick-repair data.
fn open_without_writing(path: &Path, cache_bytes: usize, verify: bool) -> Result<bool, OpenError> {
    let file = File::open(path).and_then(DryRunFile::of);
    let file = file.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(file);
    let mut database = database.map_err(|error| classify(path, error))?;
    check_format(path, &database)?;
    if verify { database.check_integrity().map_err(|error| classify(path, error)) } else { Ok(true) }
}

fn check_format(path: &Path, database: &impl ReadableDatabase) -> Result<(), OpenError> {
    let read = || -> Result<u64, redb::Error> {
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(META) {
            Err(TableError::Storage(error)) => return Err(error.into()),
            Err(_) => {
                return Err(redb::Error::Corrupted("it was written by another program".to_owned()));
            }
            Ok(table) => table,
        };
        read_meta(&table, meta::FORMAT)
    };
    match read().map_err(|error| damaged(path, &error))? {
        OLDEST_FORMAT..=FORMAT => Ok(()),
        found if found > FORMAT => {
            Err(OpenError::NewerFormat { path: path.to_owned(), found, supported: FORMAT })
        }
        found => Err(damaged(path, &format_args!("format version {found}"))),
    }
}

fn classify(path: &Path, error: DatabaseError) -> OpenError {
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
        other => damaged(path, &other),
    }
}

/// Creates an empty store in a temporary file, syncs it and renames it to `path`, so that a file at `path` is always
/// complete, also after a crash. If another process creates `path` first, its file is used.
fn create(path: &Path) -> Result<(), OpenError> {
    let fail = |source: std::io::Error| OpenError::Io { path: path.to_owned(), source };
    let temporary = temporary_path(path);
    let created = write_empty(&temporary).and_then(|()| {
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

fn write_empty(path: &Path) -> std::io::Result<()> {
    // Values contain secrets, so only the owner may read the file.
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let write = || -> Result<(), redb::Error> {
        let database = Builder::new().create_with_backend(FileBackend::new(file)?)?;
        initialize(&database, FORMAT)?;
        database.close()?;
        Ok(())
    };
    write().map_err(std::io::Error::other)?;
    File::open(path)?.sync_all()
}

pub(super) fn initialize(database: &Database, format: u64) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(META)?;
        table.insert(meta::FORMAT, format)?;
        table.insert(meta::REVISION, 0)?;
        table.insert(meta::COMPACTED, 0)?;
        table.insert(meta::JOURNAL, meta::NO_JOURNAL)?;
        transaction.open_table(CURRENT)?;
        transaction.open_table(HISTORY)?;
        transaction.open_table(LOG)?;
    }
    transaction.commit()?;
    Ok(())
}
