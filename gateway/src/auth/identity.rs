//! The identity of a request, established by the listener's authenticators.

use std::sync::Arc;
use std::time::SystemTime;

use fairlead_authn::{Identity, Observer, Outcome, WorkspaceAuthenticator, contains_token};
use http::Uri;
use http::header::HeaderMap;

use crate::policy::connection::Connection;
use crate::policy::listener::UnauthenticatedTokenPolicy;
use crate::request::decision_log::DecisionLog;

/// Group of shards, which may request placements.
pub(crate) const SHARDS: &str = "system:fairlead:shard";
/// Group of operators, which may read metrics and status.
pub(crate) const OPERATORS: &str = "system:kcp:admin";

/// Groups that grant permissions at the gateway itself. Tokens assert them only where the listener's settings allow it.
pub(crate) const PRIVILEGED_GROUPS: [&str; 2] = [OPERATORS, "system:fairlead:*"];

/// The identity of a request.
#[derive(Clone, Debug)]
pub(crate) enum RequestIdentity {
    /// Authenticated here; asserted to the upstream.
    Authenticated(Arc<Identity>),
    /// Not authenticated here: the shard gets the request without identity headers and authenticates it.
    PassThrough,
}

/// No authenticator accepts the credential: 401. The reason is for logs only.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Rejected(String);

/// A workspace with issuers of its own.
pub(crate) struct WorkspaceAuthScope<'h> {
    /// Its authenticators.
    pub(crate) authenticator: &'h WorkspaceAuthenticator,
    /// Id of its logical cluster; identities from those issuers are valid only there.
    pub(crate) cluster: &'h str,
}

/// Authenticates a request. A certificate that was verified before costs two atomic loads. A request without a certificate, at a
/// listener without another method, is passed on to the shard, as in kcp's table of optional authentication.
///
/// # Errors
/// [`Rejected`] if the listener has an authenticator for the kind of credential, and none accepts it.
pub(crate) async fn identify(
    connection: &Connection,
    headers: &HeaderMap,
    target: &Uri,
    scope: Option<&WorkspaceAuthScope<'_>>,
    decision_log: Option<&DecisionLog>,
) -> Result<RequestIdentity, Rejected> {
    let observer = decision_log.map(|decision_log| decision_log as &dyn Observer);
    let policy = connection.listener.policy.load();
    let presented = connection.credentials.is_presented();
    if !presented && !policy.requires_credentials && scope.is_none() {
        return match policy.tokens {
            UnauthenticatedTokenPolicy::Refuse if contains_token(headers) => {
                Err(Rejected(format!("tokens are not accepted at listener {}", connection.listener.name)))
            }
            _ => Ok(RequestIdentity::PassThrough),
        };
    }
    let now = SystemTime::now();
    let outcome = match scope {
        None => policy.chain.authenticate_observed(observer, &connection.credentials, headers, now).await,
        Some(WorkspaceAuthScope { authenticator, cluster }) => {
            let (chain, credentials) = (&policy.chain, &connection.credentials);
            // Boxed, because few workspaces have issuers, and every request's task would reserve space for it.
            Box::pin(chain.authenticate_in(observer, credentials, headers, now, authenticator, cluster)).await
        }
    };
    match outcome {
        Outcome::Identified(identity) => Ok(RequestIdentity::Authenticated(identity)),
        // Shards know service accounts and static tokens that are unknown here; but a certificate that was presented must be
        // valid.
        Outcome::Rejected(rejection)
            if scope.is_some()
                && !presented
                && !policy.requires_credentials
                && policy.tokens == UnauthenticatedTokenPolicy::PassOn
                && rejection.lacks_authenticator() =>
        {
            Ok(RequestIdentity::PassThrough)
        }
        Outcome::Anonymous
            if policy.anonymous.as_ref().is_some_and(|anonymous| anonymous.admits(target.path())) =>
        {
            Ok(RequestIdentity::Authenticated(Identity::anonymous()))
        }
        Outcome::Anonymous => Err(Rejected("no credential".to_owned())),
        Outcome::Rejected(rejection) => Err(Rejected(rejection.to_string())),
    }
}

impl RequestIdentity {
    /// True if the user is authenticated here and in the group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        match self {
            Self::Authenticated(identity) => identity.user().groups.iter().any(|known| known == group),
            Self::PassThrough => false,
        }
    }
}
