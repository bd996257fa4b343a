//! A client's connection as later stages see it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlead_authn::ConnectionCredentials;
use fairlead_process::{Activity, Connected, Drain, PeerChain};

use crate::policy::client_address::ClientAddressSource;
use crate::policy::connection_backlog::ConnectionBacklog;
use crate::policy::listener::{ClientCertificateUse, ConnectionPolicy, Listener};

/// One client connection. Shared by all requests on it.
pub(crate) struct Connection {
    /// Different for every connection of the process.
    pub(crate) id: u64,
    /// The listener that it came through.
    pub(crate) listener: Arc<Listener>,
    /// When what has no end of its own ends here.
    pub(crate) drain: Drain,
    /// The other end, as TCP sees it.
    pub(crate) peer: SocketAddr,
    /// How it may say whose requests it brings.
    pub(crate) said: ClientAddressSource,
    /// The name that the peer asked for when it connected.
    pub(crate) server_name: Option<Box<str>>,
    /// The certificates that the peer presented, and what was made of them so far.
    pub(crate) credentials: ConnectionCredentials,
    /// Response data that waits for the client.
    pub(crate) response_backlog: ConnectionBacklog,
    /// Upload data that waits for servers.
    pub(crate) upload_backlog: ConnectionBacklog,
    /// Its requests.
    pub(crate) activity: Activity,
    /// Bytes of header of those requests over HTTP/2 that are not answered yet.
    heads: AtomicUsize,
    /// Counts it among those of its address.
    _connected: Option<Connected>,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        (listener, frame): (Arc<Listener>, &ConnectionPolicy),
        drain: Drain,
        peer: SocketAddr,
        chain: &PeerChain,
        server_name: Option<&str>,
    ) -> Self {
        let credentials = match (&chain.0, frame.certificates) {
            (Some(chain), ClientCertificateUse::Identity) => ConnectionCredentials::new(Arc::clone(chain)),
            _ => ConnectionCredentials::none(),
        };
        let budget = Arc::clone(&listener.backlog_budget);
        Self {
            id,
            listener,
            drain,
            peer,
            said: frame.peers.said.clone(),
            server_name: server_name.map(Box::from),
            credentials,
            response_backlog: ConnectionBacklog::new(budget.clone()),
            upload_backlog: ConnectionBacklog::new(budget),
            activity: Activity::begin(),
            heads: AtomicUsize::new(0),
            _connected: None,
        }
    }

    /// The same, counted until it ends.
    pub(crate) fn counted(self, connected: Option<Connected>) -> Self {
        Self { _connected: connected, ..self }
    }

    /// Counts the head of one more request until the guard is dropped, unless they would be more than `most` bytes together.
    pub(crate) fn hold_head(self: &Arc<Self>, bytes: usize, most: usize) -> Option<HeaderMemoryGuard> {
        let more = |held: usize| Some(held + bytes).filter(|held| *held <= most);
        self.heads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
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

/// The head of a request, while it is kept.
#[derive(Debug)]
pub(crate) struct HeaderMemoryGuard {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for HeaderMemoryGuard {
    fn drop(&mut self) {
        self.connection.heads.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
