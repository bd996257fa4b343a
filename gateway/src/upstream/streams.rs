//! HTTP/2 connections to one server, and the streams on them.
//!
//! A stream on an open connection costs one atomic load of the list, one counter per connection, and a few acquisitions of
//! h2's lock; this code allocates nothing. A stream goes to the connection of its worker with the fewest streams.
//! Late frames for a stream whose client has disconnected are expected and do not count as an error.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{Ping, PingPong};

use crate::upstream::health::AddressHealth;
use crate::upstream::transport::UpstreamTransport;
use crate::upstream::worker::WorkerId;
use crate::upstream::write_coalescer::coalesce;

/// Streams per connection to a shard. Below the limit of every shard (Go servers and Fairlead: 250): a stream beyond the
/// peer's limit would wait for another to end, and watches do not end; so one more connection is opened.
const MAX_STREAMS: usize = 200;
/// Number of streams on the least busy connection from which another one is opened, up to [`MAX_CONNECTIONS_PER_WORKER`] per worker.
const BUSY_STREAMS: usize = 150;
const MAX_CONNECTIONS_PER_WORKER: usize = 4;
/// The connection's window is the maximum: otherwise one client that stops reading would stall all others on the
/// connection.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Request bytes queued per stream before the client's upload is paused.
const SEND_BUFFER: usize = 64 << 10;
/// Maximum size of a response's headers; more is an error of the shard.
const MAX_HEADER_BYTES: u32 = 256 << 10;
/// Number of reset streams that are kept, so that late frames for them are recognised.
const MAX_RESET_STREAMS: usize = 2 * MAX_STREAMS;
/// Time limit for a shard's response to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The open connections to one server.
#[derive(Default)]
pub(super) struct Connections {
    open: ArcSwap<Vec<Arc<Connection>>>,
}

/// Lifetimes and checks of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// Interval of the checks of a connection.
    pub(super) ping_interval: Duration,
    /// True if each check pings the shard.
    pub(super) pings: bool,
    /// Time without a stream after which a connection is closed.
    pub(super) idle_timeout: Duration,
    /// Age from which it takes no more streams once there is another connection.
    pub(super) max_age: Duration,
}

/// Properties of a new connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    /// Key of the credential that it was opened with.
    pub(super) group_key: u64,
    /// The worker that reads and writes it.
    pub(super) worker: Option<WorkerId>,
}

/// One connection. It closes when its last handle is dropped and its last stream has ended.
struct Connection {
    sender: SendRequest<Bytes>,
    origin: Origin,
    streams: AtomicUsize,
    opened: Instant,
    /// Time at which its last stream ended, in milliseconds since `opened`.
    idle_since: AtomicU64,
    /// True if it takes streams only while there is no younger connection.
    old: AtomicBool,
    /// True if it takes no new streams: it has ended, or the shard has sent GOAWAY.
    retired: AtomicBool,
    /// True if the shard did not respond to a ping.
    silent: AtomicBool,
    /// The health record of its address.
    health: Arc<AddressHealth>,
    /// True once its failure has been counted for the address.
    is_failure_counted: AtomicBool,
}

/// The permit for one stream; released when dropped.
pub(crate) struct StreamPermit {
    connection: Arc<Connection>,
    all: Weak<Connections>,
}

/// An established connection: the server has responded to a ping.
pub(super) struct Established {
    sender: SendRequest<Bytes>,
    pings: PingPong,
    driver: tokio::task::JoinHandle<()>,
}

impl Connections {
    /// A permit on an open connection, if there is one, and whether another connection should be opened. `endpoints`
    /// returns the number of endpoints over which the connections could be spread. Connections to `avoided` come last.
    pub(super) fn permit(
        self: &Arc<Self>,
        group_key: u64,
        avoided: Option<SocketAddr>,
        endpoints: impl FnOnce() -> usize,
    ) -> (Option<StreamPermit>, bool) {
        let open = self.open.load();
        let usable = || {
            let usable = open.iter().filter(|connection| connection.origin.group_key == group_key);
            usable.filter(|connection| !connection.retired.load(Ordering::Relaxed))
        };
        // A connection of another worker is used until this worker has one.
        let cost = |connection: &Arc<Connection>| {
            let is_old = connection.old.load(Ordering::Relaxed);
            (connection.is_of_another_worker(), is_old, connection.streams.load(Ordering::Relaxed))
        };
        // Equally loaded connections are used in rotation: otherwise all but the first would be idle, close, and be reopened.
        let (turn, count) = (next_rotation(), open.len().max(1));
        let in_turn = |(place, _): &(usize, _)| place.wrapping_add(turn) % count;
        let is_avoided = |connection: &Connection| avoided == Some(connection.origin.address);
        let best =
            usable().enumerate().min_by_key(|found| (is_avoided(found.1), cost(found.1), in_turn(found)));
        let Some((_, best)) = best else { return (None, false) };
        let (far, is_old, streams) = cost(best);
        let more = far || is_old || {
            let near = || usable().filter(|connection| !connection.is_of_another_worker());
            let count = near().count();
            // An endpoint may have several connections, and one that was ejected has none.
            let is_first = |(place, one): &(usize, &Arc<Connection>)| {
                !near().take(*place).any(|other| other.origin.address == one.origin.address)
            };
            let connected_endpoints = || near().enumerate().filter(is_first).count();
            (count < MAX_CONNECTIONS_PER_WORKER && streams >= BUSY_STREAMS) || {
                let endpoints = endpoints();
                endpoints > 1 && count < 2 * MAX_CONNECTIONS_PER_WORKER && connected_endpoints() < endpoints
            }
        };
        let taken = if best.take() { Some(best) } else { usable().find(|connection| connection.take()) };
        let permit = taken
            .map(|connection| StreamPermit { connection: Arc::clone(connection), all: Arc::downgrade(self) });
        (permit, more)
    }

    /// True if no connection takes streams.
    pub(super) fn is_empty(&self) -> bool {
        self.open.load().is_empty()
    }

    /// Load of an endpoint: this worker's streams and connections to it, as one number to compare endpoints by. Each worker
    /// balances its own connections.
    pub(super) fn load(&self, address: SocketAddr) -> usize {
        let open = self.open.load();
        let there = open
            .iter()
            .filter(|connection| connection.origin.address == address && !connection.is_of_another_worker());
        there.map(|connection| 1 + connection.streams.load(Ordering::Relaxed)).sum()
    }

    /// Stops new streams on connections to an address; open streams continue.
    pub(super) fn retire_address(self: &Arc<Self>, address: SocketAddr) {
        let all = Arc::downgrade(self);
        for connection in self.open.load().iter().filter(|connection| connection.origin.address == address) {
            connection.retire(&all);
        }
    }

    /// Adds a connection and takes the first stream on it. Connections of other credentials take no more
    /// streams from now on.
    pub(super) fn add(
        self: &Arc<Self>,
        established: Established,
        origin: Origin,
        health: Arc<AddressHealth>,
        lifetime: Lifetime,
    ) -> StreamPermit {
        let Established { sender, pings, driver } = established;
        let connection = Arc::new(Connection {
            sender,
            origin,
            streams: AtomicUsize::new(1),
            opened: Instant::now(),
            idle_since: AtomicU64::new(0),
            old: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            health,
            is_failure_counted: AtomicBool::new(false),
        });
        let permit = StreamPermit { connection: Arc::clone(&connection), all: Arc::downgrade(self) };
        self.open.rcu(|open| {
            let same = open.iter().filter(|other| {
                other.origin.group_key == origin.group_key && !other.retired.load(Ordering::Relaxed)
            });
            same.chain([&connection]).cloned().collect::<Vec<_>>()
        });
        let (all, this) = (Arc::downgrade(self), Arc::downgrade(&connection));
        tokio::spawn(async move {
            let mut driver = driver;
            tokio::select! {
                _ = &mut driver => {}
                () = check_periodically(pings, lifetime, &this, &all) => driver.abort(),
            }
            if let Some(connection) = this.upgrade() {
                connection.retire(&all);
            }
        });
        permit
    }
}

/// A counter of this thread, for the rotation.
fn next_rotation() -> usize {
    thread_local! {
        static TURN: Cell<usize> = const { Cell::new(0) };
    }
    TURN.replace(TURN.get().wrapping_add(1))
}

impl Established {
    /// Sends one request and ends the connection.
    pub(super) async fn send_single(
        mut self,
        request: http::Request<()>,
    ) -> Result<http::StatusCode, h2::Error> {
        let response = async {
            let (response, _) = self.sender.send_request(request, true)?;
            Ok(response.await?.status())
        };
        let response = response.await;
        self.driver.abort();
        response
    }

    /// Starts HTTP/2 and waits for the server's first frames. The server may send `window` bytes ahead on each
    /// stream.
    pub(super) async fn over(transport_stream: UpstreamTransport, window: u32) -> Result<Self, h2::Error> {
        let (stream, mut writer) = coalesce(transport_stream);
        let (sender, mut transport) = client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buffer_size(SEND_BUFFER)
            .max_concurrent_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await?;
        let pings = transport.ping_pong();
        let driver = tokio::spawn(async move {
            let ended = std::future::poll_fn(|context| {
                loop {
                    if let Poll::Ready(ended) = Pin::new(&mut transport).poll(context) {
                        return Poll::Ready(ended);
                    }
                    std::task::ready!(writer.poll(context));
                }
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "a connection to a shard failed");
            }
        });
        let Some(mut pings) = pings else { return Err(h2::Reason::INTERNAL_ERROR.into()) };
        pings.ping(Ping::opaque()).await?;
        Ok(Self { sender, pings, driver })
    }
}

impl Connection {
    /// Counts one more stream if the limit allows it.
    fn take(&self) -> bool {
        let limit = self.sender.current_max_send_streams().min(MAX_STREAMS);
        let more = |streams| (streams < limit).then_some(streams + 1);
        self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// True if another worker reads and writes it.
    fn is_of_another_worker(&self) -> bool {
        let worker = WorkerId::current();
        worker.is_some() && self.origin.worker != worker
    }

    fn is_idle_for(&self, limit: Duration) -> bool {
        let since = Duration::from_millis(self.idle_since.load(Ordering::Relaxed));
        self.streams.load(Ordering::Relaxed) == 0 && self.opened.elapsed().saturating_sub(since) >= limit
    }

    /// Takes no new streams from now on; open streams continue.
    fn retire(self: &Arc<Self>, all: &Weak<Connections>) {
        self.retired.store(true, Ordering::Relaxed);
        if let Some(all) = all.upgrade() {
            all.open.rcu(|open| {
                open.iter().filter(|other| !Arc::ptr_eq(other, self)).cloned().collect::<Vec<_>>()
            });
        }
    }
}

impl StreamPermit {
    /// Waits until the connection accepts a request.
    ///
    /// # Errors
    /// The connection accepts no more streams: the shard has received nothing, and another connection may work.
    pub(crate) async fn ready(&self) -> Result<SendRequest<Bytes>, h2::Error> {
        let ready = self.connection.sender.clone().ready().await;
        ready.inspect_err(|_| self.connection.retire(&self.all))
    }

    /// The address of the connection.
    pub(crate) fn address(&self) -> SocketAddr {
        self.connection.origin.address
    }

    /// The address of the connection and its health record.
    pub(super) fn health(&self) -> (SocketAddr, &AddressHealth) {
        (self.connection.origin.address, &self.connection.health)
    }

    /// Reports that the connection has broken. True for the first report: it is one failure, however many streams it had.
    pub(super) fn count_connection_failure(&self) -> bool {
        !self.connection.is_failure_counted.swap(true, Ordering::Relaxed)
    }

    /// True if the connection was closed because the shard did not respond to pings.
    pub(crate) fn is_silent(&self) -> bool {
        self.connection.silent.load(Ordering::Relaxed)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if self.connection.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            let now = u64::try_from(self.connection.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.connection.idle_since.store(now, Ordering::Relaxed);
        }
    }
}

/// Pings the server, and retires the connection when it has been idle or in use for too long. Returns when a ping got no
/// response in time; `silent` is set before the streams fail.
async fn check_periodically(
    mut pings: PingPong,
    lifetime: Lifetime,
    connection: &Weak<Connection>,
    all: &Weak<Connections>,
) {
    let mut age = Duration::ZERO;
    loop {
        tokio::time::sleep(lifetime.ping_interval).await;
        age += lifetime.ping_interval;
        // The last handle is gone: the connection ends by itself.
        let Some(held) = connection.upgrade() else { return std::future::pending().await };
        if age >= lifetime.max_age {
            held.old.store(true, Ordering::Relaxed);
        }
        if held.is_idle_for(lifetime.idle_timeout) {
            held.retire(all);
        }
        drop(held);
        if !lifetime.pings {
            continue;
        }
        match tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection ends by itself.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                tracing::warn!("a shard does not respond to pings: its connection is closed");
                if let Some(connection) = connection.upgrade() {
                    connection.silent.store(true, Ordering::Relaxed);
                    connection.retire(all);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::listener::workers::Workers;

    const KEY: u64 = 1;
    const LIFETIME: Lifetime = Lifetime {
        ping_interval: Duration::from_secs(60),
        pings: false,
        idle_timeout: Duration::from_secs(60),
        max_age: Duration::from_secs(60),
    };

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 6443))
    }

    /// Opens a connection without streams.
    async fn open(connections: &Arc<Connections>, address: SocketAddr, worker: Option<WorkerId>) {
        let (near, far) = tokio::io::duplex(1 << 12);
        tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            while server.accept().await.is_some() {}
        });
        let (sender, mut transport) = client::handshake(near).await.unwrap();
        let pings = transport.ping_pong().unwrap();
        let driver = tokio::spawn(async move {
            let _ = transport.await;
        });
        let origin = Origin { address, group_key: KEY, worker };
        drop(connections.add(Established { sender, pings, driver }, origin, Arc::default(), LIFETIME));
    }

    #[tokio::test]
    async fn a_stream_takes_the_least_busy_connection_of_its_worker() {
        let workers = Workers::start();
        let on_a_worker = workers.assign().handle().spawn(async {
            let (connections, here) = (Arc::<Connections>::default(), WorkerId::current());
            let permit = |endpoints| connections.permit(KEY, None, || endpoints);
            assert!(matches!(permit(2), (None, false)), "there is none");

            open(&connections, address(1), None).await;
            let (far, more) = permit(1);
            assert_eq!(far.unwrap().connection.origin.address, address(1));
            assert!(more, "one of this worker would be better");

            open(&connections, address(2), here).await;
            assert!(permit(2).1, "there is another endpoint");
            assert!(!permit(1).1);
            open(&connections, address(3), here).await;
            let used: BTreeSet<_> = (0..4).map(|_| permit(2).0.unwrap().connection.origin.address).collect();
            assert_eq!(used, BTreeSet::from([address(2), address(3)]), "equals take turns");

            let busy = permit(2).0.unwrap();
            for _ in 0..4 {
                let other = permit(2).0.unwrap();
                assert_ne!(other.connection.origin.address, busy.connection.origin.address);
            }
            assert!(connections.permit(KEY + 1, None, || 2).0.is_none(), "of other credentials");

            for avoided in [address(2), address(3)].repeat(2) {
                let other = connections.permit(KEY, Some(avoided), || 2).0.unwrap();
                assert_ne!(other.address(), avoided);
            }

            connections.retire_address(address(2));
            open(&connections, address(3), here).await;
            assert!(!permit(1).1 && permit(2).1, "an endpoint that is back has none");
        });
        on_a_worker.await.unwrap();
    }
}
