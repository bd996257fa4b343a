//! Accepts connections: the accept loop of a listener, the TLS handshake, and the connection's life until it is closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_config::ConnectionLimits;
use fairlead_process::{ACME_PROTOCOL, PeerChain, Shutdown, proxied_client};
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use prometheus::IntGauge;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::listener::bound::BoundDoor;
use crate::listener::connection_limit::Slots;
use crate::listener::pingora_app::ClientStream;
use crate::listener::socket::AcceptedSocket;
use crate::listener::workers::Lanes;
use crate::policy::connection::Connection;
use crate::policy::listener::{Door, Frame};
use crate::policy::quota::{Exceeded, What};
use crate::telemetry::metrics::Phase;
use crate::upstream::read_ahead::Gulp;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

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
    Some((Box::new(ClientStream::new(stream, Arc::clone(&connection))), connection))
}

struct OnDrop<'g>(&'g IntGauge);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
