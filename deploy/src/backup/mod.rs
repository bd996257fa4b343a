//! `fairlead backup`: backups of shards and workspaces while they are served.

mod download;
mod source;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use fairlead_client::{ClientError, CredentialsError, KubeconfigError};
use fairlead_store::{BackupContent, BackupError, BackupHeader};

use crate::installation::{InstallationError, default_directory};
use crate::output::Output;
use crate::up::ProbeError;
use download::{Destination, Download, download};
use source::{Source, sources};

/// Back up shards or a workspace while they are served
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  # The only shard of the installation in .fairlead, into root.backup
  fairlead backup

  # Each shard into a file of the folder backups
  fairlead backup --all -o backups

  # A workspace, into a pipe
  fairlead backup --workspace root:org:team -o - | ssh backups 'cat > team.backup'

  # A shard that `fairlead up` does not run
  fairlead backup --kubeconfig shard-1.kubeconfig -o shard-1.backup")]
pub(crate) struct BackupCommand {
    /// Directory of an installation of `fairlead up`
    #[arg(long, default_value = default_directory().as_os_str(), value_name = "DIR")]
    dir: PathBuf,
    /// Kubeconfig of an administrator at a shard, in place of an installation; for a workspace also at a gateway
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "shard", "all"])]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, in place of the current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// Shard; can be left out if there is one only
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "workspace"])]
    shard: Option<String>,
    /// All shards, each into a file of its own
    #[arg(long, conflicts_with = "workspace")]
    all: bool,
    /// Workspace, without those below it
    #[arg(short, long, value_name = "PATH")]
    workspace: Option<String>,
    /// File, `-` for standard output, or folder with --all [default: <name>.backup]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A backup that was not made. A file that existed before is unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupCommandError {
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("nothing is running in {}", .0.display())]
    NotRunning(PathBuf),
    #[error("there is no shard {name:?}; the shards are {}", shards.join(", "))]
    UnknownShard { name: String, shards: Vec<String> },
    #[error("there are several shards: {}", .0.join(", "))]
    SeveralShards(Vec<String>),
    #[error("{0:?} is no path of a workspace")]
    Workspace(String),
    #[error("all shards cannot be written into one pipe")]
    AllIntoPipe,
    #[error("a backup is not written to a terminal")]
    Terminal,
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Client(#[from] ProbeError),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error("{name} cannot be backed up: {source}")]
    Request { name: String, source: ClientError },
    #[error("{name} cannot be backed up: its address is not that of a shard")]
    NotAShard { name: String },
    #[error("the backup of {name} cannot be used: {source}")]
    Backup { name: String, source: BackupError },
    #[error("cannot write {output}: {source}")]
    Output { output: String, source: io::Error },
}

impl BackupCommandError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Installation(error) => return error.hint(),
            Self::NotRunning(_) => {
                "`fairlead up` starts an installation; --kubeconfig names a shard elsewhere"
            }
            Self::SeveralShards(_) => "name one with --shard, or take --all",
            Self::AllIntoPipe => "name a folder with -o",
            Self::Terminal => "name a file with -o, or a pipe",
            Self::Backup { source: BackupError::Failed { .. } | BackupError::Cut { .. }, .. } => {
                "try it again"
            }
            Self::Request { source, .. } if source.code() == Some(403) => {
                "only members of system:kcp:admin, and at a shard of system:masters, make backups; a gateway also refuses workspaces that do not exist"
            }
            Self::Request { source, .. } if source.code() == Some(429) => {
                "try again when the other one is complete"
            }
            Self::NotAShard { .. } => {
                "name a kubeconfig with the URL of a shard; a gateway backs up workspaces only, with --workspace"
            }
            Self::Request { source, .. } if source.is_not_found() => {
                "a workspace is backed up on the shard that serves it"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl BackupCommand {
    /// Makes the backups one after the other, and prints a line for each. Each file gets its name when it is verified.
    pub(crate) fn run(&self) -> Result<(), BackupCommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BackupCommandError::Runtime)?;
        let (mut out, mut err) = (io::stdout(), io::stderr());
        runtime.block_on(self.execute(&mut Output { out: &mut out, err: &mut err }))
    }

    async fn execute(&self, output: &mut Output<'_>) -> Result<(), BackupCommandError> {
        let is_pipe = self.output.as_deref().is_some_and(|output| output == Path::new("-"));
        if is_pipe && self.all {
            return Err(BackupCommandError::AllIntoPipe);
        }
        if is_pipe && io::stdout().is_terminal() {
            return Err(BackupCommandError::Terminal);
        }
        for source in sources(self)? {
            let destination = if is_pipe { Destination::Pipe } else { self.file_of(&source)? };
            let complete = download(&source, &destination).await?;
            let line = complete.line(&source, &destination);
            // Standard output has the backup itself.
            let printed = if is_pipe { output.warn(&line) } else { output.print(&line) };
            printed
                .map_err(|source| BackupCommandError::Output { output: "the result".to_owned(), source })?;
        }
        Ok(())
    }

    fn file_of(&self, source: &Source) -> Result<Destination, BackupCommandError> {
        let name = format!("{}.backup", source.name.replace(':', "-"));
        let file = match &self.output {
            Some(folder) if self.all => {
                crate::installation::create_private_folder(folder)?;
                folder.join(name)
            }
            Some(file) => file.clone(),
            None => name.into(),
        };
        Ok(Destination::File(file))
    }
}

impl Download {
    fn line(&self, source: &Source, destination: &Destination) -> String {
        format!("{}: {}, {} bytes in {destination}\n", source.name, self.summary, self.bytes)
    }
}

/// A verified backup: its number of records, revision, origin and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupSummary {
    pub header: BackupHeader,
    pub records: u64,
}

impl std::fmt::Display for BackupSummary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { header, records } = self;
        let origin = match &header.content {
            BackupContent::Whole => format!("shard {}", header.source),
            BackupContent::Part { name } => format!("workspace {name} on shard {}", header.source),
        };
        write!(formatter, "{records} objects of {origin} at revision {}", header.revision)?;
        let created =
            i64::try_from(header.created).ok().and_then(|time| jiff::Timestamp::from_second(time).ok());
        match created {
            Some(created) => write!(formatter, " of {created}"),
            None => Ok(()),
        }
    }
}
