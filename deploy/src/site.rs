//! One installation on this machine: its directory, who is using it, and what `up` says about it there.
//!
//! ```text
//! format                    the version of this layout, one number
//! admin.kubeconfig          for people
//! edge.kubeconfig           for people who sign in, at the door for tokens
//! users.yaml                those who can sign in; for people to change
//! pki/                      see `fairlead-certs`
//! kubeconfigs/              for servers
//! config/<process>.yaml     one per process
//! data/<process>/           the store; the issuer's key
//! logs/<process>.log        and up.log of `up` itself
//! up.lock                   locked while `up` runs; its process id
//! state.json                what `up` has started, see `Record`
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fairlead_certs::Layout;
use serde::{Deserialize, Serialize};

use crate::kubeconfigs;

/// The version of the layout that this program reads and writes.
const FORMAT: u32 = 1;

/// The paths of an installation. Only what says so does I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    directory: PathBuf,
}

/// A directory that cannot be used. The operator has to act; `Occupied` passes when the other `up` ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SiteError {
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{} was written by a newer fairlead (format {found}, this one knows {FORMAT})", path.display())]
    NewerFormat { path: PathBuf, found: u32 },
    #[error("{} should hold the number of a format and does not", path.display())]
    UnreadableFormat { path: PathBuf },
    #[error("{} is not empty and not a directory of fairlead", path.display())]
    Foreign { path: PathBuf },
    #[error("another `fairlead up` (process {pid}) is running in {}", path.display())]
    Occupied { path: PathBuf, pid: u32 },
}

impl SiteError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { .. } => return None,
            Self::NewerFormat { .. } => "use that fairlead, or name another directory with --dir",
            Self::UnreadableFormat { .. } => "write 1 into it if this directory is fairlead's",
            Self::Foreign { .. } => "name another directory with --dir",
            Self::Occupied { .. } => "`fairlead status` shows it, `fairlead down` stops it",
        };
        Some(hint.to_owned())
    }

    fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source }
    }
}

/// What `up` has started, for `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Process id of `up`.
    pub pid: u32,
    /// When it began, RFC 3339.
    pub started: String,
    /// Where people reach the gateway.
    pub gateway: String,
    /// Where they reach its door for tokens; empty in what an older version has written.
    #[serde(default)]
    pub edge: String,
    /// The servers.
    pub processes: Vec<ProcessRecord>,
}

impl Record {
    /// Where the development issuer is.
    pub(crate) fn issuer(&self) -> Option<String> {
        let issuer = self.processes.iter().find(|process| process.name == "issuer");
        issuer.map(|issuer| issuer.url.clone())
    }
}

/// One server in a [`Record`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessRecord {
    /// `gateway`, `cache`, `issuer`, or the shard's name.
    pub name: String,
    /// Its base URL.
    pub url: String,
    /// `starting`, `ready`, `waiting`, `stopping`, `stopped`.
    pub condition: String,
    /// Its process id, while it runs.
    pub pid: Option<u32>,
    /// When the running process was started, RFC 3339.
    pub since: Option<String>,
    /// How often it was started again.
    pub restarts: u32,
    /// How it ended last, if it did.
    pub last_exit: Option<String>,
}

/// This moment in RFC 3339, to the second.
pub(crate) fn now_as_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Site {
    /// The installation in a directory, which need not exist. Relative to the working directory, as people type it.
    pub(crate) fn at(directory: &Path) -> Result<Self, SiteError> {
        let directory = std::path::absolute(directory).map_err(SiteError::io("find", directory))?;
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

    /// Those who can sign in.
    pub(crate) fn users(&self) -> PathBuf {
        self.directory.join("users.yaml")
    }

    pub(crate) fn kubeconfigs(&self) -> kubeconfigs::Folder {
        kubeconfigs::Folder::new(self.directory.join("kubeconfigs"))
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

    fn lock(&self) -> PathBuf {
        self.directory.join("up.lock")
    }

    fn record(&self) -> PathBuf {
        self.directory.join("state.json")
    }

    /// Makes the directory ours and keeps others out until the result is dropped.
    pub(crate) fn occupy(&self) -> Result<Occupation, SiteError> {
        self.check()?;
        make_private(&self.directory)?;
        let path = self.lock();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(SiteError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = self.directory.clone();
                return Err(SiteError::Occupied { path, pid: read_pid(&mut file).unwrap_or_default() });
            }
            Err(TryLockError::Error(source)) => return Err(SiteError::io("lock", &path)(source)),
        }
        let after_a_crash = read_pid(&mut file).is_some();
        write_pid(&mut file, Some(std::process::id())).map_err(SiteError::io("write", &path))?;
        // Only now, so that a directory has its format as soon as anything else is in it but the lock.
        let format = self.format();
        if !format.exists() {
            replace(&format, format!("{FORMAT}\n").as_bytes())?;
        }
        Ok(Occupation { file, after_a_crash })
    }

    /// The `up` that is running here, if one is. It cannot be a stranger with a reused process id: the lock is held
    /// for as long as its holder lives.
    pub(crate) fn occupant(&self) -> Result<Option<Occupant>, SiteError> {
        let path = self.lock();
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SiteError::io("open", &path)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(read_pid(&mut file).map(|pid| Occupant { pid, file })),
            Err(TryLockError::Error(source)) => Err(SiteError::io("lock", &path)(source)),
        }
    }

    /// Removes what `up` and the servers have made, and nothing else.
    pub(crate) fn clear(&self, _occupation: &Occupation) -> Result<(), SiteError> {
        for folder in ["pki", "kubeconfigs", "config", "data", "logs"] {
            let path = self.directory.join(folder);
            ignore_absent(std::fs::remove_dir_all(&path)).map_err(SiteError::io("remove", path))?;
        }
        for path in [self.admin_kubeconfig(), self.edge_kubeconfig(), self.users(), self.record()] {
            ignore_absent(std::fs::remove_file(&path)).map_err(SiteError::io("remove", path))?;
        }
        Ok(())
    }

    /// Names of the processes that have data here.
    pub(crate) fn processes_with_data(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.join("data"));
        let names = entries.into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// What `up` said last.
    pub(crate) fn read_record(&self) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.record()).ok()?).ok()
    }

    /// Says it, in place of what was said before.
    pub(crate) fn write_record(&self, record: &Record) -> Result<(), SiteError> {
        let path = self.record();
        let mut text = serde_json::to_vec_pretty(record)
            .map_err(|error| SiteError::io("write", &path)(io::Error::other(error)))?;
        text.push(b'\n');
        replace(&path, &text)
    }

    fn check(&self) -> Result<(), SiteError> {
        let path = self.format();
        match std::fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(found) if found > FORMAT => Err(SiteError::NewerFormat { path, found }),
                Ok(_) => Ok(()),
                Err(_) => Err(SiteError::UnreadableFormat { path }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check_is_new(),
            Err(error) => Err(SiteError::io("read", path)(error)),
        }
    }

    /// Without a format the directory must be empty but for the lock of somebody who is just beginning.
    fn check_is_new(&self) -> Result<(), SiteError> {
        let path = self.directory.clone();
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(SiteError::io("read", path)(error)),
        };
        let lock = self.lock();
        for entry in entries {
            let entry = entry.map_err(SiteError::io("read", &path))?;
            if entry.path() != lock {
                return Err(SiteError::Foreign { path });
            }
        }
        Ok(())
    }
}

/// The right to work in a directory.
#[derive(Debug)]
pub(crate) struct Occupation {
    file: File,
    after_a_crash: bool,
}

impl Occupation {
    /// Whether whoever was here before has not left in an orderly way, so that its servers may still be ending.
    pub(crate) fn is_after_a_crash(&self) -> bool {
        self.after_a_crash
    }
}

impl Drop for Occupation {
    fn drop(&mut self) {
        // Without it the next `up` merely looks twice whether ports are free.
        let _ = write_pid(&mut self.file, None);
    }
}

/// A running `up`.
#[derive(Debug)]
pub(crate) struct Occupant {
    /// Its process id.
    pub pid: u32,
    file: File,
}

impl Occupant {
    /// Blocks until it is gone.
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

/// Makes a folder that only its owner may enter; one that exists keeps its mode.
pub(crate) fn make_private(folder: &Path) -> Result<(), SiteError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(SiteError::io("make", folder))
}

/// Puts a complete file in the place of another, so that readers never see a half.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), SiteError> {
    let draft = path.with_extension("new");
    std::fs::write(&draft, content).map_err(SiteError::io("write", &draft))?;
    std::fs::rename(&draft, path).map_err(SiteError::io("write", path))
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

    fn site() -> (tempfile::TempDir, Site) {
        let folder = tempfile::tempdir().unwrap();
        let site = Site::at(&folder.path().join("here")).unwrap();
        (folder, site)
    }

    #[test]
    fn one_up_at_a_time() {
        let (_folder, site) = site();
        assert!(site.occupant().unwrap().is_none());
        let first = site.occupy().unwrap();
        assert!(!first.is_after_a_crash());
        assert_eq!(site.occupant().unwrap().unwrap().pid, std::process::id());
        let refused = site.occupy().unwrap_err();
        assert!(matches!(refused, SiteError::Occupied { pid, .. } if pid == std::process::id()), "{refused}");
        drop(first);
        assert!(site.occupant().unwrap().is_none());
        assert!(!site.occupy().unwrap().is_after_a_crash());
    }

    #[test]
    fn a_pid_that_was_left_behind_means_a_crash() {
        let (_folder, site) = site();
        drop(site.occupy().unwrap());
        std::fs::write(site.lock(), "4711\n").unwrap();
        assert!(site.occupant().unwrap().is_none(), "nobody holds the lock");
        assert!(site.occupy().unwrap().is_after_a_crash());
    }

    #[test]
    fn other_peoples_directories_and_newer_formats_are_left_alone() {
        let (_folder, site) = site();
        std::fs::create_dir_all(site.directory()).unwrap();
        std::fs::write(site.directory().join("thesis.txt"), "years of work").unwrap();
        assert!(matches!(site.occupy(), Err(SiteError::Foreign { .. })));
        std::fs::write(site.format(), "2\n").unwrap();
        let error = site.occupy().unwrap_err();
        assert!(matches!(error, SiteError::NewerFormat { found: 2, .. }), "{error}");
        assert!(!error.to_string().contains('\n') && error.hint().is_some());
        std::fs::write(site.format(), "one\n").unwrap();
        assert!(matches!(site.occupy(), Err(SiteError::UnreadableFormat { .. })));
        assert!(!site.lock().exists(), "nothing was touched");
    }

    #[test]
    fn clearing_removes_only_what_is_ours() {
        let (_folder, site) = site();
        let occupation = site.occupy().unwrap();
        let note = site.directory().join("note.txt");
        for path in
            [&note, &site.data("root").join("store.redb"), &site.log("root"), &site.admin_kubeconfig()]
        {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        assert_eq!(site.processes_with_data(), ["root"]);
        site.clear(&occupation).unwrap();
        site.clear(&occupation).unwrap();
        assert!(note.exists() && site.occupant().unwrap().is_some());
        assert!(
            !site.data("root").exists() && !site.log("root").exists() && !site.admin_kubeconfig().exists()
        );
        assert!(site.processes_with_data().is_empty());
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (_folder, site) = site();
        let _occupation = site.occupy().unwrap();
        assert_eq!(site.read_record(), None);
        let record = Record {
            pid: 7,
            started: now_as_text(),
            gateway: "https://127.0.0.1:6443".to_owned(),
            edge: "https://127.0.0.1:8443".to_owned(),
            processes: vec![ProcessRecord {
                name: "cache".to_owned(),
                url: "https://127.0.0.1:1".to_owned(),
                condition: "ready".to_owned(),
                pid: Some(8),
                since: Some(now_as_text()),
                restarts: 1,
                last_exit: Some("exit code 1".to_owned()),
            }],
        };
        site.write_record(&record).unwrap();
        assert_eq!(site.read_record(), Some(record));
    }
}
