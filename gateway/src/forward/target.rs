//! A request that goes to a shard, as the core hands it to the data plane.

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

/// A request on its way to a shard.
#[derive(Debug)]
pub(crate) struct Forward {
    /// The shard.
    pub(crate) upstream: Arc<Upstream>,
    /// What the shard is asked for.
    pub(crate) path_and_query: PathAndQuery,
    /// Who asks.
    pub(crate) sender: RequestIdentity,
    /// How it is told who asks, where that is not the usual way.
    pub(crate) asserted_by: Option<Arc<IdentityHeaderNames>>,
    /// The shard of the logical cluster that the path names, where something else than that shard answers.
    pub(crate) about: Option<Arc<str>>,
    /// By which further headers somebody might be told so.
    pub(crate) believed: Option<Arc<TrustedIdentityHeaders>>,
    /// How many mounts the request has gone through, if any.
    pub(crate) hops: Option<u32>,
    /// The web page that it comes from, if that may read the answer.
    pub(crate) allowed_origin: Option<AllowedOrigin>,
    /// The logical cluster that it is about, if it is about one: its id.
    pub(crate) workspace: Option<Arc<str>>,
    /// The URL that it is mounted from, if it is about a workspace that lives elsewhere.
    pub(crate) mount: Option<Arc<str>>,
    /// What it counts for as long as it is open.
    pub(crate) ticket: Option<Box<QuotaGuard>>,
}

impl Forward {
    /// When it is its turn. Turns are the logical cluster's; what is about none is in turn by who asks.
    pub(crate) fn share(&self, class: RequestClass, method: &Method, client: IpAddr) -> FlowKey {
        let flow = match (&self.workspace, &self.sender) {
            (Some(workspace), _) => FxBuildHasher.hash_one(&**workspace),
            (None, RequestIdentity::Known(identity)) => FxBuildHasher.hash_one(&identity.user().name),
            (None, RequestIdentity::PassedOn) => FxBuildHasher.hash_one(client),
        };
        let writes = class == RequestClass::Write;
        let path = within_cluster(self.path_and_query.path());
        FlowKey { flow, writes, priority: Priority::of(class, method, path) }
    }

    /// Counts bytes of a body.
    pub(crate) fn carried(&self, bytes: usize) {
        if let Some(ticket) = &self.ticket {
            ticket.carried(bytes as u64);
        }
    }

    /// # Errors
    /// 400 for a path that HTTP cannot carry.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        path_and_query: String,
        sender: RequestIdentity,
        asserted_by: Option<Arc<IdentityHeaderNames>>,
    ) -> Result<Self, LocalResponse> {
        let path_and_query = PathAndQuery::from_maybe_shared(bytes::Bytes::from(path_and_query))
            .map_err(|error| LocalResponse::bad_request(format!("malformed request path: {error}")))?;
        Ok(Self {
            upstream,
            path_and_query,
            sender,
            asserted_by,
            about: None,
            believed: None,
            hops: None,
            allowed_origin: None,
            workspace: None,
            mount: None,
            ticket: None,
        })
    }
}
