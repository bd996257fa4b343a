//! Folders for files that are removed at the end of a command.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::StoreCommandError;

/// A new folder that only its owner can enter, in the folder for temporary files. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes one. Fails if somebody else has made a file of the same name before.
    pub(crate) fn new() -> Result<Self, StoreCommandError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fairlead-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // Left by a process with the same number that was killed.
        let _ = std::fs::remove_dir_all(&path);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(StoreCommandError::system("the folder for temporary files cannot be used"))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
