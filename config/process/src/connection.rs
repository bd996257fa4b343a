//! What is known of a connection, handed to every request on it.

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
        Self(Arc::new(Inner {
            id,
            peer_addr,
            local_addr,
            tls,
            drain,
            slot: ArcSwapOption::empty(),
            activity: Activity::begin(),
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

    pub(crate) fn begin_request(&self) -> OpenRequest<Inner> {
        OpenRequest::of(&self.0)
    }

    /// Its requests.
    pub(crate) fn activity(&self) -> &Activity {
        &self.0.activity
    }
}

impl AsRef<Activity> for Inner {
    fn as_ref(&self) -> &Activity {
        &self.activity
    }
}
