#![allow(clippy::unwrap_used, reason = "tests")]
//! `backup` against a server with one response: the file that it leaves, and its error.

use std::path::PathBuf;

use clap::Parser;
use fairlead_store::{BackupContent, BackupHeader, BackupWriter, Ownership, RecordRef, Revision};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;
use crate::test_server::{CommandOutput, Server, record, status};

/// A backup with one record.
fn backup() -> Vec<u8> {
    let header = BackupHeader {
        content: BackupContent::Whole,
        source: "root".to_owned(),
        anchor: None,
        revision: Revision(7),
        created: 1_700_000_000,
    };
    let mut writer = BackupWriter::begin(Vec::new(), &header).unwrap();
    let value = vec![b'v'; 100_000];
    let record = RecordRef { key: b"key", value: &value, created: Revision(1), modified: Revision(2) };
    writer.write(record, Ownership::Own).unwrap();
    writer.finish().unwrap()
}

fn failed_backup() -> Vec<u8> {
    let header = BackupHeader {
        content: BackupContent::Whole,
        source: "root".to_owned(),
        anchor: None,
        revision: Revision(7),
        created: 0,
    };
    BackupWriter::begin(Vec::new(), &header).unwrap().fail("the disk is on strike").unwrap()
}

/// A server that sends these bytes and closes the connection, and a folder with a kubeconfig. It announces `announced` bytes.
async fn server(body: Vec<u8>, announced: usize) -> tempfile::TempDir {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = connection.split();
        let mut lines = BufReader::new(reader).lines();
        while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\n\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        writer.write_all(&body).await.unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "base",
        "clusters": [{ "name": "base", "cluster": { "server": url } }],
        "contexts": [{ "name": "base", "context": { "cluster": "base", "user": "" } }],
        "users": [],
    });
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
    folder
}

async fn run(kubeconfig: PathBuf, arguments: &[&str]) -> CommandOutput {
    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        backup: BackupCommand,
    }
    let given = ["backup", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let line = CommandLine::try_parse_from(given.iter().chain(arguments)).unwrap();
    record(async |output| line.backup.execute(output).await).await
}

#[tokio::test]
async fn a_complete_backup_gets_its_name_and_a_line() {
    let bytes = backup();
    let folder = server(bytes.clone(), bytes.len()).await;
    let file = folder.path().join("a.backup");
    std::fs::write(&file, "an earlier one").unwrap();
    let shown = run(folder.path().join("kubeconfig"), &["-o", file.to_str().unwrap()]).await;
    assert_eq!(
        shown.out,
        format!(
            "shard: 1 objects of shard root at revision 7 of 2023-11-14T22:13:20Z, {} bytes in {}\n",
            bytes.len(),
            file.display()
        )
    );
    assert_eq!((shown.err.as_str(), shown.failure), ("", None));
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no partial file stays");
}

#[tokio::test]
async fn a_backup_that_cannot_be_used_leaves_the_earlier_one() {
    let bytes = backup();
    let mut altered = bytes.clone();
    let place = altered.len() - 20;
    altered[place] ^= 1;
    let cut = bytes[..bytes.len() - 10].to_vec();
    for (body, announced, message) in [
        (altered.clone(), altered.len(), "the backup of shard cannot be used: it was altered: "),
        (cut.clone(), cut.len(), "the backup of shard cannot be used: it is incomplete: it ends after"),
        (cut, bytes.len(), "shard cannot be backed up: connection lost during GET "),
        (
            failed_backup(),
            failed_backup().len(),
            "the backup of shard cannot be used: it is incomplete, because the server stopped: the disk is on strike",
        ),
        (b"{}".to_vec(), 2, "the backup of shard cannot be used: it is not a backup of a shard"),
    ] {
        let folder = server(body, announced).await;
        let file = folder.path().join("a.backup");
        std::fs::write(&file, "an earlier one").unwrap();
        let shown = run(folder.path().join("kubeconfig"), &["-o", file.to_str().unwrap()]).await;
        let failure = shown.failure.unwrap();
        assert!(failure.starts_with(message), "{failure}");
        assert_eq!(std::fs::read(&file).unwrap(), b"an earlier one");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no partial file stays");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named() {
    let bytes = backup();
    let folder = server(bytes.clone(), bytes.len()).await;
    let shown = run(folder.path().join("kubeconfig"), &["-o", "/nowhere/a.backup"]).await;
    let failure = shown.failure.unwrap();
    assert!(failure.starts_with("cannot write /nowhere/a.backup: "), "{failure}");
}

#[tokio::test]
async fn a_workspace_is_requested_by_its_path_below_any_prefix() {
    let server = Server::with_current("root:other").await;
    server.respond("GET /clusters/root:org/backup", 403, status(403, "Forbidden", "access denied"));
    for path in ["root:org", ":root:org"] {
        let shown = run(server.kubeconfig(), &["--workspace", path]).await;
        assert_eq!(shown.failure.unwrap(), "root:org cannot be backed up: Forbidden: access denied (403)");
        assert_eq!(server.requests(), ["GET /clusters/root:org/backup"]);
    }
    server.respond("GET /backup", 404, status(404, "NotFound", "404 page not found"));
    let shown = run(server.kubeconfig(), &[]).await;
    assert_eq!(shown.failure.unwrap(), "shard cannot be backed up: its address is not that of a shard");
    assert_eq!(server.requests(), ["GET /backup"]);
    let shown = run(server.kubeconfig(), &["--workspace", "Root/org"]).await;
    assert_eq!(shown.failure.unwrap(), "\"Root/org\" is no path of a workspace");
    assert_eq!(server.requests(), [""; 0]);
}
