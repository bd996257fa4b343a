//! A listener that serves HTTP/1.1 and HTTP/2 over TLS, with limits per peer.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
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

use crate::activity::IdleReason;
use crate::connection::ConnectionInfo;
use crate::error::FatalError;
use crate::frame_budget::{FrameBudget, is_frame_budget_exceeded};
use crate::lifecycle::Shutdown;
use crate::metrics::{Metrics, MetricsError};
use crate::peers::AllowedPeers;
use crate::proxy_protocol::proxied_client;
use crate::quota::ConnectionGuard;
use crate::request_body::{RequestBody, TooSlow};
use crate::response::{self, ResponseBody, Service};
use crate::slow_reader::{ReadTimeout, SlowReaderGuard};
use crate::socket::tune_socket;
use crate::status::Status;
use crate::tls::{PeerChain, ReloadableTls};
use crate::write_batch::{Batched, BatchedStream};

/// Length of the kernel's queue of connections that were not accepted yet.
const BACKLOG: u32 = 1024;
/// HTTP/2 flow-control windows of one stream and of a connection. The latter bounds the memory per connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Response bytes queued per HTTP/2 stream before its body is no longer polled.
const SEND_BUFFER: usize = 32 << 10;
/// Streams per connection that a peer may reset before they were accepted (CVE-2023-44487), and streams that the server resets
/// because of errors of the peer (CVE-2025-8671).
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// A listening socket that is not served yet.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    local_addr: SocketAddr,
}

/// Configuration of a listener, without the service.
#[derive(Clone)]
pub struct ServerOptions {
    /// The listener's name in logs and metrics.
    pub name: String,
    /// Certificate and protocols.
    pub tls: Arc<ReloadableTls>,
    /// Limits of connections and requests.
    pub limits: ConnectionLimits,
    /// Time limits of slow clients.
    pub slow_clients: SlowClientsConfig,
    /// Peers that may connect.
    pub peers: AllowedPeers,
    /// The shutdown of the server.
    pub shutdown: Shutdown,
    /// Metrics of connections.
    pub metrics: ServerMetrics,
}

impl ServerOptions {
    fn count_error(&self, reason: &str) {
        self.metrics.errors.with_label_values(&[self.name.as_str(), reason]).inc();
    }
}

/// The metrics of all listeners of a process, with the label `listener`.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    open: IntGaugeVec,
    handshakes: IntCounterVec,
    errors: IntCounterVec,
}

impl ServerMetrics {
    /// Registers the metrics. Call it once per process.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            open: metrics.int_gauges("fairlead_connections_open", "Open connections.", &["listener"])?,
            handshakes: metrics.counters(
                "fairlead_tls_handshakes_total",
                "TLS handshakes by result: full, resumed, failed, timeout.",
                &["listener", "result"],
            )?,
            errors: metrics.counters(
                "fairlead_server_errors_total",
                "Requests that the server rejected: headers (431), slow_body (408), panic (500). Responses that a client did not \
                 read: slow_reader. Connections from a network that is not allowed: peer. Connections beyond the quota \
                 of an address: address. Connections that exceeded the frame budget: frames.",
                &["listener", "reason"],
            )?,
        })
    }
}

/// The address cannot be listened on; the operator has to change it or to stop the process that uses it.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}")]
pub struct BindError {
    /// The address.
    pub addr: SocketAddr,
    /// The error of the system.
    #[source]
    pub source: io::Error,
}

impl FatalError for BindError {
    fn hint(&self) -> Option<String> {
        match self.source.kind() {
            io::ErrorKind::AddrInUse => Some(format!("another process listens on port {}", self.addr.port())),
            io::ErrorKind::PermissionDenied => Some("ports below 1024 need CAP_NET_BIND_SERVICE".to_owned()),
            io::ErrorKind::AddrNotAvailable => {
                Some(format!("this machine has no address {}", self.addr.ip()))
            }
            _ => None,
        }
    }
}

impl BoundServer {
    /// Listens on an address. Port 0 selects a free one. Needs a Tokio runtime.
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

    /// The local address, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until the drain is done. When it begins, no connection is accepted any more and open connections are shut down
    /// gracefully (GOAWAY, `Connection: close`). Returns when the last one has ended or the window is over.
    pub async fn serve<S: Service>(self, options: ServerOptions, service: S) {
        let permits = Arc::new(Semaphore::new(options.limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let aborted = options.metrics.errors.with_label_values(&[options.name.as_str(), "slow_reader"]);
        let read_timeout = ReadTimeout { limit: options.slow_clients.response_stall_timeout.get(), aborted };
        let shared = Arc::new(Shared {
            read_timeout: Arc::new(read_timeout),
            protocols: Protocols::new(&options.limits),
            options,
            service,
            tracker: TaskTracker::new(),
        });
        // Prometheus detects an increase only of a series that exists.
        for reason in ["address", "frames", "headers", "panic", "peer", "slow_body", "slow_reader"] {
            let labels = [shared.options.name.as_str(), reason];
            shared.options.metrics.errors.with_label_values(&labels);
        }
        let mut backoff = Duration::ZERO;
        loop {
            let accepted = tokio::select! {
                () = shared.options.shutdown.draining() => break,
                accepted = async {
                    let permit = Arc::clone(&permits).acquire_owned().await;
                    (permit, self.listener.accept().await)
                } => accepted,
            };
            match accepted {
                (Ok(permit), Ok((stream, peer))) => {
                    backoff = Duration::ZERO;
                    if !shared.options.peers.admit(peer.ip()) {
                        tracing::debug!(listener = shared.options.name, %peer, "the peer is not allowed to connect");
                        shared.options.count_error("peer");
                        continue;
                    }
                    let connection = serve_connection(Arc::clone(&shared), stream, peer, self.local_addr);
                    shared.tracker.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                (_, outcome) => {
                    // Mostly a lack of file descriptors. No event reports free ones, so wait.
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
    /// Time limit for clients to read responses.
    read_timeout: Arc<ReadTimeout>,
    /// Connections and the streams on them.
    tracker: TaskTracker,
}

impl<S> Shared<S> {
    fn streams(&self) -> Streams {
        Streams { tracker: self.tracker.clone(), read_timeout: Arc::clone(&self.read_timeout) }
    }

    fn guard<C>(&self, connection: C) -> SlowReaderGuard<Pin<Box<C>>> {
        SlowReaderGuard::new(Box::pin(connection), &self.read_timeout)
    }
}

/// Serves one connection. The state of each phase is boxed separately, so that an open connection does not reserve memory for
/// the handshake, nor for the other protocol.
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
    let EstablishedConnection { stream, client: peer, guard: _guard } = established;
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
    let info = ConnectionInfo::new(id, peer, local, PeerChain::of(session), options.shutdown.drain());
    let outcome = if is_http2 {
        serve_http2(&shared, stream, &info).await
    } else {
        serve_http1(&shared, stream, &info).await
    };
    if let Err(error) = outcome {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        if cause.is_some_and(is_frame_budget_exceeded) {
            options.count_error("frames");
        }
        tracing::debug!(listener = options.name, %peer, %error, "connection ended");
    }
}

/// A connection after its TLS handshake.
struct EstablishedConnection {
    stream: Box<TlsStream<TcpStream>>,
    client: SocketAddr,
    /// Counts the connection for its address.
    guard: Option<ConnectionGuard>,
}

/// Performs the TLS handshake. `None` if it fails or times out, which is counted.
async fn handshake(
    options: &ServerOptions,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> Option<EstablishedConnection> {
    tune_socket(&stream);
    let accept = async {
        let client = match options.peers.proxy_protocol {
            true => proxied_client(&mut stream, peer).await.map_err(io::Error::other)?,
            false => peer,
        };
        let guard = options.peers.connect(client.ip()).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        let stream = Box::new(TlsAcceptor::from(options.tls.load()).accept(stream).await?);
        Ok::<_, io::Error>(EstablishedConnection { stream, client, guard })
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
            tracing::debug!(listener = options.name, %peer, "the address has reached its quota of connections");
            options.count_error("address");
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

fn serve_http2<'a, S: Service>(
    shared: &'a Arc<Shared<S>>,
    stream: Box<TlsStream<TcpStream>>,
    info: &'a ConnectionInfo,
) -> impl Future<Output = hyper::Result<()>> + Send + 'a {
    let service = hyper_service(shared, info);
    let (stream, flusher) = BatchedStream::new(*stream);
    // The peer may be a gateway.
    let stream = FrameBudget::for_proxy(stream);
    let connection = shared.protocols.http2(shared.streams()).serve_connection(TokioIo::new(stream), service);
    let connection = shared.guard(Batched::new(connection, flusher));
    drive(connection, |batched| batched.connection().graceful_shutdown(), &shared.options, info)
}

fn serve_http1<'a, S: Service>(
    shared: &'a Arc<Shared<S>>,
    stream: Box<TlsStream<TcpStream>>,
    info: &'a ConnectionInfo,
) -> impl Future<Output = hyper::Result<()>> + Send + 'a {
    let service = hyper_service(shared, info);
    let connection = shared.protocols.http1.serve_connection(TokioIo::new(stream), service).with_upgrades();
    drive(shared.guard(connection), |connection| connection.graceful_shutdown(), &shared.options, info)
}

/// The service that hyper calls with each request of a connection.
fn hyper_service<S: Service>(
    shared: &Arc<Shared<S>>,
    info: &ConnectionInfo,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = http::Response<ResponseBody<S::Body>>,
    Error = Infallible,
    Future: Send + 'static,
>
+ Send
+ 'static
+ use<S> {
    let (shared, info) = (Arc::clone(shared), info.clone());
    service_fn(move |request: Request<Incoming>| {
        let (shared, info) = (Arc::clone(&shared), info.clone());
        // Outside the async block, because a future reserves memory for everything that it ever holds.
        let (head, body) = request.into_parts();
        let (body, too_slow) = RequestBody::new(body, shared.options.slow_clients.request_body_timeout.get());
        let request = Request::from_parts(head, body);
        // Boxed, because hyper's task of a stream lives as long as the response body and reserves memory for the larger of
        // both. A watch would keep the 9 KiB in which its request was handled.
        Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let response = respond(&shared, info, request, too_slow).await;
            Ok(if is_head { response::without_body(response) } else { response })
        })
    })
}

async fn respond<S: Service>(
    shared: &Shared<S>,
    info: ConnectionInfo,
    mut request: Request<RequestBody>,
    too_slow: TooSlow,
) -> http::Response<ResponseBody<S::Body>> {
    let open = info.begin_request();
    if !shared.protocols.admits(&request) {
        shared.options.count_error("headers");
        return response::from_status(&Status::request_header_fields_too_large(), open);
    }
    let version = request.version();
    request.extensions_mut().insert(info);
    // Pinned here, because each adapter would move the future, and a moved future is copied whole.
    let handled = pin!(async { shared.service.call(request).await });
    // `AssertUnwindSafe`: the service is shared by many requests and has to stay consistent when a future is dropped at any
    // point, so it also does after a panic.
    match AssertUnwindSafe(handled).catch_unwind().await {
        Ok(_) if too_slow.is_true() => {
            shared.options.count_error("slow_body");
            let mut response = response::from_status(&Status::request_timeout(), open);
            if version < Version::HTTP_2 {
                // The rest of the body is not read.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        Ok(response) => response::from_service(response, open),
        Err(_) => {
            shared.options.count_error("panic");
            response::from_status(
                &Status::internal("a bug in the server prevented it from handling the request"),
                open,
            )
        }
    }
}

/// Polls a connection until it ends, and shuts it down when it is idle or the process drains. Costs two atomic operations per
/// wake-up beside the connection itself: the conditions for closing it are polled only when they are woken.
async fn drive<C, G>(
    mut connection: SlowReaderGuard<Pin<Box<C>>>,
    graceful: G,
    options: &ServerOptions,
    info: &ConnectionInfo,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
    G: Fn(Pin<&mut C>),
{
    let mut close_conditions = FuturesUnordered::new();
    close_conditions.push(next_close(options, info, false));
    loop {
        tokio::select! {
            biased;
            // `None`: the client does not read the response over HTTP/1.1, which has one response at a time.
            outcome = &mut connection => return outcome.unwrap_or(Ok(())),
            Some(mode) = close_conditions.next() => match mode {
                CloseMode::Graceful => {
                    graceful(connection.inner().as_mut());
                    close_conditions.push(next_close(options, info, true));
                }
                CloseMode::Immediate => return Ok(()),
            },
        }
    }
}

/// Kind of the closing of a connection.
enum CloseMode {
    /// No more requests are accepted, and the connection is closed when the open ones have ended.
    Graceful,
    /// The connection is closed at once.
    Immediate,
}

async fn next_close(options: &ServerOptions, info: &ConnectionInfo, is_closing: bool) -> CloseMode {
    if is_closing {
        // The client may not read the end of a response, which no longer counts as an open request.
        let limit = options
            .limits
            .idle_timeout
            .get()
            .saturating_add(options.slow_clients.response_stall_timeout.get());
        tokio::select! {
            () = options.shutdown.over() => {}
            () = info.activity().unused_for(limit) => {}
        }
        return CloseMode::Immediate;
    }
    tokio::select! {
        () = options.shutdown.draining() => CloseMode::Graceful,
        idle = info.activity().idle(&options.limits) => match idle {
            IdleReason::NoFirstRequest => CloseMode::Immediate,
            IdleReason::NoOpenRequest => CloseMode::Graceful,
        },
    }
}

/// HTTP settings of a listener.
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
            // Also applies between requests; the first request has a shorter limit, see `Activity::idle`.
            .header_read_timeout(limits.idle_timeout.get())
            // Up to twice the limit is passed to `admits`, which responds with a Status; beyond it hyper responds with an empty
            // 431 and reads no more.
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

    /// Whether the header fields of a request are within the limits, counted as in RFC 9113 (32 bytes per field).
    fn admits<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        headers.len() <= self.limits.max_header_fields
            && headers.iter().fold(path, |sum, (name, value)| sum + name.as_str().len() + value.len() + 32)
                <= self.header_bytes
    }
}

/// Spawns the streams of HTTP/2 connections as tasks that the server awaits, with slow-reader protection.
#[derive(Clone)]
struct Streams {
    tracker: TaskTracker,
    read_timeout: Arc<ReadTimeout>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.tracker.spawn(SlowReaderGuard::new(stream, &self.read_timeout));
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
