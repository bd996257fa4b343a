//! Writes a backup as it arrives, and verifies it at the same time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fairlead_client::{ClientError, Request};
use fairlead_store::{BackupError, BackupReader};
use http::Method;
use hyper::body::Bytes;
use tokio::sync::mpsc;

use super::source::{BACKUP, Source};
use super::{BackupCommandError, BackupSummary};

/// Chunks between the connection and the thread that writes and verifies.
const CHUNKS: usize = 4;

/// The place of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Standard output.
    Pipe,
    File(PathBuf),
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipe => formatter.write_str("standard output"),
            Self::File(path) => path.display().fmt(formatter),
        }
    }
}

/// A backup that is complete.
pub(super) struct Download {
    pub(super) summary: BackupSummary,
    pub(super) bytes: u64,
}

/// Makes a backup. A file gets its name when it is complete and verified. A pipe, also one with a name, may have
/// got a part of a backup when this fails.
pub(super) async fn download(
    source: &Source,
    destination: &Destination,
) -> Result<Download, BackupCommandError> {
    let fail =
        |error: io::Error| BackupCommandError::Output { output: destination.to_string(), source: error };
    let path = match destination {
        Destination::Pipe => return receive(source, destination, Box::new(io::stdout())).await,
        Destination::File(path) => path,
    };
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        // A named pipe or a device is written to and not replaced.
        let output = OpenOptions::new().write(true).open(path).map_err(fail)?;
        return receive(source, destination, Box::new(output)).await;
    }
    let partial = PartialFile::beside(path);
    let file = partial.create().map_err(fail)?;
    let output = file.try_clone().map_err(fail)?;
    let complete = receive(source, destination, Box::new(output)).await?;
    file.sync_all().map_err(fail)?;
    std::fs::rename(&partial.0, path).map_err(fail)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(fail)?;
    Ok(complete)
}

/// Requests a backup and writes it. The connection is read here, and a thread does the rest: a slow pipe must not keep the connection
/// from being served.
async fn receive(
    source: &Source,
    destination: &Destination,
    output: Box<dyn Write + Send>,
) -> Result<Download, BackupCommandError> {
    let requested = source.client.stream(Request::new(Method::GET, &*source.path)).await;
    let mut body = requested.map_err(|error| refusal(source, error))?.body;
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let failed_output = Arc::<OnceLock<io::Error>>::default();
    let tee = Tee { chunks, chunk: Bytes::new(), output, failed: Arc::clone(&failed_output) };
    let verifying = tokio::task::spawn_blocking(move || verify(tee));
    let (mut bytes, mut broken) = (0, None);
    while let Some(chunk) = body.chunk().await {
        match chunk {
            Ok(chunk) => {
                bytes += chunk.len() as u64;
                if sender.send(chunk).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    drop((sender, body));
    let verified = verifying.await.unwrap_or_else(|error| Err(BackupError::Io(io::Error::other(error))));
    if let Some(error) = Arc::into_inner(failed_output).and_then(OnceLock::into_inner) {
        return Err(BackupCommandError::Output { output: destination.to_string(), source: error });
    }
    match verified {
        Ok(summary) => Ok(Download { summary, bytes }),
        Err(fault) => Err(failure(source, fault, broken)),
    }
}

/// A gateway has backups of workspaces only.
fn refusal(source: &Source, error: ClientError) -> BackupCommandError {
    let name = source.name.clone();
    if source.path == BACKUP && error.is_not_found() {
        return BackupCommandError::NotAShard { name };
    }
    BackupCommandError::Request { name, source: error }
}

/// What the server says is the cause of a broken connection, and this is the cause of a backup that is cut.
fn failure(source: &Source, fault: BackupError, broken: Option<ClientError>) -> BackupCommandError {
    let name = source.name.clone();
    match (fault, broken) {
        (BackupError::Cut { .. }, Some(broken)) => BackupCommandError::Request { name, source: broken },
        (fault, _) => BackupCommandError::Backup { name, source: fault },
    }
}

/// Reads a backup to its end.
pub(super) fn verify(input: impl Read) -> Result<BackupSummary, BackupError> {
    let mut backup = BackupReader::open(input)?;
    while backup.next_record()?.is_some() {}
    Ok(BackupSummary { header: backup.header().clone(), records: backup.records() })
}

/// Passes chunks on to the output and to the reader.
struct Tee {
    chunks: mpsc::Receiver<Bytes>,
    chunk: Bytes,
    output: Box<dyn Write + Send>,
    failed: Arc<OnceLock<io::Error>>,
}

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
            if let Err(error) = self.output.write_all(&self.chunk).and_then(|()| self.output.flush()) {
                let reported = io::Error::from(error.kind());
                // The first error counts.
                let _ = self.failed.set(error);
                return Err(reported);
            }
        }
        let taken = self.chunk.split_to(self.chunk.len().min(buffer.len()));
        buffer[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
}

/// A file that is removed unless it has got its name.
struct PartialFile(PathBuf);

impl PartialFile {
    fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        Self(name.into())
    }

    /// Values contain secrets, so only the owner may read the file. A link of another user in its place is not followed.
    fn create(&self) -> io::Result<File> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.0),
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = std::fs::remove_file(&self.0);
    }
}
