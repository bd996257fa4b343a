//! The interface to the host of an API server: scopes, resources, identities, permissions, admission.
//!
//! This crate implements the behaviour of the Kubernetes API; the host decides which scopes and resources
//! exist and who may use them.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_authn::{Identity, UserInfo};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method};

use crate::registry::{Catalog, ServedResource};
use crate::request::{Query, RequestFlags, RequestPath};
use crate::response::Response;
use crate::scope::{Scope, ScopeSelector};

/// The process in which an [`ApiServer`](crate::ApiServer) serves.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Removes the scope from a path. Cheap: no I/O.
    ///
    /// # Errors
    /// The response to a path that names no scope of this host.
    fn locate<'p>(&self, path: RequestPath<'p>, headers: &HeaderMap) -> Result<ScopedPath<'p>, Status>;

    /// Authenticates the request.
    ///
    /// # Errors
    /// 401 for a wrong credential.
    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status>;

    /// Refuses an impersonation of these groups that no permission allows. The permissions are checked after it.
    ///
    /// # Errors
    /// The refusal.
    fn check_impersonation(&self, client: &UserInfo, groups: &[String]) -> Result<(), Status>;

    /// Restricts the user whom a client may impersonate. The default does not, as in Kubernetes.
    ///
    /// # Errors
    /// The refusal.
    fn restrict_impersonated(
        &self,
        _client: &UserInfo,
        impersonated: UserInfo,
        _scopes: Option<&ScopeSelector>,
    ) -> Result<UserInfo, Status> {
        Ok(impersonated)
    }

    /// Serves paths of the host itself (`/metrics`, `/services/…`), after authentication and before
    /// authorization. `None`: the request is not for the host and continues.
    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response>;

    /// Decides whether the user may perform the action. A decision without I/O is [`AuthorizationFuture::Ready`] and
    /// allocates nothing.
    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a>;

    /// Whether probes (`/healthz`, `/readyz`, `/livez`) of this client are refused. Without an authorizer that denies
    /// them, probes need neither authentication nor authorization.
    async fn refuse_probe(&self, _parts: &Parts, _path: &str) -> Option<Response> {
        None
    }

    /// Whether the peer of a connection, by its verified certificate, may name a revision: a gateway, or at a cache server a
    /// shard. Only its requests wait for that revision, and only it gets the revision of a response.
    fn may_name_revisions(&self, _connection: &Extensions) -> bool {
        false
    }

    /// Flags for the host's own registries, from the headers of a request.
    fn request_flags(&self, _headers: &HeaderMap) -> RequestFlags {
        RequestFlags::default()
    }

    /// The steps of an authorization, for the audit event of a request. Called for recorded requests only, after the decision.
    fn authorization_steps(&self, _attributes: &Attributes<'_>) -> Vec<AuthorizationStep> {
        Vec::new()
    }

    /// Annotations of all audit events of a scope.
    fn audit_annotations(&self, _scopes: &ScopeSelector) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Resolves the resource of a request; `Ok(None)` is a 404.
    ///
    /// # Errors
    /// 503 while it is defined but not available.
    fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status>;

    /// The resources that are served in a scope.
    ///
    /// # Errors
    /// 503 while they are not known: from an empty response clients would conclude that nothing exists.
    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status>;

    /// The resources that all selected scopes have in common, for discovery across scopes. The default implementation
    /// assumes that scopes differ and refuses such a request.
    ///
    /// # Errors
    /// 400 where scopes differ.
    fn common_catalog(&self, scopes: &ScopeSelector) -> Result<Arc<Catalog>, Status> {
        match scopes {
            ScopeSelector::One(scope) => self.catalog(scope),
            ScopeSelector::Every { .. } => {
                Err(Status::bad_request("the request needs one logical cluster, not all of them"))
            }
        }
    }

    /// The forms of the discovery documents.
    fn discovery(&self) -> DiscoveryForms {
        DiscoveryForms::All
    }

    /// A document of the host outside of the API groups, for a user who may read its path. `None`: there is none.
    fn document(&self, _path: &[&str]) -> Option<Response> {
        None
    }

    /// The paths of these documents, and of other endpoints of the host.
    fn document_paths(&self) -> &'static [&'static str] {
        &[]
    }

    /// The body of `/version`.
    fn version(&self) -> &Bytes;
}

/// The forms of a host's discovery documents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiscoveryForms {
    /// Aggregated documents, and one for each group version. The core group exists even if it has no resources.
    All,
    /// One document for each group version with resources. kcp's virtual workspaces have no others, and clients that
    /// are asked for both forms fall back to this one.
    Unaggregated,
}

/// Replaces the client of a request by another identity, for requests that a server of this process forwards to another one
/// without a connection. It runs after authentication and impersonation, so the audit log has both users.
#[async_trait]
pub trait IdentityAssumption: Send + Sync {
    /// The identity under which the request is carried out.
    ///
    /// # Errors
    /// The refusal of the request.
    async fn assume(
        &self,
        client: &Arc<Identity>,
        scopes: Option<&ScopeSelector>,
        action: &Action<'_>,
    ) -> Result<Arc<Identity>, Status>;
}

/// A path without its scope.
#[derive(Clone, Debug)]
pub struct ScopedPath<'p> {
    /// The scopes of the request; `None` when the path named none.
    pub scopes: Option<ScopeSelector>,
    /// The rest of the path.
    pub path: RequestPath<'p>,
}

/// A request as the host sees it in [`Host::intercept`].
pub struct InterceptedRequest<'r> {
    /// The method.
    pub method: &'r Method,
    /// The scopes, if the path named any.
    pub scopes: Option<&'r ScopeSelector>,
    /// The path without the scope.
    pub path: &'r RequestPath<'r>,
    /// The query.
    pub query: &'r Query<'r>,
    /// The authenticated client.
    pub identity: &'r Arc<Identity>,
}

/// The resource that a request names.
#[derive(Clone, Copy, Debug)]
pub struct RequestedResource<'r> {
    /// Group and plural name.
    pub name: &'r ResourceName,
    /// The version.
    pub version: &'r str,
    /// The identity hash after the colon.
    pub identity: Option<&'r str>,
    /// Whether only metadata is requested: then a wildcard request may span origins.
    pub is_metadata_only: bool,
}

/// The action of a user, for authorization.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'r> {
    /// The user who requests the action.
    pub user: &'r UserInfo,
    /// The scopes that the action concerns.
    pub scopes: Option<&'r ScopeSelector>,
    /// The requested action.
    pub action: Action<'r>,
    /// The selectors to which a list, watch or collection delete is restricted.
    pub selectors: RequestedSelectors<'r>,
}

impl<'r> Attributes<'r> {
    /// An action without selectors.
    pub fn new(user: &'r UserInfo, scopes: Option<&'r ScopeSelector>, action: Action<'r>) -> Self {
        Self { user, scopes, action, selectors: RequestedSelectors::default() }
    }
}

/// The texts of a request's selectors (KEP-4601). They narrow what the request reads, so an authorizer may ignore them,
/// and parts that do not parse.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RequestedSelectors<'r> {
    /// `fieldSelector`; empty for none.
    pub fields: &'r str,
    /// `labelSelector`; empty for none.
    pub labels: &'r str,
}

/// An action, for authorization.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action<'r> {
    /// On a resource.
    Resource {
        /// The verb; some have no HTTP method (`bind`, `use`, `escalate`).
        verb: &'r str,
        /// The group, empty for core.
        group: &'r str,
        /// The version.
        version: &'r str,
        /// The plural name.
        resource: &'r str,
        /// The subresource.
        subresource: Option<&'r str>,
        /// The namespace.
        namespace: Option<&'r str>,
        /// The object's name.
        name: Option<&'r str>,
    },
    /// On any other URL.
    NonResource {
        /// The lower-case HTTP method.
        verb: &'r str,
        /// The path.
        path: &'r str,
    },
}

/// A decision and its reason. The reason is for the audit log; clients get only "access granted" or "access denied".
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authorization {
    /// The decision.
    pub decision: Decision,
    /// The authorizer, or the step of it, that decided.
    pub authorizer: &'static str,
    /// Its reason.
    pub reason: Cow<'static, str>,
    /// Whether clients get the reason: that of a webhook.
    pub is_disclosed: bool,
}

/// An [`Authorization`], now or after the response of another server.
pub enum AuthorizationFuture<'a> {
    /// Decided without I/O.
    Ready(Authorization),
    /// Another server has to be called. The call has a deadline of its own.
    Pending(Pin<Box<dyn Future<Output = Authorization> + Send + 'a>>),
}

impl AuthorizationFuture<'_> {
    /// Waits for the decision.
    pub async fn decided(self) -> Authorization {
        match self {
            Self::Ready(authorization) => authorization,
            Self::Pending(authorization) => authorization.await,
        }
    }
}

impl Authorization {
    /// The action is allowed.
    pub fn allow(authorizer: &'static str, reason: &'static str) -> Self {
        Self { decision: Decision::Allow, authorizer, reason: Cow::Borrowed(reason), is_disclosed: false }
    }

    /// The action is denied.
    pub fn deny(authorizer: &'static str, reason: &'static str) -> Self {
        Self {
            decision: Decision::Deny(reason),
            authorizer,
            reason: Cow::Borrowed(reason),
            is_disclosed: false,
        }
    }

    /// The authorizer does not allow the action; another one may.
    pub fn no_opinion(authorizer: &'static str, reason: &'static str) -> Self {
        Self { decision: Decision::NoOpinion, authorizer, reason: Cow::Borrowed(reason), is_disclosed: false }
    }

    /// Whether the action is allowed.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The reason that clients get.
    pub fn client_reason(&self) -> &str {
        match &self.decision {
            _ if self.is_disclosed && !self.reason.is_empty() => &self.reason,
            Decision::Allow => "access granted",
            Decision::Deny(_) | Decision::NoOpinion => "access denied",
        }
    }
}

/// The decision of an authorizer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The action is allowed.
    Allow,
    /// The action is denied; other authorizers are not consulted.
    Deny(&'static str),
    /// Another authorizer may allow the action; if none does, it is denied.
    NoOpinion,
}

/// A step of an authorization.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizationStep {
    /// Its name, `02-content`.
    pub name: &'static str,
    /// Its decision.
    pub decision: Decision,
    /// The reason.
    pub reason: String,
}

impl AuthorizationStep {
    /// The two audit annotations of the step in a domain, `request.auth.kcp.io` or `sar.auth.kcp.io`.
    pub fn audit_annotations(&self, domain: &str) -> [(String, String); 2] {
        let decision = match self.decision {
            Decision::Allow => "Allowed",
            Decision::Deny(_) => "Denied",
            Decision::NoOpinion => "NoOpinion",
        };
        let key = format!("{domain}/{}", self.name);
        [(format!("{key}-decision"), decision.to_owned()), (format!("{key}-reason"), self.reason.clone())]
    }
}

impl Decision {
    /// Whether the action is allowed.
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allow
    }
}
