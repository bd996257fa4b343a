//! The interface of virtual workspaces.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::Catalog;
use fairlead_apiserver::request::{RequestKind, RequestPath};
use fairlead_apiserver::{Attributes, Authorization, IdentityAssumption, ScopeSelector};
use fairlead_process::Status;
use http::Method;

/// A virtual workspace: views of the objects of a shard, one for each of its domains.
pub trait VirtualWorkspace: Send + Sync + 'static {
    /// Its path segment below `/services`.
    fn name(&self) -> &str;

    /// Whether it can serve; otherwise the reason why not. Requests get 503 then.
    ///
    /// # Errors
    /// The reason.
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    /// Opens what serves a request. `None`: the path is not one of this virtual workspace. Called for each request, before the client
    /// is authenticated, so views that are costly to make are cached, and their number bounded.
    ///
    /// # Errors
    /// The refusal of the request.
    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status>;
}

/// A request to a virtual workspace.
pub struct VirtualRequest<'r> {
    /// The path after the name of the virtual workspace.
    pub path: RequestPath<'r>,
    /// The method.
    pub method: &'r Method,
    /// Whether the query requests a watch.
    pub is_watch: bool,
}

impl VirtualRequest<'_> {
    /// The segments of the path.
    pub fn segments(&self) -> &[Cow<'_, str>] {
        self.path.segments()
    }

    /// The kind of request behind the first `length` segments.
    pub fn kind_behind(&self, length: usize) -> RequestKind {
        self.path.clone().skip(length).request(self.method, self.is_watch)
    }
}

/// What serves a request to a virtual workspace.
pub enum Service {
    /// A view.
    View {
        /// The view of the request's domain.
        view: Arc<dyn View>,
        /// The logical clusters of the request.
        scopes: ScopeSelector,
        /// The number of path segments before the path within the view.
        length: usize,
    },
    /// The content of one logical cluster, from the shard's API server under another identity.
    Content {
        /// Decides about the access to the content.
        assumption: Arc<dyn IdentityAssumption>,
        /// The name of the logical cluster.
        cluster: String,
        /// The number of path segments before the path within the logical cluster.
        length: usize,
    },
}

/// The resources of one domain, and the permissions of its clients.
#[async_trait]
pub trait View: Send + Sync + 'static {
    /// The resources of the view. Keep it, because discovery documents are cached by its key.
    ///
    /// # Errors
    /// 503 while they are not known.
    fn catalog(&self) -> Result<Arc<Catalog>, Status>;

    /// Decides whether a user may perform an action in the view. Members of `system:masters` may do everything, and nobody else
    /// impersonates other users; the view is not asked about either.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization;
}
