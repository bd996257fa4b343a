//! Facts about a connection, attached to every request on it.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::activity::{Activity, OpenRequest};
use crate::lifecycle::Drain;
use crate::tls::PeerChain;

/// The connection of a request: found in the request's extensions. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub struct ConnectionInfo(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    id: u64,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    tls: PeerChain,
    drain: Drain,
    cache: ArcSwapOption<CachedValue>,
    activity: Activity,
}

#[derive(Debug)]
struct CachedValue(Arc<dyn Any + Send + Sync>);

impl ConnectionInfo {
    pub(crate) fn new(
        id: u64,
        peer_addr: SocketAddr,
        local_addr: SocketAddr,
        tls: PeerChain,
        drain: Drain,
    ) -> Self {
        Self(Arc::new(Inner {
            id,
            peer_addr,
            local_addr,
            tls,
            drain,
            cache: ArcSwapOption::empty(),
            activity: Activity::begin(),
        }))
    }

    /// Identifier, unique for every connection of the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The client's address: that of the TCP peer, or the one in the PROXY header of a load balancer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr
    }

    /// The certificates that the peer presented, not verified against any authority.
    pub fn tls(&self) -> &PeerChain {
        &self.0.tls
    }

    /// The drain state, which tells endless responses when to end.
    pub fn drain(&self) -> &Drain {
        &self.0.drain
    }

    /// The value that an upper layer has cached for this connection, if it has this type. Meant for values that depend on the
    /// connection alone and are too expensive per request, such as the identity in the peer's certificate. Store the generation
    /// of the data that it was derived from beside it, and derive it again when the generation has changed.
    pub fn cached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let cached = self.0.cache.load();
        Arc::clone(&cached.as_ref()?.0).downcast().ok()
    }

    /// Caches a value for this connection, in place of any other.
    pub fn cache<T: Any + Send + Sync>(&self, value: Arc<T>) {
        self.0.cache.store(Some(Arc::new(CachedValue(value))));
    }

    pub(crate) fn begin_request(&self) -> OpenRequest<Inner> {
        OpenRequest::of(&self.0)
    }

    /// The request activity of the connection.
    pub(crate) fn activity(&self) -> &Activity {
        &self.0.activity
    }
}

impl AsRef<Activity> for Inner {
    fn as_ref(&self) -> &Activity {
        &self.activity
    }
}
