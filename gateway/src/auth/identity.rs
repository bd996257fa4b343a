//! Who sends a request, at the listener that it came through.

use std::sync::Arc;
use std::time::SystemTime;

use fairlead_authn::{Identity, Observer, Outcome, WorkspaceAuthenticator, shows_token};
use http::Uri;
use http::header::HeaderMap;

use crate::policy::connection::Connection;
use crate::policy::listener::UnauthenticatedTokenPolicy;
use crate::request::decision_log::DecisionLog;

/// The group of shards, who may ask for picks.
pub(crate) const SHARDS: &str = "system:fairlead:shard";
/// The group of operators, who may see metrics and status.
pub(crate) const OPERATORS: &str = "system:kcp:admin";

/// What the gateway knows about a request's sender.
#[derive(Clone, Debug)]
pub(crate) enum RequestIdentity {
    /// Known here; asserted to the shard.
    Known(Arc<Identity>),
    /// Not judged here: the shard gets the request without an identity and judges what it carries.
    PassedOn,
}

/// Nobody accepts the credential: 401. The reason is for logs only.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Rejected(String);

/// A workspace that trusts issuers of its own.
pub(crate) struct WorkspaceAuthScope<'h> {
    /// Its authenticators.
    pub(crate) authenticator: &'h WorkspaceAuthenticator,
    /// The id of its logical cluster, the only place where identities of those issuers count.
    pub(crate) cluster: &'h str,
}

/// Judges a request. With a certificate that was judged before this costs two atomic loads. A request with neither
/// certificate nor anything to judge it by goes to the shard as it is: kcp's table of optional authentication.
///
/// # Errors
/// [`Rejected`] if there is a credential that somebody here should know, and nobody does.
pub(crate) async fn identify(
    connection: &Connection,
    headers: &HeaderMap,
    target: &Uri,
    home: Option<&WorkspaceAuthScope<'_>>,
    steps: Option<&DecisionLog>,
) -> Result<RequestIdentity, Rejected> {
    let observer = steps.map(|steps| steps as &dyn Observer);
    let policy = connection.listener.policy.load();
    let presented = connection.credentials.is_presented();
    if !presented && !policy.credentials_needed && home.is_none() {
        return match policy.tokens {
            UnauthenticatedTokenPolicy::Refuse if shows_token(headers) => {
                Err(Rejected(format!("tokens are not accepted at listener {}", connection.listener.name)))
            }
            _ => Ok(RequestIdentity::PassedOn),
        };
    }
    let now = SystemTime::now();
    let outcome = match home {
        None => policy.chain.authenticate_before(observer, &connection.credentials, headers, now).await,
        Some(WorkspaceAuthScope { authenticator, cluster }) => {
            let (chain, credentials) = (&policy.chain, &connection.credentials);
            // Boxed, because few workspaces have any, and every request's task would have room for it.
            Box::pin(chain.authenticate_in(observer, credentials, headers, now, authenticator, cluster)).await
        }
    };
    match outcome {
        Outcome::Identified(identity) => Ok(RequestIdentity::Known(identity)),
        // Shards know service accounts and static tokens that nobody here does; where a certificate was shown, it has to
        // be good.
        Outcome::Rejected(rejection)
            if home.is_some()
                && !presented
                && !policy.credentials_needed
                && policy.tokens == UnauthenticatedTokenPolicy::PassOn
                && rejection.is_unjudged() =>
        {
            Ok(RequestIdentity::PassedOn)
        }
        Outcome::Anonymous
            if policy.anonymous.as_ref().is_some_and(|anonymous| anonymous.admits(target.path())) =>
        {
            Ok(RequestIdentity::Known(Identity::anonymous()))
        }
        Outcome::Anonymous => Err(Rejected("no credential".to_owned())),
        Outcome::Rejected(rejection) => Err(Rejected(rejection.to_string())),
    }
}

impl RequestIdentity {
    /// Whether the sender has proved to be in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        match self {
            Self::Known(identity) => identity.user().groups.iter().any(|known| known == group),
            Self::PassedOn => false,
        }
    }
}
