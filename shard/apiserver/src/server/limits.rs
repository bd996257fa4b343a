//! Limits of requests: how many are served at the same time, and for how long.

use std::sync::Arc;
use std::time::Duration;

use fairlead_authn::UserInfo;
use fairlead_process::Status;
use http::Method;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::ApiServer;
use crate::host::Host;
use crate::metrics::{InFlight, RequestClass};

/// The group whose requests are always served, as in Kubernetes: the super-users of the server, and its own clients.
const MASTERS: &str = "system:masters";
/// Seconds after which a refused client should try again.
const RETRY_AFTER: u32 = 1;

/// The part of a limit that one scope cannot take. A place is also taken while a webhook of the scope does not respond, so
/// without a reserve one such webhook would stop all others.
const RESERVE: usize = 4;

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

/// The requests in flight of each scope, by class.
#[derive(Clone, Default)]
pub(super) struct ScopeCounts(Arc<Mutex<FxHashMap<Box<str>, [usize; 2]>>>);

/// A place among the requests in flight, which is given back when it is dropped.
pub(super) struct Place {
    _in_flight: InFlight,
    _of_scope: Option<PlaceOfScope>,
}

struct PlaceOfScope {
    counts: ScopeCounts,
    scope: Box<str>,
    class: RequestClass,
}

impl<H: Host> ApiServer<H> {
    /// Takes a place among the requests in flight; a watch needs none. Costs an atomic addition and an entry of a map.
    ///
    /// # Errors
    /// 429 if all places of the class are taken, or all but the reserve by requests of the same scope.
    pub(super) fn enter(
        &self,
        method: &Method,
        is_long_running: bool,
        user: &UserInfo,
        scope: Option<&str>,
    ) -> Result<Option<Place>, Status> {
        if is_long_running {
            return Ok(None);
        }
        let (class, limit) = match *method {
            Method::GET | Method::HEAD => (RequestClass::ReadOnly, self.limits.read_only),
            _ => (RequestClass::Mutating, self.limits.mutating),
        };
        let limit = if user.groups.iter().any(|group| group == MASTERS) { usize::MAX } else { limit };
        let refused = || Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER);
        let in_flight = self.metrics.enter(class, limit).ok_or_else(refused)?;
        let share = limit - limit / RESERVE;
        let of_scope = match scope {
            Some(scope) => Some(self.scope_counts.enter(scope, class, share).ok_or_else(refused)?),
            None => None,
        };
        Ok(Some(Place { _in_flight: in_flight, _of_scope: of_scope }))
    }
}

impl ScopeCounts {
    fn enter(&self, scope: &str, class: RequestClass, share: usize) -> Option<PlaceOfScope> {
        let mut counts = self.0.lock();
        let count = &mut counts.entry(scope.into()).or_default()[class as usize];
        if *count >= share {
            return None;
        }
        *count += 1;
        Some(PlaceOfScope { counts: self.clone(), scope: scope.into(), class })
    }
}

impl Drop for PlaceOfScope {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        if let Some(of_scope) = counts.get_mut(&self.scope) {
            of_scope[self.class as usize] -= 1;
            if *of_scope == [0, 0] {
                counts.remove(&self.scope);
            }
        }
    }
}
