//! The file of a Unix socket: created with its final permissions, and replaced only if no process listens on it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Suffix of the file until its permissions are set.
const NEW_SUFFIX: &str = ".new";
/// Maximum length of the kernel's accept queue.
const BACKLOG: i32 = 1024;
/// Number of attempts to take a lock that another process holds, and the pause between them. A lock is held for a moment,
/// unless its process hangs; this process must not hang then.
const LOCK_ATTEMPTS: u32 = 40;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(25);

/// The file of a listening socket; removed with it, unless another process has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    is_released: AtomicBool,
}

impl SocketFile {
    /// Listens at a path. An existing file is replaced if it is a socket on which no process listens.
    pub(super) fn bind(path: &Path, mode: u32) -> io::Result<(UnixListener, Self)> {
        // Another process must not check and replace the file at the same time.
        let _lock = BindLock::at(path)?;
        if let Ok(existing) = fs::symlink_metadata(path) {
            if !existing.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the existing file is not a socket",
                ));
            }
            if is_listened_on(path)? {
                return Err(io::ErrorKind::AddrInUse.into());
            }
        }
        // Created under another name until its permissions are set, so that it is never accessible to others.
        let new = with_suffix(path, NEW_SUFFIX);
        let _ = fs::remove_file(&new);
        let socket = unix_socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&new)?)?;
        let made = || {
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
            // Before this call connections are refused, whatever the permissions are.
            rustix::net::listen(&socket, BACKLOG)?;
            fs::rename(&new, path)?;
            Self::of(path)
        };
        let file = made().inspect_err(|_| drop(fs::remove_file(&new)))?;
        Ok((UnixListener::from(socket), file))
    }

    /// The file of an existing listening socket. It is not removed on drop before [`Self::own`].
    pub(super) fn adopt(path: &Path) -> io::Result<Self> {
        if !fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the existing file is not a socket"));
        }
        let file = Self::of(path)?;
        file.release();
        Ok(file)
    }

    /// Takes over the file and sets its permissions. A different file at the path is not changed.
    pub(super) fn own(&self, mode: u32) -> io::Result<()> {
        self.is_released.store(false, Ordering::Relaxed);
        if !self.is_ours() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file has been replaced"));
        }
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
    }

    /// Releases the file: this process does not remove it.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }

    /// True if this process removes the file.
    pub(super) fn is_owned(&self) -> bool {
        !self.is_released.load(Ordering::Relaxed)
    }

    /// True if a socket with this name is the one at a path; a socket keeps the name under which it was created.
    pub(super) fn is_named(path: &Path, name: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        [path.as_os_str(), with_suffix(path, NEW_SUFFIX).as_os_str()]
            .iter()
            .any(|known| known.as_bytes() == name)
    }

    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            is_released: AtomicBool::new(false),
        })
    }

    fn is_ours(&self) -> bool {
        let existing = fs::symlink_metadata(&self.path);
        existing.is_ok_and(|existing| {
            existing.file_type().is_socket() && (existing.dev(), existing.ino()) == self.identity
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_released.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(_lock) = BindLock::at(&self.path)
            && self.is_ours()
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The lock for replacing or removing the file. The lock file remains, because removing it would allow two processes to hold a
/// lock at the same time.
struct BindLock(#[expect(dead_code, reason = "locked as long as it is open")] OwnedFd);

impl BindLock {
    fn at(path: &Path) -> io::Result<Self> {
        // Opens neither the target of a symbolic link nor a FIFO.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = open(with_suffix(path, ".lock"), flags, Mode::RUSR | Mode::WUSR)?;
        for _ in 0..LOCK_ATTEMPTS {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_RETRY_INTERVAL),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "another process does not release the lock of the socket file",
        ))
    }
}

/// True if a process listens on the socket. Does not block.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    match connect(unix_socket()?, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(true),
        // A full accept queue means that a process listens.
        Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A non-blocking socket.
fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::net::UnixStream;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("listener.sock");
        (folder, path)
    }

    #[test]
    fn a_socket_has_its_mode_and_goes_with_its_listener() {
        let (_folder, path) = folder();
        let (listener, file) = SocketFile::bind(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let (_folder, path) = folder();
        let (listener, file) = SocketFile::bind(&path, 0o600).unwrap();
        assert_eq!(SocketFile::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        file.release();
        drop((listener, file));
        assert!(path.exists(), "as after a crash");
        let (_listener, _file) = SocketFile::bind(&path, 0o600).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_socket_with_a_full_accept_queue_is_live() {
        let (_folder, path) = folder();
        let busy = unix_socket().unwrap();
        rustix::net::bind(&busy, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&busy, 1).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            let socket = unix_socket().unwrap();
            match connect(&socket, &SocketAddrUnix::new(&path).unwrap()) {
                Ok(()) => waiting.push(socket),
                Err(error) => break error,
            }
        };
        assert_eq!(full, Errno::AGAIN);
        assert_eq!(SocketFile::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_lock_that_is_never_released_is_not_awaited() {
        let (_folder, path) = folder();
        let turn = BindLock::at(&path).unwrap();
        assert_eq!(SocketFile::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(turn);
        SocketFile::bind(&path, 0o600).unwrap();
    }

    #[test]
    fn a_file_that_replaced_the_socket_keeps_its_permissions() {
        let (folder, path) = folder();
        let (_listener, file) = SocketFile::bind(&path, 0o600).unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "").unwrap();
        fs::set_permissions(&precious, fs::Permissions::from_mode(0o400)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        assert!(file.own(0o666).is_err());
        assert_eq!(fs::metadata(&precious).unwrap().mode() & 0o777, 0o400);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let (_folder, path) = folder();
        fs::write(&path, "precious").unwrap();
        assert_eq!(SocketFile::bind(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_successors_file_is_not_removed() {
        let (_folder, path) = folder();
        let (old, file) = SocketFile::bind(&path, 0o600).unwrap();
        drop(old);
        let (_new, _kept) = SocketFile::bind(&path, 0o600).unwrap();
        drop(file);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn one_of_several_concurrent_binds_succeeds() {
        for _ in 0..20 {
            let (_folder, path) = folder();
            // A stale file, which two processes could replace at the same time.
            let (listener, file) = SocketFile::bind(&path, 0o600).unwrap();
            file.release();
            drop((listener, file));
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| SocketFile::bind(&path, 0o600).ok())).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(all.len(), 1);
            UnixStream::connect(&path).unwrap();
        }
    }
}
