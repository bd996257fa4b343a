//! Atomic writes of files, with the modes of secrets.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::{Error, FORMAT, Layout};

/// The mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// Readable by its owner only: 0600.
    Secret,
    /// Readable by all users that can enter the folder: 0644.
    Public,
}

/// Writes `contents` to `path` by renaming a complete and synced file over it. The name is durable only after
/// [`sync_folder`], of which one call serves many files. A temporary file of an earlier crash is replaced.
pub(crate) fn replace(
    path: &Path,
    contents: &(impl AsRef<[u8]> + ?Sized),
    secrecy: Secrecy,
) -> Result<(), Error> {
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
        // Created with its final mode, so that a key is never readable by others.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The umask applies to the mode above and could make public files unreadable for their users.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(contents.as_ref())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // If this fails as well, the next attempt removes the file.
        let _ = fs::remove_file(&temporary);
        Error::io("write", path)(error)
    })
}

/// Syncs a folder, which makes its renames durable.
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

/// Creates a folder and its missing parents, for the owner only.
///
/// # Errors
/// [`Error::Io`].
pub fn create_private_folder(folder: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(Error::io("create", folder))
}

/// Removes the permissions of group and others. Returns whether there were any.
pub(crate) fn restrict_to_owner(path: &Path) -> Result<bool, Error> {
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

/// Excludes other processes from changing the directory.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Closing the file would not be enough: a process that another thread has started just now has a copy of the descriptor until
    /// it runs its program, and with it the lock.
    fn drop(&mut self) {
        // The lock ends with the last descriptor anyway.
        let _ = self.file.unlock();
    }
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
            Ok(()) => Ok(Self { file }),
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

/// The result of [`check_format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatFile {
    /// No file exists.
    Absent,
    /// The file has a supported version.
    Current,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_when_it_is_dropped_although_its_descriptor_has_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        let lock = Lock::take(&layout).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&layout), Err(Error::Busy { .. })));
        drop(lock);
        Lock::take(&layout).unwrap();
        drop(copy);
    }
}
