//! Names of files.

use std::fs::File;
use std::path::Path;

/// Makes the name of a file durable.
pub(super) fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
