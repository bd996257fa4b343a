//! The shard as the host of an API server: locates logical clusters, authenticates, authorizes, and resolves
//! resources.

mod access_webhook;
mod authenticate;
mod authorize;
mod effective;
mod home_workspace;
mod impersonation;
mod locate;
mod rbac_chain;
mod reviews;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_api::group;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::RequestFlags;
use fairlead_apiserver::{
    Action, Attributes, AuthorizationFuture, AuthorizationStep, Host, InterceptedRequest, RequestedResource,
    Response, Scope, ScopeSelector, ScopedPath, content, failure, forbidden,
};
use fairlead_authn::{Identity, UserInfo};
use fairlead_process::{GroupResource, METRICS_CONTENT_TYPE, Metrics, Status, StatusReason};
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, StatusCode};

use crate::backup::Backups;
use crate::index::{ClusterIndex, Definitions, PathIndex};
use crate::service_accounts::TokenIssuer;
use effective::effective_users;

pub(crate) use access_webhook::AccessWebhook;
pub(crate) use authenticate::{AnonymousRequests, Authentication, Authenticators};
pub(crate) use authorize::Authorizer;
pub(crate) use effective::policy_user;
pub(crate) use home_workspace::HomeWorkspaces;
pub(crate) use rbac_chain::{RbacChain, is_in};
pub(crate) use reviews::{Reviews, TokenReviewer};

/// The workspace whose roles decide about paths of the shard.
const ROOT: &str = "root";

/// kcp's header of a SubjectAccessReview that skips the checks of access to the logical cluster; for masters only.
const DEEP_REVIEW_HEADER: &str = "x-kcp-internal-deep-subjectaccessreview";

/// The host of the shard's API server.
pub(crate) struct ShardHost {
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) paths: Arc<PathIndex>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) authentication: Authentication,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) issuer: Arc<TokenIssuer>,
    /// `None` if users have no home workspaces.
    pub(crate) homes: Option<HomeWorkspaces>,
    pub(crate) backups: Backups,
    pub(crate) metrics: Metrics,
    pub(crate) version: Bytes,
}

#[async_trait]
impl Host for ShardHost {
    fn locate<'p>(
        &self,
        path: fairlead_apiserver::request::RequestPath<'p>,
        headers: &HeaderMap,
    ) -> Result<ScopedPath<'p>, Status> {
        locate::locate(path, headers, &self.paths, &self.clusters)
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        let cluster = || {
            let path = fairlead_apiserver::request::RequestPath::parse(parts.uri.path()).ok()?;
            let located = self.locate(path, &parts.headers).ok()?;
            located.scopes.as_ref().and_then(ScopeSelector::one).map(|scope| scope.as_str().to_owned())
        };
        self.authentication.authenticate(parts, cluster).await
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
            return Some(Box::pin(self.metrics_for(&request)).await);
        }
        if let ["backup"] = segments.as_slice() {
            let backup = Box::pin(self.backup_for(&request)).await;
            return Some(backup.unwrap_or_else(|status| failure(&status)));
        }
        let cluster = request.scopes.and_then(ScopeSelector::one)?;
        if let (Some(homes), ["apis", "tenancy.kcp.io", _, "workspaces", "~"]) = (&self.homes, &*segments)
            && cluster.as_str() == ROOT
            && request.method == Method::GET
        {
            return Some(Box::pin(homes.get(request.identity.user(), &self.authorizer)).await);
        }
        let is_inactive = self.clusters.get(cluster.as_str()).is_some_and(|state| state.is_inactive);
        let is_exempt = matches!(
            segments.as_slice(),
            ["openapi", ..] | ["apis", "core.kcp.io", "v1alpha1", "logicalclusters", ..]
        );
        (is_inactive && !is_exempt).then(|| {
            let resource = GroupResource::new("", "logicalclusters");
            failure(&Status::forbidden(resource, cluster.as_str(), "logical cluster is marked inactive"))
        })
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
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

    async fn refuse_probe(&self, parts: &Parts, path: &str) -> Option<Response> {
        if !self.authorizer.restricts_probes() {
            return None;
        }
        let identity = match self.authentication.authenticate(parts, || None).await {
            Ok(identity) => identity,
            Err(status) => return Some(failure(&status)),
        };
        let action = Action::NonResource { verb: "get", path };
        let attributes = Attributes::new(identity.user(), None, action);
        let is_allowed = self.authorizer.authorize(&attributes).decided().await.is_allowed();
        (!is_allowed).then(|| failure(&forbidden(identity.user(), &action)))
    }

    fn may_name_revisions(&self, connection: &Extensions) -> bool {
        self.authentication.is_gateway(connection)
    }

    fn request_flags(&self, headers: &HeaderMap) -> RequestFlags {
        let is_deep = headers.get(DEEP_REVIEW_HEADER).is_some_and(|value| value == "true");
        if is_deep { reviews::DEEP_REVIEW } else { RequestFlags::default() }
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
    async fn metrics_for(&self, request: &InterceptedRequest<'_>) -> Response {
        if request.scopes.is_some() {
            let message = "shard-level endpoint not available at workspace scope";
            return failure(&Status::new(501, StatusReason::Unknown, message));
        }
        if let Err(refused) = self.permit_in_root(request.identity.user(), "/metrics").await {
            return failure(&refused);
        }
        match self.metrics.text() {
            Ok(text) => content(StatusCode::OK, METRICS_CONTENT_TYPE, text),
            Err(error) => failure(&Status::internal(error)),
        }
    }

    /// `/backup` of the shard or of a logical cluster, for administrators of the installation. It shows the secrets of all tenants, so a
    /// role in root is not sufficient: root is a workspace that others may administer, too.
    async fn backup_for(&self, request: &InterceptedRequest<'_>) -> Result<Response, Status> {
        let user = request.identity.user();
        let is_administrator = effective_users(user, ROOT)
            .iter()
            .any(|user| is_in(user, group::MASTERS) || is_in(user, group::ADMIN));
        if !is_administrator {
            return Err(refused_path(user, "/backup"));
        }
        self.permit_in_root(user, "/backup").await?;
        if request.method != Method::GET {
            return Err(Status::unknown_method());
        }
        match request.scopes {
            None => self.backups.whole(),
            Some(ScopeSelector::One(cluster)) => {
                let state = self.clusters.get(cluster.as_str());
                let path = state.as_ref().and_then(|state| state.path.as_deref());
                self.backups.of_cluster(cluster.as_str(), path).await
            }
            Some(ScopeSelector::Every { .. }) => {
                Err(Status::bad_request("a backup has one logical cluster, or the whole shard"))
            }
        }
    }

    /// Whether permissions in root allow a user to read a path of the shard.
    async fn permit_in_root(&self, user: &UserInfo, path: &str) -> Result<(), Status> {
        let root = ScopeSelector::One(Scope::new(ROOT));
        let action = Action::NonResource { verb: "get", path };
        let attributes = Attributes::new(user, Some(&root), action);
        match self.authorizer.authorize(&attributes).decided().await.is_allowed() {
            true => Ok(()),
            false => Err(refused_path(user, path)),
        }
    }
}

fn refused_path(user: &UserInfo, path: &str) -> Status {
    let message = format!("User {:?} cannot get path {path:?}: access denied", user.name);
    Status::forbidden(GroupResource::default(), "", message)
}
