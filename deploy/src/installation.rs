//! One installation on this machine: its directory, its lock, and the state file of `up`.
//!
//! ```text
//! format                    the version of this layout, one number
//! admin.kubeconfig          for the administrator
//! edge.kubeconfig           for users who sign in, at the listener for tokens
//! users.yaml                users of the development issuer; can be edited
//! pki/                      see `fairlead-certs`
//! kubeconfigs/              for servers
//! config/<process>.yaml     one per process
//! data/<process>/           the store, or its copy of what etcd has; the key of the issuer; data of etcd
//! logs/<process>.log        and up.log of `up` itself
//! up.lock                   locked while `up` runs; has its process id
//! state.json                what `up` has started, see `SavedState`
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fairlead_certs::Layout;
use serde::{Deserialize, Serialize};

use crate::kubeconfigs;

/// The version of the layout that this program reads and writes.
const FORMAT: u32 = 1;

/// The directory of an installation unless `--dir` names another one.
pub(crate) fn default_directory() -> &'static Path {
    Path::new(".fairlead")
}

/// The paths of an installation. Methods do I/O only where they say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    directory: PathBuf,
}

/// A directory that cannot be used. The operator has to act; `InUse` passes when the other `up` ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallationError {
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{} was written by a newer fairlead (format {found}, this one supports {FORMAT})", path.display())]
    NewerFormat { path: PathBuf, found: u32 },
    #[error("{} does not contain a format number", path.display())]
    UnreadableFormat { path: PathBuf },
    #[error("{} is not empty and is not a directory of fairlead", path.display())]
    Foreign { path: PathBuf },
    #[error("another `fairlead up` (process {pid}) is running in {}", path.display())]
    InUse { path: PathBuf, pid: u32 },
}

impl InstallationError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { .. } => return None,
            Self::NewerFormat { .. } => "use that fairlead, or name another directory with --dir",
            Self::UnreadableFormat { .. } => "write 1 into it if this directory is fairlead's",
            Self::Foreign { .. } => "name another directory with --dir",
            Self::InUse { .. } => "`fairlead status` shows it, `fairlead down` stops it",
        };
        Some(hint.to_owned())
    }

    fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source }
    }
}

/// The state file of `up`, for other commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedState {
    /// Process id of `up`.
    pub pid: u32,
    /// Start time, RFC 3339.
    pub started: String,
    /// URL of the gateway.
    pub gateway: String,
    /// URL of its listener for tokens; empty if an older version has written the file.
    #[serde(default)]
    pub edge: String,
    /// The server processes.
    pub processes: Vec<SavedProcess>,
}

impl SavedState {
    /// URL of the development issuer.
    pub(crate) fn issuer(&self) -> Option<String> {
        let issuer = self.processes.iter().find(|process| process.name == "issuer");
        issuer.map(|issuer| issuer.url.clone())
    }
}

/// One server in a [`SavedState`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedProcess {
    /// `gateway`, `cache`, `issuer`, `etcd`, or the name of the shard.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// `starting`, `ready`, `waiting`, `stopping`, `stopped`.
    pub condition: String,
    /// Process id, while the process runs.
    pub pid: Option<u32>,
    /// Start time of the running process, RFC 3339.
    pub since: Option<String>,
    /// Number of restarts.
    pub restarts: u32,
    /// Exit code or signal of the last end.
    pub last_exit: Option<String>,
}

/// The current time in RFC 3339, to the second.
pub(crate) fn now_as_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Installation {
    /// The installation in a directory, which need not exist. A relative path is resolved against the working directory.
    pub(crate) fn at(directory: &Path) -> Result<Self, InstallationError> {
        let directory =
            std::path::absolute(directory).map_err(InstallationError::io("resolve", directory))?;
        Ok(Self { directory })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn certificates(&self) -> Layout {
        Layout::new(self.directory.join("pki"))
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    pub(crate) fn edge_kubeconfig(&self) -> PathBuf {
        self.directory.join("edge.kubeconfig")
    }

    /// The users file of the development issuer.
    pub(crate) fn users(&self) -> PathBuf {
        self.directory.join("users.yaml")
    }

    pub(crate) fn kubeconfigs(&self) -> kubeconfigs::KubeconfigFolder {
        kubeconfigs::KubeconfigFolder::new(self.directory.join("kubeconfigs"))
    }

    pub(crate) fn configs(&self) -> PathBuf {
        self.directory.join("config")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    pub(crate) fn config(&self, process: &str) -> PathBuf {
        self.configs().join(format!("{process}.yaml"))
    }

    pub(crate) fn data(&self, process: &str) -> PathBuf {
        self.directory.join("data").join(process)
    }

    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    fn format(&self) -> PathBuf {
        self.directory.join("format")
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join("up.lock")
    }

    fn state_file(&self) -> PathBuf {
        self.directory.join("state.json")
    }

    /// Creates and locks the directory. The lock is held until the result is dropped.
    pub(crate) fn lock(&self) -> Result<InstallationLock, InstallationError> {
        self.check()?;
        create_private_folder(&self.directory)?;
        let path = self.lock_file();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(InstallationError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = self.directory.clone();
                return Err(InstallationError::InUse { path, pid: read_pid(&mut file).unwrap_or_default() });
            }
            Err(TryLockError::Error(source)) => return Err(InstallationError::io("lock", &path)(source)),
        }
        let after_crash = read_pid(&mut file).is_some();
        write_pid(&mut file, Some(std::process::id())).map_err(InstallationError::io("write", &path))?;
        // Written after the lock and before anything else, so that a directory with other content has a format.
        let format = self.format();
        if !format.exists() {
            replace(&format, format!("{FORMAT}\n").as_bytes())?;
        }
        Ok(InstallationLock { file, after_crash })
    }

    /// The `up` that is running here, if there is one. A reused process id is no risk: the system releases the lock when its
    /// holder ends.
    pub(crate) fn running_up(&self) -> Result<Option<RunningUp>, InstallationError> {
        let path = self.lock_file();
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(InstallationError::io("open", &path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(read_pid(&mut file).map(|pid| RunningUp { pid, file })),
            Err(TryLockError::Error(source)) => Err(InstallationError::io("lock", &path)(source)),
        }
    }

    /// Removes the files of `up` and the servers, and nothing else.
    pub(crate) fn clear(&self, _lock: &InstallationLock) -> Result<(), InstallationError> {
        for folder in ["pki", "kubeconfigs", "config", "data", "logs"] {
            let path = self.directory.join(folder);
            ignore_absent(std::fs::remove_dir_all(&path)).map_err(InstallationError::io("remove", path))?;
        }
        for path in [self.admin_kubeconfig(), self.edge_kubeconfig(), self.users(), self.state_file()] {
            ignore_absent(std::fs::remove_file(&path)).map_err(InstallationError::io("remove", path))?;
        }
        Ok(())
    }

    /// Names of the processes that have data here.
    pub(crate) fn processes_with_data(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join("data"));
        let names = entries.into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Reads the state file.
    pub(crate) fn read_state(&self) -> Option<SavedState> {
        serde_json::from_slice(&std::fs::read(self.state_file()).ok()?).ok()
    }

    /// Replaces the state file.
    pub(crate) fn write_state(&self, state: &SavedState) -> Result<(), InstallationError> {
        let path = self.state_file();
        let mut text = serde_json::to_vec_pretty(state)
            .map_err(|error| InstallationError::io("write", &path)(io::Error::other(error)))?;
        text.push(b'\n');
        replace(&path, &text)
    }

    fn check(&self) -> Result<(), InstallationError> {
        let path = self.format();
        match std::fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(found) if found > FORMAT => Err(InstallationError::NewerFormat { path, found }),
                Ok(_) => Ok(()),
                Err(_) => Err(InstallationError::UnreadableFormat { path }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check_is_new(),
            Err(error) => Err(InstallationError::io("read", path)(error)),
        }
    }

    /// A directory without a format must be empty, except for the lock file of an `up` that is starting.
    fn check_is_new(&self) -> Result<(), InstallationError> {
        let path = self.directory.clone();
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(InstallationError::io("read", path)(error)),
        };
        let lock = self.lock_file();
        for entry in entries {
            let entry = entry.map_err(InstallationError::io("read", &path))?;
            if entry.path() != lock {
                return Err(InstallationError::Foreign { path });
            }
        }
        Ok(())
    }
}

/// The lock of an installation.
#[derive(Debug)]
pub(crate) struct InstallationLock {
    file: File,
    after_crash: bool,
}

impl InstallationLock {
    /// Whether the previous holder was killed, so that its servers may still be ending.
    pub(crate) fn is_after_crash(&self) -> bool {
        self.after_crash
    }
}

impl Drop for InstallationLock {
    fn drop(&mut self) {
        // If the process id stays, the next `up` only waits for ports that are in use.
        let _ = write_pid(&mut self.file, None);
    }
}

/// A running `up`.
#[derive(Debug)]
pub(crate) struct RunningUp {
    /// Process id.
    pub pid: u32,
    file: File,
}

impl RunningUp {
    /// Blocks until the running `up` has ended.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.file.lock_shared()
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File, pid: Option<u32>) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    pid.map_or(Ok(()), |pid| writeln!(file, "{pid}"))
}

/// Creates a folder with mode 0700; an existing one keeps its mode.
pub(crate) fn create_private_folder(folder: &Path) -> Result<(), InstallationError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(InstallationError::io("create", folder))
}

/// Replaces a file by rename, so that readers never see a part of it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), InstallationError> {
    let new = path.with_extension("new");
    std::fs::write(&new, content).map_err(InstallationError::io("write", &new))?;
    std::fs::rename(&new, path).map_err(InstallationError::io("write", path))
}

fn ignore_absent(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn installation() -> (tempfile::TempDir, Installation) {
        let folder = tempfile::tempdir().unwrap();
        let installation = Installation::at(&folder.path().join("here")).unwrap();
        (folder, installation)
    }

    #[test]
    fn only_one_up_runs_at_a_time() {
        let (_folder, installation) = installation();
        assert!(installation.running_up().unwrap().is_none());
        let first = installation.lock().unwrap();
        assert!(!first.is_after_crash());
        assert_eq!(installation.running_up().unwrap().unwrap().pid, std::process::id());
        let refused = installation.lock().unwrap_err();
        assert!(
            matches!(refused, InstallationError::InUse { pid, .. } if pid == std::process::id()),
            "{refused}"
        );
        drop(first);
        assert!(installation.running_up().unwrap().is_none());
        assert!(!installation.lock().unwrap().is_after_crash());
    }

    #[test]
    fn a_remaining_process_id_means_a_crash() {
        let (_folder, installation) = installation();
        drop(installation.lock().unwrap());
        std::fs::write(installation.lock_file(), "4711\n").unwrap();
        assert!(installation.running_up().unwrap().is_none(), "the lock is free");
        assert!(installation.lock().unwrap().is_after_crash());
    }

    #[test]
    fn foreign_directories_and_newer_formats_are_refused_and_unchanged() {
        let (_folder, installation) = installation();
        std::fs::create_dir_all(installation.directory()).unwrap();
        std::fs::write(installation.directory().join("thesis.txt"), "years of work").unwrap();
        assert!(matches!(installation.lock(), Err(InstallationError::Foreign { .. })));
        std::fs::write(installation.format(), "2\n").unwrap();
        let error = installation.lock().unwrap_err();
        assert!(matches!(error, InstallationError::NewerFormat { found: 2, .. }), "{error}");
        assert!(!error.to_string().contains('\n') && error.hint().is_some());
        std::fs::write(installation.format(), "one\n").unwrap();
        assert!(matches!(installation.lock(), Err(InstallationError::UnreadableFormat { .. })));
        assert!(!installation.lock_file().exists(), "nothing was changed");
    }

    #[test]
    fn clearing_removes_only_files_of_fairlead() {
        let (_folder, installation) = installation();
        let lock = installation.lock().unwrap();
        let note = installation.directory().join("note.txt");
        for path in [
            &note,
            &installation.data("root").join("store.redb"),
            &installation.log("root"),
            &installation.admin_kubeconfig(),
        ] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        assert_eq!(installation.processes_with_data(), ["root"]);
        installation.clear(&lock).unwrap();
        installation.clear(&lock).unwrap();
        assert!(note.exists() && installation.running_up().unwrap().is_some());
        assert!(
            !installation.data("root").exists()
                && !installation.log("root").exists()
                && !installation.admin_kubeconfig().exists()
        );
        assert!(installation.processes_with_data().is_empty());
    }

    #[test]
    fn the_state_file_is_read_as_it_was_written() {
        let (_folder, installation) = installation();
        let _lock = installation.lock().unwrap();
        assert_eq!(installation.read_state(), None);
        let state = SavedState {
            pid: 7,
            started: now_as_text(),
            gateway: "https://127.0.0.1:6443".to_owned(),
            edge: "https://127.0.0.1:8443".to_owned(),
            processes: vec![SavedProcess {
                name: "cache".to_owned(),
                url: "https://127.0.0.1:1".to_owned(),
                condition: "ready".to_owned(),
                pid: Some(8),
                since: Some(now_as_text()),
                restarts: 1,
                last_exit: Some("exit code 1".to_owned()),
            }],
        };
        installation.write_state(&state).unwrap();
        assert_eq!(installation.read_state(), Some(state));
    }
}
