//! `fairlead store copy`: carries the store of a shard from a file into an etcd, and back.

mod etcd;
mod location;
mod temporary;

use std::io::{self, PipeReader, PipeWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use fairlead_store::{
    BackupContent, BackupHeader, BackupRange, BackupReader, ContentDigest, ExistingStore, OpenError,
    Ownership, Range, ReadError, RedbOptions, RedbStore, RestoreError, Revision, Store, has_commits_after,
    write_backup,
};
use tokio::runtime::Handle;

use crate::installation::{InstallationError, create_private_folder};
use crate::output::print;
pub(crate) use etcd::{EtcdAccess, EtcdFailure, fill};
pub(crate) use location::{EtcdLocation, STORE};
use location::{Location, parse};
pub(crate) use temporary::TemporaryFolder;

/// The owner of a store, as a shard records it, is this and its name.
const SHARD: &str = "shard ";

/// The owner that a shard records in its store.
pub(crate) fn owner(shard: &str) -> String {
    format!("{SHARD}{shard}")
}

/// Carry the store of a shard from one place to another
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum StoreVerb {
    /// Copy the store of a shard from a file into an etcd, or back, and compare both
    Copy(CopyCommand),
}

/// Copy the store of a shard from a file into an etcd, or back, and compare both
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The shard must not run. The source stays as it is. FROM and TO are each the folder or the file of a
store, or the URLs of an etcd, separated by commas, with a prefix as the path of the last one.

Examples:
  # From the file .fairlead/data/root/store.redb into an etcd
  fairlead store copy .fairlead/data/root http://127.0.0.1:2379/shards/root

  # Back into a file
  fairlead store copy http://127.0.0.1:2379/shards/root root-store")]
struct CopyCommand {
    /// Store to read
    #[arg(value_name = "FROM", value_parser = parse)]
    from: Location,
    /// Store to write
    #[arg(value_name = "TO", value_parser = parse)]
    to: Location,
    /// Name of the shard, for a store that does not say it: a file that an earlier version has written
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
    /// Replace the store file that exists already
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    access: EtcdAccess,
}

/// A copy that was not made. The source is unchanged; a target that existed before, too.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreCommandError {
    #[error("there is no store {}", .0.display())]
    NoStore(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Etcd(#[from] EtcdFailure),
    #[error("the name of the shard is not known")]
    NoShard,
    #[error("{store} belongs to {found:?}, not to {named:?}")]
    OtherOwner { store: String, found: String, named: String },
    #[error("a prefix of etcd is not replaced")]
    ReplacesPrefix,
    #[error("both are the same store")]
    SameStore,
    #[error(transparent)]
    Directory(#[from] InstallationError),
    #[error("the source cannot be read: {0}")]
    Source(#[from] ReadError),
    #[error(transparent)]
    Target(#[from] RestoreError),
    #[error("{} is not as its source", .0.display())]
    Unsound(PathBuf),
    #[error("{attempt}: {source}")]
    System { attempt: &'static str, source: io::Error },
}

impl StoreCommandError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Open(OpenError::InUse { .. })
            | Self::Target(RestoreError::Open(OpenError::InUse { .. })) => "stop the shard first",
            Self::Etcd(failure) => return failure.hint(),
            Self::NoShard => "name it with --shard",
            Self::OtherOwner { .. } => {
                "leave out --shard; a store cannot be given to a shard of another name"
            }
            Self::Target(RestoreError::Open(OpenError::OtherOwner { .. })) => {
                "name a folder without a store, or the one of that shard"
            }
            Self::ReplacesPrefix => "take another prefix, or empty it with `etcdctl del --prefix`",
            Self::Directory(error) => return error.hint(),
            Self::Target(RestoreError::Exists { .. }) => {
                "name a folder without a store, or replace it with --replace"
            }
            Self::Unsound(_) => "remove it, and copy again",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    fn system(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { attempt, source }
    }
}

impl StoreCommand {
    /// Runs the command and prints a line with the result.
    pub(crate) fn run(&self) -> Result<(), StoreCommandError> {
        let StoreVerb::Copy(copy) = &self.verb;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(StoreCommandError::system("the async runtime cannot be started"))?;
        print(runtime.block_on(copy.copied())?);
        Ok(())
    }
}

/// An open source.
struct Source {
    store: Arc<dyn Store>,
    /// The server that it belongs to, if that is known.
    owner: Option<String>,
}

impl CopyCommand {
    async fn copied(&self) -> Result<String, StoreCommandError> {
        if self.from == self.to {
            return Err(StoreCommandError::SameStore);
        }
        // Each has the local copy of an etcd.
        let (from_view, to_view) = (TemporaryFolder::new()?, TemporaryFolder::new()?);
        let source = self.source(&from_view).await?;
        let owner = self.owner(source.owner)?;
        let at = source.store.revision();
        let (digest, revision) = match &self.to {
            Location::Etcd(_) if self.replace => return Err(StoreCommandError::ReplacesPrefix),
            Location::Etcd(to) => {
                let owner = owner.ok_or(StoreCommandError::NoShard)?;
                fill(to, &self.access, &owner, source.store, to_view.path()).await?
            }
            Location::File(path) => {
                let existing = if self.replace { ExistingStore::Replace } else { ExistingStore::Refuse };
                let path = path.clone();
                let copied =
                    tokio::task::spawn_blocking(move || into_file(&source.store, at, owner, &path, existing));
                copied.await.map_err(|error| {
                    StoreCommandError::system("the copy was broken off")(io::Error::other(error))
                })??
            }
        };
        Ok(format!("{digest} are in {}, which is at revision {revision}\n", self.to))
    }

    /// The owner of the copy: that of the source.
    fn owner(&self, source: Option<String>) -> Result<Option<String>, StoreCommandError> {
        match (source, self.shard.as_deref().map(owner)) {
            (Some(found), Some(named)) if found != named => {
                Err(StoreCommandError::OtherOwner { store: self.from.to_string(), found, named })
            }
            (found, named) => Ok(found.or(named)),
        }
    }

    async fn source(&self, view: &TemporaryFolder) -> Result<Source, StoreCommandError> {
        match &self.from {
            Location::File(path) if !path.exists() => Err(StoreCommandError::NoStore(path.clone())),
            // The file is locked until the copy is complete.
            Location::File(path) => {
                let store = RedbStore::open(path, RedbOptions::default())?;
                let owner = store.owner().map(str::to_owned);
                Ok(Source { store: Arc::new(store), owner })
            }
            Location::Etcd(from) => {
                let (store, owner) = etcd::open(from, &self.access, view.path()).await?;
                Ok(Source { store, owner: Some(owner) })
            }
        }
    }
}

/// Makes a store file of a source, opens it as a shard does, and compares both. To be called on a blocking thread of a runtime.
fn into_file(
    source: &Arc<dyn Store>,
    at: Revision,
    owner: Option<String>,
    path: &Path,
    existing: ExistingStore,
) -> Result<(ContentDigest, Revision), StoreCommandError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_private_folder(folder)?;
    }
    let (reader, writer) = io::pipe().map_err(StoreCommandError::system("no pipe can be made"))?;
    let written = {
        let source = source.clone();
        std::thread::spawn(move || write(&*source, at, writer))
    };
    let runtime = Handle::current();
    let input = UnchangedSource { input: reader, source: source.clone(), at, runtime };
    let restored = BackupReader::open(input)
        .map_err(RestoreError::from)
        .and_then(|backup| RedbStore::restore(path, backup, existing, owner.as_deref()));
    // If the store cannot be made, the pipe is closed, and the writer fails: that is not the reason.
    let _ = written.join();
    restored?;
    let copy = RedbStore::open(path, RedbOptions::default())?;
    let digest = ContentDigest::of(&**source, at)?;
    if ContentDigest::of(&copy, copy.revision())? != digest {
        return Err(StoreCommandError::Unsound(path.to_owned()));
    }
    Ok((digest, copy.revision()))
}

/// The content of a store, as a backup. The reader is told of an error.
fn write(source: &dyn Store, at: Revision, output: PipeWriter) {
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (content, unnamed) = (BackupContent::Whole, String::new());
    let header = BackupHeader { content, source: unnamed, anchor: None, revision: at, created };
    let all = BackupRange { range: Range::all(), ownership: Ownership::Own };
    let _ = write_backup(source, &header, &[all], output);
}

/// The backup of a source, which has no end if the source was changed meanwhile.
struct UnchangedSource {
    input: PipeReader,
    source: Arc<dyn Store>,
    at: Revision,
    runtime: Handle,
}

impl Read for UnchangedSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let is_end = count == 0 && !buffer.is_empty();
        if is_end && self.runtime.block_on(has_commits_after(&*self.source, self.at)) {
            return Err(io::Error::other("the source was changed while it was copied: its shard runs"));
        }
        Ok(count)
    }
}
