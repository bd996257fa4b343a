//! The state of a listener that the pipeline uses: its name, quotas, metrics, and the policies for its connections and requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_authn::{AnonymousAccess, Chain};
use fairlead_config::{ConnectionLimits, TraceContextPolicy};
use fairlead_process::{ChallengeFolder, ReloadableTls};

use crate::policy::client_address::PeerPolicy;
use crate::policy::connection_backlog::BacklogBudget;
use crate::policy::quota::ListenerQuotas;
use crate::policy::request_filter::RequestFilter;
use crate::telemetry::metrics::listeners::{ListenerMetrics, ListenerSeries};
use crate::upstream::ListenerUpstreamIdentity;

/// A listener.
pub(crate) struct Listener {
    /// The name in logs and metrics.
    pub(crate) name: Arc<str>,
    /// Metrics of its requests.
    pub(crate) series: Arc<ListenerSeries>,
    /// Metrics of its connections.
    pub(crate) metrics: ListenerMetrics,
    /// The policy for new connections. Open connections keep the one that they were accepted with.
    pub(crate) connection_policy: ArcSwap<ConnectionPolicy>,
    /// Limits on requests.
    pub(crate) quotas: Arc<ListenerQuotas>,
    /// Memory for slow readers, shared by all listeners.
    pub(crate) backlog_budget: Arc<BacklogBudget>,
    /// The policy for requests, which a reload changes for open connections too.
    pub(crate) policy: ArcSwap<RequestPolicy>,
    /// While it is held, the files of the request policy are watched for changes.
    pub(crate) _files: Arc<()>,
}

/// The policy for a connection, before there is a request.
pub(crate) struct ConnectionPolicy {
    /// The use of client certificates.
    pub(crate) certificates: ClientCertificateUse,
    /// The peers that may connect.
    pub(crate) peers: PeerPolicy,
    /// Whether peers are CDNs or proxies, whose connections carry requests of many clients.
    pub(crate) has_proxies_as_peers: bool,
    /// Certificate and protocol versions.
    pub(crate) tls: Arc<ReloadableTls>,
    /// Certificates for ACME's tls-alpn-01 challenges.
    pub(crate) challenges: Option<ChallengeFolder>,
    /// Limits per connection. Shared separately, because open connections keep it, and holding the whole policy would keep its files
    /// watched.
    pub(crate) limits: Arc<ConnectionLimits>,
    /// The gateway's client certificate towards shards for requests of this listener, if it has one of its own.
    pub(crate) upstream_identity: Option<Arc<ListenerUpstreamIdentity>>,
    /// While it is held, the files of this policy are watched for changes.
    pub(crate) _files: Arc<()>,
}

/// The policy for requests: authentication, filters, and the optional endpoints of the listener.
pub(crate) struct RequestPolicy {
    /// The listener's authenticators.
    pub(crate) chain: Chain,
    /// Whether requests without a certificate are authenticated here rather than by the shard.
    pub(crate) requires_credentials: bool,
    /// Paths that need no credential, where requests are authenticated here.
    pub(crate) anonymous: Option<AnonymousAccess>,
    /// The handling of tokens that no authenticator here can verify.
    pub(crate) tokens: UnauthenticatedTokenPolicy,
    /// True if the authenticators of workspace types are used.
    pub(crate) workspaces: bool,
    /// Whether a service account's token selects the workspace of a path without one.
    pub(crate) in_cluster_clients: bool,
    /// States whether shards may request placements here.
    pub(crate) placement_endpoint: PlacementEndpoint,
    /// Whether the admin page is served.
    pub(crate) admin_page: bool,
    /// Requirements for every request.
    pub(crate) request_filter: RequestFilter,
    /// Changes to responses.
    pub(crate) responses: ResponsePolicy,
    /// Whether a client's trace context is continued.
    pub(crate) trace_context: TraceContextPolicy,
}

/// Changes to responses at a listener.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponsePolicy {
    /// `Cache-Control: no-store` on every response.
    pub(crate) no_store: bool,
    /// Interval after which a space is written to an idle JSON watch.
    pub(crate) keep_alive: Option<Duration>,
}

impl RequestPolicy {
    /// A policy that admits no request.
    pub(crate) fn deny_all() -> Self {
        Self {
            chain: Chain::builder().build(),
            requires_credentials: true,
            anonymous: None,
            tokens: UnauthenticatedTokenPolicy::Refuse,
            workspaces: false,
            in_cluster_clients: false,
            placement_endpoint: PlacementEndpoint::Hidden,
            admin_page: false,
            request_filter: RequestFilter::default(),
            responses: ResponsePolicy::default(),
            trace_context: TraceContextPolicy::Restart,
        }
    }
}

/// The use of client certificates at a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientCertificateUse {
    /// They identify the user.
    Identity,
    /// They authenticate the CDN or proxy in front of the gateway, and never identify a user.
    Transport,
}

/// Availability of the placement endpoint at a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlacementEndpoint {
    /// The endpoint serves users of group `system:fairlead:shard`.
    Offered,
    /// The endpoint does not exist here.
    Hidden,
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The handling of tokens that no authenticator here can verify, in requests without a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnauthenticatedTokenPolicy {
    /// The shard authenticates it.
    PassOn,
    /// The request is refused.
    Refuse,
}
