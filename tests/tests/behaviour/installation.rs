//! An installation in a temporary directory, created by `fairlead up`.

use std::ffi::OsString;
use std::fmt::Debug;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use fairlead_certs::{CertificateFiles, Client as Role, Layout};
use fairlead_client::{
    Client, ClientError, ClientOptions, Credentials, Endpoint, TrustRoots, WatchStream, WriteOptions,
};
use fairlead_tests::harness::{Process, Program, TestStore, binary, free_port};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Limit for everything that a test waits for. It is long, because a loaded machine is no failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The collection of workspaces, below the path of their parent.
pub const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// A running installation. Dropping it ends all its processes. If the test is failing, their logs are printed.
pub struct Installation {
    up: Process,
    port: u16,
    // Dropped last: it is the processes' working directory.
    folder: tempfile::TempDir,
}

/// A server in the record of `fairlead up`.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub pid: u32,
    pub url: String,
    pub restarts: u64,
    pub ready: bool,
}

impl Installation {
    /// Starts an installation on the store that `FAIRLEAD_TEST_STORE` chooses: files, unless it is `etcd`.
    pub async fn start(shards: u32) -> Self {
        Self::start_on(shards, TestStore::of_shards().unwrap()).await
    }

    /// Starts an installation whose shards store objects as `fairlead up --store` says: `file` or `etcd`.
    pub async fn start_on(shards: u32, store: &str) -> Self {
        let port = free_port().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut installation = Self { up: up(folder.path(), port, shards, store), port, folder };
        installation.until_complete().await;
        installation
    }

    /// Waits until all servers are ready.
    pub async fn until_complete(&mut self) {
        let record = self.directory().join("state.json");
        let up = self.up.id();
        let complete = self.up.until(|| async {
            let servers = servers(&record, up)?;
            let waiting: Vec<_> = servers.iter().filter(|(_, server)| !server.ready).collect();
            if waiting.is_empty() { Ok(()) } else { Err(format!("not ready: {waiting:?}")) }
        });
        complete.await.unwrap();
    }

    /// Waits until a server meets a condition.
    pub async fn until_server(&mut self, name: &str, condition: impl Fn(&Server) -> bool) -> Server {
        let record = self.directory().join("state.json");
        let up = self.up.id();
        let asked = self.up.until(|| async {
            let server = server(&record, up, name)?;
            if condition(&server) { Ok(()) } else { Err(format!("{name} is {server:?}")) }
        });
        asked.await.unwrap();
        self.server(name)
    }

    pub fn server(&self, name: &str) -> Server {
        server(&self.directory().join("state.json"), self.up.id(), name).unwrap()
    }

    /// Sends SIGKILL to a server; returns when it is ready again.
    pub async fn kill(&mut self, name: &str) {
        let before = self.server(name);
        self.signal(name, Signal::KILL);
        self.until_server(name, |now| now.ready && now.pid != before.pid).await;
    }

    pub fn signal(&self, name: &str, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.server(name).pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Sends SIGSTOP to a server; returns when all its threads have stopped.
    pub async fn freeze(&self, name: &str) {
        let tasks = format!("/proc/{}/task", self.server(name).pid);
        self.signal(name, Signal::STOP);
        until(&format!("{name} is stopped"), || async {
            let states = std::fs::read_dir(&tasks).unwrap().map(|task| {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
                // The name before it may contain any character.
                stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
            });
            let running: Vec<_> = states.filter(|state| *state != Some('T')).collect();
            if running.is_empty() { Ok(()) } else { Err(running) }
        })
        .await;
    }

    /// Sends SIGTERM to `fairlead up`, which ends all servers in order.
    pub async fn stop(&mut self) {
        let status = self.up.terminate().await.unwrap();
        assert!(status.success(), "up ended with {status}\n{}", self.up.log());
    }

    /// Sends SIGKILL to `fairlead up`; returns when the servers have noticed that and ended.
    pub async fn lose(&mut self) {
        let record = self.directory().join("state.json");
        let servers = servers(&record, self.up.id()).unwrap();
        self.up.kill().await.unwrap();
        for (name, server) in servers {
            let proc = PathBuf::from(format!("/proc/{}", server.pid));
            let ended = || async { if proc.exists() { Err("it runs") } else { Ok(()) } };
            until(&format!("the end of {name}"), ended).await;
        }
    }

    /// Starts the installation again in the same directory.
    pub async fn start_again(&mut self) {
        self.up.restart().await.unwrap();
        self.until_complete().await;
    }

    /// Starts the installation again with another number of shards.
    pub async fn start_again_with(&mut self, shards: u32) {
        self.start_again_on(shards, TestStore::of_shards().unwrap()).await;
    }

    /// Starts the installation again with another number of shards and another kind of store, if it has no data.
    pub async fn start_again_on(&mut self, shards: u32, store: &str) {
        self.up = up(self.folder.path(), self.port, shards, store);
        self.until_complete().await;
    }

    /// The directory of `fairlead up`.
    pub fn directory(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    /// A new directory for files of the test.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.directory().join("pki"))
    }

    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory().join("admin.kubeconfig")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of the gateway with kcp-admin's certificate, at a path such as `/clusters/root`.
    pub fn admin(&self, prefix: &str) -> Client {
        client(&format!("{}{prefix}", self.gateway()), self.credentials(&Role::Admin))
    }

    /// The URL of the gateway.
    pub fn gateway(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Maps a path of the gateway to another server, besides `/clusters/`, by a mapping file. Restarts the gateway.
    pub async fn map_path(&mut self, path: &str, server: &str) {
        let layout = self.layout();
        let CertificateFiles { certificate, key } = layout.client_cert(&Role::FrontProxy);
        let entry = |path: &str, backend: &str| {
            json!({
                "path": path, "backend": backend, "backend_server_ca": layout.serving_ca(),
                "proxy_client_cert": certificate, "proxy_client_key": key,
            })
        };
        let mapping = json!([entry("/clusters/", &self.server("root").url), entry(path, server)]);
        let file = self.directory().join("config/mapping.yaml");
        std::fs::write(&file, mapping.to_string()).unwrap();
        let settings = self.directory().join("config/gateway.yaml");
        let text = std::fs::read_to_string(&settings).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["paths"]["mappingFile"] = json!(file);
        // The mapping file has the client certificate of each server, for all listeners.
        for listener in config["listeners"].as_array_mut().unwrap() {
            listener["upstreamIdentity"] = Value::Null;
        }
        std::fs::write(&settings, config.to_string()).unwrap();
        self.kill("gateway").await;
    }

    /// A client of another server than the gateway.
    pub fn direct(&self, server: &str, role: &Role, prefix: &str) -> Client {
        client(&format!("{}{prefix}", self.server(server).url), self.credentials(role))
    }

    pub fn credentials(&self, role: &Role) -> Credentials {
        let files = self.layout().client_cert(role);
        let (certificate, key) =
            (std::fs::read(files.certificate).unwrap(), std::fs::read(files.key).unwrap());
        self.anonymous().with_certificate(&certificate, &key).unwrap()
    }

    /// Trust in the servers, without an identity.
    pub fn anonymous(&self) -> Credentials {
        Credentials::new(TrustRoots::Pem(std::fs::read(self.layout().serving_ca()).unwrap())).unwrap()
    }

    /// Creates a universal workspace below `parent` on a shard; returns its path in URLs when it is ready.
    pub async fn workspace(&self, parent: &str, name: &str, shard: &str) -> String {
        let admin = self.admin(&format!("/clusters/{parent}"));
        create_workspace(&admin, &workspace(name, shard)).await;
        until_ready(&admin, name).await;
        format!("/clusters/{parent}:{name}")
    }

    /// Runs the `fairlead` command and returns its output, whether or not it succeeds.
    pub async fn fairlead<A: Into<OsString>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        let mut command = tokio::process::Command::new(binary("fairlead").unwrap());
        command
            .args(arguments.into_iter().map(Into::into))
            .current_dir(self.folder.path())
            .env("KUBECONFIG", self.admin_kubeconfig())
            .env("HOME", self.folder.path());
        within("fairlead", command.output()).await.unwrap()
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory().join(format!("logs/{name}.log"))).unwrap_or_default()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let logs = std::fs::read_dir(self.directory().join("logs")).into_iter().flatten().flatten();
        for path in logs.map(|entry| entry.path()) {
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let log = self.log(name);
            let lines: Vec<_> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("--- the end of the log of {name} ---\n{end}");
        }
    }
}

/// A universal workspace with a selector for one shard.
pub fn workspace(name: &str, shard: &str) -> Value {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": { "name": name },
        "spec": {
            "type": { "name": "universal", "path": "root" },
            "location": { "selector": { "matchLabels": { "name": shard } } },
        },
    })
}

pub async fn create_workspace(parent: &Client, workspace: &Value) -> Value {
    parent.create(WORKSPACES, workspace, &WriteOptions::default()).await.unwrap()
}

/// Watches until a workspace is ready; returns it.
pub async fn until_ready(parent: &Client, name: &str) -> Value {
    until_object(parent, WORKSPACES, name, |workspace| workspace["status"]["phase"] == "Ready").await
}

/// Watches until an object meets a condition; returns it.
pub async fn until_object(
    client: &Client,
    collection: &str,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let path = format!("{collection}?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut last = Value::Null;
    let found = tokio::time::timeout(TIMEOUT, async {
        let mut watch = client.watch(&path).await.unwrap();
        loop {
            last = next(&mut watch).await.1;
            if wanted(&last) {
                return last.clone();
            }
        }
    });
    match found.await {
        Ok(object) => object,
        Err(_) => panic!("{name} did not meet the condition in {TIMEOUT:?}: {last:#}"),
    }
}

/// Waits until an object does not exist, with a watch that starts before the first check.
pub async fn until_gone(client: &Client, collection: &str, name: &str) {
    let path = format!("{collection}?watch=1&fieldSelector=metadata.name%3D{name}");
    let gone = async {
        let mut watch = client.watch(&path).await.unwrap();
        if is_absent(client, &format!("{collection}/{name}")).await {
            return;
        }
        while next(&mut watch).await.0 != "DELETED" {}
    };
    within(&format!("the end of {name}"), gone).await;
}

async fn is_absent(client: &Client, path: &str) -> bool {
    match client.get(path).await {
        Err(error) if error.is_not_found() => true,
        other => other.map(|_| false).unwrap(),
    }
}

/// The next event of a watch: its type and its object.
pub async fn next(watch: &mut WatchStream) -> (String, Value) {
    let event = within("an event of a watch", watch.next()).await;
    let event = event.expect("the watch ended").unwrap();
    (format!("{:?}", event.kind).to_uppercase(), serde_json::from_slice(&event.object).unwrap())
}

/// Waits with the time limit.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: nothing in {TIMEOUT:?}"),
    }
}

/// Repeats a check after short, growing pauses until it succeeds. For states that no event announces.
pub async fn until<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let mut pause = Duration::from_millis(5);
    loop {
        match check().await {
            Ok(value) => return value,
            Err(last) if tokio::time::Instant::now() > deadline => panic!("{what}: {last:?}"),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

pub fn client(url: &str, credentials: Credentials) -> Client {
    Client::new(Endpoint::parse(url).unwrap(), credentials, ClientOptions::default())
}

/// The status code of a response, success or error. Panics if there is no response.
pub fn code(result: &Result<fairlead_client::Response, ClientError>) -> u16 {
    match result {
        Ok(response) => response.status.as_u16(),
        Err(error) => error.code().unwrap_or_else(|| panic!("no response: {error}")),
    }
}

fn up(folder: &Path, port: u16, shards: u32, store: &str) -> Process {
    let program = Program::new("fairlead", folder).unwrap().named("up").args([
        "up".to_owned(),
        "--dir=site".to_owned(),
        format!("--port={port}"),
        format!("--shards={shards}"),
        format!("--store={store}"),
    ]);
    program.start().unwrap()
}

fn server(record: &Path, up: u32, name: &str) -> Result<Server, String> {
    let found = servers(record, up)?.into_iter().find(|(known, _)| known == name);
    found.map(|(_, server)| server).ok_or_else(|| format!("there is no {name}"))
}

fn servers(record: &Path, up: u32) -> Result<Vec<(String, Server)>, String> {
    let text = std::fs::read(record).map_err(|error| error.to_string())?;
    let record: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if record["pid"] != up {
        return Err("the record is of an earlier run".to_owned());
    }
    let servers = record["processes"].as_array().into_iter().flatten().map(|process| {
        let server = Server {
            pid: process["pid"].as_u64().and_then(|pid| pid.try_into().ok()).unwrap_or_default(),
            url: process["url"].as_str().unwrap_or_default().to_owned(),
            restarts: process["restarts"].as_u64().unwrap_or_default(),
            ready: process["condition"] == "ready",
        };
        (process["name"].as_str().unwrap_or_default().to_owned(), server)
    });
    Ok(servers.collect())
}
