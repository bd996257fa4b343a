#![allow(clippy::unwrap_used, reason = "tests")]
//! A server with a table of responses, for tests of commands: their requests and their output.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::output::Output;

/// Responses by method and path, in order; the last one is repeated.
type Responses = HashMap<String, Vec<(u16, Value)>>;

/// The server, and a folder with a kubeconfig.
pub(crate) struct Server {
    pub url: String,
    responses: Arc<Mutex<Responses>>,
    requests: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

/// Output and error of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub out: String,
    pub err: String,
    pub failure: Option<String>,
}

impl Server {
    /// A server, and a kubeconfig with one of its workspaces as the current one.
    pub(crate) async fn with_current(workspace: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (responses, requests) =
            (Arc::<Mutex<Responses>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let shared = (Arc::clone(&responses), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&shared.0), Arc::clone(&shared.1)));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "base",
            "clusters": [{ "name": "base", "cluster": { "server": format!("{url}/clusters/{workspace}") } }],
            "contexts": [{ "name": "base", "context": { "cluster": "base", "user": "" } }],
            "users": [],
        });
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { url, responses, requests, folder }
    }

    /// Adds a response to a request such as `GET /clusters/root/api`.
    pub(crate) fn respond(&self, request: &str, code: u16, body: Value) {
        self.responses.lock().unwrap().entry(request.to_owned()).or_default().push((code, body));
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// Runs a command with recorded output.
pub(crate) async fn record<E: std::error::Error>(
    execute: impl AsyncFnOnce(&mut Output<'_>) -> Result<(), E>,
) -> CommandOutput {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = execute(&mut Output { out: &mut out, err: &mut err }).await;
    CommandOutput {
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        failure: outcome.err().map(|error| error.to_string()),
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": message })
}

pub(crate) fn printed(out: &str) -> CommandOutput {
    CommandOutput { out: out.to_owned(), err: String::new(), failure: None }
}

pub(crate) fn failed(message: &str) -> CommandOutput {
    CommandOutput { out: String::new(), err: String::new(), failure: Some(message.to_owned()) }
}

async fn serve(
    mut connection: TcpStream,
    responses: Arc<Mutex<Responses>>,
    requests: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let (reader, mut writer) = connection.split();
    let mut reader = BufReader::new(reader);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        reader.read_line(&mut head).await.ok().filter(|read| *read > 0)?;
        let request = head.rsplit_once(' ')?.0.to_owned();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).await.ok()?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await.ok()?;
        let logged = match std::str::from_utf8(&body).ok()? {
            "" => request.clone(),
            body => format!("{request} {body}"),
        };
        requests.lock().ok()?.push(logged);
        let (code, body) = {
            let mut responses = responses.lock().ok()?;
            match responses.get_mut(&request) {
                None => (403, status(403, "Forbidden", "workspace access not permitted")),
                Some(responses) if responses.len() > 1 => responses.remove(0),
                Some(responses) => responses.first().cloned()?,
            }
        };
        let body = body.to_string();
        let answer = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        writer.write_all(answer.as_bytes()).await.ok()?;
    }
}
