//! The state of a client connection that the pipeline uses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlead_authn::ConnectionCredentials;
use fairlead_process::{Activity, ConnectionGuard, Drain, PeerChain};

use crate::policy::client_address::ClientAddressSource;
use crate::policy::connection_backlog::ConnectionBacklog;
use crate::policy::listener::{ClientCertificateUse, ConnectionPolicy, Listener};

/// One client connection. Shared by all requests on it.
pub(crate) struct Connection {
    /// Unique in the process.
    pub(crate) id: u64,
    /// The listener that accepted it.
    pub(crate) listener: Arc<Listener>,
    /// Ends watches and tunnels while the listener drains.
    pub(crate) drain: Drain,
    /// The peer's address, after PROXY protocol.
    pub(crate) peer: SocketAddr,
    /// The source of the client's address.
    pub(crate) client_address: ClientAddressSource,
    /// Server name of the TLS handshake (SNI).
    pub(crate) server_name: Option<Box<str>>,
    /// Certificates of the peer, and the cached result of their verification.
    pub(crate) credentials: ConnectionCredentials,
    /// Whether the peer is a CDN or proxy, which sends requests of many clients.
    pub(crate) is_from_proxy: bool,
    /// Response data that waits for the client.
    pub(crate) response_backlog: ConnectionBacklog,
    /// Upload data that waits for servers.
    pub(crate) upload_backlog: ConnectionBacklog,
    /// Open requests and idle time.
    pub(crate) activity: Activity,
    /// Memory of the header fields of unanswered HTTP/2 requests, in bytes.
    header_memory: AtomicUsize,
    /// Counts the connection for its address.
    _connected: Option<ConnectionGuard>,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        (listener, connection_policy): (Arc<Listener>, &ConnectionPolicy),
        drain: Drain,
        peer: SocketAddr,
        chain: &PeerChain,
        server_name: Option<&str>,
    ) -> Self {
        let credentials = match (&chain.0, connection_policy.certificates) {
            (Some(chain), ClientCertificateUse::Identity) => ConnectionCredentials::new(Arc::clone(chain)),
            _ => ConnectionCredentials::none(),
        };
        let budget = Arc::clone(&listener.backlog_budget);
        Self {
            id,
            listener,
            drain,
            peer,
            client_address: connection_policy.peers.client_address.clone(),
            server_name: server_name.map(Box::from),
            credentials,
            is_from_proxy: connection_policy.has_proxies_as_peers,
            response_backlog: ConnectionBacklog::new(budget.clone()),
            upload_backlog: match connection_policy.has_proxies_as_peers {
                true => ConnectionBacklog::new(budget),
                false => ConnectionBacklog::of_client_uploads(budget),
            },
            activity: Activity::begin(),
            header_memory: AtomicUsize::new(0),
            _connected: None,
        }
    }

    /// The same connection with this guard, which counts it until it is closed.
    pub(crate) fn with_address_permit(self, connected: Option<ConnectionGuard>) -> Self {
        Self { _connected: connected, ..self }
    }

    /// Counts header memory until the guard is dropped; `None` if the connection would use more than `max` bytes.
    pub(crate) fn reserve_header_memory(
        self: &Arc<Self>,
        bytes: usize,
        max: usize,
    ) -> Option<HeaderMemoryGuard> {
        let more = |used: usize| Some(used + bytes).filter(|used| *used <= max);
        self.header_memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(HeaderMemoryGuard { connection: Arc::clone(self), bytes })
    }

    /// Counts a request as open until the guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        OpenRequest::of(self)
    }
}

impl AsRef<Activity> for Connection {
    fn as_ref(&self) -> &Activity {
        &self.activity
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// An open request of a connection.
pub(crate) type OpenRequest = fairlead_process::OpenRequest<Connection>;

/// Header memory of one request, released when dropped.
#[derive(Debug)]
pub(crate) struct HeaderMemoryGuard {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for HeaderMemoryGuard {
    fn drop(&mut self) {
        self.connection.header_memory.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
