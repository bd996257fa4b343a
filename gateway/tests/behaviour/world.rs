//! The scene of the behaviour tests: a gateway, two test shards behind it, and clients.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fairlead_client::NameResolver;
use fairlead_config::{GatewayConfig, ListenerConfig, SocketConfig};
use fairlead_gateway::{Environment, Gateway};
use fairlead_process::{Metrics, Reloads, Shutdown, Tasks};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pki::{Authority, Leaf, client_config};
use crate::shard::Shard;

/// The logical cluster ID of `root:org`, a workspace on the shard alpha.
pub const ORG: &str = "0rg0000000000001";

pub struct World {
    pub serving_ca: Authority,
    pub client_ca: Authority,
    pub front_proxy_ca: Authority,
    pub directory: tempfile::TempDir,
    pub root: Shard,
    pub alpha: Shard,
    pub gateway: Option<Gateway>,
    pub environment: Environment,
    pub address: SocketAddr,
    pub config: GatewayConfig,
}

/// A second gateway before the world's shards.
pub struct SecondGateway {
    pub gateway: Gateway,
    pub environment: Environment,
    pub address: SocketAddr,
}

impl SecondGateway {
    /// Ends the gateway as a signal does, and returns when all its tasks have ended.
    pub async fn end(self) {
        self.environment.shutdown.begin();
        self.environment.tasks.supervise().await.unwrap();
    }
}

/// Options of a test for the start of the gateway.
#[derive(Default)]
pub struct Choices {
    pub config: Option<fn(&mut GatewayConfig)>,
    /// The gateway cannot list the shards' workspaces yet.
    pub unsynced: bool,
    /// The test starts the gateway itself, by [`World::start`].
    pub stopped: bool,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Choices::default()).await
    }

    pub async fn with(choices: Choices) -> Self {
        let (serving_ca, client_ca) = (Authority::new("serving"), Authority::new("clients"));
        let front_proxy_ca = Authority::new("front proxies");
        let shard_tls = || serving_ca.server().server_config(&[&client_ca, &front_proxy_ca]);
        let root = Shard::start("root", shard_tls()).await;
        let alpha = Shard::start("alpha", shard_tls()).await;
        for shard in [&root, &alpha] {
            let name = shard.state.name.as_str();
            let url = if choices.unsynced { "https://127.0.0.1:1".to_owned() } else { shard.url() };
            root.state.put(
                "shards",
                name,
                json!({
                    "metadata": {"name": name, "labels": {"name": name}}, "spec": {"baseURL": url},
                }),
            );
        }
        root.state.put("logicalclusters", "root", logical_cluster("root", None));
        let directory = tempfile::tempdir().unwrap();
        let config = write_files(directory.path(), &serving_ca, &client_ca, &front_proxy_ca, &root);
        let mut world = Self {
            config: with_choice(config, choices.config),
            serving_ca,
            client_ca,
            front_proxy_ca,
            directory,
            root,
            alpha,
            gateway: None,
            environment: environment(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        world.create_workspace("root", "org", "alpha", ORG);
        if !choices.stopped {
            world.start_gateway();
        }
        if !choices.unsynced && !choices.stopped {
            world.gateway.as_ref().unwrap().ready().await;
        }
        world
    }

    /// Starts the gateway and waits until it is ready.
    pub async fn start(&mut self) {
        self.start_gateway();
        self.gateway.as_ref().unwrap().ready().await;
    }

    fn start_gateway(&mut self) {
        let gateway = Gateway::start(self.config.clone(), &self.environment).unwrap();
        self.address = gateway.listeners[0].1;
        self.gateway = Some(gateway);
    }

    /// Starts a second gateway before the same shards, with another configuration, and waits until it is ready.
    pub async fn gateway_with(&self, config: GatewayConfig) -> (Gateway, Environment, SocketAddr) {
        let environment = environment();
        let gateway = Gateway::start(config, &environment).unwrap();
        gateway.ready().await;
        let address = gateway.listeners[0].1;
        (gateway, environment, address)
    }

    /// Starts a second gateway before the same shards, as after a restart. It is not ready yet.
    pub fn start_second_gateway(&self, choice: impl FnOnce(&mut GatewayConfig)) -> SecondGateway {
        let mut config = self.config.clone();
        choice(&mut config);
        let environment = environment();
        let gateway = Gateway::start(config, &environment).unwrap();
        SecondGateway { address: gateway.listeners[0].1, gateway, environment }
    }

    /// Opens a connection to a second gateway.
    pub async fn client_of(&self, another: &SecondGateway) -> Http2 {
        let user = self.user();
        Http2::over(connect(another.address, &self.serving_ca, Some(&user), b"h2").await.unwrap()).await
    }

    /// Registers a shard at the root shard.
    pub fn register(&self, name: &str, url: &str) {
        let shard = json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": {"baseURL": url}});
        self.root.state.put("shards", name, shard);
    }

    /// Writes a path mapping file. Its entries get the world's certificates.
    pub fn write_mapping(&self, name: &str, mut entries: Vec<Value>) -> std::path::PathBuf {
        let path = |name: &str| self.directory.path().join(name);
        for entry in &mut entries {
            for (key, file) in [
                ("backend_server_ca", "serving-ca.crt"),
                ("proxy_client_cert", "front-proxy.crt"),
                ("proxy_client_key", "front-proxy.key"),
            ] {
                entry[key] = json!(path(file));
            }
        }
        // JSON is YAML.
        fs::write(path(name), Value::from(entries).to_string()).unwrap();
        path(name)
    }

    /// Writes a kubeconfig with the user of `shards.kubeconfig` and the URL of `shard`.
    pub fn kubeconfig_of(&self, shard: &Shard) -> std::path::PathBuf {
        let text = fs::read_to_string(self.directory.path().join("shards.kubeconfig")).unwrap();
        let file = self.directory.path().join(format!("{}.kubeconfig", shard.state.name));
        fs::write(&file, text.replace(&self.root.url(), &shard.url())).unwrap();
        file
    }

    /// Starts a shard that is not registered at the root shard.
    pub async fn unregistered_shard(&self, name: &str) -> Shard {
        Shard::start(name, self.serving_ca.server().server_config(&[&self.client_ca, &self.front_proxy_ca]))
            .await
    }

    /// Starts a shard that supports HTTP/1.1 only and is not registered at the root shard.
    pub async fn shard_with_http1(&self, name: &str) -> Shard {
        let tls = self.serving_ca.server().server_config(&[&self.client_ca, &self.front_proxy_ca]);
        let mut tls = rustls::ServerConfig::clone(&tls);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Shard::start(name, tls.into()).await
    }

    /// Creates the workspace `root:old` on a shard that supports HTTP/1.1 only.
    pub async fn old_workspace(&self) -> Shard {
        let old = self.shard_with_http1("old").await;
        self.root.state.put(
            "shards",
            "old",
            json!({"metadata": {"name": "old", "labels": {}}, "spec": {"baseURL": old.url()}}),
        );
        let id = "0ld0000000000001";
        old.state.put("logicalclusters", id, logical_cluster(id, Some("old")));
        self.put_workspace("root", "old", json!({"cluster": id}), "Ready");
        let client = self.http2(Some(&self.user())).await;
        eventually("root:old is served", async || client.get("/clusters/root:old/api").await.status == 200)
            .await;
        old
    }

    pub fn shard(&self, name: &str) -> &Shard {
        match name {
            "root" => &self.root,
            _ => &self.alpha,
        }
    }

    /// Creates a workspace of `root` in the phase Ready.
    pub fn create_workspace(&self, parent: &str, name: &str, shard: &str, id: &str) {
        self.shard(shard).state.put("logicalclusters", id, logical_cluster(id, Some(name)));
        self.put_workspace(parent, name, json!({"cluster": id}), "Ready");
    }

    pub fn put_workspace(&self, parent: &str, name: &str, spec: Value, phase: &str) {
        self.root.state.put(
            "workspaces",
            &format!("{parent}/{name}"),
            json!({
                "metadata": {"name": name, "annotations": {"kcp.io/cluster": parent}},
                "spec": spec, "status": {"phase": phase},
            }),
        );
    }

    pub fn user(&self) -> Leaf {
        self.client_ca.client("alice", &["team", "system:masters"])
    }

    pub fn operator(&self) -> Leaf {
        self.client_ca.client("kcp-admin", &["system:kcp:admin"])
    }

    pub async fn connect(&self, certificate: Option<&Leaf>, alpn: &[u8]) -> TlsStream<TcpStream> {
        connect(self.address, &self.serving_ca, certificate, alpn).await.unwrap()
    }

    pub async fn http2(&self, certificate: Option<&Leaf>) -> Http2 {
        Http2::over(self.connect(certificate, b"h2").await).await
    }

    pub async fn http1(&self, certificate: Option<&Leaf>) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.connect(certificate, b"http/1.1").await;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    /// Sends one request on a new connection.
    pub async fn get(&self, certificate: Option<&Leaf>, path: &str) -> Answer {
        self.http2(certificate).await.get(path).await
    }
}

pub async fn connect(
    address: SocketAddr,
    authority: &Authority,
    certificate: Option<&Leaf>,
    alpn: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(client_config(authority, certificate, alpn));
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// A client's HTTP/2 connection.
#[derive(Clone)]
pub struct Http2(http2::SendRequest<Full<Bytes>>);

impl From<http2::SendRequest<Full<Bytes>>> for Http2 {
    fn from(sender: http2::SendRequest<Full<Bytes>>) -> Self {
        Self(sender)
    }
}

impl Http2 {
    pub async fn over(stream: TlsStream<TcpStream>) -> Self {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, &[], "")).await
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        Answer::of(self.open(request).await.unwrap()).await
    }

    /// Sends a request and returns its response without reading the body.
    pub async fn open(&self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let mut sender = self.0.clone();
        sender.ready().await?;
        sender.send_request(request).await
    }
}

pub fn request(method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(response: Response<Incoming>) -> Self {
        Self::read(response).await.unwrap()
    }

    /// Reads a response that may end before its body is complete.
    pub async fn read(response: Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Self {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The request headers in a test shard's echo whose names begin with `prefix`.
    pub fn echoed(&self, prefix: &str) -> Vec<String> {
        let echo = self.json();
        let lines = echo["headers"].as_array().unwrap_or_else(|| panic!("no echo: {self:?}"));
        let mut lines: Vec<String> = lines
            .iter()
            .map(|line| line.as_str().unwrap().to_owned())
            .filter(|line| line.to_ascii_lowercase().starts_with(prefix))
            .collect();
        lines.sort();
        lines
    }
}

pub fn environment() -> Environment {
    let metrics = Metrics::new("gateway", "test").unwrap();
    let drain = serde_json::from_value(json!({"window": "5s"})).unwrap();
    let shutdown = Shutdown::new(&drain);
    Environment {
        reloads: Reloads::new(&metrics).unwrap(),
        tasks: Tasks::new(shutdown.clone()),
        metrics,
        shutdown,
        names: NameResolver::system(),
        inherited: std::sync::Arc::default(),
    }
}

pub fn logical_cluster(id: &str, name: Option<&str>) -> Value {
    json!({
        "metadata": {"name": "cluster", "annotations": {"kcp.io/cluster": id}},
        "spec": {"owner": name.map(|name| json!({"uid": format!("uid-of-{name}")}))},
    })
}

fn with_choice(mut config: GatewayConfig, choice: Option<fn(&mut GatewayConfig)>) -> GatewayConfig {
    if let Some(choice) = choice {
        choice(&mut config);
    }
    config
}

fn write_files(
    directory: &Path,
    serving: &Authority,
    clients: &Authority,
    front_proxies: &Authority,
    root: &Shard,
) -> GatewayConfig {
    serving.server().write(directory, "tls");
    front_proxies.client("kcp-front-proxy", &[]).write(directory, "front-proxy");
    clients.client("shard-admin", &["system:masters"]).write(directory, "shard-admin");
    fs::write(directory.join("serving-ca.crt"), &serving.pem).unwrap();
    fs::write(directory.join("client-ca.crt"), &clients.pem).unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
        "clusters": [{"name": "s", "cluster": {
            "server": root.url(), "certificate-authority": directory.join("serving-ca.crt"),
        }}],
        "users": [{"name": "u", "user": {
            "client-certificate": directory.join("shard-admin.crt"), "client-key": directory.join("shard-admin.key"),
        }}],
    });
    fs::write(directory.join("shards.kubeconfig"), kubeconfig.to_string()).unwrap();
    let path = |name: &str| directory.join(name);
    serde_json::from_value(json!({
        "listeners": [{
            "name": "internal",
            "serving": {"address": "127.0.0.1:0", "certificate": path("tls.crt"), "privateKey": path("tls.key")},
            "clientCA": path("client-ca.crt"),
            "placementEndpoint": true,
        }],
        "index": {
            "rootShardKubeconfig": path("shards.kubeconfig"), "shardsKubeconfig": path("shards.kubeconfig"),
        },
        "upstream": {
            "certificate": path("front-proxy.crt"), "privateKey": path("front-proxy.key"),
            "serverCA": path("serving-ca.crt"),
        },
    }))
    .unwrap()
}

/// Waits until a counter satisfies a condition.
pub async fn until<T>(counter: &tokio::sync::watch::Sender<T>, condition: impl FnMut(&T) -> bool) {
    let reached = tokio::time::timeout(PATIENCE, async {
        counter.subscribe().wait_for(condition).await.unwrap();
    });
    reached.await.expect("the counter does not satisfy the condition");
}

/// Polls a condition for which there is no event.
pub async fn eventually(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let polls = async {
        while !is_met().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(PATIENCE, polls)
        .await
        .unwrap_or_else(|_| panic!("the condition is not met: {what}"));
}

/// Polls a path until its response has this status.
pub async fn until_status(client: &Http2, path: &str, status: u16) {
    eventually(&format!("{path} has {status}"), async || client.get(path).await.status == status).await;
}

/// Polls an address until connections to it are refused.
pub async fn until_refused(address: SocketAddr) {
    let what = format!("connections to {address} are refused");
    eventually(&what, async || TcpStream::connect(address).await.is_err()).await;
}

/// An address on which no process listens. The kernel gives a port that was free a moment ago.
pub async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A copy of the first listener with another name.
pub fn listener(config: &GatewayConfig, name: &str) -> ListenerConfig {
    ListenerConfig { name: name.to_owned(), ..config.listeners[0].clone() }
}

/// Two copies of a listener: one on a Unix socket, `listener.sock`, and one behind a load balancer in these networks, which sends
/// the PROXY protocol.
pub fn local_and_balanced(
    listener: &ListenerConfig,
    directory: &Path,
    networks: &Path,
) -> [ListenerConfig; 2] {
    let socket = SocketConfig { path: directory.join("listener.sock").into(), ..SocketConfig::default() };
    let local = ListenerConfig { name: "local".to_owned(), socket: Some(socket), ..listener.clone() };
    let mut balanced = ListenerConfig { name: "balanced".to_owned(), ..listener.clone() };
    balanced.peers.allow = Some(networks.into());
    balanced.peers.proxy_protocol = true;
    [local, balanced]
}

/// Writes a configuration file.
pub fn write_config(file: &Path, config: &GatewayConfig) {
    // JSON is YAML.
    fs::write(file, serde_json::to_string(config).unwrap()).unwrap();
}

/// Longer than any limit of the gateway in a test: only to fail instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Time between two polls of [`eventually`].
const POLL_INTERVAL: Duration = Duration::from_millis(1);
