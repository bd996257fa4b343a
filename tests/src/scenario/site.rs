//! The installation: created by `fairlead up`, with limits of the gateway that can be reached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_certs::{Client as Role, Layout};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, Token, TrustRoots};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{ScenarioError, until};
use crate::harness::{HarnessError, Process, Program, free_port};

/// A running installation of a gateway with three listeners, two shards, a cache server and an issuer.
pub struct Site {
    up: Process,
    folder: PathBuf,
    /// The port of the listener for operators.
    operators: u16,
}

/// A server in the record of `fairlead up`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) url: String,
    ready: bool,
}

impl Server {
    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
    }
}

impl Site {
    pub(crate) async fn start(folder: &Path) -> Result<Self, ScenarioError> {
        let port = free_port()?;
        let arguments = ["up", "--dir=site", "--shards=2", &format!("--port={port}")].map(str::to_owned);
        let up = Program::new("fairlead", folder)?.named("up").args(arguments).start()?;
        let mut site = Self { up, folder: folder.join("site"), operators: free_port()? };
        // All servers are ready, and the developer's rights exist.
        let log = site.up.program().log_path();
        let complete = || async {
            let output = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
            if output.contains("Fairlead is up") { Ok(()) } else { Err(output) }
        };
        site.up.until(complete).await?;
        Ok(site)
    }

    /// Gives the gateway limits that can be reached, an access log, traces, and a listener for operators that accepts this
    /// machine only. Restarts the gateway.
    pub(crate) async fn enable_observability(&mut self) -> Result<(), ScenarioError> {
        let peers = self.peers();
        self.write(&peers, "127.0.0.1/32\n")?;
        let operators = format!("127.0.0.1:{}", self.operators);
        let access_log = self.folder.join("access.log");
        let collector = format!("http://127.0.0.1:{}", free_port()?);
        self.configure(|config| {
            let mut listener = config["listeners"][0].clone();
            listener["name"] = json!("operators");
            listener["serving"]["address"] = json!(operators);
            listener["peers"] = json!({ "allow": peers });
            listener["placementEndpoint"] = json!(false);
            if let Some(listeners) = config["listeners"].as_array_mut() {
                listeners.push(listener);
            }
            config["listeners"][1]["quotas"] =
                json!({ "perIdentity": { "requestsPerSecond": 8 }, "perWorkspace": { "watches": 3 } });
            config["upstream"]["concurrency"] =
                json!({ "policy": "fixed", "minLimit": 16, "maxLimit": 16, "maxQueued": 32, "queueTimeout": "1s" });
            config["slowClients"]["requestBodyTimeout"] = json!("1s");
            config["accessLog"] = json!({ "to": "file", "file": access_log });
            config["tracing"] = json!({ "sample": "0.05", "otlpEndpoint": collector });
        })?;
        self.kill("gateway").await
    }

    /// Changes the gateway's configuration file. YAML is a superset of JSON.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Value)) -> Result<(), ScenarioError> {
        let path = self.folder.join("config/gateway.yaml");
        let text =
            std::fs::read_to_string(&path).map_err(HarnessError::system("reading the configuration"))?;
        let mut config: Value = serde_saphyr::from_str(&text)
            .map_err(|error| ScenarioError::missing("a configuration", error))?;
        change(&mut config);
        self.write(&path, &config.to_string())
    }

    /// Makes the gateway check its files now.
    pub(crate) fn reload(&self) -> Result<(), ScenarioError> {
        self.signal("gateway", Signal::HUP)
    }

    /// Sends SIGKILL to one server; returns when it is ready again.
    pub(crate) async fn kill(&mut self, name: &str) -> Result<(), ScenarioError> {
        let before = self.server(name)?.pid;
        self.signal(name, Signal::KILL)?;
        self.until_restarted(name, before).await
    }

    /// Sends SIGKILL to one server and listens on its port without TLS for some time; returns when the server is ready
    /// again.
    pub(crate) async fn replace(&mut self, name: &str, for_how_long: Duration) -> Result<(), ScenarioError> {
        let before = self.server(name)?;
        self.signal(name, Signal::KILL)?;
        let listener = until("the port of a dead server", || TcpListener::bind(before.address())).await?;
        let plain_server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut hello = [0; 16];
                    if stream.read(&mut hello).await.is_ok() {
                        // The peer disconnects, or has already.
                        let _ =
                            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
                    }
                });
            }
        });
        tokio::time::sleep(for_how_long).await;
        plain_server.abort();
        // The task owns the TCP listener.
        let _ = plain_server.await;
        self.until_restarted(name, before.pid).await
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<(), ScenarioError> {
        let pid = i32::try_from(self.server(name)?.pid).ok().and_then(Pid::from_raw);
        let sent = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| ScenarioError::missing(format!("a signal to {name}"), error))
    }

    /// The running servers, by name.
    pub(crate) fn servers(&self) -> Result<BTreeMap<String, Server>, ScenarioError> {
        servers(&self.folder, self.up.id()).map_err(|error| ScenarioError::missing("the servers", error))
    }

    pub(crate) fn server(&self, name: &str) -> Result<Server, ScenarioError> {
        self.servers()?.remove(name).ok_or_else(|| ScenarioError::missing(name, "no such server"))
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.folder.join("pki"))
    }

    /// The file with the networks of the listener for operators.
    pub(crate) fn peers(&self) -> PathBuf {
        self.folder.join("peers.txt")
    }

    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<(), ScenarioError> {
        let written = std::fs::write(path, text);
        Ok(written.map_err(HarnessError::system(format!("writing {}", path.display())))?)
    }

    /// The address of the listener for operators.
    pub(crate) fn operators(&self) -> String {
        format!("127.0.0.1:{}", self.operators)
    }

    /// The address of the listener for tokens.
    pub(crate) fn edge(&self) -> Result<String, ScenarioError> {
        let mut edge = None;
        self.configure(|config| {
            edge = config["listeners"][1]["serving"]["address"].as_str().map(str::to_owned)
        })?;
        edge.ok_or_else(|| ScenarioError::missing("the address of the listener for tokens", "nothing"))
    }

    /// A client of the gateway with kcp-admin's certificate, on its own connection.
    pub(crate) fn admin(&self, prefix: &str) -> Result<Client, ScenarioError> {
        client(&format!("{}{prefix}", self.server("gateway")?.url), self.as_admin()?)
    }

    /// The credentials of kcp-admin.
    pub(crate) fn as_admin(&self) -> Result<Credentials, ScenarioError> {
        let files = self.layout().client_cert(&Role::Admin);
        let read = |path: &Path| std::fs::read(path).map_err(HarnessError::system("reading a certificate"));
        Ok(self.anonymous()?.with_certificate(&read(&files.certificate)?, &read(&files.key)?)?)
    }

    /// A client of the listener for tokens, with or without a token.
    pub(crate) fn at_edge(&self, prefix: &str, token: Option<&str>) -> Result<Client, ScenarioError> {
        let anonymous = self.anonymous()?;
        let credentials = match token {
            Some(token) => anonymous.with_token(Token::new(token))?,
            None => anonymous,
        };
        client(&format!("https://{}{prefix}", self.edge()?), credentials)
    }

    /// Trust in the servers, without an identity.
    pub(crate) fn anonymous(&self) -> Result<Credentials, ScenarioError> {
        let authority = std::fs::read(self.layout().serving_ca());
        let authority = authority.map_err(HarnessError::system("reading an authority"))?;
        Ok(Credentials::new(TrustRoots::Pem(authority))?)
    }

    /// Waits until all servers are ready, and one of them has another process than before.
    async fn until_restarted(&mut self, name: &str, before: u32) -> Result<(), ScenarioError> {
        let (folder, up) = (self.folder.clone(), self.up.id());
        let ready = || async {
            let servers = servers(&folder, up)?;
            let is_there =
                |(known, server): (&String, &Server)| server.ready && (known != name || server.pid != before);
            if servers.iter().all(is_there) { Ok(()) } else { Err(format!("{servers:?}")) }
        };
        Ok(self.up.until(ready).await?)
    }
}

pub(crate) fn client(url: &str, credentials: Credentials) -> Result<Client, ScenarioError> {
    let endpoint = Endpoint::parse(url).map_err(|error| ScenarioError::missing(url, error))?;
    Ok(Client::new(endpoint, credentials, ClientOptions::default()))
}

fn servers(folder: &Path, up: u32) -> Result<BTreeMap<String, Server>, String> {
    let text = std::fs::read(folder.join("state.json")).map_err(|error| error.to_string())?;
    let record: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if record["pid"] != up {
        return Err("the record is of an earlier run".to_owned());
    }
    let server = |process: &Value| {
        let server = Server {
            pid: process["pid"].as_u64().and_then(|pid| pid.try_into().ok()).unwrap_or_default(),
            url: process["url"].as_str().unwrap_or_default().to_owned(),
            ready: process["condition"] == "ready",
        };
        (process["name"].as_str().unwrap_or_default().to_owned(), server)
    };
    Ok(record["processes"].as_array().into_iter().flatten().map(server).collect())
}
