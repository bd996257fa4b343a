//! The gateway's metrics. Names and buckets of kcp's front proxy are kept; Fairlead's own begin with `fairlead_`.
//!
//! The number of series depends on listeners, servers and files, never on workspaces or clients: metrics with labels from a
//! request or a shard's response are [`BoundedSeries`]. `metrics/series.rs` has the formula.

mod bounded_series;
pub(crate) mod gauges;
pub(crate) mod listeners;
#[cfg(test)]
mod series;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fairlead_process::{Metrics, MetricsError};
use http::Method;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};

use crate::request::RequestClass;
use crate::telemetry::metrics::listeners::ListenerMetrics;
use crate::telemetry::top::Measure;
use bounded_series::BoundedSeries;
pub(crate) use listeners::ListenerSeries;
use listeners::{ByListenerAndClass, ListenerSlots};

/// kcp's buckets for whole requests, in seconds.
const REQUEST_BUCKETS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Buckets for stages: the gateway's own time is below a millisecond.
const STAGE_BUCKETS: &[f64] = &[
    0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];
/// Buckets for the time to the first byte. There are few, because each is a series per listener, server and class.
const FIRST_BYTE_BUCKETS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Buckets for whole requests, from a small GET to a watch of an hour.
const TOTAL_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 300.0, 1800.0, 3600.0];
/// Maximum number of pairs of method and code in kcp's histogram. Shards choose codes, and clients methods.
const MAX_OUTCOMES: usize = 96;
/// Maximum number of pairs of code and reason of the gateway's own responses.
const MAX_LOCAL_RESPONSES: usize = 64;
/// Number of workspaces exported per measure, selected at each scrape.
const TOP: usize = 10;

/// All metrics of the gateway.
pub(crate) struct GatewayMetrics {
    registry: Metrics,
    /// By method (its index in [`METHODS`], or beyond) and code.
    requests: BoundedSeries<(usize, u16), HistogramVec>,
    /// The part of `requests` with code 200, by method, which is nearly all of them.
    successes: [OnceLock<Histogram>; 9],
    request_bytes: IntCounterVec,
    response_bytes: IntCounterVec,
    tls_errors: IntCounterVec,
    indexed: IntGaugeVec,
    workspaces: IntGaugeVec,
    first_byte: HistogramVec,
    total: HistogramVec,
    open: [IntGauge; CLASSES.len()],
    local_responses: BoundedSeries<(u16, &'static str), IntCounterVec>,
    stripped_identity_headers: IntCounter,
    limited: IntCounterVec,
    slow_bodies: IntCounter,
    slow_reader_aborts: IntCounter,
    concurrency: IntGaugeVec,
    circuit_open: IntGaugeVec,
    healthy: IntGaugeVec,
    addresses: IntGaugeVec,
    ejections: IntCounterVec,
    listeners: ListenerSlots,
    index_age: GaugeVec,
    index_restarts: IntGaugeVec,
    index_relists: IntGaugeVec,
    index_lag: Gauge,
    synced: Gauge,
    table_bytes: IntGauge,
    stalled_bytes: IntGauge,
    connections: IntGaugeVec,
    connections_limit: IntGauge,
    handshakes: IntCounterVec,
    peers_refused: IntCounterVec,
    stages: HistogramVec,
    /// By the measures of [`Measure::ALL`].
    top: [GaugeVec; Measure::ALL.len()],
    top_watches: IntGaugeVec,
}

/// The metrics of one shard, looked up once.
#[derive(Debug)]
pub(crate) struct ShardMetrics {
    /// Of requests and of responses; `None` for backends that are not shards.
    body_bytes: Option<[LazyCounter; 2]>,
    first_byte: ByListenerAndClass,
    total: ByListenerAndClass,
    tls_errors: [LazyCounter; 5],
    ejections: LazyCounter,
}

/// Kind of an upstream server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UpstreamKind {
    /// A shard, by its name.
    Shard,
    /// Another server that a path is mapped to. kcp's metrics have no name for it.
    Backend,
}

/// A counter that is registered at its first increment, as kcp's are.
#[derive(Clone, Debug)]
struct LazyCounter {
    all: IntCounterVec,
    labels: Vec<String>,
    one: OnceLock<IntCounter>,
}

impl LazyCounter {
    fn new(all: &IntCounterVec, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Self { all: all.clone(), labels, one: OnceLock::new() }
    }

    fn add(&self, count: u64) {
        if count > 0 {
            self.one.get_or_init(|| self.all.with_label_values(&self.labels)).inc_by(count);
        }
    }
}

/// The shard label in kcp's metrics if there is no shard or it is not known.
const UNKNOWN: &str = "unknown";

/// Reason of a failed TLS handshake with a shard, with kcp's categories.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TlsErrorKind {
    /// Signed by an untrusted certificate authority.
    UnknownCa,
    /// Expired or not yet valid.
    ExpiredCertificate,
    /// The peer does not speak TLS.
    CipherMismatch,
    /// The certificate is for another name.
    HostnameMismatch,
    /// Another certificate error.
    Other,
}

/// A stage of the gateway's own processing time. The first two belong to a connection, the others to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestStage {
    /// From the accepted connection to the start of TLS: waiting for a worker and for the client's address.
    Accept,
    /// The TLS handshake.
    Tls,
    /// Authentication of the client.
    Auth,
    /// Workspace resolution, including the wait for a missing workspace.
    Route,
    /// Waiting for a shard at its concurrency limit; only for requests that waited.
    Queue,
    /// Getting a stream to the shard.
    Connect,
}

impl RequestStage {
    pub(crate) const ALL: [Self; 6] =
        [Self::Accept, Self::Tls, Self::Auth, Self::Route, Self::Queue, Self::Connect];
    /// The stages of a request.
    pub(crate) const OF_REQUEST: [Self; 4] = [Self::Auth, Self::Route, Self::Queue, Self::Connect];

    /// The name used as a metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Tls => "tls",
            Self::Auth => "auth",
            Self::Route => "route",
            Self::Queue => "queue",
            Self::Connect => "upstream_connect",
        }
    }
}

const CLASSES: [RequestClass; 4] =
    [RequestClass::Read, RequestClass::Write, RequestClass::Watch, RequestClass::Upgrade];
const TLS_ERRORS: [(TlsErrorKind, &str); 5] = [
    (TlsErrorKind::UnknownCa, "unknown_ca"),
    (TlsErrorKind::ExpiredCertificate, "expired_cert"),
    (TlsErrorKind::CipherMismatch, "cipher_mismatch"),
    (TlsErrorKind::HostnameMismatch, "hostname_mismatch"),
    (TlsErrorKind::Other, "other"),
];

/// The methods with their own label value.
static METHODS: [(Method, &str); 9] = [
    (Method::GET, "get"),
    (Method::POST, "post"),
    (Method::PUT, "put"),
    (Method::PATCH, "patch"),
    (Method::DELETE, "delete"),
    (Method::HEAD, "head"),
    (Method::OPTIONS, "options"),
    (Method::CONNECT, "connect"),
    (Method::TRACE, "trace"),
];

impl GatewayMetrics {
    /// Registers all metrics; called once per process.
    ///
    /// # Errors
    /// If it is called twice with the same registry.
    pub(crate) fn new(registry: &Metrics) -> Result<Self, MetricsError> {
        let (shard, cluster) = (&["shard"], &["cluster"]);
        let by_listener_shard_and_class = &["listener", "shard", "class"];
        let stages = registry.histograms(
            "fairlead_gateway_stage_duration_seconds",
            "Time in a stage: accept, tls (per connection), auth, route, upstream_connect (per request), queue (if it waited).",
            &["listener", "stage"],
            STAGE_BUCKETS,
        )?;
        let open =
            registry.int_gauges("fairlead_gateway_requests_open", "Open requests, by class.", &["class"])?;
        Ok(Self {
            successes: Default::default(),
            registry: registry.clone(),
            requests: BoundedSeries::new(
                registry.histograms(
                    "proxy_request_duration_seconds",
                    "[ALPHA] Latency of requests, watches and upgrades included, by method and code.",
                    &["method", "code"],
                    REQUEST_BUCKETS,
                )?,
                MAX_OUTCOMES,
            ),
            request_bytes: registry.counters(
                "kcp_backend_rq_body_bytes",
                "[ALPHA] Bytes of request bodies sent to a shard, counted when the request ends.",
                shard,
            )?,
            response_bytes: registry.counters(
                "kcp_backend_rs_body_bytes",
                "[ALPHA] Bytes of response bodies received from a shard, counted when the request ends.",
                shard,
            )?,
            tls_errors: registry.counters(
                "kcp_listener_tls_connection_error",
                "[ALPHA] Failed TLS handshakes with a shard, by the kind of failure.",
                &["shard", "error_type"],
            )?,
            workspaces: registry.int_gauges(
                "fairlead_gateway_shard_workspaces",
                "Logical clusters on a shard.",
                shard,
            )?,
            indexed: registry.int_gauges(
                "kcp_indexed_logicalclusters",
                "[ALPHA] Workspaces in the index whose parent lives on a shard.",
                shard,
            )?,
            first_byte: registry.histograms(
                "fairlead_gateway_first_byte_duration_seconds",
                "Time from the request to the headers of the shard's response.",
                by_listener_shard_and_class,
                FIRST_BYTE_BUCKETS,
            )?,
            total: registry.histograms(
                "fairlead_gateway_request_duration_seconds",
                "Time from the request to the end of the response.",
                by_listener_shard_and_class,
                TOTAL_BUCKETS,
            )?,
            open: CLASSES.map(|class| open.with_label_values(&[class.as_str()])),
            local_responses: BoundedSeries::new(
                registry.counters(
                    "fairlead_gateway_local_responses_total",
                    "Responses of the gateway itself, by code and reason.",
                    &["code", "reason"],
                )?,
                MAX_LOCAL_RESPONSES,
            ),
            stripped_identity_headers: registry.counter(
                "fairlead_gateway_stripped_identity_headers_total",
                "Identity headers that were stripped from requests of clients.",
            )?,
            limited: registry.counters(
                "fairlead_gateway_limited_total",
                "Requests refused with 429, by the scope (all, identity, workspace) and the limit (rate, bytes, concurrent, watches, upgrades); also streams and connections refused by limits of a connection (headers, frames) or of an address (connections, failures, rate).",
                &["listener", "scope", "limit"],
            )?,
            slow_bodies: registry.counter(
                "fairlead_gateway_slow_bodies_total",
                "Requests whose body was received too slowly.",
            )?,
            slow_reader_aborts: registry.counter(
                "fairlead_gateway_slow_reader_aborts_total",
                "Responses that were aborted because the client did not read them.",
            )?,
            concurrency: registry.int_gauges(
                "fairlead_gateway_shard_concurrency",
                "Requests in progress at a shard (open), requests that wait for it (waiting), and its concurrency limit (limit).",
                &["shard", "object"],
            )?,
            circuit_open: registry.int_gauges(
                "fairlead_gateway_shard_circuit_open",
                "1 while the circuit of a shard is open, so that requests for it fail at once.",
                shard,
            )?,
            healthy: registry.int_gauges(
                "fairlead_gateway_shard_healthy",
                "0 while a shard cannot be connected to or all its addresses are ejected.",
                shard,
            )?,
            addresses: registry.int_gauges(
                "fairlead_gateway_shard_addresses",
                "Addresses of a shard: all (known), those that are ejected because they fail (ejected), and ejected ones that get no requests (excluded).",
                &["shard", "state"],
            )?,
            ejections: registry.counters(
                "fairlead_gateway_ejections_total",
                "Ejections of addresses of a server.",
                shard,
            )?,
            listeners: ListenerSlots::new(),
            index_age: registry.gauges(
                "fairlead_gateway_index_age_seconds",
                "Maximum age of the index's data of a shard; 0 while its watches are open.",
                shard,
            )?,
            index_restarts: registry.int_gauges(
                "fairlead_gateway_index_watches_opened",
                "Watches that the index opened on a shard.",
                shard,
            )?,
            index_relists: registry.int_gauges(
                "fairlead_gateway_index_lists_read",
                "Complete lists that the index read from a shard.",
                shard,
            )?,
            index_lag: registry
                .gauges(
                    "fairlead_gateway_index_lag_seconds",
                    "Time from reading the latest changes to applying them to the routing table.",
                    &[],
                )?
                .with_label_values(&[] as &[&str]),
            synced: registry
                .gauges("fairlead_gateway_index_synced", "1 once the index has been read completely.", &[])?
                .with_label_values(&[] as &[&str]),
            table_bytes: registry
                .gauge("fairlead_gateway_table_bytes", "Heap memory of the routing table.")?,
            stalled_bytes: registry.gauge(
                "fairlead_gateway_stalled_stream_bytes",
                "Bytes of responses and uploads that are buffered on stalled streams of all connections.",
            )?,
            connections: registry.int_gauges(
                "fairlead_connections_open",
                "Open connections.",
                &["listener"],
            )?,
            connections_limit: registry.gauge(
                "fairlead_gateway_connections_limit",
                "Maximum number of open connections per listener; further connections wait in the kernel's accept queue.",
            )?,
            handshakes: registry.counters(
                "fairlead_tls_handshakes_total",
                "TLS handshakes by result: full, resumed, failed, timeout.",
                &["listener", "result"],
            )?,
            peers_refused: registry.counters(
                "fairlead_gateway_peers_refused_total",
                "Connections from addresses that are not allowed at the listener.",
                &["listener"],
            )?,
            stages,
            top: [
                registry.gauges(
                    "fairlead_gateway_top_workspace_requests_per_second",
                    "Requests per second of the busiest workspaces, averaged over about a minute.",
                    cluster,
                )?,
                registry.gauges(
                    "fairlead_gateway_top_workspace_bytes_per_second",
                    "Body bytes per second, in both directions, of the workspaces with the most, averaged over about a minute.",
                    cluster,
                )?,
                registry.gauges(
                    "fairlead_gateway_top_workspace_errors_per_second",
                    "5xx responses per second of the workspaces with the most, averaged over about a minute.",
                    cluster,
                )?,
            ],
            top_watches: registry.int_gauges(
                "fairlead_gateway_top_workspace_watches",
                "Open watches of the workspaces with the most.",
                cluster,
            )?,
        })
    }

    /// The current values of all metrics.
    pub(crate) fn families(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.registry().gather()
    }

    /// Sets the gauge of the limit of open connections per listener.
    pub(crate) fn set_connections_limit(&self, most: usize) {
        self.connections_limit.set(i64::try_from(most).unwrap_or(i64::MAX));
    }

    /// The metrics of requests at a listener; `None` if there are too many listeners.
    pub(crate) fn listener_series(&self, name: &str) -> Option<Arc<ListenerSeries>> {
        self.listeners.of(name, &self.stages)
    }

    /// The metrics of a listener's connections.
    pub(crate) fn listener(&self, name: &str) -> ListenerMetrics {
        let handshakes = |result| self.handshakes.with_label_values(&[name, result]);
        ListenerMetrics {
            open: self.connections.with_label_values(&[name]),
            handshakes_full: handshakes("full"),
            handshakes_resumed: handshakes("resumed"),
            handshakes_failed: handshakes("failed"),
            handshakes_timeout: handshakes("timeout"),
            peers_refused: self.peers_refused.with_label_values(&[name]),
            connections_limited: self.limited.with_label_values(&[name, "address", "connections"]),
        }
    }

    /// The metrics of a shard or of a mapped backend.
    pub(crate) fn server(&self, name: &str, server: UpstreamKind) -> ShardMetrics {
        let is_shard = server == UpstreamKind::Shard;
        let shard = if is_shard { name } else { UNKNOWN };
        let body_bytes = || {
            [&self.request_bytes, &self.response_bytes].map(|counters| LazyCounter::new(counters, &[shard]))
        };
        ShardMetrics {
            body_bytes: is_shard.then(body_bytes),
            first_byte: ByListenerAndClass::new(&self.first_byte, name),
            total: ByListenerAndClass::new(&self.total, name),
            tls_errors: TLS_ERRORS.map(|(_, word)| LazyCounter::new(&self.tls_errors, &[shard, word])),
            ejections: LazyCounter::new(&self.ejections, &[name]),
        }
    }

    /// The gauge of open exchanges of one kind.
    pub(crate) fn open(&self, class: RequestClass) -> IntGauge {
        self.open[class as usize].clone()
    }

    /// Counts a completed request.
    pub(crate) fn finished(&self, method: &Method, code: u16, duration: Duration) {
        let known = METHODS.iter().position(|(known, _)| known == method);
        let histogram = |code: u16| {
            let word = known.map_or(UNKNOWN, |at| METHODS[at].1);
            let mut digits = itoa::Buffer::new();
            self.requests.get((known.unwrap_or(METHODS.len()), code), &[word, digits.format(code)])
        };
        match known {
            Some(at) if code == 200 => {
                self.successes[at].get_or_init(|| histogram(200)).observe(duration.as_secs_f64());
            }
            _ => histogram(code).observe(duration.as_secs_f64()),
        }
    }

    /// Counts a response of the gateway itself.
    pub(crate) fn local_response(&self, code: u16, reason: &'static str) {
        let mut digits = itoa::Buffer::new();
        self.local_responses.get((code, reason), &[digits.format(code), reason]).inc();
    }

    /// Counts a completed request to a mapped backend that named a logical cluster of this shard.
    pub(crate) fn mapped_body_bytes(&self, shard: &str, of_request: u64, of_response: u64) {
        for (counters, count) in [(&self.request_bytes, of_request), (&self.response_bytes, of_response)] {
            if count > 0 {
                counters.with_label_values(&[shard]).inc_by(count);
            }
        }
    }

    /// Counts a request that got 429 by the limit of this scope and kind.
    pub(crate) fn limited(&self, listener: &str, scope: &str, limit: &str) {
        self.limited.with_label_values(&[listener, scope, limit]).inc();
    }

    /// Counts a stream that was refused because its connection has too many header bytes open.
    pub(crate) fn header_budget_exceeded(&self, listener: &str) {
        self.limited.with_label_values(&[listener, "connection", "headers"]).inc();
    }

    /// Counts a connection that was closed because of too many frames without content.
    pub(crate) fn frame_budget_exceeded(&self, listener: &str) {
        self.limited.with_label_values(&[listener, "connection", "frames"]).inc();
    }

    /// Counts a request whose body was received too slowly.
    pub(crate) fn slow_body(&self) {
        self.slow_bodies.inc();
    }

    /// Counts a request whose client did not read its response.
    pub(crate) fn slow_reader(&self) {
        self.slow_reader_aborts.inc();
    }

    /// Counts identity headers that a client sent.
    pub(crate) fn stripped(&self, count: usize) {
        if count > 0 {
            self.stripped_identity_headers.inc_by(count as u64);
        }
    }
}

impl ShardMetrics {
    /// Records the time to the first byte of a response.
    pub(crate) fn first_byte(&self, listener: &Arc<ListenerSeries>, class: RequestClass, after: Duration) {
        self.first_byte.observe(listener, class, after.as_secs_f64());
    }

    /// Number of reads and writes whose response has begun, and their total time to the first byte in seconds, at the current
    /// listeners.
    pub(crate) fn response_times(&self) -> (u64, f64) {
        let both = [RequestClass::Read, RequestClass::Write];
        let all = both.into_iter().map(|class| self.first_byte.of_class(class));
        all.fold((0, 0.0), |sums, of| (sums.0 + of.0, sums.1 + of.1))
    }

    /// Records the duration of a completed exchange.
    pub(crate) fn total(&self, listener: &Arc<ListenerSeries>, class: RequestClass, duration: Duration) {
        self.total.observe(listener, class, duration.as_secs_f64());
    }

    /// Counts the bytes of the bodies of a completed exchange, per direction.
    pub(crate) fn body_bytes(&self, of_request: u64, of_response: u64) {
        if let Some([requests, responses]) = &self.body_bytes {
            requests.add(of_request);
            responses.add(of_response);
        }
    }

    /// Counts the ejection of an address.
    pub(crate) fn ejected(&self) {
        self.ejections.add(1);
    }

    /// Counts a failed handshake.
    pub(crate) fn tls_error(&self, kind: TlsErrorKind) {
        if let Some(at) = TLS_ERRORS.iter().position(|(known, _)| *known == kind) {
            self.tls_errors[at].add(1);
        }
    }
}

/// Creates the metrics of a server at its first use.
pub(crate) type ShardMetricsFactory = Arc<dyn Fn(&str, UpstreamKind) -> ShardMetrics + Send + Sync>;

/// The factory for the metrics of all servers.
pub(crate) fn shard_metrics(metrics: &Arc<GatewayMetrics>) -> ShardMetricsFactory {
    let metrics = Arc::clone(metrics);
    Arc::new(move |name, server| metrics.server(name, server))
}
