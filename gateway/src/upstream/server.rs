//! One server, and how it is doing.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::{Endpoint, NameResolver};
use fairlead_process::Reloadable;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::metrics::{MakeMetrics, ShardMetrics, UpstreamKind};
use crate::upstream::addresses::Addresses;
use crate::upstream::admission::Admission;
use crate::upstream::circuit_breaker::Breaker;
use crate::upstream::dial_guard::DialGuard;
use crate::upstream::health::AddressHealth;
use crate::upstream::http1::Idle;
use crate::upstream::streams::Connections;
use crate::upstream::{Fault, RetryBudget, StreamPermit, UpstreamCredential, UpstreamError, UpstreamOptions};

/// For how long a shard that could not be connected to is taken not to be there, unless somebody has connected since.
const FAILING_FOR: Duration = Duration::from_secs(10);
/// A server that has not been asked for anything for so long, with nothing open, is forgotten.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// One server.
pub(crate) struct Upstream {
    /// The name of the shard or of the backend, for metrics.
    pub(crate) name: Arc<str>,
    /// Its metrics.
    pub(crate) metrics: Arc<ShardMetrics>,
    /// How often requests to it may be repeated.
    pub(crate) retries: Arc<RetryBudget>,
    pub(super) url: Arc<str>,
    pub(super) credential: Arc<Reloadable<UpstreamCredential>>,
    pub(super) endpoint: Endpoint,
    pub(super) addresses: Arc<Addresses>,
    /// Whether it is a shard: others may take as long as they like.
    pub(super) is_shard: bool,
    /// How many requests it works on.
    pub(super) admission: Arc<Admission>,
    /// Whether it is left alone by whom the gateway is here: another one may be welcome.
    pub(super) breaker: Breaker,
    /// One dial at a time that somebody waits for.
    pub(super) gate: DialGuard,
    pub(super) connections: Arc<Connections>,
    pub(super) idle: Arc<Idle>,
    /// Set while the server is known not to speak HTTP/2: until when that is believed.
    pub(super) only_http1: Arc<Mutex<Option<Instant>>>,
    /// A connection beside the open ones is being opened, or that has just failed.
    pub(super) growing: AtomicBool,
    /// When a connection that somebody waited for could not be opened, and none could since.
    pub(super) failed: Mutex<Option<Instant>>,
    /// The same server on behalf of listeners with identities of their own.
    pub(super) on_behalf: ArcSwap<Vec<Arc<Upstream>>>,
    pub(super) options: Arc<ArcSwap<UpstreamOptions>>,
    /// The server itself, for tasks that outlive a request, and must not outlive the server.
    pub(super) this: Weak<Self>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Nothing is open yet.
    pub(super) fn new(
        (make_metrics, names): (&MakeMetrics, &NameResolver),
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
            admission: Arc::default(),
            breaker: Breaker::default(),
            gate: DialGuard::default(),
            connections: Arc::default(),
            idle: Arc::default(),
            only_http1: Arc::default(),
            growing: AtomicBool::new(false),
            failed: Mutex::default(),
            on_behalf: ArcSwap::default(),
            options: Arc::clone(options),
            this: Weak::clone(this),
        })
    }

    pub(super) fn is(&self, url: &Arc<str>, credential: &Arc<Reloadable<UpstreamCredential>>) -> bool {
        self.url == *url && Arc::ptr_eq(&self.credential, credential)
    }

    /// Its URL without a path.
    pub(crate) fn base(&self) -> String {
        let scheme = if self.endpoint.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The same server, as somebody else and on connections of their own.
    pub(super) fn beside(&self, credential: Arc<Reloadable<UpstreamCredential>>) -> Self {
        Self {
            name: Arc::clone(&self.name),
            metrics: Arc::clone(&self.metrics),
            retries: Arc::clone(&self.retries),
            url: Arc::clone(&self.url),
            credential,
            endpoint: self.endpoint.clone(),
            addresses: Arc::clone(&self.addresses),
            is_shard: self.is_shard,
            admission: Arc::clone(&self.admission),
            breaker: Breaker::default(),
            gate: DialGuard::default(),
            connections: Arc::default(),
            idle: Arc::default(),
            only_http1: Arc::clone(&self.only_http1),
            growing: AtomicBool::new(false),
            failed: Mutex::default(),
            on_behalf: ArcSwap::default(),
            options: Arc::clone(&self.options),
            // The server itself outlives those on whose behalf it is asked.
            this: Weak::clone(&self.this),
        }
    }

    /// Whether nothing says that it can be used: it could not be connected to a moment ago, or all its addresses are ejected.
    pub(super) fn is_failing(&self) -> bool {
        let failed = *self.failed.lock();
        failed.is_some_and(|at| at.elapsed() < FAILING_FOR) || !self.addresses.standing().is_healthy()
    }

    /// Whether nobody uses it and nobody will miss what is known of it.
    pub(super) fn is_forgotten(self: &Arc<Self>) -> bool {
        let on_behalf = self.on_behalf.load();
        let is_held = |one: &Arc<Self>| Arc::strong_count(one) > 1;
        !is_held(self) && !on_behalf.iter().any(is_held) && self.is_quiet()
    }

    /// Whether nothing is open there and for long nobody has tried to open anything.
    pub(super) fn is_quiet(&self) -> bool {
        let on_behalf = self.on_behalf.load();
        let is_open = |one: &Self| !one.connections.is_empty() || !one.idle.is_empty();
        self.addresses.not_asked_for() >= FORGOTTEN_AFTER
            && !is_open(self)
            && !on_behalf.iter().any(|one| is_open(one))
    }

    /// A request was answered over this stream.
    pub(crate) fn answered_over(&self, permit: &StreamPermit) {
        self.answers(permit.health().1);
    }

    /// A request failed over this stream, through no fault of its client. `whole`: its connection is broken.
    pub(crate) fn failed_over(&self, permit: &StreamPermit, fault: Fault, whole: bool) {
        if !whole || permit.blame_connection() {
            self.fails(permit.health().0, fault);
        }
    }

    /// Whether it is the server on behalf of a listener.
    pub(super) fn is_on_behalf(&self) -> bool {
        !std::ptr::eq(self.this.as_ptr(), self)
    }

    /// An address could not be connected to, or (without an error) was slower than one that was asked later. What a server
    /// makes of one listener's certificate is that listener's affair, and must not cost the others an address.
    pub(super) fn could_not_connect(&self, address: SocketAddr, error: Option<&UpstreamError>) {
        match error {
            Some(UpstreamError::Dial(_)) => self.fails(address, Fault::Connect),
            _ if self.is_on_behalf() => {}
            Some(_) => self.fails(address, Fault::Connect),
            None => self.fails(address, Fault::Slow),
        }
    }

    /// That says nothing about requests.
    pub(super) fn connects(&self, address: SocketAddr) {
        let health = self.addresses.health_of(address);
        if health.out().is_some_and(|out| out.fault.is_about_connecting()) {
            self.answers(&health);
        }
    }

    pub(super) fn answers(&self, health: &AddressHealth) {
        if health.succeeded() {
            self.addresses.succeeded(health, &self.options.load().health);
        }
    }

    /// What an HTTP/1.0 client that names no host is taken to mean.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}
