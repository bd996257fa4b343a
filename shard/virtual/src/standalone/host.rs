//! The host of a process that has virtual workspaces and nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::{
    Action, Attributes, Authorization, AuthorizationFuture, Host, InterceptedRequest, RequestedResource,
    Response, Scope, ScopeSelector, ScopedPath, content, failure, forbidden, serve, version_document,
};
use fairlead_authn::{Chain, Identity, Outcome, Rejection, UserInfo};
use fairlead_process::{GroupResource, METRICS_CONTENT_TYPE, Metrics, Status};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::host::is_master;

/// The build part of `gitVersion` in `/version`.
const BUILD: &str = concat!("fairlead-", env!("CARGO_PKG_VERSION"));
const AUTHORIZER: &str = "AlwaysAllowGroups";

/// The response to a credential that is not accepted: 503 if it could not be verified, because the client may be right.
pub(super) fn rejected(rejection: &Rejection) -> Status {
    tracing::debug!(%rejection, "a credential was rejected");
    if rejection.is_retryable() {
        return Status::service_unavailable("the credential cannot be verified now", 1);
    }
    Status::unauthorized()
}

/// The host of the root server. Only members of `system:masters` may use it, and only its metrics; all other users have the virtual
/// workspaces.
pub(super) struct RootHost {
    authentication: Arc<Chain>,
    metrics: Metrics,
    catalog: Arc<Catalog>,
    version: Bytes,
}

impl RootHost {
    pub(super) fn new(authentication: Arc<Chain>, metrics: Metrics) -> Self {
        let catalog = Arc::new(Catalog::new(Vec::new()));
        Self { authentication, metrics, catalog, version: version_document(BUILD) }
    }
}

#[async_trait]
impl Host for RootHost {
    fn locate<'p>(&self, path: RequestPath<'p>, _headers: &HeaderMap) -> Result<ScopedPath<'p>, Status> {
        Ok(ScopedPath { scopes: None, path })
    }

    /// No request is anonymous here: one that does not come through a gateway needs a certificate of its own.
    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        match serve::identify(&self.authentication, parts).await {
            Outcome::Identified(identity) => Ok(identity),
            Outcome::Anonymous => Err(Status::unauthorized()),
            Outcome::Rejected(rejection) => Err(rejected(&rejection)),
        }
    }

    /// Only the server behind the virtual workspaces knows who may impersonate whom.
    fn check_impersonation(&self, _client: &UserInfo, _groups: &[String]) -> Result<(), Status> {
        let reason = "virtual workspaces outside of a shard do not support impersonation";
        Err(Status::forbidden(GroupResource::default(), "", reason))
    }

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        let path = request.path.text();
        if request.scopes.is_some() || path != "/metrics" {
            return None;
        }
        let user = request.identity.user();
        if !is_master(user) {
            return Some(failure(&forbidden(user, &Action::NonResource { verb: "get", path: &path })));
        }
        Some(match self.metrics.text() {
            Ok(text) => content(StatusCode::OK, METRICS_CONTENT_TYPE, text),
            Err(error) => failure(&Status::internal(error)),
        })
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        AuthorizationFuture::Ready(match is_master(attributes.user) {
            true => Authorization::allow(AUTHORIZER, "the user is in system:masters"),
            false => Authorization::no_opinion(AUTHORIZER, "the user is not in system:masters"),
        })
    }

    fn resolve(
        &self,
        _scopes: &ScopeSelector,
        _wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        Ok(None)
    }

    fn catalog(&self, _scope: &Scope) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    fn version(&self) -> &Bytes {
        &self.version
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_authn::{Authenticator, CredentialKind, Reason, RequestCredentials, Verdict, VerdictFuture};
    use http::Request;
    use http::header::AUTHORIZATION;

    use super::*;

    /// Declines every token for a reason.
    struct Declining(Reason);

    impl Authenticator for Declining {
        fn name(&self) -> &'static str {
            "test"
        }

        fn credential_kind(&self) -> CredentialKind {
            CredentialKind::BearerToken
        }

        fn authenticate<'a>(&'a self, _request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
            VerdictFuture::Ready(Verdict::Declined(self.0.clone()))
        }
    }

    #[tokio::test]
    async fn a_credential_that_cannot_be_verified_gets_503_and_a_wrong_one_401() {
        let unavailable = || Reason::Unavailable("no response".into());
        for (reasons, expected) in [
            (vec![Reason::UnknownToken], (401, None)),
            (vec![unavailable()], (503, Some(1))),
            (vec![Reason::UnknownToken, unavailable()], (503, Some(1))),
        ] {
            let case = format!("{reasons:?}");
            let chain =
                reasons.into_iter().map(Declining).fold(Chain::builder(), |chain, one| chain.with(one));
            let host = RootHost::new(Arc::new(chain.build()), Metrics::new("test", "1").unwrap());
            let request = Request::builder().header(AUTHORIZATION, "Bearer a").body(()).unwrap();
            let status = host.authenticate(&request.into_parts().0).await.unwrap_err();
            assert_eq!((status.code, status.retry_after_seconds()), expected, "{case}");
        }
    }
}
