//! The shard as the host of an API server: locates logical clusters, authenticates, authorizes, and resolves
//! resources.

mod authenticate;
mod authorize;
mod effective;
mod impersonation;
mod locate;
mod reviews;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::{
    Attributes, AuthorizationStep, Decision, Host, InterceptedRequest, RequestedResource, Response, Scope,
    ScopeSelector, ScopedPath, content, failure,
};
use fairlead_authn::{Identity, UserInfo};
use fairlead_process::{METRICS_CONTENT_TYPE, Metrics, Status, StatusReason};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::index::{ClusterIndex, Definitions, PathIndex};
use crate::service_accounts::TokenIssuer;

pub(crate) use authenticate::Authentication;
pub(crate) use authorize::{Authorizer, is_in};
pub(crate) use reviews::{Reviews, TokenReviewer};

/// The host of the shard's API server.
pub(crate) struct ShardHost {
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) paths: Arc<PathIndex>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) authentication: Authentication,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) issuer: Arc<TokenIssuer>,
    pub(crate) metrics: Metrics,
    pub(crate) version: Bytes,
}

#[async_trait]
impl Host for ShardHost {
    fn locate<'p>(
        &self,
        path: fairlead_apiserver::request::RequestPath<'p>,
        _headers: &HeaderMap,
    ) -> Result<ScopedPath<'p>, Status> {
        locate::locate(path, &self.paths, &self.clusters)
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        self.authentication.authenticate(parts).await
    }

    fn check_impersonation(&self, client: &UserInfo, groups: &[String]) -> Result<(), Status> {
        impersonation::check(client, groups)
    }

    fn restrict_impersonated(
        &self,
        client: &UserInfo,
        impersonated: UserInfo,
        scopes: Option<&ScopeSelector>,
    ) -> Result<UserInfo, Status> {
        impersonation::restrict(client, impersonated, scopes)
    }

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        let segments: Vec<&str> = request.path.segments().iter().map(|segment| &**segment).collect();
        if let ["metrics"] = segments.as_slice() {
            return Some(self.metrics_for(&request));
        }
        let cluster = request.scopes.and_then(ScopeSelector::one)?;
        let is_inactive = self.clusters.get(cluster.as_str()).is_some_and(|state| state.is_inactive);
        let is_exempt = matches!(
            segments.as_slice(),
            ["openapi", ..] | ["apis", "core.kcp.io", "v1alpha1", "logicalclusters", ..]
        );
        (is_inactive && !is_exempt).then(|| {
            let resource = fairlead_process::GroupResource::new("", "logicalclusters");
            failure(&Status::forbidden(resource, cluster.as_str(), "logical cluster is marked inactive"))
        })
    }

    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.authorizer.authorize(attributes)
    }

    fn authorization_steps(&self, attributes: &Attributes<'_>) -> Vec<AuthorizationStep> {
        self.authorizer.steps(attributes)
    }

    fn audit_annotations(&self, scopes: &ScopeSelector) -> Vec<(String, String)> {
        let name = scopes.one().map_or("*", Scope::as_str);
        let path = self.clusters.get(name).and_then(|state| state.path.as_deref().map(str::to_owned));
        [
            ("kcp.io/path", path.unwrap_or_default()),
            ("tenancy.kcp.io/workspace", name.to_owned()),
            ("kcp.io/cluster", name.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        self.definitions.resolve(scopes, wanted)
    }

    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status> {
        self.definitions.catalog(scope)
    }

    fn document(&self, path: &[&str]) -> Option<Response> {
        match path {
            [".well-known", "openid-configuration"] => self.issuer.configuration(),
            ["openid", "v1", "jwks"] => self.issuer.key_set(),
            _ => None,
        }
    }

    fn document_paths(&self) -> &'static [&'static str] {
        &["/.well-known/openid-configuration", "/healthz", "/livez", "/metrics", "/openid/v1/jwks", "/readyz"]
    }

    fn version(&self) -> &Bytes {
        &self.version
    }
}

impl ShardHost {
    /// `/metrics` belongs to the shard, not to a logical cluster. Permissions in root decide who may read it.
    fn metrics_for(&self, request: &InterceptedRequest<'_>) -> Response {
        if request.scopes.is_some() {
            let message = "shard-level endpoint not available at workspace scope";
            return failure(&Status::new(501, StatusReason::Unknown, message));
        }
        let root = ScopeSelector::One(Scope::new("root"));
        let attributes = Attributes {
            user: request.identity.user(),
            scopes: Some(&root),
            action: fairlead_apiserver::Action::NonResource { verb: "get", path: "/metrics" },
        };
        if !self.authorizer.authorize(&attributes).is_allowed() {
            let message = format!(
                "User {:?} cannot get path \"/metrics\": access denied",
                request.identity.user().name
            );
            return failure(&Status::forbidden(fairlead_process::GroupResource::default(), "", message));
        }
        match self.metrics.text() {
            Ok(text) => content(StatusCode::OK, METRICS_CONTENT_TYPE, text),
            Err(error) => failure(&Status::internal(error)),
        }
    }
}
