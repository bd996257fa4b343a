//! Dispatch by path: to a logical cluster, to a mapped backend, or to the gateway's own endpoints.

use std::sync::Arc;

use fairlead_authn::{contains_token, unverified_cluster_claim};
use fairlead_config::KcpBehaviour;
use fairlead_process::Status;
use http::StatusCode;
use http::header::HeaderName;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use crate::auth::identity::RequestIdentity;
use crate::forward::target::Forward;
use crate::pipeline::{Action, RequestPipeline, RequestView};
use crate::request::decision_log::{Stage, StageResult};
use crate::request::response::LocalResponse;
use crate::request::resume::resumes_from_revision;
use crate::request::{
    ClusterPaths, ClusterTarget, OtherPath, PathError, Reference, RequestPath, cluster_below_prefix,
    cluster_path,
};
use crate::routing::mapping::{PathMappings, Target};
use crate::routing::resolver::{CallerKind, Route};
use crate::telemetry::metrics::RequestStage;

impl RequestPipeline {
    pub(super) async fn dispatch_by_path(&self, view: &RequestView<'_>) -> Result<Action, LocalResponse> {
        if self.header_limits.load().check(view.uri, view.headers).is_err() {
            return Err(LocalResponse::status(
                &Status::request_header_fields_too_large(),
                "headers_too_large",
            ));
        }
        let paths = self.routing.paths.load();
        let path = RequestPath::parse(view.uri.path(), paths.clusters);
        view.log_decision(Stage::Path, path_result(&path), || describe_path(&path));
        match path {
            Ok(RequestPath::Local(endpoint)) => Ok(Action::Admin(endpoint)),
            path if view.identity.is_none() && authenticates_before_routing(view) => {
                drop((path, paths));
                view.log_decision(Stage::Credential, StageResult::Info, || {
                    "this listener authenticates before it routes".to_owned()
                });
                let identity = match self.identify(view).await? {
                    // A credential that only a shard can verify is not authenticated here.
                    RequestIdentity::PassThrough => {
                        view.log_decision(Stage::Credential, StageResult::Refused, || {
                            "only a shard can verify this credential, and this listener authenticates before it routes".to_owned()
                        });
                        return Err(LocalResponse::unauthorized());
                    }
                    known @ RequestIdentity::Authenticated(_) => Some(known),
                };
                // Boxed, because it is recursive.
                Box::pin(self.dispatch_by_path(&RequestView { identity, ..*view })).await
            }
            Ok(RequestPath::Cluster(target)) => self.to_cluster(view, &paths, &target).await,
            Ok(RequestPath::Other(other)) => match self.in_cluster_path(view, &paths, other) {
                // Boxed, because it is rare.
                Some(path) => Box::pin(self.to_in_cluster_path(view, &paths, &path)).await,
                None => self.to_mapping(view, &paths, other).await,
            },
            Err(PathError::Malformed(reason)) => {
                Err(LocalResponse::bad_request(format!("malformed request path: {reason}")))
            }
            Err(PathError::Unclean(location)) => {
                Err(LocalResponse::redirect(view.method, &location, view.uri.query()))
            }
            Err(PathError::InvalidCluster(_)) => Err(unknown_workspace(view)),
        }
    }

    /// The full path of a request by an in-cluster client. Such a client knows only host and port (`KUBERNETES_SERVICE_HOST`), so its
    /// path names no workspace: it is that of its service account. The token is not verified yet; its claim only selects the workspace.
    fn in_cluster_path(
        &self,
        view: &RequestView<'_>,
        paths: &PathMappings,
        other: OtherPath<'_>,
    ) -> Option<String> {
        let begins = |prefix| other.raw.starts_with(prefix);
        if paths.clusters == ClusterPaths::Ordinary
            || begins("/clusters/")
            || begins("/services/")
            || !view.connection.listener.policy.load().in_cluster_clients
            || view.headers.get(SHARDED_REQUEST).is_some_and(|value| !value.is_empty())
        {
            return None;
        }
        let cluster = unverified_cluster_claim(view.headers)?;
        let path = cluster_path(&cluster, other.raw);
        view.log_decision(Stage::Path, StageResult::Info, || {
            format!("the unverified cluster claim of the service account token makes it {path}")
        });
        Some(path)
    }

    async fn to_in_cluster_path(
        &self,
        view: &RequestView<'_>,
        paths: &PathMappings,
        path: &str,
    ) -> Result<Action, LocalResponse> {
        match RequestPath::parse(path, paths.clusters) {
            Ok(RequestPath::Cluster(target)) => self.to_cluster(view, paths, &target).await,
            _ => Err(unknown_workspace(view)),
        }
    }

    async fn to_cluster(
        &self,
        view: &RequestView<'_>,
        paths: &PathMappings,
        target: &ClusterTarget<'_>,
    ) -> Result<Action, LocalResponse> {
        let route = self.route(view, &target.reference).await?;
        let identity = self.identify_in(view, &route).await?;
        let (upstream, cluster) = match &route {
            Route::Shard { name, url, cluster, recently_relocated, .. } => {
                if *recently_relocated {
                    reject_resume_after_move(view)?;
                }
                (self.upstream(name, url)?, cluster)
            }
            Route::Mount(url) => return self.to_mount(view, paths, url, &target.rest, identity),
            _ => return Err(unknown_workspace(view)),
        };
        let query = view.uri.query();
        let mut text = String::with_capacity(
            "/clusters/".len() + cluster.len() + target.rest.len() + query.map_or(0, |query| query.len() + 1),
        );
        text.push_str("/clusters/");
        text.push_str(cluster);
        text.push_str(&target.rest);
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        let identity_header_names = paths.shard_identity_header_names.clone();
        let forward = Forward::new(upstream, text, identity, identity_header_names)?;
        Ok(Action::Forward(Forward { workspace: Some(Arc::clone(cluster)), ..forward }))
    }

    /// Dispatches a path that belongs to no workspace by the mapping file. A logical cluster in the path must exist; only virtual
    /// workspaces are served by the shard that it lives on.
    async fn to_mapping(
        &self,
        view: &RequestView<'_>,
        paths: &PathMappings,
        other: OtherPath<'_>,
    ) -> Result<Action, LocalResponse> {
        let Some((mapping, matched)) = paths.find(other.raw) else {
            view.log_decision(Stage::Mapping, StageResult::Refused, || "no mapping has this path".to_owned());
            self.identify(view).await?;
            return Err(LocalResponse::not_found());
        };
        view.log_decision(Stage::Mapping, StageResult::Passed, || mapping.to_string());
        let route = {
            let reference = match (&matched.cluster, paths.clusters) {
                (_, ClusterPaths::Ordinary) => Ok(None),
                (Some(cluster), _) => Reference::parse_or_wildcard(cluster),
                (None, _) => cluster_below_prefix(matched.rest),
            };
            match reference.map_err(|_| unknown_workspace(view))? {
                Some(reference) => Some(self.route(view, &reference).await?),
                None => None,
            }
        };
        let identity = match &route {
            Some(route) => self.identify_in(view, route).await?,
            None => self.identify(view).await?,
        };
        let mut mapped_shard = None;
        let workspace = match &route {
            Some(Route::Shard { cluster, .. }) => Some(Arc::clone(cluster)),
            _ => None,
        };
        let (upstream, text) = match &mapping.target {
            Target::Backend(backend) => {
                let text = backend.path_and_query(other.raw, view.uri.query());
                if let Some(Route::Shard { name, .. }) = route {
                    mapped_shard = Some(name);
                }
                (self.backend(backend)?, text)
            }
            Target::Services(policy) => {
                // Boxed, because it is large, and every request would reserve space for it.
                let shard = Box::pin(self.shard_of_service(view, *policy, route, matched.rest)).await?;
                (shard, view.uri.path_and_query().map(ToString::to_string).unwrap_or_default())
            }
        };
        let forward = Forward::new(upstream, text, identity, mapping.identity_header_names.clone())?;
        Ok(Action::Forward(Forward { mapped_shard, workspace, ..forward }))
    }

    async fn route(&self, view: &RequestView<'_>, reference: &Reference<'_>) -> Result<Route, LocalResponse> {
        let start = Instant::now();
        let caller = if contains_token(view.headers) || view.connection.credentials.is_presented() {
            CallerKind::WithCredentials(view.address)
        } else {
            CallerKind::Anonymous
        };
        let route = self.routing.resolver.route_with_trace(reference, caller, view.decision_log).await;
        view.stats.stage(RequestStage::Route, start.elapsed());
        match route {
            Route::Shard { ref cluster, .. } => {
                view.stats.cluster(cluster);
                Ok(route)
            }
            Route::Mount(_) => Ok(route),
            Route::Unavailable if self.emulates_kcp(KcpBehaviour::UnavailableBody) => {
                Err(LocalResponse::plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Not available.\n",
                    "unavailable_workspace",
                ))
            }
            Route::Unavailable => Err(LocalResponse::unavailable("Not available.", "unavailable_workspace")),
            Route::NotSynced if self.emulates_kcp(KcpBehaviour::Unsynced) => Err(unknown_workspace(view)),
            Route::NotSynced => Err(LocalResponse::unavailable(
                "the workspaces of all shards are not known yet",
                "not_synced",
            )),
            Route::TooManyWaiters => Err(LocalResponse::unavailable(
                "too many requests wait for new workspaces",
                "too_many_waiters",
            )),
            Route::NotFound => Err(unknown_workspace(view)),
        }
    }
}

fn path_result(path: &Result<RequestPath<'_>, PathError>) -> StageResult {
    if path.is_ok() { StageResult::Passed } else { StageResult::Refused }
}

fn describe_path(path: &Result<RequestPath<'_>, PathError>) -> String {
    match path {
        Ok(RequestPath::Local(_)) => "an endpoint of the gateway".to_owned(),
        Ok(RequestPath::Cluster(target)) => {
            let rest = if target.rest.is_empty() { "/" } else { &*target.rest };
            format!("workspace {}, path {rest}", target.reference)
        }
        Ok(RequestPath::Other(_)) => "no workspace in it: the mappings decide".to_owned(),
        Err(PathError::Unclean(location)) => format!("not canonical: redirect to {location}"),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn authenticates_before_routing(view: &RequestView<'_>) -> bool {
    view.connection.listener.policy.load().request_filter.authenticates_before_routing
}

/// Set by clients that know logical clusters: their paths are not rewritten.
const SHARDED_REQUEST: HeaderName = HeaderName::from_static("x-kubernetes-sharded-request");

/// Refuses a watch or page that resumes from a resourceVersion of the shard on which the logical cluster was before.
fn reject_resume_after_move(view: &RequestView<'_>) -> Result<(), LocalResponse> {
    if resumes_from_revision(view.class, view.uri.query()) {
        let message = "the logical cluster has moved to another shard: list again";
        return Err(LocalResponse::status(&Status::expired(message), "moved"));
    }
    Ok(())
}

pub(crate) fn unknown_workspace(view: &RequestView<'_>) -> LocalResponse {
    let path = percent_decode_str(view.uri.path()).decode_utf8_lossy();
    LocalResponse::no_such_workspace(view.method, &path)
}
