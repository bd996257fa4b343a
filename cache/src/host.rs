//! The host of the cache's API server: the same resources in all scopes, and access for one group only.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::{
    Action, Attributes, Authorization, AuthorizationFuture, Host, InterceptedRequest, RequestedResource,
    Response, Scope, ScopeSelector, ScopedPath, content, failure, forbidden, serve,
};
use fairlead_authn::{Chain, ClientCertificateAuthenticator, Identity, Outcome, SharedAuthorities, UserInfo};
use fairlead_config::CacheConfig;
use fairlead_names::ResourceName;
use fairlead_process::{METRICS_CONTENT_TYPE, Metrics, Status, StatusReason};
use http::request::Parts;
use http::{Extensions, HeaderMap, StatusCode};
use rustc_hash::FxHashMap;

use crate::cached_resources::CachedResources;
use crate::path;

/// The group whose members are allowed every request; all other users are denied.
pub const MASTERS: &str = "system:masters";

/// The build part of `gitVersion` in `/version`.
const BUILD: &str = concat!("fairlead-", env!("CARGO_PKG_VERSION"));

/// Authenticates the clients of a cache server.
#[async_trait]
pub trait ClientAuthentication: Send + Sync {
    /// The identity of the client.
    async fn identify(&self, parts: &Parts) -> Outcome;

    /// Whether the certificate of a connection alone authenticates a client.
    fn accepts_certificate(&self, _connection: &Extensions) -> bool {
        false
    }
}

#[async_trait]
impl ClientAuthentication for Chain {
    async fn identify(&self, parts: &Parts) -> Outcome {
        serve::identify(self, parts).await
    }

    fn accepts_certificate(&self, connection: &Extensions) -> bool {
        serve::accepts_certificate(self, connection)
    }
}

/// Authentication of the cache's clients, and the requests that need no permission.
pub struct CacheAccess {
    authentication: Arc<dyn ClientAuthentication>,
    always_allow_paths: Vec<String>,
    synthetic_delay: Duration,
}

impl CacheAccess {
    /// Clients have certificates that `authorities` have signed.
    pub fn of_certificates(authorities: SharedAuthorities, config: &CacheConfig) -> Self {
        let chain = Chain::builder().with(ClientCertificateAuthenticator::new(authorities)).build();
        Self {
            authentication: Arc::new(chain),
            always_allow_paths: config.always_allow_paths.clone(),
            synthetic_delay: config.synthetic_delay.get(),
        }
    }

    /// Clients are those of the shard in whose process the cache is.
    pub fn of_shard(authentication: Arc<dyn ClientAuthentication>) -> Self {
        Self { authentication, always_allow_paths: Vec::new(), synthetic_delay: Duration::ZERO }
    }

    fn allows(&self, path: &str) -> bool {
        self.always_allow_paths.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == allowed,
        })
    }
}

/// The host of the cache's API server.
pub(crate) struct CacheHost {
    access: CacheAccess,
    catalog: Arc<Catalog>,
    by_name: FxHashMap<ResourceName, Arc<ServedResource>>,
    cached: Arc<CachedResources>,
    metrics: Metrics,
    version: Bytes,
}

impl CacheHost {
    /// Serves `resources`, and those of ClusterCachedResources, to clients that `access` authenticates as members of [`MASTERS`].
    pub(crate) fn new(
        access: CacheAccess,
        resources: Vec<Arc<ServedResource>>,
        cached: Arc<CachedResources>,
        metrics: Metrics,
    ) -> Self {
        let by_name =
            resources.iter().map(|resource| (resource.name.clone(), Arc::clone(resource))).collect();
        // The catalog never changes while the process runs.
        let catalog = Arc::new(Catalog::new(resources));
        Self {
            access,
            catalog,
            by_name,
            cached,
            metrics,
            version: fairlead_apiserver::version_document(BUILD),
        }
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
    fn may_name_revisions(&self, connection: &Extensions) -> bool {
        self.access.authentication.accepts_certificate(connection)
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        if !self.access.synthetic_delay.is_zero() {
            tokio::time::sleep(self.access.synthetic_delay).await;
        }
        Ok(match self.access.authentication.identify(parts).await {
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

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        if request.scopes.is_some() {
            return None;
        }
        let path = request.path.text();
        let user = request.identity.user();
        let action = Action::NonResource { verb: "get", path: &path };
        if !is_master(user) && !self.access.allows(&path) {
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
        let is_open = match attributes.action {
            Action::NonResource { verb: "get", path } => self.access.allows(path),
            _ => false,
        };
        AuthorizationFuture::Ready(if is_open {
            Authorization::allow("AlwaysAllowPaths", "the path is open to everybody")
        } else if is_master(attributes.user) {
            Authorization::allow("AlwaysAllowGroups", "the user is in system:masters")
        } else {
            Authorization::no_opinion("AlwaysAllowGroups", "the user is not in system:masters")
        })
    }

    fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        Ok(match self.by_name.get(wanted.name) {
            // The server's own resources have no identity.
            Some(own) => wanted.identity.is_none().then(|| Arc::clone(own)),
            None => self.cached.resolve(scopes, wanted),
        })
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
