//! `fairlead restore`: makes the store of a shard from a backup, or puts a workspace back into it. The shard does not run.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fairlead_store::{
    BackupContent, BackupError, BackupReader, ExistingStore, OpenError, RedbOptions, RedbStore, RestoreError,
    RestoreSummary,
};

use crate::backup::BackupSummary;
use crate::installation::{InstallationError, create_private_folder};
use crate::output::print;
use crate::store::{EtcdAccess, EtcdLocation, STORE, StoreCommandError, TemporaryFolder, fill, owner};

/// Names of the local copy of an etcd in the directory of a shard: that of `fairlead up`, and that of kcp's flags.
const LOCAL_COPIES: [&str; 2] = ["view.redb", "etcd-view.redb"];

/// Make the store of a shard from a backup, put a workspace back, or verify a backup
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  # A shard, into a directory without a store
  fairlead restore root.backup --data-dir .fairlead/data/root

  # A workspace that was deleted, into the store of its shard, which does not run
  fairlead restore team.backup --data-dir .fairlead/data/root

  # A shard, into an empty prefix of an etcd
  fairlead restore root.backup --etcd http://127.0.0.1:2379/shards/root

  # From a pipe
  ssh backups 'cat root.backup' | fairlead restore - --verify")]
pub(crate) struct RestoreCommand {
    /// Backup; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Directory of the store, which is its file store.redb
    #[arg(long, value_name = "DIR", required_unless_present_any = ["verify", "etcd"])]
    data_dir: Option<PathBuf>,
    /// Replace the store that is in the directory
    #[arg(long, requires = "data_dir")]
    replace: bool,
    /// URLs of an etcd, separated by commas, with an empty prefix as the path of the last one
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "verify"])]
    etcd: Option<EtcdLocation>,
    /// Name of the shard that will use the prefix, which is that of the backup
    #[arg(long, value_name = "NAME", requires = "etcd")]
    shard: Option<String>,
    #[command(flatten)]
    access: EtcdAccess,
    /// Only verify the backup, by making a store of it in the folder for temporary files
    #[arg(long, conflicts_with = "data_dir")]
    verify: bool,
}

/// A restore that changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreCommandError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: {source}", file.display())]
    Backup { file: PathBuf, source: RestoreError },
    #[error(transparent)]
    Store(RestoreError),
    #[error("a workspace is not restored from a pipe, because it is read twice")]
    WorkspaceFromPipe,
    #[error("a workspace replaces no store")]
    WorkspaceReplaces,
    #[error("a workspace is not restored into etcd")]
    WorkspaceIntoEtcd,
    #[error("{}: it is of shard {found}, not of shard {named}", file.display())]
    OtherShard { file: PathBuf, found: String, named: String },
    #[error("the shard of this directory keeps its objects in etcd, of which {} is a copy", .0.display())]
    UsesEtcd(PathBuf),
    #[error(transparent)]
    Etcd(#[from] StoreCommandError),
    #[error(transparent)]
    Directory(#[from] InstallationError),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
}

impl RestoreCommandError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Backup { source, .. } => match source {
                RestoreError::Backup(
                    BackupError::Altered { .. } | BackupError::Cut { .. } | BackupError::Failed { .. },
                ) => "take another backup; nothing was written",
                RestoreError::Backup(BackupError::Foreign) => {
                    "name a file that `fairlead backup` has written"
                }
                RestoreError::OtherStore { .. } => {
                    "a workspace goes only into the store that it was taken from"
                }
                _ => return None,
            },
            Self::Store(source) => match source {
                RestoreError::Exists { .. } => {
                    "name a directory without a store, or replace it with --replace"
                }
                RestoreError::Open(OpenError::InUse { .. }) => "stop the shard first",
                RestoreError::Open(OpenError::OtherOwner { .. }) => {
                    "name the directory of the shard that was backed up; a backup cannot be restored into a shard of another name"
                }
                RestoreError::Present { .. } => "delete the workspace first",
                RestoreError::NotClosed { .. } => "start and stop the shard, then try again",
                RestoreError::NoStore { .. } => "name the directory of the shard that the workspace was on",
                _ => return None,
            },
            Self::WorkspaceFromPipe => "write it into a file first",
            Self::WorkspaceReplaces => "leave out --replace",
            Self::WorkspaceIntoEtcd => {
                "copy the store into a file with `fairlead store copy`, restore the workspace there, and copy it back"
            }
            Self::OtherShard { .. } => {
                "leave out --shard; a backup cannot be restored into a shard of another name"
            }
            Self::UsesEtcd(_) => {
                "restore into an empty prefix with --etcd; if the shard does not use etcd any more, move that copy away"
            }
            Self::Etcd(error) => return error.hint(),
            Self::Directory(error) => return error.hint(),
            Self::Open { .. } | Self::Runtime(_) => return None,
        };
        Some(hint.to_owned())
    }
}

impl RestoreCommand {
    /// Runs the command and prints a line with the result.
    pub(crate) fn run(&self) -> Result<(), RestoreCommandError> {
        print(self.restored()?);
        Ok(())
    }

    fn restored(&self) -> Result<String, RestoreCommandError> {
        if self.file.as_os_str() == "-" {
            return self.from(io::stdin().lock(), None);
        }
        let failed = |source| RestoreCommandError::Open { path: self.file.clone(), source };
        let input = File::open(&self.file).map_err(failed)?;
        // A named pipe is read once.
        let is_file = input.metadata().map_err(failed)?.is_file();
        let again = is_file.then(|| File::open(&self.file).map_err(failed)).transpose()?;
        self.from(input, again)
    }

    /// `file` is the same backup again, if it can be read twice.
    fn from(&self, input: impl Read, file: Option<File>) -> Result<String, RestoreCommandError> {
        let backup = BackupReader::open(input).map_err(|error| self.failure(error.into()))?;
        if let Some(etcd) = &self.etcd {
            return self.restore_into_etcd(backup, etcd);
        }
        let Some(folder) = &self.data_dir else {
            let verified = RedbStore::verify_backup(std::env::temp_dir(), backup);
            let verified = verified.map_err(|error| self.failure(error))?;
            return Ok(format!("{}: {} are complete\n", self.file.display(), summary(&verified)));
        };
        // Nothing would use the restored file.
        if let Some(copy) = LOCAL_COPIES.map(|name| folder.join(name)).into_iter().find(|copy| copy.exists())
        {
            return Err(RestoreCommandError::UsesEtcd(copy));
        }
        let path = folder.join(STORE);
        let restored = match (&backup.header().content, file) {
            (BackupContent::Whole, _) => {
                create_private_folder(folder)?;
                let existing = if self.replace { ExistingStore::Replace } else { ExistingStore::Refuse };
                let owner = owner(&backup.header().source);
                RedbStore::restore(&path, backup, existing, Some(&owner))
            }
            (BackupContent::Part { .. }, _) if self.replace => {
                return Err(RestoreCommandError::WorkspaceReplaces);
            }
            (BackupContent::Part { .. }, Some(mut file)) => RedbStore::restore_part(&path, &mut file),
            (BackupContent::Part { .. }, None) => return Err(RestoreCommandError::WorkspaceFromPipe),
        };
        Ok(report(&restored.map_err(|error| self.failure(error))?, &path.display()))
    }

    /// A store file is made first: it shows that the backup is complete before etcd is changed, and it has the records in the order
    /// of their revisions.
    fn restore_into_etcd(
        &self,
        backup: BackupReader<impl Read>,
        etcd: &EtcdLocation,
    ) -> Result<String, RestoreCommandError> {
        if backup.header().content != BackupContent::Whole {
            return Err(RestoreCommandError::WorkspaceIntoEtcd);
        }
        let source = &backup.header().source;
        if let Some(named) = self.shard.as_ref().filter(|named| *named != source) {
            let (file, found, named) = (self.file.clone(), source.clone(), named.clone());
            return Err(RestoreCommandError::OtherShard { file, found, named });
        }
        let (folder, view) = (TemporaryFolder::new()?, TemporaryFolder::new()?);
        let path = folder.path().join(STORE);
        let restored = RedbStore::restore(&path, backup, ExistingStore::Refuse, None);
        let restored = restored.map_err(|error| self.failure(error))?;
        let store = RedbStore::open(&path, RedbOptions::default()).map_err(StoreCommandError::from)?;
        let owner = owner(&restored.header.source);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(RestoreCommandError::Runtime)?;
        let filled = runtime.block_on(fill(etcd, &self.access, &owner, Arc::new(store), view.path()));
        let (_, revision) = filled.map_err(StoreCommandError::from)?;
        Ok(report(&RestoreSummary { revision, ..restored }, etcd))
    }

    fn failure(&self, error: RestoreError) -> RestoreCommandError {
        match error {
            RestoreError::Backup(_)
            | RestoreError::Part { .. }
            | RestoreError::Whole
            | RestoreError::OtherStore { .. } => {
                RestoreCommandError::Backup { file: self.file.clone(), source: error }
            }
            error => RestoreCommandError::Store(error),
        }
    }
}

fn summary(restored: &RestoreSummary) -> BackupSummary {
    BackupSummary { header: restored.header.clone(), records: restored.records + restored.kept }
}

fn report(restored: &RestoreSummary, place: &dyn std::fmt::Display) -> String {
    let kept = match restored.kept {
        0 => String::new(),
        kept => format!("; {kept} were there already"),
    };
    format!("{} are in {place}, which is at revision {}{kept}\n", summary(restored), restored.revision)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use clap::Parser;
    use fairlead_store::{BackupHeader, BackupWriter, Ownership, RecordRef, Revision};

    use super::*;

    fn backup(content: BackupContent) -> Vec<u8> {
        let header = BackupHeader {
            content,
            source: "root".to_owned(),
            anchor: None,
            revision: Revision(7),
            created: 1_700_000_000,
        };
        let mut writer = BackupWriter::begin(Vec::new(), &header).unwrap();
        let record = RecordRef { key: b"key", value: b"value", created: Revision(1), modified: Revision(2) };
        writer.write(record, Ownership::Own).unwrap();
        writer.finish().unwrap()
    }

    /// A folder with backups, and with two stores, one of which is open.
    fn folder() -> (tempfile::TempDir, RedbStore) {
        let folder = tempfile::tempdir().unwrap();
        let whole = backup(BackupContent::Whole);
        let part = backup(BackupContent::Part { name: "root:fleet".to_owned() });
        let (mut altered, mut newer) = (whole.clone(), whole.clone());
        altered[20] ^= 1;
        newer[8] = 9;
        for (name, bytes) in [
            ("cut", &whole[..whole.len() - 1]),
            ("altered", altered.as_slice()),
            ("newer", newer.as_slice()),
            ("text", &b"apiVersion: v1\n"[..]),
            ("whole", whole.as_slice()),
            ("part", part.as_slice()),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let store = |name: &str| {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            RedbStore::open(folder.path().join(name).join(STORE), RedbOptions::default()).unwrap()
        };
        drop(store("stopped"));
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let other = folder.path().join("other").join(STORE);
        drop(RedbStore::open_owned(other, "shard other", RedbOptions::default()).unwrap());
        for (name, copy) in [("up", "view.redb"), ("kcp", "etcd-view.redb")] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join(copy), "").unwrap();
        }
        let running = store("running");
        (folder, running)
    }

    /// Runs the command in a folder. `.` stands for it in the arguments and in the result.
    fn restore(folder: &Path, arguments: &[&str]) -> Result<String, (String, Option<String>)> {
        #[derive(Parser)]
        struct CommandLine {
            #[command(flatten)]
            restore: RestoreCommand,
        }
        let prefix = format!("{}/", folder.display());
        let arguments = arguments.iter().map(|argument| argument.replace("./", &prefix));
        let line = CommandLine::try_parse_from(["restore".to_owned()].into_iter().chain(arguments)).unwrap();
        let short = |text: String| text.replace(&prefix, "./");
        line.restore.restored().map(short).map_err(|error| (short(error.to_string()), error.hint()))
    }

    #[test]
    fn a_refusal_is_one_sentence_with_a_hint_and_changes_nothing() {
        let (folder, _running) = folder();
        for (arguments, message, hint) in [
            (
                &["./text", "--verify"][..],
                "./text: it is not a backup of a shard",
                Some("name a file that `fairlead backup` has written"),
            ),
            (
                &["./cut", "--data-dir", "./new"][..],
                "./cut: it is incomplete: it ends after 1 records without the mark of its end",
                Some("take another backup; nothing was written"),
            ),
            (
                &["./altered", "--data-dir", "./new"][..],
                "./altered: it was altered: its checksum does not fit its content",
                Some("take another backup; nothing was written"),
            ),
            (
                &["./newer", "--data-dir", "./new"][..],
                "./newer: it has format version 9, this program supports up to 1: use the newer version",
                None,
            ),
            (
                &["./whole", "--data-dir", "./stopped"][..],
                "./stopped/store.redb exists",
                Some("name a directory without a store, or replace it with --replace"),
            ),
            (
                &["./whole", "--data-dir", "./running", "--replace"][..],
                "./running/store.redb is in use by another process: stop it first, or choose another file",
                Some("stop the shard first"),
            ),
            (
                &["./whole", "--data-dir", "./other", "--replace"][..],
                "./other/store.redb belongs to \"shard other\", not to \"shard root\"",
                Some(
                    "name the directory of the shard that was backed up; a backup cannot be restored into a shard of another name",
                ),
            ),
            (
                &["./whole", "--etcd", "http://127.0.0.1:1/registry", "--shard", "other"][..],
                "./whole: it is of shard root, not of shard other",
                Some("leave out --shard; a backup cannot be restored into a shard of another name"),
            ),
            (
                &["./whole", "--data-dir", "./up", "--replace"][..],
                "the shard of this directory keeps its objects in etcd, of which ./up/view.redb is a copy",
                Some(
                    "restore into an empty prefix with --etcd; if the shard does not use etcd any more, move that copy away",
                ),
            ),
            (
                &["./part", "--data-dir", "./kcp"][..],
                "the shard of this directory keeps its objects in etcd, of which ./kcp/etcd-view.redb is a copy",
                Some(
                    "restore into an empty prefix with --etcd; if the shard does not use etcd any more, move that copy away",
                ),
            ),
            (
                &["./part", "--data-dir", "./absent"][..],
                "./absent/store.redb does not exist",
                Some("name the directory of the shard that the workspace was on"),
            ),
            (
                &["./part", "--data-dir", "./stopped"][..],
                "./part: it does not come from the store ./stopped/store.redb",
                Some("a workspace goes only into the store that it was taken from"),
            ),
            (
                &["./part", "--etcd", "http://127.0.0.1:1/registry"][..],
                "a workspace is not restored into etcd",
                Some(
                    "copy the store into a file with `fairlead store copy`, restore the workspace there, and copy it back",
                ),
            ),
            (
                &["./part", "--data-dir", "./stopped", "--replace"][..],
                "a workspace replaces no store",
                Some("leave out --replace"),
            ),
        ] {
            let refused = restore(folder.path(), arguments).unwrap_err();
            assert_eq!((refused.0.as_str(), refused.1.as_deref()), (message, hint));
        }
        for name in ["new", "up", "kcp"] {
            assert!(!folder.path().join(name).join(STORE).exists());
        }
    }

    #[test]
    fn a_restore_says_what_is_where() {
        let (folder, _running) = folder();
        let objects = "1 objects of shard root at revision 7 of 2023-11-14T22:13:20Z";
        let verified = restore(folder.path(), &["./whole", "--verify"]);
        assert_eq!(verified.unwrap(), format!("./whole: {objects} are complete\n"));
        let place = "store.redb, which is at revision ";
        let made = restore(folder.path(), &["./whole", "--data-dir", "./new"]).unwrap();
        assert!(made.starts_with(&format!("{objects} are in ./new/{place}")), "{made}");
        let replaced = restore(folder.path(), &["./whole", "--data-dir", "./stopped", "--replace"]).unwrap();
        assert!(replaced.starts_with(&format!("{objects} are in ./stopped/{place}")), "{replaced}");
        // The same shard of another installation may use it.
        for folder_name in ["new", "stopped"] {
            let path = folder.path().join(folder_name).join(STORE);
            let store = RedbStore::open(path, RedbOptions::default()).unwrap();
            assert_eq!(store.owner(), Some("shard root"));
        }
    }
}
