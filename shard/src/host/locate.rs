//! Resolves `/clusters/<reference>/…` to logical clusters.

use fairlead_apiserver::request::RequestPath;
use fairlead_apiserver::{Scope, ScopeSelector, ScopedPath};
use fairlead_names::{ClusterName, ClusterReference};
use fairlead_process::{GroupResource, Status};
use http::HeaderMap;

use crate::index::{ClusterIndex, PathIndex, Resolution};

/// kcp's header of requests between shards.
const SHARDED_REQUEST: &str = "x-kubernetes-sharded-request";

/// The logical cluster in the claims of a token, for clients in a pod, which know host and port only. The claim selects a
/// path and never an identity; authentication verifies the token.
fn claimed_scope(path: &RequestPath<'_>, headers: &HeaderMap) -> Option<ScopeSelector> {
    let is_own = path.segments().first().is_some_and(|first| matches!(&**first, "clusters" | "services"));
    if is_own || headers.contains_key(SHARDED_REQUEST) {
        return None;
    }
    let claim = fairlead_authn::unverified_cluster_claim(headers)?;
    let cluster = ClusterName::parse(&claim).ok()?;
    Some(ScopeSelector::One(Scope::new(cluster.as_str())))
}

/// Removes `/clusters/<reference>` from a path. Workspace paths are resolved in this shard's index. Names of logical
/// clusters are accepted unchanged, whether or not the logical cluster exists.
///
/// # Errors
/// 400 for a malformed reference, 404 for an unknown path, 429 for a path of another shard, 503 for a workspace in
/// phase Unavailable.
pub(super) fn locate<'p>(
    path: RequestPath<'p>,
    headers: &HeaderMap,
    paths: &PathIndex,
    clusters: &ClusterIndex,
) -> Result<ScopedPath<'p>, Status> {
    let Some(("clusters", reference)) =
        path.segments().first().map(|first| &**first).zip(path.segments().get(1))
    else {
        return Ok(ScopedPath { scopes: claimed_scope(&path, headers), path });
    };
    let scopes = match ClusterReference::parse(reference) {
        Ok(ClusterReference::Wildcard) => ScopeSelector::all(),
        Ok(ClusterReference::Name(name)) => ScopeSelector::One(Scope::new(name.as_str())),
        Ok(ClusterReference::Path(workspace)) => match paths.resolve(&workspace, clusters) {
            Resolution::Local(name) => ScopeSelector::One(Scope::new(name.as_str())),
            Resolution::OtherShard => return Err(Status::too_many_requests("Not found on this shard", 1)),
            Resolution::Unavailable => return Err(Status::service_unavailable("Not available.", 1)),
            Resolution::NotFound => {
                let workspaces = GroupResource::new("tenancy.kcp.io", "workspaces");
                return Err(Status::not_found(workspaces, workspace.as_str()));
            }
        },
        Err(error) => return Err(Status::bad_request(error.to_string())),
    };
    Ok(ScopedPath { scopes: Some(scopes), path: path.skip(2) })
}
