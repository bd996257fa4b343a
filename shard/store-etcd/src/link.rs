//! The state of the connection to the cluster, as the feed publishes it and commits wait for it.

use std::sync::Arc;

use fairlead_store::Cause;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Connection;
use crate::error::cause;

/// The state of the connection.
#[derive(Clone)]
pub(crate) enum Link {
    /// The watch is established and the copy is current. `number` differs from that of every earlier connection.
    Connected { connection: Arc<Connection>, number: u64 },
    /// There is no connection.
    Lost(Loss),
    /// The local copy has failed. The connection still serves to resign.
    Failed { connection: Option<Arc<Connection>> },
}

/// The loss of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) since: Instant,
    pub(crate) cause: Cause,
    /// Whether another cluster was found: the store must not count as ready.
    pub(crate) is_foreign: bool,
    /// Whether etcd does not accept the user.
    pub(crate) is_denied: bool,
}

impl Link {
    /// The connection, also after a failure of the local copy.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        match self {
            Self::Connected { connection, .. } => Some(connection.clone()),
            Self::Failed { connection } => connection.clone(),
            Self::Lost(_) => None,
        }
    }
}

impl Loss {
    pub(crate) fn new(cause: Cause) -> Self {
        Self { since: Instant::now(), cause, is_foreign: false, is_denied: false }
    }

    /// The cause as the clients of a server may see it, without the addresses of etcd, which are in the log.
    fn for_clients(&self) -> Cause {
        cause(match (self.is_foreign, self.is_denied) {
            (true, _) => FOREIGN,
            (false, true) => "etcd refuses access",
            (false, false) => "etcd cannot be reached",
        })
    }
}

/// The reason for clients while the address leads elsewhere.
pub(crate) const FOREIGN: &str =
    "another cluster answers at the address of etcd, or the prefix has another owner";

/// Waits for a connection other than `used`, at most until `deadline`. Returns at once when the connection has been missing for
/// longer than `patience`.
///
/// # Errors
/// The cause of the last failure, for clients.
pub(crate) async fn connected(
    link: &mut watch::Receiver<Link>,
    used: Option<u64>,
    patience: std::time::Duration,
    deadline: Instant,
) -> Result<(Arc<Connection>, u64), Cause> {
    let mut last = cause("there is no connection to etcd");
    loop {
        if link.has_changed().is_err() {
            return Err(cause("the store is closed"));
        }
        let until = match &*link.borrow_and_update() {
            Link::Connected { connection, number } if used != Some(*number) => {
                return Ok((connection.clone(), *number));
            }
            Link::Connected { .. } => deadline,
            Link::Lost(loss) => {
                last = loss.for_clients();
                deadline.min(loss.since + patience)
            }
            Link::Failed { .. } => return Err(cause("the local copy of etcd has failed")),
        };
        if Instant::now() >= until {
            return Err(last);
        }
        match tokio::time::timeout_at(until, link.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(cause("the store is closed")),
            Err(_) => return Err(last),
        }
    }
}
