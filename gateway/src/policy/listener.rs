//! A listener as later stages see it: its name, quotas, metrics, and the policies for its connections and requests.

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

/// One way into the gateway.
pub(crate) struct Listener {
    /// Its name in logs and metrics.
    pub(crate) name: Arc<str>,
    /// What is counted of requests.
    pub(crate) series: Arc<ListenerSeries>,
    /// What is counted of connections.
    pub(crate) metrics: ListenerMetrics,
    /// What connections meet first. Those that are open keep what they have agreed on.
    pub(crate) frame: ArcSwap<ConnectionPolicy>,
    /// How much may be asked.
    pub(crate) quotas: Arc<ListenerQuotas>,
    /// Memory for slow readers, shared by all listeners.
    pub(crate) backlog_budget: Arc<BacklogBudget>,
    /// What can be changed while connections are open.
    pub(crate) policy: ArcSwap<RequestPolicy>,
    /// As long as it is there the files of the policy are looked at.
    pub(crate) _files: Arc<()>,
}

/// What a connection meets before there is a request.
pub(crate) struct ConnectionPolicy {
    /// What a client certificate means here.
    pub(crate) certificates: ClientCertificateUse,
    /// Who may connect.
    pub(crate) peers: PeerPolicy,
    /// Certificate and protocols.
    pub(crate) tls: Arc<ReloadableTls>,
    /// What an authority is shown here that looks whether a name is ours.
    pub(crate) challenges: Option<ChallengeFolder>,
    /// What peers may do. Open connections have it, and not the rest: its files would be looked at as long as they are open.
    pub(crate) limits: Arc<ConnectionLimits>,
    /// Who the gateway is towards shards for its requests, if that is not who it usually is.
    pub(crate) sender: Option<Arc<ListenerUpstreamIdentity>>,
    /// As long as it is there its files are looked at.
    pub(crate) _files: Arc<()>,
}

/// Who may be whom at a listener, and what is offered there.
pub(crate) struct RequestPolicy {
    /// Who judges credentials.
    pub(crate) chain: Chain,
    /// Whether a request without a certificate is judged here rather than by the shard.
    pub(crate) credentials_needed: bool,
    /// Which paths are open to requests without credentials, where those are judged here.
    pub(crate) anonymous: Option<AnonymousAccess>,
    /// What happens to tokens that nobody here judges.
    pub(crate) tokens: UnauthenticatedTokenPolicy,
    /// Whether the types of workspaces may name authenticators of their own.
    pub(crate) workspaces: bool,
    /// Whether a service account's token says which workspace a path without one is about.
    pub(crate) in_cluster_clients: bool,
    /// Whether shards may ask for picks here.
    pub(crate) picks: ShardPicks,
    /// Whether there is a page for operators.
    pub(crate) admin_page: bool,
    /// What is demanded of every request.
    pub(crate) screen: RequestFilter,
    /// What becomes of answers.
    pub(crate) answers: ResponsePolicy,
    /// What a client's trace context counts.
    pub(crate) trace_context: TraceContextPolicy,
}

/// What becomes of answers at a listener, whoever gives them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponsePolicy {
    /// Nobody on the way may keep them.
    pub(crate) no_store: bool,
    /// How long a watch may be silent before a blank goes to its client.
    pub(crate) keep_alive: Option<Duration>,
}

impl RequestPolicy {
    /// Nobody is let in.
    pub(crate) fn closed() -> Self {
        Self {
            chain: Chain::builder().build(),
            credentials_needed: true,
            anonymous: None,
            tokens: UnauthenticatedTokenPolicy::Refuse,
            workspaces: false,
            in_cluster_clients: false,
            picks: ShardPicks::Hidden,
            admin_page: false,
            screen: RequestFilter::default(),
            answers: ResponsePolicy::default(),
            trace_context: TraceContextPolicy::Restart,
        }
    }
}

/// What a client certificate means at a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientCertificateUse {
    /// It says who the user is.
    Identity,
    /// It is between the edge and us, and never somebody's identity.
    Transport,
}

/// Whether shards may ask at a listener where a workspace should live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ShardPicks {
    /// Yes, with a certificate of the right group.
    Offered,
    /// No: the endpoint does not exist here.
    Hidden,
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What happens to a request without a certificate that carries a token, where nobody judges tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnauthenticatedTokenPolicy {
    /// The shard judges it.
    PassOn,
    /// It is not accepted at this listener.
    Refuse,
}
