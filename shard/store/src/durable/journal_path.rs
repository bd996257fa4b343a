//! The journal of a store file in the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::directory::sync_directory;
use super::journal::JournalFile;

/// The path of a journal: that of the store file, followed by `-journal`.
#[derive(Clone, Debug)]
pub(super) struct JournalPath(PathBuf);

impl JournalPath {
    pub(super) fn of(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push("-journal");
        Self(path.into())
    }

    pub(super) fn as_path(&self) -> &Path {
        &self.0
    }

    fn backend(file: File) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    }
}

impl JournalFile for JournalPath {
    fn open(&self) -> io::Result<Option<Box<dyn StorageBackend>>> {
        match OpenOptions::new().read(true).write(true).open(&self.0) {
            Ok(file) => Self::backend(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self) -> io::Result<Box<dyn StorageBackend>> {
        // Values contain secrets, so only the owner may read the file.
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.0)?;
        sync_directory(&self.0)?;
        Self::backend(file)
    }

    fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
