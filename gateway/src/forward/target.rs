//! The target of a forwarded request: upstream, path, identity headers and quotas.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::uri::PathAndQuery;
use rustc_hash::FxBuildHasher;

use crate::auth::identity::RequestIdentity;
use crate::policy::cors::AllowedOrigin;
use crate::policy::quota::QuotaGuard;
use crate::request::identity_headers::{IdentityHeaderNames, TrustedIdentityHeaders};
use crate::request::response::LocalResponse;
use crate::request::{Priority, RequestClass, within_cluster};
use crate::upstream::{FlowKey, Upstream};

/// A request that is to be forwarded.
#[derive(Debug)]
pub(crate) struct Forward {
    /// The shard or backend.
    pub(crate) upstream: Arc<Upstream>,
    /// The request target at the upstream.
    pub(crate) path_and_query: PathAndQuery,
    /// The identity that is asserted to the upstream.
    pub(crate) identity: RequestIdentity,
    /// Names of the identity headers, where they are not `X-Remote-*`.
    pub(crate) identity_header_names: Option<Arc<IdentityHeaderNames>>,
    /// Shard of the logical cluster in the path, if a backend that is not that shard serves the request.
    pub(crate) mapped_shard: Option<Arc<str>>,
    /// Further headers that backends trust; the client's own are removed.
    pub(crate) trusted: Option<Arc<TrustedIdentityHeaders>>,
    /// Mounts that the request has passed, for the loop limit.
    pub(crate) hops: Option<u32>,
    /// The web page's origin, if it may read the response.
    pub(crate) allowed_origin: Option<AllowedOrigin>,
    /// Id of the logical cluster, if the path names one.
    pub(crate) workspace: Option<Arc<str>>,
    /// URL of the mount, if the workspace is a mount.
    pub(crate) mount: Option<Arc<str>>,
    /// Counts the request as open, in the quotas.
    pub(crate) quota: Option<Box<QuotaGuard>>,
}

impl Forward {
    /// The flow for fair queueing: the logical cluster, or else the user or the client's address.
    pub(crate) fn flow_key(&self, class: RequestClass, method: &Method, client: IpAddr) -> FlowKey {
        let flow = match (&self.workspace, &self.identity) {
            (Some(workspace), _) => FxBuildHasher.hash_one(&**workspace),
            (None, RequestIdentity::Authenticated(identity)) => FxBuildHasher.hash_one(&identity.user().name),
            (None, RequestIdentity::PassThrough) => FxBuildHasher.hash_one(client),
        };
        let writes = class == RequestClass::Write;
        let path = within_cluster(self.path_and_query.path());
        FlowKey { flow, writes, priority: Priority::of(class, method, path) }
    }

    /// Charges bytes of a body to the quotas.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        if let Some(quota) = &self.quota {
            quota.count_bytes(bytes as u64);
        }
    }

    /// A target without mounts, origins and quotas.
    ///
    /// # Errors
    /// 400 for a path that HTTP cannot carry.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        path_and_query: String,
        identity: RequestIdentity,
        identity_header_names: Option<Arc<IdentityHeaderNames>>,
    ) -> Result<Self, LocalResponse> {
        let path_and_query = PathAndQuery::from_maybe_shared(bytes::Bytes::from(path_and_query))
            .map_err(|error| LocalResponse::bad_request(format!("malformed request path: {error}")))?;
        Ok(Self {
            upstream,
            path_and_query,
            identity,
            identity_header_names,
            mapped_shard: None,
            trusted: None,
            hops: None,
            allowed_origin: None,
            workspace: None,
            mount: None,
            quota: None,
        })
    }
}
