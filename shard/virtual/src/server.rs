//! Dispatches requests below `/services` to virtual workspaces.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::request::{Query, RequestPath};
use fairlead_apiserver::serve::{Mount, MountedServer};
use fairlead_apiserver::{ApiServer, IdentityAssumption, Response, failure};
use fairlead_process::{RequestBody, Status};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Uri};

use crate::domain::{SERVICES, behind};
use crate::host::{ViewHost, is_master};
use crate::root_server::RootServer;
use crate::workspace::{Service, VirtualRequest, VirtualWorkspace};

/// The number of segments before the domain: `services` and the name.
const PREFIX: usize = 2;

/// The virtual workspaces of a process.
pub struct VirtualWorkspaces {
    /// Its caches, metrics, audit log and limits are those of all views.
    server: ApiServer<()>,
    root: Arc<dyn RootServer>,
    workspaces: Vec<Box<dyn VirtualWorkspace>>,
    is_for_masters_only: bool,
}

/// The destination of a request.
enum Destination {
    /// The root server: the path is not one of a virtual workspace.
    Root,
    View(ViewHost),
    Content {
        assumption: Arc<dyn IdentityAssumption>,
        uri: Uri,
    },
}

impl VirtualWorkspaces {
    /// Serves virtual workspaces with caches, metrics, audit log and limits of `server`, the API server of `root`.
    pub fn new<H>(
        server: &ApiServer<H>,
        root: Arc<dyn RootServer>,
        workspaces: Vec<Box<dyn VirtualWorkspace>>,
    ) -> Self {
        Self { server: server.with_host(()), root, workspaces, is_for_masters_only: false }
    }

    /// Serves them to members of `system:masters` only, such as a process that forwards requests of other clients as impersonations. For
    /// other clients there are no virtual workspaces here.
    #[must_use]
    pub fn for_masters_only(mut self) -> Self {
        self.is_for_masters_only = true;
        self
    }

    /// Their place on the listener. Other mounts below `/services` must come before it.
    pub fn mount(self) -> Mount {
        // Watches are those of the root server's hub, which ends them itself.
        Mount { path: SERVICES, server: Arc::new(self), hub: None }
    }

    /// Whether the client is a member of `system:masters`, whomever it impersonates.
    async fn is_of_master(&self, parts: &Parts) -> bool {
        let identity = self.root.host().authenticate(parts).await;
        identity.is_ok_and(|identity| is_master(identity.user()))
    }

    fn destination(&self, request: &Request<RequestBody>) -> Result<Destination, Status> {
        let uri = request.uri();
        let path = RequestPath::parse(uri.path()).map_err(|error| Status::bad_request(error.to_string()))?;
        let [_, name, ..] = path.segments() else { return Ok(Destination::Root) };
        let Some(workspace) = self.workspaces.iter().find(|workspace| *workspace.name() == **name) else {
            return Ok(Destination::Root);
        };
        let ready = self.root.readiness().and_then(|()| workspace.readiness());
        ready.map_err(|reason| Status::service_unavailable(reason, 1))?;
        let is_watch = Query::parse(uri.query().unwrap_or_default()).flag("watch");
        let below = VirtualRequest { path: path.skip(PREFIX), method: request.method(), is_watch };
        Ok(match workspace.open(&below)? {
            None => Destination::Root,
            Some(Service::View { view, scopes, length }) => {
                let root = Arc::clone(&self.root);
                Destination::View(ViewHost { root, view, scopes, length: PREFIX + length })
            }
            Some(Service::Content { assumption, cluster, length }) => {
                let uri = content_uri(uri, &cluster, PREFIX + length)?;
                Destination::Content { assumption, uri }
            }
        })
    }
}

#[async_trait]
impl MountedServer for VirtualWorkspaces {
    async fn handle(&self, request: Request<RequestBody>) -> Response {
        let (parts, body) = request.into_parts();
        let is_served = !self.is_for_masters_only || self.is_of_master(&parts).await;
        let mut request = Request::from_parts(parts, body);
        if !is_served {
            return self.root.serve(request).await;
        }
        match self.destination(&request) {
            Err(status) => failure(&status),
            Ok(Destination::Root) => self.root.serve(request).await,
            Ok(Destination::View(host)) => self.server.with_host(host).handle(request).await,
            Ok(Destination::Content { assumption, uri }) => {
                *request.uri_mut() = uri;
                self.root.serve_as(request, &*assumption).await
            }
        }
    }
}

/// The URI of the same request in the logical cluster itself.
fn content_uri(uri: &Uri, cluster: &str, length: usize) -> Result<Uri, Status> {
    let rest = behind(uri.path(), length);
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("/clusters/{cluster}{rest}{query}");
    let path = path.parse::<PathAndQuery>().map_err(|error| Status::bad_request(error.to_string()))?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| Status::bad_request(error.to_string()))
}

#[cfg(test)]
mod tests {
    use crate::testing::{LOGICAL_CLUSTERS, MASTER, TestShard};

    #[tokio::test]
    async fn a_shard_for_masters_only_has_virtual_workspaces_for_no_other_client() {
        let path = format!("/services/initializingworkspaces/root:t/clusters/*{LOGICAL_CLUSTERS}");
        let open = TestShard::start();
        let closed = TestShard::start().for_masters_only();
        for shard in [&open, &closed] {
            shard.shard.grants.lock().push(["alice", "root", "initialize", "t"]);
        }
        let impersonated = |user: &'static str| vec![("impersonate-user", user)];
        for (user, headers, in_open, in_closed) in [
            (MASTER, vec![], 200, 200),
            ("alice", vec![], 200, 403),
            ("bob", vec![], 403, 403),
            ("", vec![], 401, 401),
            // The client counts, and then the rights of the user whom it impersonates.
            (MASTER, impersonated("alice"), 200, 200),
            (MASTER, impersonated("bob"), 403, 403),
            ("alice", impersonated(MASTER), 403, 403),
        ] {
            for (shard, expected) in [(&open, in_open), (&closed, in_closed)] {
                let response = shard.open(user, "GET", &path, &headers, "").await;
                assert_eq!(response.status(), expected, "{user:?} {headers:?}");
            }
        }
    }
}
