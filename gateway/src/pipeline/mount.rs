//! Requests that do not end at the shard of a logical cluster: mounted workspaces and virtual workspaces.

use std::sync::Arc;

use fairlead_config::ServicesPolicy;
use fairlead_process::{Status, StatusReason};
use percent_encoding::percent_decode_str;

use crate::auth::identity::RequestIdentity;
use crate::forward::target::Forward;
use crate::pipeline::dispatch::unknown_workspace;
use crate::pipeline::{Action, RequestPipeline, RequestView};
use crate::request::decision_log::{Stage, StageResult};
use crate::request::response::LocalResponse;
use crate::request::{ClusterPaths, MOUNT_HOPS, Reference, RequestPath};
use crate::routing::mapping::{BackendUrl, PathMappings};
use crate::routing::resolver::{CallerKind, Route};
use crate::upstream::{BackendSpec, Upstream};

impl RequestPipeline {
    /// Forwards a request for a mounted workspace. The path of the mount's URL decides: below `/clusters/` it is a workspace at the
    /// URL's own host; below another mapping the backend is that mapping's, whatever the URL's host. No other server gets identity
    /// headers.
    pub(crate) fn to_mount(
        &self,
        view: &RequestView<'_>,
        paths: &PathMappings,
        url: &str,
        rest: &str,
        identity: RequestIdentity,
    ) -> Result<Action, LocalResponse> {
        let Some(target) = BackendUrl::parse(url) else {
            view.log_decision(Stage::Mount, StageResult::Refused, || format!("{url} is no URL of a server"));
            return Err(unknown_workspace(view));
        };
        let rules = self.routing.mounts.load();
        let hops = hops_so_far(view).saturating_add(1);
        if hops > rules.hops {
            view.log_decision(Stage::Mount, StageResult::Refused, || {
                format!("more than {} mounts in a row", rules.hops)
            });
            return Err(LocalResponse::loop_detected());
        }
        let path = format!("{}{rest}", target.path());
        // The URL is written by a tenant: a path with `..` could leave the mapping that it was matched by.
        if RequestPath::parse(&path, paths.clusters).is_err() {
            view.log_decision(Stage::Mount, StageResult::Refused, || {
                format!("the path of {url} is not clean")
            });
            tracing::debug!(url, "a mount has a path that is not clean");
            return Err(unknown_workspace(view));
        }
        let forward = if paths.clusters == ClusterPaths::Resolved && path.starts_with("/clusters/") {
            if !rules.allows(target.origin()) || target.origin().starts_with("http://") {
                view.log_decision(Stage::Mount, StageResult::Refused, || {
                    "its host is not among paths.mountHosts".to_owned()
                });
                tracing::debug!(url, "a mount leads to a host that it may not");
                return Err(LocalResponse::unavailable(
                    "the workspace is mounted from a host that is not allowed",
                    "mount_host",
                ));
            }
            let origin: Arc<str> = target.origin().into();
            let spec = BackendSpec { name: Arc::clone(&origin), url: origin, credential: None };
            let upstream = self.forwarder.upstreams.backend(&spec).map_err(|error| {
                tracing::debug!(url, %error, "a mount leads nowhere");
                LocalResponse::unavailable("the mounted workspace has no usable address", "no_address")
            })?;
            let text = match view.uri.query() {
                Some(query) => format!("{path}?{query}"),
                None => path,
            };
            Forward::new(upstream, text, identity, paths.shard_identity_header_names.clone())?
        } else {
            let mapping = paths.find(&path).map(|(mapping, _)| mapping);
            let Some((mapping, backend)) =
                mapping.and_then(|mapping| Some((mapping, mapping.target.backend()?)))
            else {
                view.log_decision(Stage::Mount, StageResult::Refused, || {
                    format!("no server is mapped to {path}")
                });
                return Err(LocalResponse::not_found());
            };
            view.log_decision(Stage::Mapping, StageResult::Passed, || mapping.to_string());
            let text = backend.path_and_query(&path, view.uri.query());
            Forward::new(self.backend(backend)?, text, identity, mapping.identity_header_names.clone())?
        };
        Ok(Action::Forward(Forward { hops: Some(hops), mount: Some(url.into()), ..forward }))
    }

    /// The shard that serves a virtual workspace: that of the logical cluster after `clusters`, if the path has one, else that of the
    /// cluster after the virtual workspace's name (`/services/apiexport/<cluster>/…`). Without either there is no owning shard, and
    /// the request is refused.
    pub(crate) async fn shard_of_service(
        &self,
        view: &RequestView<'_>,
        policy: ServicesPolicy,
        named: Option<Route>,
        rest: &str,
    ) -> Result<Arc<Upstream>, LocalResponse> {
        let route = match (policy, named) {
            (ServicesPolicy::RootShard, _) => {
                let root = self
                    .routing
                    .resolver
                    .route_with_trace(&Reference::root(), CallerKind::Anonymous, view.decision_log)
                    .await;
                if !matches!(root, Route::Shard { .. }) {
                    return Err(LocalResponse::unavailable("the root shard is not known yet", "not_synced"));
                }
                root
            }
            (_, Some(route)) => route,
            (_, None) => {
                let scope =
                    rest.split('/').nth(2).map(|segment| percent_decode_str(segment).decode_utf8_lossy());
                let reference = scope.and_then(|segment| Reference::parse(segment).ok());
                match reference {
                    Some(reference) => {
                        self.routing
                            .resolver
                            .route_with_trace(&reference, CallerKind::Anonymous, view.decision_log)
                            .await
                    }
                    None => Route::NotFound,
                }
            }
        };
        match route {
            Route::Shard { name, url, .. } => self.upstream(&name, &url),
            Route::NotSynced | Route::TooManyWaiters => Err(LocalResponse::unavailable(
                "the workspaces of all shards are not known yet",
                "not_synced",
            )),
            Route::Mount(_) | Route::Unavailable | Route::NotFound => {
                view.log_decision(Stage::Mapping, StageResult::Refused, || {
                    "the path names no logical cluster whose shard could serve it".to_owned()
                });
                tracing::debug!(path = view.uri.path(), "a virtual workspace names no logical cluster");
                let message = "the path names no logical cluster whose shard could serve this virtual workspace; \
                               ask the shard itself";
                Err(LocalResponse::status(&Status::new(404, StatusReason::NotFound, message), "no_service"))
            }
        }
    }
}

fn hops_so_far(view: &RequestView<'_>) -> u32 {
    let counted = view.headers.get(MOUNT_HOPS).and_then(|value| value.to_str().ok()?.parse().ok());
    counted.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::routing::mount::MountRules;

    #[test]
    fn a_list_of_hosts_is_final() {
        let rules = |hosts: &[&str]| MountRules {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            hops: 8,
        };
        for (hosts, origin, expected) in [
            (&[][..], "https://any", true),
            (&["kcp"], "https://kcp", true),
            (&["kcp"], "https://kcp:443", true),
            (&["kcp"], "https://kcp:6443", false),
            (&["kcp:6443"], "https://kcp:6443", true),
            (&["kcp"], "https://kcp.evil", false),
        ] {
            assert_eq!(rules(hosts).allows(origin), expected, "{hosts:?} {origin}");
        }
    }
}
