//! One upstream server and its state.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::{Endpoint, NameResolver};
use fairlead_process::Reloadable;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::metrics::{ShardMetrics, ShardMetricsFactory, UpstreamKind};
use crate::upstream::addresses::Addresses;
use crate::upstream::admission::Admission;
use crate::upstream::circuit_breaker::Breaker;
use crate::upstream::dial_guard::DialGuard;
use crate::upstream::health::AddressHealth;
use crate::upstream::http1::IdleConnections;
use crate::upstream::seen_revision::{ReplicaState, SeenRevision};
use crate::upstream::streams::Connections;
use crate::upstream::{Fault, RetryBudget, StreamPermit, UpstreamCredential, UpstreamError, UpstreamOptions};

/// Time for which a shard counts as failing after a failed connection attempt, unless a later attempt has succeeded.
const FAILING_FOR: Duration = Duration::from_secs(10);
/// Time without requests after which a server without open connections is removed.
pub(super) const UNUSED_AFTER: Duration = Duration::from_secs(10 * 60);

/// One upstream server.
pub(crate) struct Upstream {
    /// The name of the shard or of the backend, for metrics.
    pub(crate) name: Arc<str>,
    /// Its metrics.
    pub(crate) metrics: Arc<ShardMetrics>,
    /// The budget of retries.
    pub(crate) retries: Arc<RetryBudget>,
    pub(super) url: Arc<str>,
    pub(super) credential: Arc<Reloadable<UpstreamCredential>>,
    pub(super) endpoint: Endpoint,
    pub(super) addresses: Arc<Addresses>,
    /// True for a shard. Other servers have no response timeout.
    pub(super) is_shard: bool,
    /// The highest revision of responses, if it has several replicas.
    seen_revision: Arc<SeenRevision>,
    /// The limit of concurrent requests.
    pub(super) admission: Arc<Admission>,
    /// The circuit breaker, one per gateway identity: the server may accept another client certificate.
    pub(super) breaker: Breaker,
    /// Admits one dial at a time for waiting requests.
    pub(super) dial_guard: DialGuard,
    pub(super) connections: Arc<Connections>,
    pub(super) idle: Arc<IdleConnections>,
    /// Set while the server is known not to support HTTP/2: the time at which this is checked again.
    pub(super) only_http1: Arc<Mutex<Option<Instant>>>,
    /// True while a connection beside the open ones is being opened, or the attempt has just failed.
    pub(super) growing: AtomicBool,
    /// Time of the last failed connection for a waiting request; cleared by a success.
    pub(super) last_failure: Mutex<Option<Instant>>,
    /// The same server for listeners with their own identities.
    pub(super) listener_variants: ArcSwap<Vec<Arc<Upstream>>>,
    pub(super) options: Arc<ArcSwap<UpstreamOptions>>,
    /// The server itself, for tasks that outlive a request and must not outlive the server.
    pub(super) this: Weak<Self>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Upstream {
    /// A server without open connections.
    pub(super) fn new(
        (make_metrics, names): (&ShardMetricsFactory, &NameResolver),
        options: &Arc<ArcSwap<UpstreamOptions>>,
        (server, name): (UpstreamKind, &Arc<str>),
        (url, endpoint): (&Arc<str>, Endpoint),
        credential: &Arc<Reloadable<UpstreamCredential>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            name: Arc::clone(name),
            metrics: Arc::new(make_metrics(name, server)),
            retries: Arc::default(),
            url: Arc::clone(url),
            credential: Arc::clone(credential),
            endpoint,
            addresses: Arc::new(Addresses::new(names.clone())),
            is_shard: server == UpstreamKind::Shard,
            seen_revision: Arc::default(),
            admission: Arc::default(),
            breaker: Breaker::default(),
            dial_guard: DialGuard::default(),
            connections: Arc::default(),
            idle: Arc::default(),
            only_http1: Arc::default(),
            growing: AtomicBool::new(false),
            last_failure: Mutex::default(),
            listener_variants: ArcSwap::default(),
            options: Arc::clone(options),
            this: Weak::clone(this),
        })
    }

    pub(super) fn matches(&self, url: &Arc<str>, credential: &Arc<Reloadable<UpstreamCredential>>) -> bool {
        self.url == *url && Arc::ptr_eq(&self.credential, credential)
    }

    /// Its URL without a path.
    pub(crate) fn base(&self) -> String {
        let scheme = if self.endpoint.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The same server with another credential and with separate connections.
    pub(super) fn with_credential(&self, credential: Arc<Reloadable<UpstreamCredential>>) -> Self {
        Self {
            name: Arc::clone(&self.name),
            metrics: Arc::clone(&self.metrics),
            retries: Arc::clone(&self.retries),
            url: Arc::clone(&self.url),
            credential,
            endpoint: self.endpoint.clone(),
            addresses: Arc::clone(&self.addresses),
            is_shard: self.is_shard,
            seen_revision: Arc::clone(&self.seen_revision),
            admission: Arc::clone(&self.admission),
            breaker: Breaker::default(),
            dial_guard: DialGuard::default(),
            connections: Arc::default(),
            idle: Arc::default(),
            only_http1: Arc::clone(&self.only_http1),
            growing: AtomicBool::new(false),
            last_failure: Mutex::default(),
            listener_variants: ArcSwap::default(),
            options: Arc::clone(&self.options),
            // Tasks hold the server itself, which outlives its variants for listeners.
            this: Weak::clone(&self.this),
        }
    }

    /// True if the server is probably unusable: connecting has just failed, or all its addresses are ejected.
    pub(super) fn is_failing(&self) -> bool {
        let failed = *self.last_failure.lock();
        failed.is_some_and(|at| at.elapsed() < FAILING_FOR) || !self.addresses.status().is_healthy()
    }

    /// True if the server is unused and its state can be dropped.
    pub(super) fn is_unused(self: &Arc<Self>) -> bool {
        let listener_variants = self.listener_variants.load();
        let is_held = |one: &Arc<Self>| Arc::strong_count(one) > 1;
        !is_held(self) && !listener_variants.iter().any(is_held) && self.is_quiet()
    }

    /// True if nothing is open and there was no connection attempt for a long time.
    pub(super) fn is_quiet(&self) -> bool {
        let listener_variants = self.listener_variants.load();
        let is_open = |one: &Self| !one.connections.is_empty() || !one.idle.is_empty();
        self.addresses.time_since_attempt() >= UNUSED_AFTER
            && !is_open(self)
            && !listener_variants.iter().any(|one| is_open(one))
    }

    /// The revision that a replica must have passed before it serves a request; `None` if there is only one replica.
    pub(crate) fn required_revision(&self) -> Option<u64> {
        (self.is_shard && self.addresses.are_several()).then(|| self.seen_revision.highest())
    }

    /// Takes the headers about revisions off a response to a request with [`Self::required_revision`].
    pub(crate) fn take_revision(&self, headers: &mut HeaderMap) -> ReplicaState {
        self.seen_revision.take(headers)
    }

    /// Records a response on this stream.
    pub(crate) fn record_success(&self, permit: &StreamPermit) {
        self.record_response(permit.health().1);
    }

    /// Records a failure on this stream that the client did not cause. With `is_connection_broken`, the failure counts once per
    /// connection.
    pub(crate) fn record_failure(&self, permit: &StreamPermit, fault: Fault, is_connection_broken: bool) {
        if !is_connection_broken || permit.count_connection_failure() {
            self.record_address_failure(permit.health().0, fault);
        }
    }

    /// True if this is the variant of the server for a listener.
    pub(super) fn is_listener_variant(&self) -> bool {
        !std::ptr::eq(self.this.as_ptr(), self)
    }

    /// Records that an address could not be connected to, or (without an error) was slower than one that was tried later. A
    /// rejection of one listener's certificate affects that listener only and must not cost the others an address.
    pub(super) fn record_connect_failure(&self, address: SocketAddr, error: Option<&UpstreamError>) {
        match error {
            Some(UpstreamError::Dial(_)) => self.record_address_failure(address, Fault::Connect),
            _ if self.is_listener_variant() => {}
            Some(_) => self.record_address_failure(address, Fault::Connect),
            None => self.record_address_failure(address, Fault::Slow),
        }
    }

    /// Records a successful connection, which does not count as a successful request.
    pub(super) fn record_connected(&self, address: SocketAddr) {
        let health = self.addresses.health_of(address);
        if health.ejection().is_some_and(|ejection| ejection.fault.is_about_connecting()) {
            self.record_response(&health);
        }
    }

    pub(super) fn record_response(&self, health: &AddressHealth) {
        if health.succeeded() {
            self.addresses.succeeded(health, &self.options.load().health);
        }
    }

    /// Host and port: the authority of requests without a `Host` header.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}
