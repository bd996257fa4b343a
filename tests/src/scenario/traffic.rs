//! Traffic of all kinds, valid and invalid, until it is stopped.

use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Client, Credentials, Request, WriteOptions};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::events::{CONFIG_MAPS, WORKSPACES_WITH_SHARDS};
use super::site::Site;
use super::{ScenarioError, device_login};

/// Running clients. Dropping it stops them.
pub(crate) struct Traffic {
    clients: JoinSet<()>,
}

impl Traffic {
    /// Starts all clients.
    pub(crate) async fn start(site: &Site) -> Result<Self, ScenarioError> {
        let mut clients = JoinSet::new();
        let token = device_login::token(site).await?;
        for (workspace, _) in WORKSPACES_WITH_SHARDS {
            let prefix = format!("/clusters/root:{workspace}");
            for reader in 0..2 {
                let client = site.admin(&prefix)?;
                clients.spawn(repeat(Duration::from_millis(15 + 10 * reader), move || {
                    get(client.clone(), CONFIG_MAPS)
                }));
            }
            let client = site.admin(&prefix)?;
            clients.spawn(write(client));
            let watcher = site.admin(&prefix)?;
            for _ in 0..6 {
                clients.spawn(watch(watcher.clone()));
            }
        }
        let strange = [
            // A wrong token, a wrong path, a user without rights.
            (site.admin("/clusters/root:nowhere")?, CONFIG_MAPS, 300),
            (site.admin("")?, "/nothing", 900),
            (site.at_edge("/clusters/root", None)?, CONFIG_MAPS, 400),
            (site.at_edge("/clusters/root", Some("no.such.token"))?, CONFIG_MAPS, 700),
            // More than the quota of one user.
            (site.at_edge("/clusters/root", Some(&token))?, CONFIG_MAPS, 60),
        ];
        for (client, path, pause) in strange {
            clients.spawn(repeat(Duration::from_millis(pause), move || get(client.clone(), path)));
        }
        let watcher = site.at_edge("/clusters/root", Some(&token))?;
        for _ in 0..5 {
            clients.spawn(watch(watcher.clone()));
        }
        let forger = site.admin("/clusters/root")?;
        clients.spawn(repeat(Duration::from_millis(500), move || send_identity_headers(forger.clone())));
        let (edge, operators) = (site.edge()?, site.operators());
        clients.spawn(repeat(Duration::from_millis(400), move || {
            connect_without_tls(edge.clone(), "127.0.0.1")
        }));
        clients.spawn(repeat(Duration::from_millis(800), move || {
            connect_without_tls(operators.clone(), "127.0.0.2")
        }));
        let (gateway, credentials) = (site.server("gateway")?.address().to_owned(), site.as_admin()?);
        clients.spawn(repeat(Duration::from_secs(4), move || {
            send_incomplete_body(gateway.clone(), credentials.clone())
        }));
        clients.spawn(overload_shard(site.admin("/clusters/root:harbour")?));
        Ok(Self { clients })
    }

    pub(crate) fn stop(&mut self) {
        self.clients.abort_all();
    }
}

async fn repeat<F: Future<Output = ()>>(pause: Duration, mut action: impl FnMut() -> F) {
    let mut turns = tokio::time::interval(pause);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        action().await;
    }
}

/// Sends a GET and ignores the response: only its metrics count.
async fn get(client: Client, path: &str) {
    let _ = client.request_any_status(Request::new(Method::GET, path)).await;
}

async fn write(client: Client) {
    let options = WriteOptions::default();
    let mut number = 0_u64;
    repeat(Duration::from_millis(80), || {
        number += 1;
        let name = format!("cargo-{}", number % 20);
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "number": number.to_string() } });
        let (client, options) = (&client, &options);
        async move {
            let _ = client.create::<Value>(CONFIG_MAPS, &object, options).await;
            let _ = client.request_any_status(Request::new(Method::DELETE, format!("{CONFIG_MAPS}/{name}"))).await;
        }
    })
    .await;
}

/// Opens a watch, and again after half a minute or when it breaks.
async fn watch(client: Client) {
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=20");
    repeat(Duration::from_millis(500), || async {
        if let Ok(mut watch) = client.watch(&path).await {
            while let Some(Ok(_)) = watch.next().await {}
        }
    })
    .await;
}

/// Sends identity headers as a gateway would.
async fn send_identity_headers(client: Client) {
    let header = (HeaderName::from_static("x-remote-user"), HeaderValue::from_static("somebody-else"));
    let request = Request::new(Method::GET, CONFIG_MAPS).with_header(header.0, header.1);
    let _ = client.request_any_status(request).await;
}

/// Connects without TLS, or from an address that is not allowed.
async fn connect_without_tls(address: String, from: &str) {
    let stream = async {
        let socket = TcpSocket::new_v4()?;
        let from = format!("{from}:0").parse().map_err(std::io::Error::other)?;
        socket.bind(from)?;
        let mut stream: TcpStream = socket.connect(address.parse().map_err(std::io::Error::other)?).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    // The kind of rejection does not matter.
    let _ = stream.await;
}

/// Sends a request whose body never arrives, and waits until the gateway gives it up.
async fn send_incomplete_body(address: String, credentials: Credentials) {
    let slow = async {
        let mut config = credentials.tls_config().as_ref().clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = credentials.server_name("127.0.0.1").map_err(std::io::Error::other)?;
        let stream = TcpStream::connect(&address).await?;
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let head = format!(
            "POST /clusters/root{CONFIG_MAPS} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.read(&mut [0; 1024]).await
    };
    // The response is counted by the gateway's metrics.
    let _: Result<usize, std::io::Error> = slow.await;
}

/// Sends more concurrent requests than a shard accepts and the gateway queues.
async fn overload_shard(client: Client) {
    let client = Arc::new(client);
    repeat(Duration::from_secs(3), || {
        let client = Arc::clone(&client);
        async move {
            let mut all = JoinSet::new();
            for _ in 0..150 {
                let client = Arc::clone(&client);
                all.spawn(async move { get(Client::clone(&client), CONFIG_MAPS).await });
            }
            all.join_all().await;
        }
    })
    .await;
}
