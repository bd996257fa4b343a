//! The API server to which virtual workspaces belong.

use async_trait::async_trait;
use fairlead_apiserver::{Host, IdentityAssumption, Response};
use fairlead_process::RequestBody;
use http::Request;

/// The API server of a process with virtual workspaces: that of a shard, or that of a [`VirtualServer`](crate::VirtualServer).
#[async_trait]
pub trait RootServer: Send + Sync + 'static {
    /// The host of the API server, whose authentication, rules of impersonation and version apply to virtual workspaces, too.
    fn host(&self) -> &dyn Host;

    /// Whether virtual workspaces can be served; otherwise the reason why not.
    ///
    /// # Errors
    /// The reason.
    fn readiness(&self) -> Result<(), String>;

    /// Serves a request by the API server.
    async fn serve(&self, request: Request<RequestBody>) -> Response;

    /// Serves a request by the API server under another identity than that of its client.
    async fn serve_as(&self, request: Request<RequestBody>, assumption: &dyn IdentityAssumption) -> Response;
}
