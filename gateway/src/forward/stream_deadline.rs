//! The deadline of watches and tunnels: the expiry of their credential, or the drain of the process.

use std::time::SystemTime;

use fairlead_process::Drain;
use tokio::time::Instant;

use crate::auth::identity::RequestIdentity;

/// The deadline of one watch or tunnel.
#[derive(Clone, Debug)]
pub(crate) struct StreamDeadline {
    /// `None` if a drain does not end it.
    drain: Option<Drain>,
    /// Spreads the deadlines of a drain over its window.
    number: u64,
    expires: Option<Instant>,
}

impl StreamDeadline {
    /// The deadline of an exchange of this identity; `number` differs between exchanges.
    pub(crate) fn new(drain: Option<Drain>, identity: &RequestIdentity, number: u64) -> Self {
        let expires = match identity {
            // An expiry beyond the range of the clock never comes.
            RequestIdentity::Authenticated(identity) => identity.expires().and_then(|at| {
                Instant::now().checked_add(at.duration_since(SystemTime::now()).unwrap_or_default())
            }),
            RequestIdentity::PassThrough => None,
        };
        Self { drain, number, expires }
    }

    /// Returns when the deadline has passed.
    pub(crate) async fn reached(self) {
        let Self { drain, number, expires } = self;
        let drained = async move {
            match &drain {
                Some(drain) => drain.end_of_stream(number).await,
                None => std::future::pending().await,
            }
        };
        let expired = async move {
            match expires {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = drained => {}
            () = expired => {}
        }
    }
}
