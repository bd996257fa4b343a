//! The permissions in the view of an endpoint slice.

use std::sync::Arc;

use fairlead_apiserver::{Action, Attributes, Authorization, ScopeSelector};
use fairlead_process::Status;

use super::source::{CachedSlice, CachedSlices};
use crate::apiexport::{Exports, permits_content};

const AUTHORIZER: &str = "virtual.replication.content.authorization.kcp.io";

/// Permits reads to users with the permission for the content of the export. The logical cluster of a request must have bound the
/// resource by this export.
pub(super) async fn authorize(
    exports: &dyn Exports,
    slices: &dyn CachedSlices,
    slice: Result<Option<Arc<CachedSlice>>, Status>,
    attributes: &Attributes<'_>,
) -> Authorization {
    let (Action::Resource { verb, .. } | Action::NonResource { verb, .. }) = attributes.action;
    if !matches!(verb, "get" | "list" | "watch") {
        let reason = "write access to Replication virtual workspace is not allowed";
        return Authorization::deny(AUTHORIZER, reason);
    }
    let slice = match slice {
        Ok(Some(slice)) => slice,
        Ok(None) => return Authorization::no_opinion(AUTHORIZER, "APIExport not found"),
        Err(_) => return Authorization::no_opinion(AUTHORIZER, "the endpoint slice cannot be read"),
    };
    if matches!(attributes.action, Action::Resource { .. })
        && let Some(consumer) = attributes.scopes.and_then(ScopeSelector::one)
        && !slices.is_bound(consumer, &slice)
    {
        let reason = "could not find suitable APIBinding in target logical cluster";
        return Authorization::deny(AUTHORIZER, reason);
    }
    let (cluster, name) = (&slice.export_cluster, &slice.export_name);
    if !permits_content(exports, attributes, cluster, name).await {
        return Authorization::deny(AUTHORIZER, "access denied");
    }
    Authorization::allow(AUTHORIZER, "found ClusterCachedResource reference")
}
