//! Doors: listeners with their own TLS, their own idea of who is who, and limits on bad peers.
//!
//! The handshake always completes; who the peer is, is judged per request. Each connection keeps the TLS
//! configuration that it began with.

mod bound;
mod connection;
mod slots;
mod socket;
mod socket_file;

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
use fairlead_process::{ACME_PROTOCOL, ChallengeFolder, PeerChain, ReloadableTls, Shutdown, proxied_client};
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::v2::server::{H2Options, default_h2_options};
use prometheus::{IntCounter, IntGauge};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::gulp::Gulp;
use crate::identity::Tokens;
use crate::lanes::Lanes;
use crate::limits::{DoorQuotas, Exceeded, What};
use crate::observe::{DoorSeries, Phase};
use crate::peers::Peers;
use crate::screen::Screen;
use crate::upstream::DoorSender;
pub(crate) use bound::{BoundDoor, DoorAddress};
use connection::ClientStream;
pub(crate) use connection::{Connection, HeldHead, OpenRequest, connection_of};
pub(crate) use slots::Slots;
use socket::AcceptedSocket;

/// What an HTTP/2 client may send ahead on one stream. On all of a connection it is so much for each: uploads that nobody takes
/// leave room for the others, and how many of them may wait, [`crate::untaken`] says.
const STREAM_WINDOW: u32 = 64 << 10;
/// Streams that a connection has at most, whatever is configured.
const MOST_STREAMS: u32 = 1_000;
/// Response bytes queued per HTTP/2 stream before whoever writes more has to wait.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client may reset before we have looked at them (CVE-2023-44487), and streams that its faults
/// make us reset (CVE-2025-8671), per connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// One way into the gateway.
pub(crate) struct Door {
    /// Its name in logs and metrics.
    pub(crate) name: Arc<str>,
    /// What is counted of requests.
    pub(crate) series: Arc<DoorSeries>,
    /// What is counted of connections.
    pub(crate) metrics: DoorMetrics,
    /// What connections meet first. Those that are open keep what they have agreed on.
    pub(crate) frame: ArcSwap<Frame>,
    /// How much may be asked.
    pub(crate) quotas: Arc<DoorQuotas>,
    /// What can be changed while connections are open.
    pub(crate) policy: ArcSwap<DoorPolicy>,
    /// As long as it is there the files of the policy are looked at.
    pub(crate) _files: Arc<()>,
}

/// What a connection meets before there is a request.
pub(crate) struct Frame {
    /// What a client certificate means here.
    pub(crate) certificates: CertificateMeaning,
    /// Who may connect.
    pub(crate) peers: Peers,
    /// Certificate and protocols.
    pub(crate) tls: Arc<ReloadableTls>,
    /// What an authority is shown here that looks whether a name is ours.
    pub(crate) challenges: Option<ChallengeFolder>,
    /// What peers may do. Open connections have it, and not the rest: its files would be looked at as long as they are open.
    pub(crate) limits: Arc<ConnectionLimits>,
    /// Who the gateway is towards shards for its requests, if that is not who it usually is.
    pub(crate) sender: Option<Arc<DoorSender>>,
    /// As long as it is there its files are looked at.
    pub(crate) _files: Arc<()>,
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
    /// Connections of addresses that may have no more.
    pub(crate) connections_limited: IntCounter,
}

/// How a bound door is served.
pub(crate) struct Serving {
    /// The door.
    pub(crate) door: Arc<Door>,
    /// Ends it.
    pub(crate) shutdown: Shutdown,
    /// Where connections are served.
    pub(crate) lanes: Arc<Lanes>,
    /// A place for each connection.
    pub(crate) slots: Arc<Slots>,
    /// Nobody is let in before this is true.
    pub(crate) gate: watch::Receiver<bool>,
}

/// How HTTP/2 is spoken with clients. Begins with pingora's bounded defaults: the raw ones of the library
/// have no limit on streams and 16 MiB of headers.
pub(crate) fn h2_options(limits: &ConnectionLimits) -> H2Options {
    let header_bytes = u32::try_from(limits.max_header_bytes.bytes()).unwrap_or(u32::MAX);
    let streams = limits.max_streams_per_connection.min(MOST_STREAMS);
    let mut options = default_h2_options();
    options
        // Up to twice the limit comes through and is answered with a Status; beyond it the stream is refused.
        .max_header_list_size(header_bytes.saturating_mul(2))
        .max_concurrent_streams(streams)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(streams.max(1) * STREAM_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    options
}

/// Serves until the drain is done: when it begins nothing is accepted any more, open connections are told, and this
/// returns when the last one has ended or the window is over.
pub(crate) async fn serve<A>(listener: Arc<BoundDoor>, serving: Serving, app: Arc<A>)
where
    A: ServerApp + Send + Sync + 'static,
{
    let slots = Arc::clone(&serving.slots);
    let (drain, draining) = watch::channel(false);
    let tracker = TaskTracker::new();
    let mut gate = serving.gate.clone();
    let serving = Arc::new(serving);
    tokio::select! {
        () = serving.shutdown.draining() => {}
        // If nobody will open it any more, the process ends.
        _ = gate.wait_for(|is_open| *is_open) => {}
    }
    if !*gate.borrow() {
        // Whoever waits here is a client of the predecessor, which goes on.
        return drop(listener);
    }
    let mut backoff = Duration::ZERO;
    let begin = |slot, (socket, peer): (AcceptedSocket, SocketAddr)| {
        let frame = serving.door.frame.load_full();
        if !frame.peers.admit(peer.ip()) {
            tracing::debug!(door = %serving.door.name, %peer, "may not connect");
            return serving.door.metrics.peers_refused.inc();
        }
        let (serving, app, draining) = (Arc::clone(&serving), Arc::clone(&app), draining.clone());
        let place = serving.lanes.place();
        let runtime = place.runtime().clone();
        let limits = Arc::clone(&frame.limits);
        let accepted = Accepted { socket, peer, at: Instant::now(), frame };
        let establishing = Box::pin(establish(Arc::clone(&serving), accepted));
        // One block, so that the task of an open connection has room for each of these once.
        let serving = async move {
            serve_connection(&serving, &limits, &app, establishing, &draining).await;
            drop((slot, place));
        };
        tracker.spawn_on(serving, &runtime);
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = serving.shutdown.draining() => break,
            accepted = async { (slots.next().await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Some(slot), Ok(accepted)) => {
                backoff = Duration::ZERO;
                begin(Some(slot), accepted);
            }
            (_, outcome) => {
                // Mostly out of file descriptors; there is no event for "some are free again".
                if let Err(error) = outcome {
                    tracing::warn!(door = %serving.door.name, %error, "cannot accept a connection");
                }
                backoff = (backoff * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
                tokio::time::sleep(backoff).await;
            }
        }
    }
    // Whom the kernel has let in already would be reset with the socket.
    if !listener.is_shared() {
        while let Ok(accepted) = listener.accept_waiting() {
            begin(slots.now(), accepted);
        }
    }
    drop(listener);
    drain.send_replace(true);
    app.cleanup().await;
    tracker.close();
    tracker.wait().await;
}

/// `establishing` is boxed, so that the task of an open connection has no room for a handshake.
async fn serve_connection<A>(
    serving: &Serving,
    limits: &ConnectionLimits,
    app: &Arc<A>,
    establishing: Pin<Box<impl Future<Output = Option<(Stream, Arc<Connection>)>>>>,
    draining: &watch::Receiver<bool>,
) where
    A: ServerApp + Send + Sync + 'static,
{
    let open = &serving.door.metrics.open;
    open.inc();
    let _closed = OnDrop(open);
    let established = tokio::select! {
        established = establishing => established,
        () = serving.shutdown.over() => return,
    };
    let Some((stream, connection)) = established else { return };
    tokio::select! {
        _ = app.process_new(stream, draining) => {}
        _ = connection.activity.idle(limits) => {}
        () = serving.shutdown.over() => {}
    }
}

/// A connection that nothing was said on yet.
struct Accepted {
    socket: AcceptedSocket,
    peer: SocketAddr,
    at: Instant,
    frame: Arc<Frame>,
}

/// Agrees on TLS with a client.
async fn establish(serving: Arc<Serving>, accepted: Accepted) -> Option<(Stream, Arc<Connection>)> {
    let Accepted { socket, peer, at, frame } = accepted;
    // From here on its lane waits for it.
    let socket = socket.attach().ok()?;
    let (door, metrics) = (&serving.door, &serving.door.metrics);
    let tls = frame.tls.load();
    let handshake = async {
        let (mut socket, mut client) = (socket, peer);
        if frame.peers.proxy_protocol {
            client = proxied_client(&mut socket, peer).await.map_err(io::Error::other)?;
        }
        let connected = door.quotas.addresses.connect(client.ip()).map_err(|wait| {
            metrics.connections_limited.inc();
            io::Error::new(io::ErrorKind::QuotaExceeded, Exceeded::of_address(What::Connections, wait))
        })?;
        let began = Instant::now();
        door.series.phase(Phase::Accept, began.duration_since(at));
        let socket = Gulp::new(socket);
        let stream = match &frame.challenges {
            // Boxed, because doors are few that have it.
            Some(challenges) => Box::pin(challenges.accept(tls, socket)).await?,
            None => TlsAcceptor::from(tls).accept(socket).await?,
        };
        Ok::<_, io::Error>((stream, client, began, connected))
    };
    let (stream, peer, began, connected) =
        match timeout(frame.limits.tls_handshake_timeout.get(), handshake).await {
            Ok(Ok(established)) => established,
            Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
                tracing::debug!(door = %door.name, %peer, %error, "may have no more connections");
                return None;
            }
            Ok(Err(error)) => {
                tracing::debug!(door = %door.name, %peer, %error, "TLS handshake failed");
                metrics.handshakes_failed.inc();
                return None;
            }
            Err(_) => {
                metrics.handshakes_timeout.inc();
                return None;
            }
        };
    let session = stream.get_ref().1;
    if session.alpn_protocol() == Some(ACME_PROTOCOL) {
        // An authority has seen what it came for.
        return None;
    }
    match session.handshake_kind() {
        Some(rustls::HandshakeKind::Resumed) => metrics.handshakes_resumed.inc(),
        _ => metrics.handshakes_full.inc(),
    }
    door.series.phase(Phase::Tls, began.elapsed());
    let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
    let chain = PeerChain::of(session);
    let name = session.server_name();
    let drain = serving.shutdown.drain();
    let connection = Connection::new(id, (Arc::clone(door), &frame), drain, peer, &chain, name);
    let connection = Arc::new(connection.counted(connected));
    match ClientStream::new(stream, Arc::clone(&connection)) {
        Ok(stream) => Some((Box::new(stream), connection)),
        Err(error) => {
            tracing::error!(%error, "a connection could not be prepared");
            None
        }
    }
}

struct OnDrop<'g>(&'g IntGauge);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
