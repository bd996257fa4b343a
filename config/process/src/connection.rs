//! What is known of a connection, handed to every request on it.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::lifecycle::Drain;
use crate::tls::PeerChain;

/// The connection of a request: found in the request's extensions. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub struct ConnectionInfo(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    tls: PeerChain,
    drain: Drain,
    slot: ArcSwapOption<Slot>,
    activity: Activity,
}

#[derive(Debug)]
struct Slot(Arc<dyn Any + Send + Sync>);

impl ConnectionInfo {
    pub(crate) fn new(
        id: u64,
        peer_addr: SocketAddr,
        local_addr: SocketAddr,
        tls: PeerChain,
        drain: Drain,
    ) -> Self {
        let activity = Activity {
            began: Instant::now(),
            open: AtomicUsize::new(0),
            total: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
        };
        Self(Arc::new(Inner {
            id,
            peer_addr,
            local_addr,
            tls,
            drain,
            slot: ArcSwapOption::empty(),
            activity,
        }))
    }

    /// Different for every connection of the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The client's address: that of the other end, or whom a load balancer has said before TLS.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr
    }

    /// Our end.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr
    }

    /// The certificates that the peer presented; unjudged.
    pub fn tls(&self) -> &PeerChain {
        &self.0.tls
    }

    /// Tells endless responses when to end.
    pub fn drain(&self) -> &Drain {
        &self.0.drain
    }

    /// What an upper layer has put into the connection's one slot, if it has this type. For what is derived from the
    /// connection alone and costs too much per request, such as the identity in the peer's certificate. Keep beside it
    /// the generation of whatever it was judged by, and judge again when that has changed.
    pub fn cached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let slot = self.0.slot.load();
        Arc::clone(&slot.as_ref()?.0).downcast().ok()
    }

    /// Puts a value into the slot, in place of what is there.
    pub fn cache<T: Any + Send + Sync>(&self, value: Arc<T>) {
        self.0.slot.store(Some(Arc::new(Slot(value))));
    }

    pub(crate) fn begin_request(&self) -> OpenRequest {
        self.0.activity.total.fetch_add(1, Ordering::Relaxed);
        self.0.activity.open.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(&self.0))
    }

    pub(crate) fn has_had_a_request(&self) -> bool {
        self.0.activity.total.load(Ordering::Relaxed) > 0
    }

    /// For how long no request has been open; zero while one is.
    pub(crate) fn idle_for(&self) -> Duration {
        let activity = &self.0.activity;
        if activity.open.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        activity
            .began
            .elapsed()
            .saturating_sub(Duration::from_millis(activity.last_end.load(Ordering::Relaxed)))
    }
}

#[derive(Debug)]
struct Activity {
    began: Instant,
    open: AtomicUsize,
    total: AtomicU64,
    /// Milliseconds from `began` to the end of the last request.
    last_end: AtomicU64,
}

/// Counts a request as open until its response body is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Inner>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let activity = &self.0.activity;
        let now = u64::try_from(activity.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        activity.last_end.store(now, Ordering::Relaxed);
        activity.open.fetch_sub(1, Ordering::Relaxed);
    }
}
