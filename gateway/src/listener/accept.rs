//! Accepts connections: the accept loop of a listener, the TLS handshake, and the connection until it is closed.

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

use crate::listener::bound::BoundListener;
use crate::listener::connection_limit::ConnectionLimit;
use crate::listener::pingora_app::DownstreamTlsStream;
use crate::listener::socket::AcceptedSocket;
use crate::listener::workers::Workers;
use crate::policy::connection::Connection;
use crate::policy::listener::{ConnectionPolicy, Listener};
use crate::policy::quota::{Exceeded, LimitKind};
use crate::telemetry::metrics::RequestStage;
use crate::upstream::read_ahead::ReadAhead;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// The dependencies of the accept loop of a bound listener.
pub(crate) struct ListenerRuntime {
    /// The listener.
    pub(crate) listener: Arc<Listener>,
    /// Ends the accept loop.
    pub(crate) shutdown: Shutdown,
    /// The workers that serve its connections.
    pub(crate) workers: Arc<Workers>,
    /// The limit of open connections.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// Accepting starts when this becomes true.
    pub(crate) may_accept: watch::Receiver<bool>,
}

/// Serves until the drain is complete. When the drain begins, accepting stops and open connections are closed gracefully. Returns when the last connection has ended or the drain window is over.
pub(crate) async fn serve<A>(bound: Arc<BoundListener>, runtime: ListenerRuntime, app: Arc<A>)
where
    A: ServerApp + Send + Sync + 'static,
{
    let connection_limit = Arc::clone(&runtime.connection_limit);
    let (drain, draining) = watch::channel(false);
    let tracker = TaskTracker::new();
    let mut may_accept = runtime.may_accept.clone();
    let runtime = Arc::new(runtime);
    tokio::select! {
        () = runtime.shutdown.draining() => {}
        // If the sender is dropped, the process ends.
        _ = may_accept.wait_for(|is_open| *is_open) => {}
    }
    if !*may_accept.borrow() {
        // Clients in the accept queue belong to the predecessor, which continues.
        return drop(bound);
    }
    let mut backoff = Duration::ZERO;
    let spawn_connection = |connection_permit, (socket, peer): (AcceptedSocket, SocketAddr)| {
        let connection_policy = runtime.listener.connection_policy.load_full();
        if !connection_policy.peers.admit(peer.ip()) {
            tracing::debug!(listener = %runtime.listener.name, %peer, "the peer is not allowed");
            return runtime.listener.metrics.peers_refused.inc();
        }
        let (runtime, app, draining) = (Arc::clone(&runtime), Arc::clone(&app), draining.clone());
        let worker = runtime.workers.assign();
        let handle = worker.handle().clone();
        let limits = Arc::clone(&connection_policy.limits);
        let accepted = Accepted { socket, peer, accepted_at: Instant::now(), connection_policy };
        let establishing = Box::pin(establish(Arc::clone(&runtime), accepted));
        // One block, so that the future of an open connection stores each of these once.
        let serve = async move {
            serve_connection(&runtime, &limits, &app, establishing, &draining).await;
            drop((connection_permit, worker));
        };
        tracker.spawn_on(serve, &handle);
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = runtime.shutdown.draining() => break,
            accepted = async { (connection_limit.acquire().await, bound.accept().await) } => accepted,
        };
        match accepted {
            (Some(connection_permit), Ok(accepted)) => {
                backoff = Duration::ZERO;
                spawn_connection(Some(connection_permit), accepted);
            }
            (_, outcome) => {
                // Mostly out of file descriptors, whose release sends no event.
                if let Err(error) = outcome {
                    tracing::warn!(listener = %runtime.listener.name, %error, "cannot accept a connection");
                }
                backoff = (backoff * 2).clamp(Duration::from_millis(5), Duration::from_secs(1));
                tokio::time::sleep(backoff).await;
            }
        }
    }
    // Connections in the kernel's accept queue would be reset with the socket.
    if !bound.is_shared() {
        while let Ok(accepted) = bound.accept_waiting() {
            spawn_connection(connection_limit.try_acquire(), accepted);
        }
    }
    drop(bound);
    drain.send_replace(true);
    app.cleanup().await;
    tracker.close();
    tracker.wait().await;
}

/// `establishing` is boxed, so that the future of an open connection does not contain a handshake.
async fn serve_connection<A>(
    runtime: &ListenerRuntime,
    limits: &ConnectionLimits,
    app: &Arc<A>,
    establishing: Pin<Box<impl Future<Output = Option<(Stream, Arc<Connection>)>>>>,
    draining: &watch::Receiver<bool>,
) where
    A: ServerApp + Send + Sync + 'static,
{
    let open = &runtime.listener.metrics.open;
    open.inc();
    let _closed = OpenConnectionGauge(open);
    let established = tokio::select! {
        established = establishing => established,
        () = runtime.shutdown.over() => return,
    };
    let Some((stream, connection)) = established else { return };
    tokio::select! {
        _ = app.process_new(stream, draining) => {}
        _ = connection.activity.idle(limits) => {}
        () = runtime.shutdown.over() => {}
    }
}

/// A connection without any received data.
struct Accepted {
    socket: AcceptedSocket,
    peer: SocketAddr,
    accepted_at: Instant,
    connection_policy: Arc<ConnectionPolicy>,
}

/// Completes the TLS handshake with a client.
async fn establish(runtime: Arc<ListenerRuntime>, accepted: Accepted) -> Option<(Stream, Arc<Connection>)> {
    let Accepted { socket, peer, accepted_at, connection_policy } = accepted;
    // From here on the socket is registered with its worker's runtime.
    let socket = socket.attach().ok()?;
    let (listener, metrics) = (&runtime.listener, &runtime.listener.metrics);
    let tls = connection_policy.tls.load();
    let handshake = async {
        let (mut socket, mut client) = (socket, peer);
        if connection_policy.peers.proxy_protocol {
            client = proxied_client(&mut socket, peer).await.map_err(io::Error::other)?;
        }
        let connected = listener.quotas.addresses.connect(client.ip()).map_err(|wait| {
            metrics.connections_limited.inc();
            io::Error::new(io::ErrorKind::QuotaExceeded, Exceeded::of_address(LimitKind::Connections, wait))
        })?;
        let began = Instant::now();
        listener.series.stage(RequestStage::Accept, began.duration_since(accepted_at));
        let socket = ReadAhead::new(socket);
        let stream = match &connection_policy.challenges {
            // Boxed, because few listeners use it.
            Some(challenges) => Box::pin(challenges.accept(tls, socket)).await?,
            None => TlsAcceptor::from(tls).accept(socket).await?,
        };
        Ok::<_, io::Error>((stream, client, began, connected))
    };
    let (stream, peer, began, connected) = match timeout(
        connection_policy.limits.tls_handshake_timeout.get(),
        handshake,
    )
    .await
    {
        Ok(Ok(established)) => established,
        Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
            tracing::debug!(listener = %listener.name, %peer, %error, "the address has too many connections");
            return None;
        }
        Ok(Err(error)) => {
            tracing::debug!(listener = %listener.name, %peer, %error, "TLS handshake failed");
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
        // An ACME authority has validated the challenge.
        return None;
    }
    match session.handshake_kind() {
        Some(rustls::HandshakeKind::Resumed) => metrics.handshakes_resumed.inc(),
        _ => metrics.handshakes_full.inc(),
    }
    listener.series.stage(RequestStage::Tls, began.elapsed());
    let id = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
    let chain = PeerChain::of(session);
    let name = session.server_name();
    let drain = runtime.shutdown.drain();
    let connection =
        Connection::new(id, (Arc::clone(listener), &connection_policy), drain, peer, &chain, name);
    let connection = Arc::new(connection.with_address_permit(connected));
    Some((Box::new(DownstreamTlsStream::new(stream, Arc::clone(&connection))), connection))
}

struct OpenConnectionGauge<'g>(&'g IntGauge);

impl Drop for OpenConnectionGauge<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
