//! A full disk: which errors mean it.

use std::io;

/// Whether an error says that there is no room: on the disk, in the quota of the user, or below the limit of a file's size. Errors of a
/// sync are none of these, see [`sync_error`].
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A failed sync is final, whatever its error: the kernel may have dropped the data.
pub(super) fn sync_error(error: io::Error) -> io::Error {
    io::Error::other(format!("the sync has failed: {error}"))
}
