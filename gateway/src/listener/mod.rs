//! Doors: listeners with their own TLS, their own idea of who is who, and limits on bad peers.
//!
//! The handshake always completes; who the peer is, is judged per request. Each connection keeps the TLS
//! configuration that it began with.

mod connection;
mod proxy_protocol;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_authn::{AnonymousAccess, Chain};
use fairlead_config::{ConnectionLimits, TraceContextPolicy};
use fairlead_process::{PeerChain, ReloadableTls, Shutdown};
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use prometheus::{Histogram, IntCounter, IntGauge};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::gulp::Gulp;
use crate::identity::Tokens;
use crate::lanes::Lanes;
use crate::limits::DoorQuotas;
use crate::peers::Peers;
use crate::screen::Screen;
use crate::upstream::DoorSender;
use connection::ClientStream;
pub(crate) use connection::{Connection, HeldHead, OpenRequest, connection_of};

/// Connections that the kernel keeps while we are busy.
const BACKLOG: u32 = 1024;
/// What an HTTP/2 client may send ahead on one stream and on all of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Response bytes queued per HTTP/2 stream before whoever writes more has to wait.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client may reset before we have looked at them (CVE-2023-44487), and streams that its faults
/// make us reset (CVE-2025-8671), per connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
/// When a silent TCP peer is asked whether it is there, and how often.
const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// A door by its place in the configuration, where names would be looked up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DoorNumber(usize);

impl DoorNumber {
    /// The door at this place.
    pub(crate) const fn new(place: usize) -> Self {
        Self(place)
    }

    /// Its place.
    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// One way into the gateway.
pub(crate) struct Door {
    /// Its place among all of them.
    pub(crate) number: DoorNumber,
    /// Its name in logs and metrics.
    pub(crate) name: Arc<str>,
    /// What a client certificate means here.
    pub(crate) certificates: CertificateMeaning,
    /// Who may connect.
    pub(crate) peers: Peers,
    /// Who the gateway is towards shards for its requests, if that is not who it usually is.
    pub(crate) sender: Option<Arc<DoorSender>>,
    /// How much may be asked.
    pub(crate) quotas: Arc<DoorQuotas>,
    /// What can be changed while connections are open.
    pub(crate) policy: ArcSwap<DoorPolicy>,
}

/// Who may be whom at a door, and what is offered there.
pub(crate) struct DoorPolicy {
    /// Who judges credentials.
    pub(crate) chain: Chain,
    /// Whether a request without a certificate is judged here rather than by the shard.
    pub(crate) credentials_needed: bool,
    /// Which paths are open to requests without credentials, where those are judged here.
    pub(crate) anonymous: Option<AnonymousAccess>,
    /// What happens to tokens that nobody here judges.
    pub(crate) tokens: Tokens,
    /// Whether the types of workspaces may name authenticators of their own.
    pub(crate) workspaces: bool,
    /// Whether a service account's token says which workspace a path without one is about.
    pub(crate) in_cluster_clients: bool,
    /// Whether shards may ask for picks here.
    pub(crate) picks: ShardPicks,
    /// Whether there is a page for operators.
    pub(crate) admin_page: bool,
    /// What is demanded of every request.
    pub(crate) screen: Screen,
    /// What becomes of answers.
    pub(crate) answers: AnswerPolicy,
    /// What a client's trace context counts.
    pub(crate) trace_context: TraceContextPolicy,
}

/// What becomes of answers at a door, whoever gives them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerPolicy {
    /// Nobody on the way may keep them.
    pub(crate) no_store: bool,
    /// How long a watch may be silent before a blank goes to its client.
    pub(crate) keep_alive: Option<Duration>,
}

impl DoorPolicy {
    /// Nobody is let in.
    pub(crate) fn closed() -> Self {
        Self {
            chain: Chain::builder().build(),
            credentials_needed: true,
            anonymous: None,
            tokens: Tokens::Refuse,
            workspaces: false,
            in_cluster_clients: false,
            picks: ShardPicks::Hidden,
            admin_page: false,
            screen: Screen::default(),
            answers: AnswerPolicy::default(),
            trace_context: TraceContextPolicy::Restart,
        }
    }
}

/// What a client certificate means at a door.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CertificateMeaning {
    /// It says who the user is.
    Identity,
    /// It is between the edge and us, and never somebody's identity.
    Transport,
}

/// Whether shards may ask at a door where a workspace should live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ShardPicks {
    /// Yes, with a certificate of the right group.
    Offered,
    /// No: the endpoint does not exist here.
    Hidden,
}

impl fmt::Debug for Door {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Door").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is counted at a door.
#[derive(Clone, Debug)]
pub(crate) struct DoorMetrics {
    /// Open connections.
    pub(crate) open: IntGauge,
    /// Completed handshakes, without and with resumption, and those that came to nothing.
    pub(crate) handshakes_full: IntCounter,
    /// Resumed ones.
    pub(crate) handshakes_resumed: IntCounter,
    /// Failed ones.
    pub(crate) handshakes_failed: IntCounter,
    /// Those that took too long.
    pub(crate) handshakes_timeout: IntCounter,
    /// Connections from addresses that may not connect.
    pub(crate) peers_refused: IntCounter,
    /// Seconds from the accepted connection to the beginning of its handshake.
    pub(crate) accept: Histogram,
    /// Seconds of a handshake that came to its end.
    pub(crate) tls: Histogram,
}

/// A socket that listens, not yet served.
#[derive(Debug)]
pub(crate) struct BoundDoor {
    listener: TcpListener,
    local_addr: SocketAddr,
}

/// Everything about a listener but what it serves.
pub(crate) struct DoorOptions {
    /// The door.
    pub(crate) door: Arc<Door>,
    /// Certificate and protocols.
    pub(crate) tls: Arc<ReloadableTls>,
    /// What peers may do.
    pub(crate) limits: ConnectionLimits,
    /// Ends the listener.
    pub(crate) shutdown: Shutdown,
    /// What is counted.
    pub(crate) metrics: DoorMetrics,
    /// Where connections are served.
    pub(crate) lanes: Arc<Lanes>,
}

/// How HTTP/2 is spoken with clients. Begins with pingora's bounded defaults: the raw ones of the library
/// have no limit on streams and 16 MiB of headers.
pub(crate) fn h2_options(limits: &ConnectionLimits) -> H2Options {
    let header_bytes = u32::try_from(limits.max_header_bytes.bytes()).unwrap_or(u32::MAX);
    let mut options = default_h2_options();
    options
        // Up to twice the limit comes through and is answered with a Status; beyond it the stream is refused.
        .max_header_list_size(header_bytes.saturating_mul(2))
        .max_concurrent_streams(limits.max_streams_per_connection.min(1000))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    options
}

impl BoundDoor {
    /// Listens. Port 0 takes a free one.
    ///
    /// # Errors
    /// What the operating system says, most often that the address is in use.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted gateway must not wait for its predecessor's connections to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let local_addr = listener.local_addr()?;
        Ok(Self { listener, local_addr })
    }

    /// The address listened on, with the real port.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until the drain is done: when it begins nothing is accepted any more, open connections are told,
    /// and this returns when the last one has ended or the window is over.
    pub(crate) async fn serve<A>(self, options: DoorOptions, app: Arc<A>)
    where
        A: ServerApp + Send + Sync + 'static,
    {
        let slots = Arc::new(Semaphore::new(options.limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let (drain, draining) = watch::channel(false);
        let tracker = TaskTracker::new();
        let options = Arc::new(options);
        let mut backoff = Duration::ZERO;
        loop {
            let accepted = tokio::select! {
                () = options.shutdown.draining() => break,
                accepted = async {
                    let slot = Arc::clone(&slots).acquire_owned().await;
                    (slot, self.listener.accept().await)
                } => accepted,
            };
            match accepted {
                (Ok(slot), Ok((stream, peer))) => {
                    backoff = Duration::ZERO;
                    if !options.door.peers.admit(peer.ip()) {
                        tracing::debug!(door = %options.door.name, %peer, "may not connect");
                        options.metrics.peers_refused.inc();
                        continue;
                    }
                    let (options, app, draining) = (Arc::clone(&options), Arc::clone(&app), draining.clone());
                    let Ok(stream) = stream.into_std() else { continue };
                    let accepted = Accepted { stream, peer, at: Instant::now() };
                    let place = options.lanes.place();
                    let runtime = place.runtime().clone();
                    let establishing = Box::pin(establish(Arc::clone(&options), accepted));
                    // One block, so that the task of an open connection has room for each of these once.
                    let serving = async move {
                        serve_connection(&options, &app, establishing, &draining).await;
                        drop((slot, place));
                    };
                    tracker.spawn_on(serving, &runtime);
                }
                (_, outcome) => {
                    // Mostly out of file descriptors; there is no event for "some are free again".
                    if let Err(error) = outcome {
                        tracing::warn!(door = %options.door.name, %error, "cannot accept a connection");
                    }
                    backoff = (backoff * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
                    tokio::time::sleep(backoff).await;
                }
            }
        }
        drop(self.listener);
        drain.send_replace(true);
        app.cleanup().await;
        tracker.close();
        tracker.wait().await;
    }
}

/// `establishing` is boxed, so that the task of an open connection has no room for a handshake.
async fn serve_connection<A>(
    options: &DoorOptions,
    app: &Arc<A>,
    establishing: Pin<Box<impl Future<Output = Option<(Stream, Arc<Connection>)>>>>,
    draining: &watch::Receiver<bool>,
) where
    A: ServerApp + Send + Sync + 'static,
{
    options.metrics.open.inc();
    let _closed = OnDrop(&options.metrics.open);
    let established = tokio::select! {
        established = establishing => established,
        () = options.shutdown.over() => return,
    };
    let Some((stream, connection)) = established else { return };
    tokio::select! {
        _ = app.process_new(stream, draining) => {}
        () = idle(&options.limits, &connection) => {}
        () = options.shutdown.over() => {}
    }
}

/// A connection that nothing was said on yet.
struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    at: Instant,
}

/// Agrees on TLS with a client.
async fn establish(options: Arc<DoorOptions>, accepted: Accepted) -> Option<(Stream, Arc<Connection>)> {
    let Accepted { stream, peer, at } = accepted;
    // From here on its lane waits for it.
    let stream = TcpStream::from_std(stream).ok()?;
    let metrics = &options.metrics;
    tune(&stream);
    let acceptor = TlsAcceptor::from(options.tls.load());
    let handshake = async {
        let (mut stream, mut client) = (stream, peer);
        if options.door.peers.proxy_protocol {
            client = proxy_protocol::client_of(&mut stream, peer).await.map_err(io::Error::other)?;
        }
        let began = Instant::now();
        metrics.accept.observe(began.duration_since(at).as_secs_f64());
        Ok::<_, io::Error>((acceptor.accept(Gulp::new(stream)).await?, client, began))
    };
    let (stream, peer, began) = match timeout(options.limits.tls_handshake_timeout.get(), handshake).await {
        Ok(Ok(established)) => established,
        Ok(Err(error)) => {
            tracing::debug!(door = %options.door.name, %peer, %error, "TLS handshake failed");
            metrics.handshakes_failed.inc();
            return None;
        }
        Err(_) => {
            metrics.handshakes_timeout.inc();
            return None;
        }
    };
    let session = stream.get_ref().1;
    match session.handshake_kind() {
        Some(rustls::HandshakeKind::Resumed) => metrics.handshakes_resumed.inc(),
        _ => metrics.handshakes_full.inc(),
    }
    metrics.tls.observe(began.elapsed().as_secs_f64());
    let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
    let chain = PeerChain::of(session);
    let name = session.server_name();
    let connection = Arc::new(Connection::new(id, Arc::clone(&options.door), peer, &chain, name));
    match ClientStream::new(stream, Arc::clone(&connection)) {
        Ok(stream) => Some((Box::new(stream), connection)),
        Err(error) => {
            tracing::error!(%error, "a connection could not be prepared");
            None
        }
    }
}

/// Returns when the connection has done nothing for too long. A client that sends its headers drop by drop has
/// no request open and counts as idle.
async fn idle(limits: &ConnectionLimits, connection: &Connection) {
    tokio::time::sleep(limits.header_read_timeout.get()).await;
    if !connection.has_had_a_request() {
        return;
    }
    loop {
        let left = limits.idle_timeout.get().saturating_sub(connection.idle_for());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// A socket that could not be tuned still serves.
fn tune(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, TCP_KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, TCP_KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
}

struct OnDrop<'g>(&'g IntGauge);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
