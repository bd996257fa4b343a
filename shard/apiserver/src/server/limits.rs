//! The permit of a request.

use fairlead_authn::UserInfo;
use fairlead_process::Status;
use http::Method;

use super::ApiServer;
use crate::concurrency::{Activity, ConcurrencyPermit, Exemption};
use crate::host::Host;

/// The group whose requests are always served, as in Kubernetes: the super-users of the server, and its own clients.
const MASTERS: &str = "system:masters";
/// Seconds after which a refused client should try again.
const RETRY_AFTER: u32 = 1;

impl<H: Host> ApiServer<H> {
    /// Gives a permit to a request; a watch needs none.
    ///
    /// # Errors
    /// 429 if the scope of the request has its share of the permits of the class.
    pub(super) fn enter(
        &self,
        method: &Method,
        is_long_running: bool,
        user: &UserInfo,
        scope: Option<&str>,
    ) -> Result<Option<ConcurrencyPermit>, Status> {
        if is_long_running {
            return Ok(None);
        }
        let activity = match *method {
            Method::GET | Method::HEAD => Activity::ReadOnly,
            _ => Activity::Mutating,
        };
        let is_exempt = user.groups.iter().any(|group| group == MASTERS);
        let exemption = if is_exempt { Exemption::Exempt } else { Exemption::None };
        let permit = self.concurrency.enter(activity, scope, self.limits, exemption);
        let refused = || Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER);
        permit.map(Some).ok_or_else(refused)
    }
}
