//! A view as the host of an API server.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::registry::{Catalog, ServedResource};
use fairlead_apiserver::request::{RequestFlags, RequestPath};
use fairlead_apiserver::{
    Action, Attributes, Authorization, AuthorizationFuture, DiscoveryForms, Host, InterceptedRequest,
    RequestedResource, Response, Scope, ScopeSelector, ScopedPath,
};
use fairlead_authn::{Identity, UserInfo};
use fairlead_process::Status;
use http::HeaderMap;
use http::request::Parts;

use crate::root_server::RootServer;
use crate::workspace::View;

const AUTHORIZER: &str = "virtual workspace";
const MASTERS: &str = "system:masters";

/// The host of one request to a view.
pub(crate) struct ViewHost {
    pub(crate) root: Arc<dyn RootServer>,
    pub(crate) view: Arc<dyn View>,
    pub(crate) scopes: ScopeSelector,
    /// The number of segments of the whole path before the path within the view.
    pub(crate) length: usize,
}

#[async_trait]
impl Host for ViewHost {
    fn locate<'p>(&self, path: RequestPath<'p>, _headers: &HeaderMap) -> Result<ScopedPath<'p>, Status> {
        Ok(ScopedPath { scopes: Some(self.scopes.clone()), path: path.skip(self.length) })
    }

    async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        self.root.host().authenticate(parts).await
    }

    fn check_impersonation(&self, client: &UserInfo, groups: &[String]) -> Result<(), Status> {
        self.root.host().check_impersonation(client, groups)
    }

    fn restrict_impersonated(
        &self,
        client: &UserInfo,
        impersonated: UserInfo,
        scopes: Option<&ScopeSelector>,
    ) -> Result<UserInfo, Status> {
        self.root.host().restrict_impersonated(client, impersonated, scopes)
    }

    async fn intercept(&self, request: InterceptedRequest<'_>) -> Option<Response> {
        // A logical cluster that is inactive is so in every view.
        self.root.host().intercept(request).await
    }

    fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        if is_master(attributes.user) {
            let reason = "members of system:masters may do everything";
            return AuthorizationFuture::Ready(Authorization::allow(AUTHORIZER, reason));
        }
        if is_impersonation(&attributes.action) {
            let reason = "only members of system:masters impersonate users in virtual workspaces";
            return AuthorizationFuture::Ready(Authorization::no_opinion(AUTHORIZER, reason));
        }
        let attributes = *attributes;
        AuthorizationFuture::Pending(Box::pin(async move { self.view.authorize(&attributes).await }))
    }

    fn request_flags(&self, headers: &HeaderMap) -> RequestFlags {
        self.root.host().request_flags(headers)
    }

    fn audit_annotations(&self, scopes: &ScopeSelector) -> Vec<(String, String)> {
        self.root.host().audit_annotations(scopes)
    }

    fn resolve(
        &self,
        _scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Result<Option<Arc<ServedResource>>, Status> {
        // The view determines the identity of each resource.
        if wanted.identity.is_some() {
            return Ok(None);
        }
        Ok(self.view.catalog()?.resources.iter().find(|resource| resource.name == *wanted.name).cloned())
    }

    fn catalog(&self, _scope: &Scope) -> Result<Arc<Catalog>, Status> {
        self.view.catalog()
    }

    fn common_catalog(&self, _scopes: &ScopeSelector) -> Result<Arc<Catalog>, Status> {
        self.view.catalog()
    }

    fn discovery(&self) -> DiscoveryForms {
        DiscoveryForms::Unaggregated
    }

    fn version(&self) -> &Bytes {
        self.root.host().version()
    }
}

pub(crate) fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

fn is_impersonation(action: &Action<'_>) -> bool {
    let verb = match *action {
        Action::Resource { verb, .. } | Action::NonResource { verb, .. } => verb,
    };
    verb.starts_with("impersonate")
}
