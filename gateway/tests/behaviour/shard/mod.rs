//! A test shard: lists and watches for the gateway's index, an echo of every other request, and special behaviours by path.

mod answers;
mod objects;
mod oddities;
mod replica;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinHandle;

#[allow(unused_imports, reason = "shared with tests that need less")]
pub use oddities::{GZIP, WORKERS, Work};

#[allow(unused_imports, reason = "shared with tests that need less")]
pub use replica::Replica;

use objects::Log;
use server::{Open, serve};

pub struct Shard {
    pub address: SocketAddr,
    pub state: Arc<State>,
    server: Mutex<JoinHandle<()>>,
}

pub struct State {
    pub name: String,
    /// TLS configuration of new connections.
    tls: Mutex<Arc<rustls::ServerConfig>>,
    log: Mutex<Log>,
    changed: watch::Sender<u64>,
    /// Open `/stream` responses.
    pub streams: watch::Sender<usize>,
    /// The events that `/stream` responses send.
    pub events: broadcast::Sender<Bytes>,
    /// Accepted connections.
    pub connections: AtomicUsize,
    /// Lists served to the index.
    pub lists: AtomicUsize,
    /// Watches that the index has opened.
    pub followed: watch::Sender<usize>,
    /// While this is true, lists get no response.
    pub held: watch::Sender<bool>,
    open: Mutex<Vec<Open>>,
    /// Requests to `/wait` get their response when this becomes true.
    pub release: watch::Sender<bool>,
    /// Bytes that `/big` responses have sent.
    pub big_sent: Arc<AtomicUsize>,
    /// Requests that wait in `/wait`, and their largest number at the same time.
    pub waiting: watch::Sender<usize>,
    /// Requests that have waited or wait.
    pub arrived: watch::Sender<usize>,
    pub most_waiting: AtomicUsize,
    /// Permits for requests to `slow`.
    slow: Semaphore,
    /// Permits for requests to `work`.
    workers: Semaphore,
    /// Results of requests to `work`, by workspace.
    pub work: Mutex<BTreeMap<String, Work>>,
    /// The order in which requests to `turn-…` arrived.
    pub turns: Mutex<Vec<String>>,
    /// Identity headers in any spelling that requests had, each with the first such request.
    pub identities: Mutex<BTreeMap<Vec<String>, String>>,
    /// Requests other than the index's own.
    pub requests: AtomicUsize,
    /// Incomplete request bodies.
    pub broken: watch::Sender<usize>,
    /// While this is true, requests of gateways are cut off; those of the index are not.
    pub failing: AtomicBool,
    /// How it takes part in a shard with replicas.
    pub replica: Mutex<Replica>,
    /// Increased to send GOAWAY on all HTTP/2 connections.
    goaway: watch::Sender<usize>,
}

impl Shard {
    pub async fn start(name: &str, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::start_at(name, tls, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub async fn start_at(name: &str, tls: Arc<rustls::ServerConfig>, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            name: name.to_owned(),
            tls: Mutex::new(tls),
            log: Mutex::default(),
            changed: watch::Sender::new(0),
            streams: watch::Sender::new(0),
            events: broadcast::Sender::new(1024),
            connections: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            followed: watch::Sender::new(0),
            held: watch::Sender::new(false),
            open: Mutex::default(),
            release: watch::Sender::new(false),
            big_sent: Arc::default(),
            waiting: watch::Sender::new(0),
            arrived: watch::Sender::new(0),
            most_waiting: AtomicUsize::new(0),
            slow: Semaphore::new(2),
            workers: Semaphore::new(WORKERS),
            work: Mutex::default(),
            turns: Mutex::default(),
            identities: Mutex::default(),
            requests: AtomicUsize::new(0),
            broken: watch::Sender::new(0),
            failing: AtomicBool::new(false),
            replica: Mutex::default(),
            goaway: watch::Sender::new(0),
        });
        let server = Mutex::new(tokio::spawn(serve(listener, Arc::clone(&state))));
        Self { address, state, server }
    }

    /// Starts a killed shard again at the same address with the same objects.
    pub async fn restart(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        *self.server.lock() = tokio::spawn(serve(listener, Arc::clone(&self.state)));
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Closes the listener and all connections.
    pub async fn stop(self) {
        self.kill().await;
    }

    /// Closes the listener and all connections of a shard that is started again later.
    pub async fn kill(&self) {
        self.server.lock().abort();
        while !self.server.lock().is_finished() {
            tokio::task::yield_now().await;
        }
        self.state.cut_connections();
    }
}

impl State {
    pub fn open_connections(&self) -> usize {
        self.open.lock().iter().filter(|connection| !connection.task.is_finished()).count()
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut_connections(&self) {
        self.open.lock().drain(..).for_each(|connection| connection.task.abort());
    }

    /// Cuts the connections of one peer, by the common name of its certificate.
    pub fn cut_connections_of(&self, peer: &str) {
        let open = self.open.lock();
        open.iter()
            .filter(|connection| connection.is_of(peer))
            .for_each(|connection| connection.task.abort());
    }

    /// Number of open connections of one peer.
    pub fn open_connections_of(&self, peer: &str) -> usize {
        let open = self.open.lock();
        open.iter().filter(|connection| connection.is_of(peer) && !connection.task.is_finished()).count()
    }

    /// TLS configuration of new connections.
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls.lock())
    }

    /// Changes certificate and authorities for new connections.
    pub fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *self.tls.lock() = tls;
    }

    /// Sends GOAWAY on all HTTP/2 connections; requests in flight are completed.
    pub fn send_goaway(&self) {
        self.goaway.send_modify(|count| *count += 1);
    }

    /// Records the identity headers of a request, in any spelling that a lenient server might accept.
    fn record_identity_headers(&self, headers: &http::HeaderMap, which: impl FnOnce() -> String) {
        let careless = |name: &http::HeaderName| name.as_str().replace('_', "-");
        let claims = |name: &http::HeaderName| {
            let name = careless(name);
            let kind = name.strip_prefix("x-remote-").unwrap_or_default();
            matches!(kind, "user" | "group" | "uid") || kind.starts_with("extra-")
        };
        let mut said: Vec<String> = headers
            .iter()
            .filter(|(name, _)| claims(name))
            .map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii()))
            .collect();
        said.sort();
        self.identities.lock().entry(said).or_insert_with(which);
    }
}
