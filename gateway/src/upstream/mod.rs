//! Shards and mapped backends as servers: where they are, and how they are talked to.
//!
//! HTTP/2 on few multiplexed connections where possible; HTTP/1.1 only for tunnels and for servers without HTTP/2. A
//! request takes the least busy connection; connections are spread over a server's endpoints, and while one is being
//! opened nobody else opens one.

mod addresses;
mod admission;
mod breaker;
mod budget;
mod credential;
mod dial;
mod gate;
mod health;
mod http1;
mod probe;
mod sender;
mod streams;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::{Endpoint, Names};
use fairlead_process::Reloadable;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::observe::{MakeMetrics, Server, ShardMetrics};
use crate::pick::{Signs, Work};
use addresses::Addresses;
pub(crate) use addresses::Standing;
use admission::Admission;
pub(crate) use admission::{AdmissionOptions, Occupancy, Overloaded, Share, Slot};
use breaker::Breaker;
pub(crate) use breaker::BreakerOptions;
pub(crate) use budget::RetryBudget;
pub(crate) use credential::{CredentialError, CredentialFiles, UpstreamCredential};
use gate::Gate;
use health::AddressHealth;
pub(crate) use health::{Fault, HealthOptions};
use http1::Idle;
pub(crate) use http1::{Lease, Part, RequestBody};
pub(crate) use sender::DoorSender;
pub(crate) use streams::StreamPermit;
use streams::{Connections, Lifetime};
pub(crate) use wire::Wire;

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
/// How long after a failure the next connection beside the open ones is tried.
const GROW_AGAIN: Duration = Duration::from_secs(10);
/// For how long a shard that could not be connected to is taken not to be there, unless somebody has connected since.
const FAILING_FOR: Duration = Duration::from_secs(10);
/// A server that has not been asked for anything for so long, with nothing open, is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);
/// Of fewer shards nothing can be said by how many of them fail.
const FEW: usize = 3;
/// Connections do not all get old at the same time: up to this part of their age they are younger.
const AGE_JITTER: f64 = 0.2;

/// All servers that requests are forwarded to: the shards, and the backends of mapped paths.
pub(crate) struct Upstreams {
    /// For shards, and for backends without one of their own.
    credential: ArcSwap<Reloadable<UpstreamCredential>>,
    /// For shards that have one of their own, by name.
    own: OwnCredentials,
    options: Arc<ArcSwap<UpstreamOptions>>,
    metrics: MakeMetrics,
    names: Names,
    shards: ArcSwap<ByName>,
    backends: ArcSwap<ByName>,
    adding: Mutex<()>,
}

type ByName = FxHashMap<Arc<str>, Arc<Upstream>>;

/// Who the gateway is towards single shards, and whom it takes them for.
pub(crate) type OwnCredentials = FxHashMap<Arc<str>, Arc<Reloadable<UpstreamCredential>>>;

/// A server that is no shard, as a mapping describes it.
#[derive(Clone, Debug)]
pub(crate) struct BackendSpec {
    /// For metrics and logs. Another URL or credential under the same name replaces what there was.
    pub(crate) name: Arc<str>,
    /// `https://…`, or `http://…`, to which no credential is shown. Its path is not looked at.
    pub(crate) url: Arc<str>,
    /// Who the gateway is towards it and which authorities it is believed by; `None`: as towards shards.
    pub(crate) credential: Option<Arc<Reloadable<UpstreamCredential>>>,
}

/// One server.
pub(crate) struct Upstream {
    /// The name of the shard or of the backend, for metrics.
    pub(crate) name: Arc<str>,
    /// Its metrics.
    pub(crate) metrics: Arc<ShardMetrics>,
    /// How often requests to it may be repeated.
    pub(crate) retries: Arc<RetryBudget>,
    url: Arc<str>,
    credential: Arc<Reloadable<UpstreamCredential>>,
    endpoint: Endpoint,
    addresses: Arc<Addresses>,
    /// Whether it is a shard: others may take as long as they like.
    is_shard: bool,
    /// How many requests it works on.
    admission: Arc<Admission>,
    /// Whether it is left alone by whom the gateway is here: another one may be welcome.
    breaker: Breaker,
    /// One dial at a time that somebody waits for.
    gate: Gate,
    connections: Arc<Connections>,
    idle: Arc<Idle>,
    /// Set while the server is known not to speak HTTP/2: until when that is believed.
    only_http1: Arc<Mutex<Option<Instant>>>,
    /// A connection beside the open ones is being opened, or that has just failed.
    growing: AtomicBool,
    /// When a connection that somebody waited for could not be opened, and none could since.
    failed: Mutex<Option<Instant>>,
    /// The same server on behalf of doors with identities of their own.
    on_behalf: ArcSwap<Vec<Arc<Upstream>>>,
    options: Arc<ArcSwap<UpstreamOptions>>,
    /// The server itself, for tasks that outlive a request, and must not outlive the server.
    this: Weak<Self>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

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
    pub(crate) addresses: Standing,
}

/// How one server is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
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

impl Upstreams {
    /// No connections yet. `metrics` makes the metrics of a server by its name.
    pub(crate) fn new(
        credential: Arc<Reloadable<UpstreamCredential>>,
        own: OwnCredentials,
        options: UpstreamOptions,
        metrics: MakeMetrics,
        names: Names,
    ) -> Self {
        Self {
            credential: ArcSwap::new(credential),
            own,
            options: Arc::new(ArcSwap::from_pointee(options)),
            metrics,
            names,
            shards: ArcSwap::default(),
            backends: ArcSwap::default(),
            adding: Mutex::new(()),
        }
    }

    /// Changes the time limits of requests from now on.
    pub(crate) fn set_options(&self, options: UpstreamOptions) {
        self.options.store(Arc::new(options));
        for shard in self.shards.load().values() {
            shard.admission.set_options(options.admission);
        }
    }

    /// The server of a shard. One look-up in a map; the first request for a URL adds it.
    ///
    /// # Errors
    /// [`UpstreamError::Url`] if the shard's URL is not one.
    pub(crate) fn get(&self, name: &Arc<str>, url: &Arc<str>) -> Result<Arc<Upstream>, UpstreamError> {
        let shared = self.credential.load();
        let credential = self.own.get(name).unwrap_or(&shared);
        if let Some(known) = self.shards.load().get(name)
            && known.is(url, credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(Server::Shard, name, url, credential)
    }

    /// The server of a mapped path, as cheap as [`Self::get`].
    ///
    /// # Errors
    /// [`UpstreamError::Url`] if its URL is not one.
    pub(crate) fn backend(&self, spec: &BackendSpec) -> Result<Arc<Upstream>, UpstreamError> {
        let shared = self.credential.load();
        let credential = spec.credential.as_ref().unwrap_or(&shared);
        if let Some(known) = self.backends.load().get(&spec.name)
            && known.is(&spec.url, credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(Server::Backend, &spec.name, &spec.url, credential)
    }

    /// What a shard was called by before is of no use any more: a name has one server.
    fn add(
        &self,
        server: Server,
        name: &Arc<str>,
        url: &Arc<str>,
        credential: &Arc<Reloadable<UpstreamCredential>>,
    ) -> Result<Arc<Upstream>, UpstreamError> {
        let servers = match server {
            Server::Shard => &self.shards,
            Server::Backend => &self.backends,
        };
        let endpoint = Endpoint::parse(url)?;
        if server == Server::Shard && !endpoint.prefix().is_empty() {
            tracing::warn!(shard = %name, %url, "the path of a shard's base URL is left out, as kcp's shards have none");
        }
        let _adding = self.adding.lock();
        let all = servers.load();
        if let Some(known) = all.get(name)
            && known.is(url, credential)
        {
            return Ok(Arc::clone(known));
        }
        // Tenants bring backends about by mounts, and some lead nowhere.
        let is_kept = |known: &Arc<Upstream>| server == Server::Shard || !known.is_forgotten();
        let kept = all.iter().filter(|(_, known)| is_kept(known));
        let mut by_name: ByName = kept.map(|(name, known)| (Arc::clone(name), Arc::clone(known))).collect();
        let added = Arc::new_cyclic(|this| Upstream {
            name: Arc::clone(name),
            metrics: Arc::new((self.metrics)(name, server)),
            retries: Arc::default(),
            url: Arc::clone(url),
            credential: Arc::clone(credential),
            endpoint,
            addresses: Arc::new(Addresses::new(self.names.clone())),
            is_shard: server == Server::Shard,
            admission: Arc::default(),
            breaker: Breaker::default(),
            gate: Gate::default(),
            connections: Arc::default(),
            idle: Arc::default(),
            only_http1: Arc::default(),
            growing: AtomicBool::new(false),
            failed: Mutex::default(),
            on_behalf: ArcSwap::default(),
            options: Arc::clone(&self.options),
            this: Weak::clone(this),
        });
        by_name.insert(Arc::clone(name), Arc::clone(&added));
        servers.store(Arc::new(by_name));
        Ok(added)
    }

    /// Whether only so many requests at a time go to it.
    pub(crate) fn limits(&self, upstream: &Upstream) -> bool {
        upstream.is_shard && self.options.load().admission.is_limited()
    }

    /// Lets a request in if there is room for it now.
    pub(crate) fn enter_at_once(&self, upstream: &Upstream, share: Share) -> Option<Slot> {
        upstream.admission.enter_at_once(share, self.options.load().admission)
    }

    /// Waits until the server may have one more request.
    ///
    /// # Errors
    /// [`Overloaded`]; the server has seen nothing then.
    pub(crate) async fn enter(&self, upstream: &Upstream, share: Share) -> Result<Slot, Overloaded> {
        let options = self.options.load().admission;
        upstream.admission.enter(share, options).await
    }

    /// How a server is doing, as far as a request for it would notice.
    pub(crate) fn outlook(&self, upstream: &Upstream) -> Outlook {
        let options = self.options();
        let trouble = match (upstream.breaker.rests(options.breaker), upstream.is_failing()) {
            (true, _) => Some("it could not be connected to, and is left alone for a while"),
            (false, true) => Some("it could not be connected to a moment ago, or all its addresses fail"),
            (false, false) => None,
        };
        let occupancy = self.limits(upstream).then(|| upstream.admission.occupancy(options.admission));
        Outlook { trouble, occupancy }
    }

    /// How every shard is doing, by name.
    pub(crate) fn shards(&self) -> Vec<ShardReport> {
        let options = self.options();
        let report = |(name, shard): (&Arc<str>, &Arc<Upstream>)| ShardReport {
            name: Arc::clone(name),
            occupancy: shard.admission.occupancy(options.admission),
            left_alone: shard.breaker.is_open(options.breaker),
            is_healthy: !shard.is_failing(),
            addresses: shard.addresses.standing(),
        };
        self.shards.load().iter().map(report).collect()
    }

    /// A stream to the server over HTTP/2, on an open connection or on a new one.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has seen nothing then.
    pub(crate) async fn stream(&self, upstream: &Arc<Upstream>) -> Result<StreamPermit, UpstreamError> {
        let group_key = upstream.credential.load().group_key;
        let (permit, more) = upstream.connections.permit(group_key, || upstream.addresses.usable());
        if more && !upstream.growing.swap(true, Ordering::Relaxed) {
            tokio::spawn(grow(Arc::clone(upstream), self.options()));
        }
        match permit {
            Some(permit) => Ok(permit),
            // Boxed, because it is rare, and as large as a handshake.
            None => Box::pin(upstream.stream_on_new_connection(self.options())).await,
        }
    }

    /// A connection over HTTP/1.1, for a server that speaks nothing else.
    ///
    /// # Errors
    /// [`UpstreamError`]; the server has seen nothing then.
    pub(crate) async fn lease(&self, upstream: &Upstream) -> Result<Lease, UpstreamError> {
        let options = self.options();
        let group_key = upstream.credential.load().group_key;
        match upstream.idle.take(group_key, options.idle_timeout) {
            Some(lease) => Ok(lease),
            None => self.fresh_lease(upstream).await,
        }
    }

    /// The same on a connection that has not served before.
    ///
    /// # Errors
    /// [`UpstreamError`]; the server has seen nothing then.
    pub(crate) async fn fresh_lease(&self, upstream: &Upstream) -> Result<Lease, UpstreamError> {
        let wire = Box::pin(self.dial_http1(upstream)).await?;
        let group_key = upstream.credential.load().group_key;
        Ok(upstream.idle.begin(wire, group_key).await?)
    }

    /// A connection of its own in HTTP/1.1, for a tunnel.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has seen nothing then.
    pub(crate) async fn dial_http1(&self, upstream: &Upstream) -> Result<Wire, UpstreamError> {
        let options = self.options();
        let attempt = upstream.breaker.attempt(options.breaker).map_err(|_| UpstreamError::LeftAlone)?;
        let dialled = upstream.dial(options.connect_timeout).await;
        match &dialled {
            Ok(_) => attempt.succeeded(),
            Err(_) => attempt.failed(),
        }
        dialled
    }

    /// How long a shard may take to begin its answer.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.options.load().read_timeout
    }

    /// What a client hears of a server that cannot be reached.
    pub(crate) fn unreachable(&self) -> Unreachable {
        self.options.load().unreachable
    }

    /// Whether a request to `upstream` may be sent once more; counts it if so.
    pub(crate) fn may_repeat(&self, upstream: &Upstream) -> bool {
        self.options.load().repeat && upstream.retries.spend()
    }

    fn options(&self) -> UpstreamOptions {
        **self.options.load()
    }
}

/// Costs requests nothing: the work is in metrics that are kept anyway, and a failure is noted where a dial fails.
impl Signs for Upstreams {
    fn work(&self, shard: &str) -> Work {
        let (answered, waited) =
            self.shards.load().get(shard).map(|known| known.metrics.answered()).unwrap_or_default();
        Work { answered, waited }
    }

    fn is_failing(&self, shard: &str) -> bool {
        self.shards.load().get(shard).is_some_and(|known| known.is_failing())
    }

    /// A shard that is gone fails for ever, so only those count that there are; and of these, those that were ever asked.
    fn panics(&self, shards: &mut dyn Iterator<Item = &str>) -> bool {
        let known = self.shards.load();
        let (mut asked, mut failing) = (0, 0);
        for shard in shards.filter_map(|name| known.get(name)) {
            asked += 1;
            failing += usize::from(shard.is_failing());
        }
        asked >= FEW && self.options().health.panics(failing, asked)
    }
}

impl Upstream {
    fn is(&self, url: &Arc<str>, credential: &Arc<Reloadable<UpstreamCredential>>) -> bool {
        self.url == *url && Arc::ptr_eq(&self.credential, credential)
    }

    /// Its URL without a path.
    pub(crate) fn base(&self) -> String {
        let scheme = if self.endpoint.is_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// The same server, as somebody else and on connections of their own.
    fn beside(&self, credential: Arc<Reloadable<UpstreamCredential>>) -> Self {
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
            gate: Gate::default(),
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
    fn is_failing(&self) -> bool {
        let failed = *self.failed.lock();
        failed.is_some_and(|at| at.elapsed() < FAILING_FOR) || !self.addresses.standing().is_healthy()
    }

    /// Whether nobody uses it and nobody will miss what is known of it.
    fn is_forgotten(self: &Arc<Self>) -> bool {
        let on_behalf = self.on_behalf.load();
        let is_held = |one: &Arc<Self>| Arc::strong_count(one) > 1;
        !is_held(self) && !on_behalf.iter().any(is_held) && self.is_quiet()
    }

    /// Whether nothing is open there and for long nobody has tried to open anything.
    fn is_quiet(&self) -> bool {
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

    /// Whether it is the server on behalf of a door.
    fn is_on_behalf(&self) -> bool {
        !std::ptr::eq(self.this.as_ptr(), self)
    }

    /// An address could not be connected to, or (without an error) was slower than one that was asked later. What a server
    /// makes of one door's certificate is that door's affair, and must not cost the others an address.
    fn could_not_connect(&self, address: SocketAddr, error: Option<&UpstreamError>) {
        match error {
            Some(UpstreamError::Dial(_)) => self.fails(address, Fault::Connect),
            _ if self.is_on_behalf() => {}
            Some(_) => self.fails(address, Fault::Connect),
            None => self.fails(address, Fault::Slow),
        }
    }

    /// That says nothing about requests.
    fn connects(&self, address: SocketAddr) {
        let health = self.addresses.health_of(address);
        if health.out().is_some_and(|out| out.fault.is_about_connecting()) {
            self.answers(&health);
        }
    }

    fn answers(&self, health: &AddressHealth) {
        if health.succeeded() {
            self.addresses.succeeded(health, &self.options.load().health);
        }
    }

    fn fails(&self, address: SocketAddr, fault: Fault) {
        let options = self.options.load().health;
        let Some(until) = self.addresses.failed(address, fault, &options) else { return };
        let leaves_out = self.addresses.leaves_out();
        tracing::warn!(server = %self.name, %address, ?fault, leaves_out, "an address is ejected");
        self.metrics.ejected();
        if leaves_out && let Some(server) = self.this.upgrade() {
            let on_behalf = server.on_behalf.load();
            std::iter::once(&server).chain(on_behalf.iter()).for_each(|one| one.connections.leave(address));
        }
        tokio::spawn(probe::bring_back(Weak::clone(&self.this), address, until));
    }

    /// What an HTTP/1.0 client that names no host is taken to mean.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    async fn stream_on_new_connection(
        self: &Arc<Self>,
        options: UpstreamOptions,
    ) -> Result<StreamPermit, UpstreamError> {
        let known = self.only_http1.lock().is_some_and(|until| Instant::now() < until);
        if known || !self.endpoint.is_tls() {
            return Err(UpstreamError::OnlyHttp1);
        }
        if self.breaker.rests(options.breaker) {
            return Err(UpstreamError::LeftAlone);
        }
        let pass = self.gate.enter().await.map_err(|_| UpstreamError::JustFailed)?;
        let group_key = self.credential.load().group_key;
        if let (Some(permit), _) = self.connections.permit(group_key, || 0) {
            return Ok(permit);
        }
        let attempt = self.breaker.attempt(options.breaker).map_err(|_| UpstreamError::LeftAlone)?;
        let connected = self.connect(options).await;
        let has_failed = matches!(&connected, Err(error) if !matches!(error, UpstreamError::OnlyHttp1));
        *self.failed.lock() = has_failed.then(Instant::now);
        if has_failed {
            attempt.failed();
            pass.failed();
        } else {
            attempt.succeeded();
        }
        connected
    }
}

/// Opens a connection beside those that there are.
async fn grow(upstream: Arc<Upstream>, options: UpstreamOptions) {
    if let Err(error) = upstream.connect(options).await {
        tracing::debug!(shard = %upstream.name, %error, "no further connection could be opened");
        tokio::time::sleep(GROW_AGAIN).await;
    }
    upstream.growing.store(false, Ordering::Relaxed);
}

fn lifetime(options: UpstreamOptions) -> Lifetime {
    let younger = options.max_age.mul_f64(AGE_JITTER * random_share());
    Lifetime {
        ping_interval: options.ping_interval,
        pings: options.pings,
        idle_timeout: options.idle_timeout,
        max_age: options.max_age.saturating_sub(younger),
    }
}

/// Between 0 and 1. Without a random number everything is as old as everything else, which is no harm.
fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
