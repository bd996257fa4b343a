//! Shards and mapped backends as servers: where they are, and how they are talked to.
//!
//! HTTP/2 with one multiplexed connection where possible; HTTP/1.1 only for tunnels and for servers without
//! HTTP/2. pingora's pool does the rest, with settings for which its own defaults would be dangerous here.

mod credential;
mod gate;
mod streams;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::Endpoint;
use fairlead_process::Reloadable;
use parking_lot::Mutex;
use pingora::protocols::{ALPN, TcpKeepalive};
use pingora::upstreams::peer::{H1UpgradePolicy, HttpPeer};
use rustc_hash::FxHashMap;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::observe::ShardMetrics;
use crate::request::RequestClass;
pub(crate) use credential::{CredentialError, CredentialFiles, UpstreamCredential};
pub(crate) use gate::{Gate, Pass};
pub(crate) use streams::StreamPermit;
use streams::{CONNECTION_WINDOW, Connections, Lifetime, MAX_STREAMS, STREAM_WINDOW};
use wire::Wire;

/// How shards are talked to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamOptions {
    /// For TCP, and again for TLS.
    pub(crate) connect_timeout: Duration,
    /// Without any byte of an ordinary answer for this long, the request fails. Watches and upgrades have no
    /// limit; a dead connection is noticed by pings.
    pub(crate) read_timeout: Duration,
    /// Without a request for this long, a connection is closed.
    pub(crate) idle_timeout: Duration,
    /// How often a shard is asked on a quiet connection whether it is there.
    pub(crate) ping_interval: Duration,
}

/// How long a name's addresses are believed.
const ADDRESS_TTL: Duration = Duration::from_secs(30);
/// How long a look-up of a name may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// All servers that requests are forwarded to: the shards, and the backends of mapped paths.
pub(crate) struct Upstreams {
    /// For shards, and for backends without one of their own.
    credential: ArcSwap<Reloadable<UpstreamCredential>>,
    options: ArcSwap<UpstreamOptions>,
    metrics: Arc<dyn Fn(&str) -> ShardMetrics + Send + Sync>,
    shards: ArcSwap<ByName>,
    backends: ArcSwap<ByName>,
    adding: Mutex<()>,
}

type ByName = FxHashMap<Arc<str>, Arc<Upstream>>;

/// A server that is no shard, as a mapping describes it.
#[derive(Clone, Debug)]
pub(crate) struct BackendSpec {
    /// For metrics and logs. Another URL or credential under the same name replaces what there was.
    pub(crate) name: Arc<str>,
    /// `https://…`, or `http://…`, to which no credential is shown. Its path is not looked at.
    pub(crate) url: Arc<str>,
    /// Who the gateway is towards it and which authorities it is believed by; `None`: as towards shards.
    pub(crate) credential: Option<Arc<Reloadable<UpstreamCredential>>>,
}

/// One server.
pub(crate) struct Upstream {
    /// The name of the shard or of the backend, for metrics.
    pub(crate) name: Arc<str>,
    url: Arc<str>,
    credential: Arc<Reloadable<UpstreamCredential>>,
    /// Its metrics.
    pub(crate) metrics: ShardMetrics,
    /// The way to its connections.
    pub(crate) gate: Gate,
    connections: Arc<Connections>,
    /// Set while the server is known not to speak HTTP/2: until when that is believed.
    only_http1: Mutex<Option<Instant>>,
    endpoint: Endpoint,
    addresses: ArcSwap<Addresses>,
    looking_up: tokio::sync::Mutex<()>,
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Addresses {
    known: Vec<SocketAddr>,
    /// `None`: an address in numbers, which stays.
    expires: Option<Instant>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The server cannot be found. A retry may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The URL is not one.
    #[error(transparent)]
    Url(#[from] fairlead_client::EndpointError),
    /// Its name has no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// It cannot be connected to.
    #[error("it cannot be connected to: {0}")]
    Dial(#[from] io::Error),
    /// HTTP/2 could not be begun.
    #[error("it does not speak HTTP/2 as it should: {0}")]
    Http2(#[from] h2::Error),
    /// It speaks HTTP/1.1 only; it has to be reached another way.
    #[error("it does not speak HTTP/2")]
    OnlyHttp1,
    /// Somebody else has just tried.
    #[error("it could not be connected to a moment ago")]
    JustFailed,
}

impl Upstreams {
    /// No connections yet. `metrics` makes the metrics of a shard by its name.
    pub(crate) fn new(
        credential: Arc<Reloadable<UpstreamCredential>>,
        options: UpstreamOptions,
        metrics: Arc<dyn Fn(&str) -> ShardMetrics + Send + Sync>,
    ) -> Self {
        Self {
            credential: ArcSwap::new(credential),
            options: ArcSwap::from_pointee(options),
            metrics,
            shards: ArcSwap::default(),
            backends: ArcSwap::default(),
            adding: Mutex::new(()),
        }
    }

    /// Changes the time limits of requests from now on.
    pub(crate) fn set_options(&self, options: UpstreamOptions) {
        self.options.store(Arc::new(options));
    }

    /// The server of a shard. One look-up in a map; the first request for a URL adds it.
    ///
    /// # Errors
    /// [`UpstreamError::Url`] if the shard's URL is not one.
    pub(crate) fn get(&self, name: &Arc<str>, url: &Arc<str>) -> Result<Arc<Upstream>, UpstreamError> {
        let credential = self.credential.load();
        if let Some(known) = self.shards.load().get(name)
            && known.is(url, &credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(&self.shards, name, url, &credential)
    }

    /// The server of a mapped path, as cheap as [`Self::get`].
    ///
    /// # Errors
    /// [`UpstreamError::Url`] if its URL is not one.
    pub(crate) fn backend(&self, spec: &BackendSpec) -> Result<Arc<Upstream>, UpstreamError> {
        let shared = self.credential.load();
        let credential = spec.credential.as_ref().unwrap_or(&shared);
        if let Some(known) = self.backends.load().get(&spec.name)
            && known.is(&spec.url, credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(&self.backends, &spec.name, &spec.url, credential)
    }

    /// What a shard was called by before is of no use any more: a name has one server.
    fn add(
        &self,
        servers: &ArcSwap<ByName>,
        name: &Arc<str>,
        url: &Arc<str>,
        credential: &Arc<Reloadable<UpstreamCredential>>,
    ) -> Result<Arc<Upstream>, UpstreamError> {
        let endpoint = Endpoint::parse(url)?;
        let _adding = self.adding.lock();
        let mut by_name = ByName::clone(&servers.load());
        if let Some(known) = by_name.get(name)
            && known.is(url, credential)
        {
            return Ok(Arc::clone(known));
        }
        let added = Arc::new(Upstream {
            name: Arc::clone(name),
            url: Arc::clone(url),
            credential: Arc::clone(credential),
            metrics: (self.metrics)(name),
            gate: Gate::default(),
            connections: Arc::default(),
            only_http1: Mutex::new(None),
            endpoint,
            addresses: ArcSwap::default(),
            looking_up: tokio::sync::Mutex::new(()),
            next: AtomicUsize::new(0),
        });
        by_name.insert(Arc::clone(name), Arc::clone(&added));
        servers.store(Arc::new(by_name));
        Ok(added)
    }

    /// How to reach the server for one request: its address and the settings of the connection.
    ///
    /// # Errors
    /// [`UpstreamError::NoAddress`] if its name cannot be looked up.
    pub(crate) async fn peer(
        &self,
        upstream: &Upstream,
        class: RequestClass,
    ) -> Result<HttpPeer, UpstreamError> {
        let address = upstream.address().await?;
        let wanted = self.options.load();
        let tls = upstream.endpoint.is_tls();
        let mut peer = HttpPeer::new(address, tls, upstream.endpoint.host().to_owned());
        let options = &mut peer.options;
        if tls {
            let credential = upstream.credential.load();
            peer.client_cert_key = Some(Arc::clone(&credential.certificate));
            peer.group_key = credential.group_key;
            options.ca = Some(Arc::clone(&credential.authorities));
        }
        options.connection_timeout = Some(wanted.connect_timeout);
        options.idle_timeout = Some(wanted.idle_timeout);
        options.max_h2_streams = MAX_STREAMS;
        options.h2_stream_window_size = Some(STREAM_WINDOW);
        options.h2_connection_window_size = Some(CONNECTION_WINDOW);
        options.h2_ping_interval = Some(wanted.ping_interval);
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(15),
            count: 4,
            user_timeout: Duration::from_secs(120),
        });
        // Tunnels have their own way; a stray offer is not passed on.
        options.http_upstream_request_policy.h1_upgrade = H1UpgradePolicy::Deny;
        if !class.is_long_running() {
            options.read_timeout = Some(wanted.read_timeout);
        }
        options.alpn = if tls { ALPN::H2H1 } else { ALPN::H1 };
        Ok(peer)
    }

    /// A stream to the server over HTTP/2, on an open connection or on a new one.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has seen nothing then.
    pub(crate) async fn stream(&self, upstream: &Upstream) -> Result<StreamPermit, UpstreamError> {
        let group_key = upstream.credential.load().group_key;
        match upstream.connections.permit(group_key) {
            Some(permit) => Ok(permit),
            // Boxed, because it is rare, and as large as a handshake.
            None => Box::pin(self.stream_on_new_connection(upstream)).await,
        }
    }

    async fn stream_on_new_connection(&self, upstream: &Upstream) -> Result<StreamPermit, UpstreamError> {
        let known = !upstream.endpoint.is_tls();
        if known || upstream.only_http1.lock().is_some_and(|until| Instant::now() < until) {
            return Err(UpstreamError::OnlyHttp1);
        }
        let pass = upstream.gate.enter().await.map_err(|_| UpstreamError::JustFailed)?;
        let credential = upstream.credential.load();
        if let Some(permit) = upstream.connections.permit(credential.group_key) {
            return Ok(permit);
        }
        let options = **self.options.load();
        let connect = async {
            let stream = self.dial(upstream, &credential.stream_tls).await?;
            if !stream.speaks_http2() {
                *upstream.only_http1.lock() = Some(Instant::now() + ADDRESS_TTL);
                return Err(UpstreamError::OnlyHttp1);
            }
            let lifetime =
                Lifetime { ping_interval: options.ping_interval, idle_timeout: options.idle_timeout };
            Ok(upstream.connections.add(stream, credential.group_key, lifetime).await?)
        };
        let connected = connect.await;
        if matches!(&connected, Err(error) if !matches!(error, UpstreamError::OnlyHttp1)) {
            pass.failed();
        }
        connected
    }

    /// A connection of its own in HTTP/1.1, for a tunnel.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has seen nothing then.
    pub(crate) async fn dial_http1(&self, upstream: &Upstream) -> Result<Wire, UpstreamError> {
        self.dial(upstream, &upstream.credential.load().tunnel_tls).await
    }

    async fn dial(
        &self,
        upstream: &Upstream,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Wire, UpstreamError> {
        let address = upstream.address().await?;
        let tls = match upstream.endpoint.is_tls() {
            true => Some((TlsConnector::from(Arc::clone(tls)), upstream.server_name()?)),
            false => None,
        };
        let dial = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            match tls {
                Some((connector, name)) => Ok(Wire::Tls(Box::new(connector.connect(name, stream).await?))),
                None => Ok(Wire::Plain(stream)),
            }
        };
        let limit = self.options.load().connect_timeout;
        let dialled =
            tokio::time::timeout(limit, dial).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        dialled.map_err(|error| {
            upstream.avoid_address();
            UpstreamError::Dial(error)
        })
    }

    /// How long a shard may take to begin its answer.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.options.load().read_timeout
    }
}

impl Upstream {
    fn is(&self, url: &Arc<str>, credential: &Arc<Reloadable<UpstreamCredential>>) -> bool {
        self.url == *url && Arc::ptr_eq(&self.credential, credential)
    }

    fn server_name(&self) -> io::Result<ServerName<'static>> {
        ServerName::try_from(self.endpoint.host().to_owned()).map_err(io::Error::other)
    }

    /// The address to use now. A name's addresses are looked up again by one request when they are old, while the
    /// others go on with the old ones.
    async fn address(&self) -> Result<SocketAddr, UpstreamError> {
        let current = self.addresses.load();
        if let Some(address) = current.pick(&self.next)
            && current.expires.is_none_or(|expiry| Instant::now() < expiry)
        {
            return Ok(address);
        }
        let old = current.pick(&self.next);
        drop(current);
        match old {
            Some(old) => {
                if let Ok(_turn) = self.looking_up.try_lock() {
                    self.look_up().await;
                }
                Ok(self.addresses.load().pick(&self.next).unwrap_or(old))
            }
            None => {
                let _turn = self.looking_up.lock().await;
                if self.addresses.load().known.is_empty() {
                    self.look_up().await;
                }
                let found = self.addresses.load().pick(&self.next);
                found.ok_or_else(|| UpstreamError::NoAddress(self.endpoint.host().to_owned()))
            }
        }
    }

    /// What an HTTP/1.0 client that names no host is taken to mean.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The current address does not answer: the next request tries the next one.
    pub(crate) fn avoid_address(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    async fn look_up(&self) {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if let Ok(address) = host.parse() {
            let known = vec![SocketAddr::new(address, port)];
            return self.addresses.store(Arc::new(Addresses { known, expires: None }));
        }
        let expires = Some(Instant::now() + ADDRESS_TTL);
        match tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(found)) => {
                let known: Vec<SocketAddr> = found.collect();
                if !known.is_empty() {
                    self.addresses.store(Arc::new(Addresses { known, expires }));
                }
            }
            outcome => {
                tracing::warn!(shard = %self.name, host, failed = outcome.is_ok(), "the shard's address cannot be looked up");
                // What is known stays in use; it is not looked up again with every request.
                let known = self.addresses.load().known.clone();
                self.addresses.store(Arc::new(Addresses { known, expires }));
            }
        }
    }
}

impl Addresses {
    fn pick(&self, next: &AtomicUsize) -> Option<SocketAddr> {
        let count = self.known.len().max(1);
        self.known.get(next.load(Ordering::Relaxed) % count).copied()
    }
}
