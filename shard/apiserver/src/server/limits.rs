//! Limits of requests: how many are served at the same time, and for how long.

use std::time::Duration;

use fairlead_authn::UserInfo;
use fairlead_process::Status;
use http::Method;

use super::ApiServer;
use crate::host::Host;
use crate::metrics::{InFlight, RequestClass};

/// The group whose requests are always served, as in Kubernetes: the super-users of the server, and its own clients.
const MASTERS: &str = "system:masters";
/// Seconds after which a refused client should try again.
const RETRY_AFTER: u32 = 1;

/// The limits of a server. Watches have none of these.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Reads at the same time.
    pub read_only: usize,
    /// Writes at the same time.
    pub mutating: usize,
    /// Time of a request; its own `timeout` may be shorter.
    pub duration: Duration,
}

impl Default for RequestLimits {
    /// The limits of Kubernetes, which kcp has, too.
    fn default() -> Self {
        Self { read_only: 400, mutating: 200, duration: Duration::from_secs(60) }
    }
}

impl<H: Host> ApiServer<H> {
    /// Takes a place among the requests in flight; a watch needs none. Costs an atomic addition.
    ///
    /// # Errors
    /// 429 if all places of the class are taken.
    pub(super) fn enter(
        &self,
        method: &Method,
        is_long_running: bool,
        user: &UserInfo,
    ) -> Result<Option<InFlight>, Status> {
        if is_long_running {
            return Ok(None);
        }
        let (class, limit) = match *method {
            Method::GET | Method::HEAD => (RequestClass::ReadOnly, self.limits.read_only),
            _ => (RequestClass::Mutating, self.limits.mutating),
        };
        let limit = if user.groups.iter().any(|group| group == MASTERS) { usize::MAX } else { limit };
        match self.metrics.enter(class, limit) {
            Some(in_flight) => Ok(Some(in_flight)),
            None => Err(Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER)),
        }
    }
}
