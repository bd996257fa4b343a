//! The interface to the host of an API server: scopes, resources, identities, permissions, admission.
//!
//! This crate knows how the Kubernetes API behaves; the host knows what exists and who may use it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_authn::{Identity, UserInfo};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::registry::{Catalog, ServedResource};
use crate::request::{Query, RequestPath};
use crate::response::Response;
use crate::scope::{Scope, ScopeSelector};

/// The process in which an [`ApiServer`](crate::ApiServer) serves.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Takes the scope off a path. Cheap: no I/O.
    ///
    /// # Errors
    /// The response for a path with a scope that this host does not have.
    fn locate<'p>(&self, path: RequestPath<'p>, headers: &HeaderMap) -> Result<ScopedPath<'p>, Status>;

    /// Authenticates the request.
    ///
    /// # Errors
    /// 401 for a wrong credential.
    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status>;

    /// Requests that are the host's own, looked at after authentication and before authorization:
    /// `/metrics`, `/services/…`. `None` lets the request pass.
    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response>;

    /// Whether the user may do this.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// Which resource a request means.
    ///
    /// # Errors
    /// 503 while it is defined but not available; 404 is `Ok(None)`.
    fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status>;

    /// The resources that are served in a scope.
    ///
    /// # Errors
    /// 503 while they are not known: an empty response would make clients conclude that nothing is left.
    fn catalog(&self, scope: &Scope) -> Result<Arc<Catalog>, Status>;

    /// The resources that all of these scopes serve alike, for discovery across scopes. By default scopes differ, and such a request
    /// is refused.
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

    /// The body of `/version`.
    fn version(&self) -> &Bytes;
}

/// A path whose scope was taken off.
#[derive(Clone, Debug)]
pub struct ScopedPath<'p> {
    /// Which scopes it is about; `None` when it named none.
    pub scopes: Option<ScopeSelector>,
    /// The rest.
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

/// Which resource a request names.
#[derive(Clone, Copy, Debug)]
pub struct RequestedResource<'r> {
    /// Group and plural name.
    pub name: &'r ResourceName,
    /// The version.
    pub version: &'r str,
    /// The identity hash behind the colon.
    pub identity: Option<&'r str>,
    /// Whether only metadata is wanted: then a wildcard request may span origins.
    pub metadata_only: bool,
}

/// The action of a user, for authorization.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'r> {
    /// The user who wants to act.
    pub user: &'r UserInfo,
    /// The scopes that the action concerns.
    pub scopes: Option<&'r ScopeSelector>,
    /// The requested action.
    pub action: Action<'r>,
}

/// An action, for authorization.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action<'r> {
    /// On a resource.
    Resource {
        /// The verb, which may be one that no HTTP method has (`bind`, `use`, `escalate`).
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

/// The decision of an authorizer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The action is allowed.
    Allow,
    /// The action is denied, and no other authorizer is asked.
    Deny(&'static str),
    /// Another authorizer may allow the action; if none does, it is denied.
    NoOpinion,
}

impl Decision {
    /// Whether it is a yes.
    pub fn allows(&self) -> bool {
        *self == Self::Allow
    }
}
