//! All servers by name. A server is added by its first request and removed when it is no longer used.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::{Endpoint, NameResolver};
use fairlead_process::Reloadable;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::telemetry::metrics::{ShardMetricsFactory, UpstreamKind};
use crate::upstream::dial::grow;
use crate::upstream::{
    ConcurrencyPermit, FlowKey, Lease, Overloaded, ShardReport, StreamPermit, Unreachable, Upstream,
    UpstreamCredential, UpstreamError, UpstreamOptions, UpstreamStatus, UpstreamTransport,
};

/// All servers that requests are forwarded to: the shards, and the backends of mapped paths.
pub(crate) struct Upstreams {
    /// For shards, and for backends without their own credential.
    credential: ArcSwap<Reloadable<UpstreamCredential>>,
    /// For shards with their own credentials, by name.
    own: OwnCredentials,
    pub(super) options: Arc<ArcSwap<UpstreamOptions>>,
    pub(super) metrics: ShardMetricsFactory,
    pub(super) names: NameResolver,
    pub(super) shards: ArcSwap<ByName>,
    pub(super) backends: ArcSwap<ByName>,
    adding: Mutex<()>,
}

type ByName = FxHashMap<Arc<str>, Arc<Upstream>>;

/// The client certificates and certificate authorities for single shards.
pub(crate) type OwnCredentials = FxHashMap<Arc<str>, Arc<Reloadable<UpstreamCredential>>>;

/// A server that is not a shard, as a mapping describes it.
#[derive(Clone, Debug)]
pub(crate) struct BackendSpec {
    /// The name in metrics and logs. A server with the same name and another URL or credential is replaced.
    pub(crate) name: Arc<str>,
    /// `https://…`, or `http://…`, which gets no client certificate. Its path is ignored.
    pub(crate) url: Arc<str>,
    /// The client certificate and the certificate authorities for it; `None`: those for shards.
    pub(crate) credential: Option<Arc<Reloadable<UpstreamCredential>>>,
}

impl Upstreams {
    /// A set without connections. `metrics` makes the metrics of a server by its name.
    pub(crate) fn new(
        credential: Arc<Reloadable<UpstreamCredential>>,
        own: OwnCredentials,
        options: UpstreamOptions,
        metrics: ShardMetricsFactory,
        names: NameResolver,
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

    /// Replaces the options for later requests.
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
            && known.matches(url, credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(UpstreamKind::Shard, name, url, credential)
    }

    /// The server of a mapped path; as cheap as [`Self::get`].
    ///
    /// # Errors
    /// [`UpstreamError::Url`] if its URL is not one.
    pub(crate) fn backend(&self, spec: &BackendSpec) -> Result<Arc<Upstream>, UpstreamError> {
        let shared = self.credential.load();
        let credential = spec.credential.as_ref().unwrap_or(&shared);
        if let Some(known) = self.backends.load().get(&spec.name)
            && known.matches(&spec.url, credential)
        {
            return Ok(Arc::clone(known));
        }
        self.add(UpstreamKind::Backend, &spec.name, &spec.url, credential)
    }

    /// Adds a server. It replaces an earlier one with the same name.
    fn add(
        &self,
        server: UpstreamKind,
        name: &Arc<str>,
        url: &Arc<str>,
        credential: &Arc<Reloadable<UpstreamCredential>>,
    ) -> Result<Arc<Upstream>, UpstreamError> {
        let servers = match server {
            UpstreamKind::Shard => &self.shards,
            UpstreamKind::Backend => &self.backends,
        };
        let endpoint = Endpoint::parse(url)?;
        if server == UpstreamKind::Shard && !endpoint.prefix().is_empty() {
            tracing::warn!(shard = %name, %url, "the path of a shard's base URL is ignored");
        }
        let _adding = self.adding.lock();
        let all = servers.load();
        if let Some(known) = all.get(name)
            && known.matches(url, credential)
        {
            return Ok(Arc::clone(known));
        }
        // Shards are removed, and tenants add backends by mounts, some of which lead nowhere. The failure of a shard must be known
        // for as long as workspaces may be placed there.
        let is_kept = |known: &Arc<Upstream>| !known.is_unused() || (known.is_shard && known.is_failing());
        let kept = all.iter().filter(|(_, known)| is_kept(known));
        let mut by_name: ByName = kept.map(|(name, known)| (Arc::clone(name), Arc::clone(known))).collect();
        let added = Upstream::new(
            (&self.metrics, &self.names),
            &self.options,
            (server, name),
            (url, endpoint),
            credential,
        );
        by_name.insert(Arc::clone(name), Arc::clone(&added));
        servers.store(Arc::new(by_name));
        Ok(added)
    }

    /// Removes a shard. Open streams continue and keep what they need; the rest is dropped, including the probes of its
    /// addresses. A request that was routed before may add the shard once more; it is then removed like other unused servers.
    pub(crate) fn remove_shard(&self, shard: &str) {
        let _adding = self.adding.lock();
        let mut by_name = ByName::clone(&self.shards.load());
        if by_name.remove(shard).is_some() {
            self.shards.store(Arc::new(by_name));
        }
    }

    /// True if the number of concurrent requests to it is limited.
    pub(crate) fn limits_concurrency(&self, upstream: &Upstream) -> bool {
        upstream.is_shard && self.options.load().admission.is_limited()
    }

    /// Admits a request if there is capacity now.
    pub(crate) fn try_admit(&self, upstream: &Upstream, flow_key: FlowKey) -> Option<ConcurrencyPermit> {
        upstream.admission.try_admit(flow_key, self.options.load().admission)
    }

    /// Waits until the server may get one more request.
    ///
    /// # Errors
    /// [`Overloaded`]; the server has received nothing then.
    pub(crate) async fn admit(
        &self,
        upstream: &Upstream,
        flow_key: FlowKey,
    ) -> Result<ConcurrencyPermit, Overloaded> {
        let options = self.options.load().admission;
        upstream.admission.admit(flow_key, options).await
    }

    /// The state of a server for a new request.
    pub(crate) fn status_of(&self, upstream: &Upstream) -> UpstreamStatus {
        let options = self.options();
        let connection_problem = match (upstream.breaker.is_refusing(options.breaker), upstream.is_failing())
        {
            (true, _) => Some("the circuit breaker is open after failed connections"),
            (false, true) => Some("a connection attempt failed a moment ago, or all its addresses fail"),
            (false, false) => None,
        };
        let occupancy =
            self.limits_concurrency(upstream).then(|| upstream.admission.occupancy(options.admission));
        UpstreamStatus { connection_problem, occupancy }
    }

    /// The state of every shard, by name.
    pub(crate) fn shards(&self) -> Vec<ShardReport> {
        let options = self.options();
        let report = |(name, shard): (&Arc<str>, &Arc<Upstream>)| ShardReport {
            name: Arc::clone(name),
            occupancy: shard.admission.occupancy(options.admission),
            circuit_open: shard.breaker.is_open(options.breaker),
            is_healthy: !shard.is_failing(),
            addresses: shard.addresses.status(),
        };
        self.shards.load().iter().map(report).collect()
    }

    /// A stream to the server over HTTP/2, on an open connection or on a new one. Connections to the address `avoided` are used
    /// only if there is no other.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has received nothing then.
    pub(crate) async fn stream(
        &self,
        upstream: &Arc<Upstream>,
        avoided: Option<SocketAddr>,
    ) -> Result<StreamPermit, UpstreamError> {
        let group_key = upstream.credential.load().group_key;
        let (permit, more) = upstream.connections.permit(group_key, avoided, || upstream.addresses.usable());
        if more && !upstream.growing.swap(true, Ordering::Relaxed) {
            tokio::spawn(grow(Arc::clone(upstream), self.options()));
        }
        match permit {
            Some(permit) => Ok(permit),
            // Boxed, because it is rare and its future is as large as a handshake.
            None => Box::pin(upstream.stream_on_new_connection(self.options())).await,
        }
    }

    /// A connection over HTTP/1.1, for a server without HTTP/2.
    ///
    /// # Errors
    /// [`UpstreamError`]; the server has received nothing then.
    pub(crate) async fn lease(&self, upstream: &Upstream) -> Result<Lease, UpstreamError> {
        let options = self.options();
        let group_key = upstream.credential.load().group_key;
        match upstream.idle.take(group_key, options.idle_timeout) {
            Some(lease) => Ok(lease),
            None => self.fresh_lease(upstream).await,
        }
    }

    /// A connection over HTTP/1.1 that has not served a request before.
    ///
    /// # Errors
    /// [`UpstreamError`]; the server has received nothing then.
    pub(crate) async fn fresh_lease(&self, upstream: &Upstream) -> Result<Lease, UpstreamError> {
        let (transport, group_key) = Box::pin(self.dialled(upstream)).await?;
        Ok(upstream.idle.begin(transport, group_key).await?)
    }

    /// A separate HTTP/1.1 connection, for a tunnel.
    ///
    /// # Errors
    /// [`UpstreamError`]; the shard has received nothing then.
    pub(crate) async fn dial_http1(&self, upstream: &Upstream) -> Result<UpstreamTransport, UpstreamError> {
        let (transport, _) = self.dialled(upstream).await?;
        Ok(transport)
    }

    async fn dialled(&self, upstream: &Upstream) -> Result<(UpstreamTransport, u64), UpstreamError> {
        let options = self.options();
        let attempt = upstream.breaker.attempt(options.breaker).map_err(|_| UpstreamError::CircuitOpen)?;
        let dialled = upstream.dial(options.connect_timeout).await;
        match &dialled {
            Ok(_) => attempt.succeeded(),
            Err(_) => attempt.failed(),
        }
        dialled
    }

    /// Time limit for the start of a shard's response.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.options.load().read_timeout
    }

    /// The response if a server cannot be reached.
    pub(crate) fn unreachable(&self) -> Unreachable {
        self.options.load().unreachable
    }

    /// True if a request to `upstream` may be retried; counts the retry if so.
    pub(crate) fn may_retry(&self, upstream: &Upstream) -> bool {
        self.options.load().retries && upstream.retries.spend()
    }

    pub(super) fn options(&self) -> UpstreamOptions {
        **self.options.load()
    }

    /// Number of reads and writes whose response a shard has begun since the process started, and their total time to the first
    /// byte, in seconds.
    pub(crate) fn response_times(&self, shard: &str) -> (u64, f64) {
        self.shards.load().get(shard).map(|known| known.metrics.response_times()).unwrap_or_default()
    }

    /// True if the last attempt to connect to a shard has just failed; `None` for a shard that was never used.
    pub(crate) fn is_failing(&self, shard: &str) -> Option<bool> {
        self.shards.load().get(shard).map(|known| known.is_failing())
    }

    /// True if so many of these shards fail that the cause is probably on the gateway's side.
    pub(crate) fn exceeds_panic_threshold(&self, failing: usize, asked: usize) -> bool {
        self.options().health.exceeds_panic_threshold(failing, asked)
    }
}
