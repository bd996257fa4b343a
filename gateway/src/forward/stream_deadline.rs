//! When an exchange without an end of its own has to end: its credential expires, or the process drains.

use std::time::SystemTime;

use fairlead_process::Drain;
use tokio::time::Instant;

use crate::auth::identity::RequestIdentity;

/// The end of one watch or tunnel.
#[derive(Clone, Debug)]
pub(crate) struct StreamDeadline {
    /// `None` if it goes on until it is cut off.
    drain: Option<Drain>,
    /// Spreads the ends of a drain over its window.
    number: u64,
    expires: Option<Instant>,
}

impl StreamDeadline {
    /// The end of an exchange of `sender`; `number` differs between exchanges.
    pub(crate) fn new(drain: Option<Drain>, sender: &RequestIdentity, number: u64) -> Self {
        let expires = match sender {
            // What ends after all time that can be counted does not end.
            RequestIdentity::Known(identity) => identity.expires().and_then(|at| {
                Instant::now().checked_add(at.duration_since(SystemTime::now()).unwrap_or_default())
            }),
            RequestIdentity::PassedOn => None,
        };
        Self { drain, number, expires }
    }

    /// Returns at that moment.
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
