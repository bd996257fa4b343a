//! Opening the file: a new one is made whole or not at all, a foreign, damaged or newer one is left alone.

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

use super::dry_run::DryRunFile;
use super::layout::{CURRENT, FORMAT, HISTORY, LOG, META, meta, read_meta};
use crate::error::OpenError;

/// The first bytes of every redb file.
const SIGNATURE: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// Opens `path`, or makes a new store there. Only a file that passed every check is opened for writing.
///
/// With `verify` every page is read and compared with its checksum first: redb itself does so only for a file that was
/// not closed, and would serve bytes that changed on the disk meanwhile. About a second per GB that is in memory already.
pub(super) fn open(path: &Path, cache_bytes: usize, verify: bool) -> Result<Database, OpenError> {
    match File::open(path) {
        Ok(file) => check_signature(path, file)?,
        Err(error) if error.kind() == ErrorKind::NotFound => create(path)?,
        Err(source) => {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
    }
    // redb may panic on a file that was altered behind its back.
    let opened = catch_panic(|| {
        let intact = check_without_writing(path, cache_bytes, verify)?;
        let database = Builder::new().set_cache_size(cache_bytes).open(path);
        let mut database = database.map_err(|error| classify(path, error))?;
        if !intact {
            // Every value is sound, but the account of free pages is not: this writes it anew.
            database.check_integrity().map_err(|error| classify(path, error))?;
        }
        Ok(database)
    });
    opened.unwrap_or_else(|| Err(damaged(path, &"reading it failed unexpectedly")))
}

/// `None` if `work` panics. The panic is not reported, because a damaged file is no bug of this program; panics of other threads
/// are reported as usual.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    // The hook belongs to the whole process: two threads must not put it back in the wrong order.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let usual = Arc::new(panic::take_hook());
    let (others, quiet) = (usual.clone(), std::thread::current().id());
    panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != quiet {
            others(panic);
        }
    }));
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    drop(panic::take_hook());
    match Arc::try_unwrap(usual) {
        Ok(usual) => panic::set_hook(usual),
        // Another thread is just reporting its panic.
        Err(usual) => panic::set_hook(Box::new(move |panic| usual(panic))),
    }
    outcome
}

/// The error for a file with invalid content.
pub(super) fn damaged(path: &Path, cause: &dyn std::fmt::Display) -> OpenError {
    let hint =
        format!("it is damaged ({cause}); restore a backup, or move it away to start with an empty store");
    OpenError::Corrupt { path: path.to_owned(), hint }
}

fn check_signature(path: &Path, file: File) -> Result<(), OpenError> {
    let mut begin = Vec::with_capacity(SIGNATURE.len());
    let read = file.take(SIGNATURE.len() as u64).read_to_end(&mut begin);
    read.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let hint = match begin.as_slice() {
        begin if begin == SIGNATURE => return Ok(()),
        // Our own files are never empty, so something has emptied it: starting afresh could hide a loss.
        [] => "it is empty; restore a backup, or remove it to start with an empty store",
        _ => {
            "it does not begin like a store file; check the path, or move it away to start with an empty store"
        }
    };
    Err(OpenError::Corrupt { path: path.to_owned(), hint: hint.to_owned() })
}

/// Whether the file can be used as it is; `false` if redb has to put its books in order first.
fn check_without_writing(path: &Path, cache_bytes: usize, verify: bool) -> Result<bool, OpenError> {
    match Builder::new().set_cache_size(cache_bytes).open_read_only(path) {
        Ok(database) => check_format(path, &database)?,
        Err(DatabaseError::RepairAborted) => return open_without_writing(path, cache_bytes, verify),
        Err(error) => return Err(classify(path, error)),
    }
    if verify { open_without_writing(path, cache_bytes, verify) } else { Ok(true) }
}

/// Opens the file for writing without writing. A file that was not closed is repaired on the way: whether it can be
/// shows only then. That part is cheap, because our commits leave what a quick repair needs.
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
        let numbers = match transaction.open_table(META) {
            Err(TableError::Storage(error)) => return Err(error.into()),
            Err(_) => {
                return Err(redb::Error::Corrupted("it was written by another program".to_owned()));
            }
            Ok(numbers) => numbers,
        };
        read_meta(&numbers, meta::FORMAT)
    };
    match read().map_err(|error| damaged(path, &error))? {
        FORMAT => Ok(()),
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
        // A file that is shorter than its header says ends early; redb reports that as an I/O error.
        DatabaseError::Storage(StorageError::Io(source))
            if !matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) =>
        {
            OpenError::Io { path: path.to_owned(), source }
        }
        other => damaged(path, &other),
    }
}

/// Makes an empty store beside `path`, complete and durable, and gives it its name last: whatever has the name is
/// whole, also after a crash. When another process is faster, its file is used.
fn create(path: &Path) -> Result<(), OpenError> {
    let fail = |source: std::io::Error| OpenError::Io { path: path.to_owned(), source };
    let unnamed = unnamed_path(path);
    let made = write_empty(&unnamed).and_then(|()| {
        match renameat_with(CWD, &unnamed, CWD, path, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => Ok(()),
            renamed => Ok(renamed?),
        }
    });
    // Gone already if it was renamed.
    let removed = std::fs::remove_file(&unnamed);
    made.map_err(fail)?;
    if let Err(error) = removed
        && error.kind() != ErrorKind::NotFound
    {
        return Err(fail(error));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(fail)
}

fn unnamed_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    PathBuf::from(name)
}

fn write_empty(path: &Path) -> std::io::Result<()> {
    // Values may be secrets, so only the owner may read the file.
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
        let mut numbers = transaction.open_table(META)?;
        numbers.insert(meta::FORMAT, format)?;
        numbers.insert(meta::REVISION, 0)?;
        numbers.insert(meta::COMPACTED, 0)?;
        transaction.open_table(CURRENT)?;
        transaction.open_table(HISTORY)?;
        transaction.open_table(LOG)?;
    }
    transaction.commit()?;
    Ok(())
}
