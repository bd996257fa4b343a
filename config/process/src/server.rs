//! A listener that serves HTTP/1.1 and HTTP/2 over TLS and does not let peers take more than their share.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_config::{ConnectionLimits, SlowClientsConfig};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{IntCounterVec, IntGaugeVec};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use crate::activity::Idle;
use crate::chatter::{Chatter, said_too_much};
use crate::connection::ConnectionInfo;
use crate::exit::FatalError;
use crate::lifecycle::Shutdown;
use crate::metrics::{Metrics, MetricsError};
use crate::peers::AllowedPeers;
use crate::proxy_protocol::proxied_client;
use crate::quota::Connected;
use crate::reply::{self, ReplyBody, Service};
use crate::request_body::{RequestBody, TooSlow};
use crate::socket::tune_socket;
use crate::status::Status;
use crate::tls::{PeerChain, ReloadableTls};
use crate::untaken::{Patience, Patient};

/// Connections that the kernel keeps while we are busy.
const BACKLOG: u32 = 1024;
/// What an HTTP/2 peer may send ahead on one stream and on all; the latter is memory we may have to hold.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Response bytes queued per HTTP/2 stream before its body is asked for no more.
const SEND_BUFFER: usize = 32 << 10;
/// Streams a peer may reset before we have looked at them (CVE-2023-44487), and streams that its faults make us reset
/// (CVE-2025-8671), per connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// A socket that listens, not yet served.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    local_addr: SocketAddr,
}

/// Everything about a listener but what it serves.
#[derive(Clone)]
pub struct ServerOptions {
    /// The listener's name in logs and metrics.
    pub name: String,
    /// Certificate and protocols.
    pub tls: Arc<ReloadableTls>,
    /// What peers may do.
    pub limits: ConnectionLimits,
    /// What they may take their time for.
    pub slow_clients: SlowClientsConfig,
    /// Who may connect.
    pub peers: AllowedPeers,
    /// Ends the server.
    pub shutdown: Shutdown,
    /// Where connections are counted.
    pub metrics: ServerMetrics,
}

impl ServerOptions {
    fn refuse(&self, why: &str) {
        self.metrics.refused.with_label_values(&[self.name.as_str(), why]).inc();
    }
}

/// The metrics of all listeners of a process, told apart by the label `listener`.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    open: IntGaugeVec,
    handshakes: IntCounterVec,
    refused: IntCounterVec,
}

impl ServerMetrics {
    /// Registers them. Once per process.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            open: metrics.int_gauges("fairlead_connections_open", "Open connections.", &["listener"])?,
            handshakes: metrics.counters(
                "fairlead_tls_handshakes_total",
                "TLS handshakes by result: full, resumed, failed, timeout.",
                &["listener", "result"],
            )?,
            refused: metrics.counters(
                "fairlead_server_errors_total",
                "Requests answered by the server itself: headers (431), slow_body (408), panic (500); answers that \
                 nobody takes: untaken; connections from where none are accepted: peer, or no more: address; \
                 connections on which too much came that means nothing: chatter.",
                &["listener", "why"],
            )?,
        })
    }
}

/// The address cannot be listened on; the operator has to change it or stop who has it.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}")]
pub struct BindError {
    /// The address asked for.
    pub addr: SocketAddr,
    /// What the system says.
    #[source]
    pub source: io::Error,
}

impl FatalError for BindError {
    fn hint(&self) -> Option<String> {
        match self.source.kind() {
            io::ErrorKind::AddrInUse => Some(format!("something else listens on port {}", self.addr.port())),
            io::ErrorKind::PermissionDenied => Some("ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()),
            io::ErrorKind::AddrNotAvailable => {
                Some(format!("this machine has no address {}", self.addr.ip()))
            }
            _ => None,
        }
    }
}

impl BoundServer {
    /// Listens. Port 0 takes a free one. Needs a Tokio runtime.
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        let listen = || {
            let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A restarted server must not wait for its predecessor's connections to time out.
            socket.set_reuseaddr(true)?;
            socket.bind(addr)?;
            let listener = socket.listen(BACKLOG)?;
            let local_addr = listener.local_addr()?;
            Ok(Self { listener, local_addr })
        };
        listen().map_err(|source| BindError { addr, source })
    }

    /// The address listened on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until the shutdown's drain is done: when it begins no connection is accepted any more, open ones are told
    /// (GOAWAY, `Connection: close`), and this returns when the last one has ended or the window is over.
    pub async fn serve<S: Service>(self, options: ServerOptions, service: S) {
        let slots = Arc::new(Semaphore::new(options.limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let untaken = options.metrics.refused.with_label_values(&[options.name.as_str(), "untaken"]);
        let patience = Patience { limit: options.slow_clients.response_stall_timeout.get(), lost: untaken };
        let shared = Arc::new(Shared {
            patience: Arc::new(patience),
            protocols: Protocols::new(&options.limits),
            options,
            service,
            tracker: TaskTracker::new(),
        });
        // Prometheus sees an increase only where there was something before.
        for why in ["address", "chatter", "headers", "panic", "peer", "slow_body", "untaken"] {
            let labels = [shared.options.name.as_str(), why];
            shared.options.metrics.refused.with_label_values(&labels);
        }
        let mut backoff = Duration::ZERO;
        loop {
            let accepted = tokio::select! {
                () = shared.options.shutdown.draining() => break,
                accepted = async {
                    let slot = Arc::clone(&slots).acquire_owned().await;
                    (slot, self.listener.accept().await)
                } => accepted,
            };
            match accepted {
                (Ok(slot), Ok((stream, peer))) => {
                    backoff = Duration::ZERO;
                    if !shared.options.peers.admit(peer.ip()) {
                        tracing::debug!(listener = shared.options.name, %peer, "may not connect");
                        shared.options.refuse("peer");
                        continue;
                    }
                    let connection = serve_connection(Arc::clone(&shared), stream, peer, self.local_addr);
                    shared.tracker.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                (_, outcome) => {
                    // Mostly out of file descriptors; there is no event for "some are free again".
                    if let Err(error) = outcome {
                        tracing::warn!(listener = shared.options.name, %error, "cannot accept a connection");
                    }
                    backoff = (backoff * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
                    tokio::time::sleep(backoff).await;
                }
            }
        }
        drop(self.listener);
        shared.tracker.close();
        shared.tracker.wait().await;
    }
}

struct Shared<S> {
    options: ServerOptions,
    protocols: Protocols,
    service: S,
    /// For what they do not take.
    patience: Arc<Patience>,
    /// Connections and the streams on them.
    tracker: TaskTracker,
}

impl<S> Shared<S> {
    fn streams(&self) -> Streams {
        Streams { tracker: self.tracker.clone(), patience: Arc::clone(&self.patience) }
    }

    fn patient<C>(&self, connection: C) -> Patient<Pin<Box<C>>> {
        Patient::new(Box::pin(connection), &self.patience)
    }
}

/// One connection from its first byte to its last. What each phase needs lies in a box of its own, so that an open
/// connection has no room for a handshake and one protocol none for the other.
async fn serve_connection<S: Service>(
    shared: Arc<Shared<S>>,
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
) {
    let options = &shared.options;
    let open = options.metrics.open.with_label_values(&[options.name.as_str()]);
    open.inc();
    let _closed = OnDrop(move || open.dec());

    let Some(established) = Box::pin(handshake(options, stream, peer)).await else { return };
    let Established { stream, client: peer, connected: _connected } = established;
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
    let info = ConnectionInfo::new(id, peer, local, PeerChain::of(session), options.shutdown.drain());
    let outcome = if is_http2 {
        speak_http2(&shared, stream, &info).await
    } else {
        speak_http1(&shared, stream, &info).await
    };
    if let Err(error) = outcome {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        if cause.is_some_and(said_too_much) {
            options.refuse("chatter");
        }
        tracing::debug!(listener = options.name, %peer, %error, "connection ended");
    }
}

/// A connection that HTTP can be spoken on.
struct Established {
    stream: Box<TlsStream<TcpStream>>,
    client: SocketAddr,
    /// Counts it among those of its address.
    connected: Option<Connected>,
}

/// The encrypted stream, and whose it is; `None`, counted, if there is none in time.
async fn handshake(options: &ServerOptions, mut stream: TcpStream, peer: SocketAddr) -> Option<Established> {
    tune_socket(&stream);
    let accept = async {
        let client = match options.peers.proxy_protocol {
            true => proxied_client(&mut stream, peer).await.map_err(io::Error::other)?,
            false => peer,
        };
        let connected = options.peers.connect(client.ip()).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        let stream = Box::new(TlsAcceptor::from(options.tls.load()).accept(stream).await?);
        Ok::<_, io::Error>(Established { stream, client, connected })
    };
    let accepted = tokio::select! {
        accepted = timeout(options.limits.tls_handshake_timeout.get(), accept) => accepted,
        () = options.shutdown.over() => return None,
    };
    let (established, result) = match accepted {
        Ok(Ok(established)) => {
            let session = established.stream.get_ref().1;
            let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            (Some(established), if resumed { "resumed" } else { "full" })
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
            tracing::debug!(listener = options.name, %peer, "may have no more connections");
            options.refuse("address");
            return None;
        }
        Ok(Err(error)) => {
            tracing::debug!(listener = options.name, %peer, %error, "TLS handshake failed");
            (None, "failed")
        }
        Err(_) => (None, "timeout"),
    };
    options.metrics.handshakes.with_label_values(&[options.name.as_str(), result]).inc();
    established
}

fn speak_http2<'a, S: Service>(
    shared: &'a Arc<Shared<S>>,
    stream: Box<TlsStream<TcpStream>>,
    info: &'a ConnectionInfo,
) -> impl Future<Output = hyper::Result<()>> + Send + 'a {
    let answering = answering(shared, info);
    // Whoever comes may be a gateway.
    let stream = Chatter::of_proxy(stream);
    let connection =
        shared.protocols.http2(shared.streams()).serve_connection(TokioIo::new(stream), answering);
    drive(shared.patient(connection), |connection| connection.graceful_shutdown(), &shared.options, info)
}

fn speak_http1<'a, S: Service>(
    shared: &'a Arc<Shared<S>>,
    stream: Box<TlsStream<TcpStream>>,
    info: &'a ConnectionInfo,
) -> impl Future<Output = hyper::Result<()>> + Send + 'a {
    let answering = answering(shared, info);
    let connection = shared.protocols.http1.serve_connection(TokioIo::new(stream), answering).with_upgrades();
    drive(shared.patient(connection), |connection| connection.graceful_shutdown(), &shared.options, info)
}

/// What hyper calls with each request of a connection.
fn answering<S: Service>(
    shared: &Arc<Shared<S>>,
    info: &ConnectionInfo,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = http::Response<ReplyBody<S::Body>>,
    Error = Infallible,
    Future: Send + 'static,
>
+ Send
+ 'static
+ use<S> {
    let (shared, info) = (Arc::clone(shared), info.clone());
    service_fn(move |request: Request<Incoming>| {
        let (shared, info) = (Arc::clone(&shared), info.clone());
        // Here, because a stream has room for everything that it ever holds.
        let (head, body) = request.into_parts();
        let (body, too_slow) = RequestBody::new(body, shared.options.slow_clients.request_body_timeout.get());
        let request = Request::from_parts(head, body);
        async move {
            let is_head = request.method() == Method::HEAD;
            let response = answer(&shared, info, request, too_slow).await;
            Ok(if is_head { reply::without_body(response) } else { response })
        }
    })
}

async fn answer<S: Service>(
    shared: &Shared<S>,
    info: ConnectionInfo,
    mut request: Request<RequestBody>,
    too_slow: TooSlow,
) -> http::Response<ReplyBody<S::Body>> {
    let open = info.begin_request();
    if !shared.protocols.admits(&request) {
        shared.options.refuse("headers");
        return reply::from_status(&Status::request_header_fields_too_large(), open);
    }
    let version = request.version();
    request.extensions_mut().insert(info);
    // The service may be left in a state that its panic made odd; it is shared by many requests anyway and has to be
    // sound under a dropped future at any point, which is the same thing.
    match AssertUnwindSafe(async { shared.service.call(request).await }).catch_unwind().await {
        Ok(_) if too_slow.is_true() => {
            shared.options.refuse("slow_body");
            let mut response = reply::from_status(&Status::request_timeout(), open);
            if version < Version::HTTP_2 {
                // The rest of the body is not read.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        Ok(response) => reply::from_service(response, open),
        Err(_) => {
            shared.options.refuse("panic");
            reply::from_status(&Status::internal("the server met a bug while it handled the request"), open)
        }
    }
}

/// Polls a connection to its end and tells it when to end. Costs two atomic operations per wake-up beside the
/// connection itself: what may end it is polled only when that wakes up.
async fn drive<C, G>(
    mut connection: Patient<Pin<Box<C>>>,
    graceful: G,
    options: &ServerOptions,
    info: &ConnectionInfo,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
    G: Fn(Pin<&mut C>),
{
    let mut orders = FuturesUnordered::new();
    orders.push(order(options, info, false));
    loop {
        tokio::select! {
            biased;
            // None: the answer over HTTP/1.1 is not taken, and there is no other.
            outcome = &mut connection => return outcome.unwrap_or(Ok(())),
            Some(order) = orders.next() => match order {
                Order::Finish => {
                    graceful(connection.answering().as_mut());
                    orders.push(self::order(options, info, true));
                }
                Order::Cut => return Ok(()),
            },
        }
    }
}

enum Order {
    /// Take no more requests and end when the open ones have.
    Finish,
    /// End now.
    Cut,
}

async fn order(options: &ServerOptions, info: &ConnectionInfo, finishing: bool) -> Order {
    if finishing {
        // The end of an answer may be all that is left, and nobody takes it.
        let patience = options
            .limits
            .idle_timeout
            .get()
            .saturating_add(options.slow_clients.response_stall_timeout.get());
        tokio::select! {
            () = options.shutdown.over() => {}
            () = info.activity().unused_for(patience) => {}
        }
        return Order::Cut;
    }
    tokio::select! {
        () = options.shutdown.draining() => Order::Finish,
        idle = info.activity().idle(&options.limits) => match idle {
            Idle::Mute => Order::Cut,
            Idle::Unused => Order::Finish,
        },
    }
}

/// How HTTP is spoken.
struct Protocols {
    http1: http1::Builder,
    limits: ConnectionLimits,
    header_bytes: usize,
}

impl Protocols {
    fn new(limits: &ConnectionLimits) -> Self {
        let header_bytes = usize::try_from(limits.max_header_bytes.bytes()).unwrap_or(usize::MAX);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // Also runs between requests; the first request has a shorter time, see `idleness`.
            .header_read_timeout(limits.idle_timeout.get())
            // Up to twice the limit comes through to `admits`, which answers with a Status; beyond it hyper answers
            // with an empty 431 and has read no more.
            .max_headers(limits.max_header_fields.saturating_mul(2))
            .max_header_size(header_bytes.saturating_mul(2))
            .max_buf_size(header_bytes.saturating_mul(2).max(16 << 10));
        Self { http1, limits: limits.clone(), header_bytes }
    }

    fn http2(&self, streams: Streams) -> http2::Builder<Streams> {
        let mut http2 = http2::Builder::new(streams);
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.limits.max_streams_per_connection.min(1000))
            .max_header_list_size(u32::try_from(self.header_bytes.saturating_mul(2)).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .keep_alive_interval(self.limits.keep_alive_interval.get())
            .keep_alive_timeout(self.limits.keep_alive_interval.get());
        http2
    }

    /// Whether a request's header is within the limits, counted as RFC 9113 counts it (32 bytes per field).
    fn admits<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        headers.len() <= self.limits.max_header_fields
            && headers.iter().fold(path, |sum, (name, value)| sum + name.as_str().len() + value.len() + 32)
                <= self.header_bytes
    }
}

/// Runs the streams of HTTP/2 connections where the server waits for them, as long as somebody takes what they answer.
#[derive(Clone)]
struct Streams {
    tracker: TaskTracker,
    patience: Arc<Patience>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.tracker.spawn(Patient::new(stream, &self.patience));
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
