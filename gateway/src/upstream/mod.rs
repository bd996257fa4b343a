//! Shards and mapped backends as servers: where they are, and how they are talked to.
//!
//! HTTP/2 on few multiplexed connections where possible; HTTP/1.1 only for tunnels and for servers without HTTP/2. A
//! request takes the least busy connection; connections are spread over a server's endpoints, and while one is being
//! opened nobody else opens one.

mod addresses;
mod admission;
mod circuit_breaker;
mod credential;
mod dial;
mod dial_guard;
mod health;
mod http1;
mod listener_identity;
mod probe;
pub(crate) mod read_ahead;
mod retry_budget;
mod server;
mod servers;
mod streams;
mod transport;
pub(crate) mod worker;
pub(crate) mod write_coalescer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use addresses::EndpointStatus;
pub(crate) use admission::{AdmissionOptions, ConcurrencyPermit, FlowKey, Occupancy, Overloaded};
pub(crate) use circuit_breaker::BreakerOptions;
pub(crate) use credential::{CredentialError, CredentialFiles, UpstreamCredential};
pub(crate) use health::{Fault, HealthOptions};
pub(crate) use http1::{BodyPart, Lease, RequestBody};
pub(crate) use listener_identity::ListenerUpstreamIdentity;
pub(crate) use retry_budget::RetryBudget;
pub(crate) use server::Upstream;
pub(crate) use servers::{BackendSpec, OwnCredentials, Upstreams};
pub(crate) use streams::StreamPermit;
pub(crate) use transport::UpstreamTransport;

/// How servers are talked to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamOptions {
    /// For one endpoint, TLS and the first sign of life included.
    pub(crate) connect_timeout: Duration,
    /// Without any byte of an ordinary answer for this long, the request fails. Watches and upgrades have no
    /// limit; a dead connection is noticed by pings.
    pub(crate) read_timeout: Duration,
    /// Without a request for this long, a connection is closed.
    pub(crate) idle_timeout: Duration,
    /// How often a connection is looked after: whether it is idle or old, and whether the shard is there.
    pub(crate) ping_interval: Duration,
    /// Whether the shard is asked for that.
    pub(crate) pings: bool,
    /// After this long a connection is replaced; what is open on it goes on.
    pub(crate) max_age: Duration,
    /// Bytes that it may send ahead of one answer.
    pub(crate) stream_window: u32,
    /// What a client hears of a server that cannot be reached.
    pub(crate) unreachable: Unreachable,
    /// Whether requests may be sent once more.
    pub(crate) repeat: bool,
    /// How many of them it gets at a time.
    pub(crate) admission: AdmissionOptions,
    /// When it is left alone.
    pub(crate) breaker: BreakerOptions,
    /// When its addresses are.
    pub(crate) health: HealthOptions,
}

/// What a client hears of a server that cannot be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unreachable {
    /// 503 with a `Status` and `Retry-After`, which clients follow.
    ServiceUnavailable,
    /// 502 with nothing, as kcp.
    BadGateway,
}

/// For how long a server without HTTP/2 is not asked again whether it has learned it.
const ONLY_HTTP1_FOR: Duration = Duration::from_secs(30);

/// How a shard is doing as a server.
#[derive(Clone, Debug)]
pub(crate) struct ShardReport {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its requests.
    pub(crate) occupancy: Occupancy,
    /// It cannot be connected to, and is left alone.
    pub(crate) left_alone: bool,
    /// New workspaces may go there.
    pub(crate) is_healthy: bool,
    /// Its addresses.
    pub(crate) addresses: EndpointStatus,
}

/// How one server is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamStatus {
    /// Why a new connection is not to be expected.
    pub(crate) trouble: Option<&'static str>,
    /// Its requests, where they are limited.
    pub(crate) occupancy: Option<Occupancy>,
}

/// The server cannot be found. A retry may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The URL is not one.
    #[error(transparent)]
    Url(#[from] fairlead_client::EndpointError),
    /// Its name has no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// It cannot be connected to.
    #[error("it cannot be connected to: {0}")]
    Dial(#[from] io::Error),
    /// It can, but it and the gateway do not agree on TLS.
    #[error("it cannot be connected to: {0}")]
    Tls(#[source] io::Error),
    /// HTTP/2 could not be begun.
    #[error("it does not speak HTTP/2 as it should: {0}")]
    Http2(#[from] h2::Error),
    /// HTTP/1.1 could not be begun.
    #[error("it does not speak HTTP/1.1 as it should: {0}")]
    Http1(#[from] hyper::Error),
    /// It speaks HTTP/1.1 only; it has to be reached another way.
    #[error("it does not speak HTTP/2")]
    OnlyHttp1,
    /// It could not be for a while, and is left alone.
    #[error("it could not be connected to several times, and is left alone for a while")]
    LeftAlone,
    /// Somebody else has just tried.
    #[error("it could not be connected to a moment ago")]
    JustFailed,
}

/// Between 0 and 1. Without a random number everything is as old as everything else, which is no harm.
fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
