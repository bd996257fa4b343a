//! HTTP/2 connections to one shard, and the streams on them.
//!
//! A stream on an open connection costs one atomic load of the list, a counter per connection, and a few turns of
//! the library's own lock; nothing is allocated here. A stream goes to the connection with the fewest.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Streams per connection to a shard. Below what any shard admits (Go servers and ours: 250): a stream beyond
/// the peer's limit would wait for another to end, and watches do not end; so one more connection is opened.
pub(super) const MAX_STREAMS: usize = 200;
/// What a shard may send ahead on a stream.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// The connection as a whole is not limited: else one client that stops reading would stall all others that share
/// the connection.
pub(super) const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Request bytes queued per stream before the client is asked to wait.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of header in an answer; more is an error of the shard.
const MAX_HEADER_BYTES: u32 = 256 << 10;
/// How long a shard may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The open connections to one shard.
#[derive(Default)]
pub(super) struct Connections {
    open: ArcSwap<Vec<Arc<Connection>>>,
}

/// One connection. It closes by itself when nobody holds it any more and its last stream has ended.
struct Connection {
    sender: SendRequest<Bytes>,
    /// Of the credential that it was opened with.
    group_key: u64,
    streams: AtomicUsize,
    /// It takes no new streams: it has ended, or the shard has said that it will.
    retired: AtomicBool,
    /// The shard has not answered a ping.
    silent: AtomicBool,
}

/// The right to one stream; given back when dropped.
pub(crate) struct StreamPermit(Arc<Connection>);

impl Connections {
    /// A place on an open connection, if there is one.
    pub(super) fn permit(&self, group_key: u64) -> Option<StreamPermit> {
        let open = self.open.load();
        let usable = open.iter().filter(|connection| connection.group_key == group_key);
        let usable = usable.filter(|connection| !connection.retired.load(Ordering::Relaxed));
        usable.min_by_key(|connection| connection.streams.load(Ordering::Relaxed))?.permit()
    }

    /// Begins to speak HTTP/2 on a new connection, adds it to the others, and takes the first stream on it. Connections
    /// of other credentials take no more streams from now on.
    pub(super) async fn add(
        self: &Arc<Self>,
        stream: TlsStream<TcpStream>,
        group_key: u64,
        ping_interval: Duration,
    ) -> Result<StreamPermit, h2::Error> {
        let (sender, mut transport) = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buffer_size(SEND_BUFFER)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await?;
        let pings = transport.ping_pong();
        let connection = Arc::new(Connection {
            sender,
            group_key,
            streams: AtomicUsize::new(1),
            retired: AtomicBool::new(false),
            silent: AtomicBool::new(false),
        });
        let permit = StreamPermit(Arc::clone(&connection));
        let (all, this) = (Arc::downgrade(self), Arc::downgrade(&connection));
        tokio::spawn(async move {
            tokio::select! {
                ended = transport => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to a shard has broken");
                    }
                }
                () = until_silent(pings, ping_interval) => {
                    tracing::warn!("a shard does not answer pings; its connection is given up");
                    if let Some(connection) = this.upgrade() {
                        connection.silent.store(true, Ordering::Relaxed);
                    }
                }
            }
            retire(&this, &all);
        });
        self.open.rcu(|open| {
            let same = open.iter().filter(|other| other.group_key == group_key);
            same.chain([&connection]).cloned().collect::<Vec<_>>()
        });
        Ok(permit)
    }
}

impl Connection {
    fn permit(self: &Arc<Self>) -> Option<StreamPermit> {
        let limit = self.sender.current_max_send_streams().min(MAX_STREAMS);
        let more = |streams| (streams < limit).then_some(streams + 1);
        let taken = self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| StreamPermit(Arc::clone(self)))
    }
}

impl StreamPermit {
    /// Sends a request; `ended` if it has no body.
    ///
    /// # Errors
    /// [`SendError`]; the shard has seen nothing.
    pub(crate) async fn send(
        &self,
        request: Request<()>,
        ended: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), SendError> {
        let retired = |error| {
            self.0.retired.store(true, Ordering::Relaxed);
            SendError::Retired(error)
        };
        let mut sender = self.0.sender.clone().ready().await.map_err(retired)?;
        sender.send_request(request, ended).map_err(|error| {
            let of_connection = error.is_io() || error.is_go_away() || error.is_reset();
            if of_connection { retired(error) } else { SendError::Malformed(error) }
        })
    }

    /// Whether the connection was given up because the shard did not answer pings.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.silent.load(Ordering::Relaxed)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a request did not leave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Another connection may do.
    #[error("the connection takes no more requests: {0}")]
    Retired(#[source] h2::Error),
    /// We made a request that is none.
    #[error("the request cannot be sent: {0}")]
    Malformed(#[source] h2::Error),
}

/// Returns when a ping was not answered in time.
async fn until_silent(pings: Option<PingPong>, interval: Duration) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(interval).await;
        match tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection ends by itself.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

fn retire(connection: &Weak<Connection>, all: &Weak<Connections>) {
    let Some(connection) = connection.upgrade() else { return };
    connection.retired.store(true, Ordering::Relaxed);
    if let Some(all) = all.upgrade() {
        all.open.rcu(|open| {
            open.iter().filter(|other| !Arc::ptr_eq(other, &connection)).cloned().collect::<Vec<_>>()
        });
    }
}
