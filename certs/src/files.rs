//! Files that are either wholly there or not at all, and secret where they must be.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::{Error, FORMAT, Layout};

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Its owner only: 0600.
    Secret,
    /// Everybody who can enter the folder: 0644.
    Public,
}

/// Puts `contents` at `path` by renaming a complete and synced file over it. The name itself is durable only
/// after [`sync_folder`], which one call does for many files. A leftover of an earlier crash is replaced.
pub(crate) fn replace(path: &Path, contents: &str, secrecy: Secrecy) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let mode = match secrecy {
        Secrecy::Secret => 0o600,
        Secrecy::Public => 0o644,
    };
    let write = || -> io::Result<()> {
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Created anew with its final mode: at no moment is a key readable by others.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The mode above is subject to the umask, which may hide public files from those who should read
        // them.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // Nothing more can be done if this fails as well; the next attempt removes it.
        let _ = fs::remove_file(&temporary);
        Error::io("write", path)(error)
    })
}

/// Makes the renames in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(Error::io("sync", folder))
}

/// A file's text, or `None` if there is no such file.
pub(crate) fn read_if_present(path: &Path) -> Result<Option<String>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Creates a folder, and those above it, for its owner only.
///
/// # Errors
/// [`Error::Io`].
pub fn create_private_folder(folder: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(Error::io("create", folder))
}

/// Takes away from others what they should never have had. Says whether that was necessary.
pub(crate) fn tighten(path: &Path) -> Result<bool, Error> {
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("inspect", path)(error)),
    };
    if mode & 0o077 == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700))
        .map_err(Error::io("change the mode of", path))?;
    Ok(true)
}

/// Keeps other processes from changing the directory while it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(layout: &Layout) -> Result<Self, Error> {
        let path = layout.lock();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { path }),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }
}

/// Refuses a directory that a later version of this program has written. A directory without a format file is
/// new.
pub(crate) fn check_format(layout: &Layout) -> Result<FormatFile, Error> {
    let path = layout.format();
    let Some(text) = read_if_present(&path)? else {
        return Ok(FormatFile::Absent);
    };
    match text.trim().parse::<u32>() {
        Ok(found) if found > FORMAT => Err(Error::NewerFormat { path, found, known: FORMAT }),
        Ok(1..) => Ok(FormatFile::Current),
        Ok(0) | Err(_) => Err(Error::UnreadableFormat { path }),
    }
}

/// What [`check_format`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatFile {
    /// None yet.
    Absent,
    /// One that we can work with.
    Current,
}
