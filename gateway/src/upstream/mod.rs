//! Upstream servers (shards and mapped backends): their addresses, connections, limits and health.
//!
//! HTTP/2 on few multiplexed connections where possible; HTTP/1.1 only for tunnels and for servers without HTTP/2. A
//! request takes the least busy connection; connections are spread over a server's endpoints, and only one request at a
//! time opens one.
//!
//! May use `telemetry` and `request`. Must not know clients, listeners or workspaces.

mod addresses;
mod admission;
mod circuit_breaker;
mod credential;
mod dial;
mod dial_guard;
mod health;
mod host_addresses;
mod http1;
mod listener_identity;
mod probe;
pub(crate) mod read_ahead;
mod retry_budget;
mod seen_revision;
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
pub(crate) use host_addresses::with_host_addresses;
pub(crate) use http1::{BodyPart, Lease, RequestBody};
pub(crate) use listener_identity::ListenerUpstreamIdentity;
pub(crate) use retry_budget::RetryBudget;
pub(crate) use seen_revision::ReplicaState;
pub(crate) use server::Upstream;
pub(crate) use servers::{BackendSpec, OwnCredentials, Upstreams};
pub(crate) use streams::StreamPermit;
pub(crate) use transport::UpstreamTransport;

/// Options of the communication with servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamOptions {
    /// Time limit for connecting to one endpoint, including TLS and the server's first bytes.
    pub(crate) connect_timeout: Duration,
    /// Time without a byte of an ordinary response after which the request fails. Watches and upgrades have no limit;
    /// pings detect dead connections.
    pub(crate) read_timeout: Duration,
    /// Time without a request after which a connection is closed.
    pub(crate) idle_timeout: Duration,
    /// Interval of the checks of a connection: for its idle time and age, and by a ping.
    pub(crate) ping_interval: Duration,
    /// True if these checks ping the shard.
    pub(crate) pings: bool,
    /// Age at which a connection is replaced; its open streams continue.
    pub(crate) max_age: Duration,
    /// Bytes that the server may send ahead on one stream.
    pub(crate) stream_window: u32,
    /// The response if a server cannot be reached.
    pub(crate) unreachable: Unreachable,
    /// True if requests may be retried.
    pub(crate) retries: bool,
    /// The limits of concurrent requests.
    pub(crate) admission: AdmissionOptions,
    /// The circuit breaker.
    pub(crate) breaker: BreakerOptions,
    /// The outlier detection of addresses.
    pub(crate) health: HealthOptions,
}

/// The response if a server cannot be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unreachable {
    /// 503 with a `Status` and `Retry-After`, which clients honour.
    ServiceUnavailable,
    /// 502 without a body, as kcp.
    BadGateway,
}

/// Time after which a server without HTTP/2 is checked for HTTP/2 again.
const ONLY_HTTP1_FOR: Duration = Duration::from_secs(30);

/// The state of a shard as a server.
#[derive(Clone, Debug)]
pub(crate) struct ShardReport {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its concurrent requests.
    pub(crate) occupancy: Occupancy,
    /// True if its circuit is open after failed connections.
    pub(crate) circuit_open: bool,
    /// True if new workspaces may be placed there.
    pub(crate) is_healthy: bool,
    /// Its addresses.
    pub(crate) addresses: EndpointStatus,
}

/// The state of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamStatus {
    /// The reason why a new connection would probably fail.
    pub(crate) connection_problem: Option<&'static str>,
    /// Its concurrent requests, if they are limited.
    pub(crate) occupancy: Option<Occupancy>,
}

/// The server cannot be reached. A retry may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] fairlead_client::EndpointError),
    /// Its name has no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// The connection cannot be opened.
    #[error("the connection cannot be opened: {0}")]
    Dial(#[from] io::Error),
    /// The connection was opened, but the TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    /// HTTP/2 could not be started.
    #[error("HTTP/2 cannot be started: {0}")]
    Http2(#[from] h2::Error),
    /// HTTP/1.1 could not be started.
    #[error("HTTP/1.1 cannot be started: {0}")]
    Http1(#[from] hyper::Error),
    /// The server supports HTTP/1.1 only and must be reached by HTTP/1.1.
    #[error("the server does not support HTTP/2")]
    OnlyHttp1,
    /// The server's circuit is open after several failures.
    #[error("the circuit breaker is open after several failed connections")]
    CircuitOpen,
    /// Another request has just failed to connect.
    #[error("a connection attempt failed a moment ago")]
    JustFailed,
}

/// A random number between 0 and 1. Without a random source it is constant; all connections then have the same age, which does
/// no harm.
fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
