//! The host of the cache's API server: the same resources in all scopes, and access for one group only.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::{
    Action, Attributes, Authorization, AuthorizationFuture, Host, InterceptedRequest, RequestedResource,
    Response, Scope, ScopeSelector, ScopedPath, content, failure, forbidden, serve,
};
use fairlead_authn::{Chain, Identity, Outcome, UserInfo};
use fairlead_names::ResourceName;
use fairlead_process::{METRICS_CONTENT_TYPE, Metrics, Status, StatusReason};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use rustc_hash::FxHashMap;

use crate::path;

/// The group whose members are allowed every request; all other users are denied.
pub const MASTERS: &str = "system:masters";

/// The build part of `gitVersion` in `/version`.
const BUILD: &str = concat!("fairlead-", env!("CARGO_PKG_VERSION"));

/// The host of the cache's API server.
pub(crate) struct CacheHost {
    chain: Chain,
    catalog: Arc<Catalog>,
    by_name: FxHashMap<ResourceName, Arc<ServedResource>>,
    metrics: Metrics,
    version: Bytes,
}

impl CacheHost {
    /// Serves `resources` to clients that `chain` authenticates as members of [`MASTERS`].
    pub(crate) fn new(chain: Chain, resources: Vec<Arc<ServedResource>>, metrics: Metrics) -> Self {
        let by_name =
            resources.iter().map(|resource| (resource.name.clone(), Arc::clone(resource))).collect();
        // The catalog never changes while the process runs.
        let catalog = Arc::new(Catalog::new(resources));
        Self { chain, catalog, by_name, metrics, version: fairlead_apiserver::version_document(BUILD) }
    }
}

fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

#[async_trait]
impl Host for CacheHost {
    fn locate<'p>(&self, path: RequestPath<'p>, _headers: &HeaderMap) -> Result<ScopedPath<'p>, Status> {
        path::locate(path)
    }

    /// A client without a certificate of the configured authorities is anonymous; other credentials are ignored.
    /// Anonymous requests are denied.
    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        Ok(match serve::identify(&self.chain, parts).await {
            Outcome::Identified(identity) => identity,
            Outcome::Anonymous => Identity::anonymous(),
            Outcome::Rejected(rejection) => {
                tracing::debug!(%rejection, "a credential was rejected");
                Identity::anonymous()
            }
        })
    }

    fn check_impersonation(&self, _client: &UserInfo, _groups: &[String]) -> Result<(), Status> {
        let message = "impersonation is not supported by the cache server";
        Err(Status::new(403, StatusReason::Forbidden, message))
    }

    fn restrict_impersonated(
        &self,
        _client: &UserInfo,
        impersonated: UserInfo,
        _scopes: Option<&ScopeSelector>,
    ) -> Result<UserInfo, Status> {
        Ok(impersonated)
    }

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        if request.scopes.is_some() {
            return None;
        }
        let path = request.path.text();
        let user = request.identity.user();
        let action = Action::NonResource { verb: "get", path: &path };
        if !is_master(user) {
            return Some(failure(&forbidden(user, &action)));
        }
        if path != "/metrics" {
            return None;
        }
        Some(match self.metrics.text() {
            Ok(text) => content(StatusCode::OK, METRICS_CONTENT_TYPE, text),
            Err(error) => failure(&Status::internal(error)),
        })
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        AuthorizationFuture::Ready(match is_master(attributes.user) {
            true => Authorization::allow("AlwaysAllowGroups", "the user is in system:masters"),
            false => Authorization::no_opinion("AlwaysAllowGroups", "the user is not in system:masters"),
        })
    }

    fn resolve(
        &self,
        _scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        // Resources are not served under an identity yet (ClusterCachedResources).
        Ok(self.by_name.get(wanted.name).filter(|_| wanted.identity.is_none()).cloned())
    }

    fn catalog(&self, _scope: &Scope) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    fn common_catalog(&self, _scopes: &ScopeSelector) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    fn version(&self) -> &Bytes {
        &self.version
    }
}
