//! What is counted and timed. Names and buckets of kcp's front proxy are kept; ours begin with `fairlead_`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fairlead_process::{Metrics, MetricsError};
use http::Method;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};
use tokio::time::Instant;

use crate::index::IndexReport;
use crate::listener::DoorMetrics;
use crate::request::RequestClass;
use crate::table::RoutingTable;

/// kcp's buckets for whole requests, in seconds.
const REQUEST_BUCKETS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Ours for phases: what a gateway adds lies below a millisecond.
const PHASE_BUCKETS: &[f64] = &[
    0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

/// All metrics of the gateway.
pub(crate) struct GatewayMetrics {
    registry: Metrics,
    requests: HistogramVec,
    /// Those of `requests` with code 200, by method, which is nearly all.
    successes: [OnceLock<Histogram>; 9],
    request_bytes: IntCounterVec,
    response_bytes: IntCounterVec,
    tls_errors: IntCounterVec,
    indexed: IntGaugeVec,
    first_byte: HistogramVec,
    total: HistogramVec,
    open: [IntGauge; CLASSES.len()],
    own_answers: IntCounterVec,
    forged_headers: IntCounter,
    route: Histogram,
    auth: Histogram,
    connect: Histogram,
    index_age: GaugeVec,
    index_restarts: IntGaugeVec,
    index_relists: IntGaugeVec,
    index_lag: Gauge,
    synced: Gauge,
    table_bytes: IntGauge,
    connections: IntGaugeVec,
    handshakes: IntCounterVec,
    peers_refused: IntCounterVec,
    phases: HistogramVec,
}

/// The metrics of one shard, looked up once.
#[derive(Clone, Debug)]
pub(crate) struct ShardMetrics {
    /// Of requests and of answers; not for backends that are no shards.
    body_bytes: Option<[Late; 2]>,
    first_byte: [Histogram; 4],
    total: [Histogram; 4],
    tls_errors: [Late; 5],
}

/// What the metrics of a server are made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Server {
    /// A shard, by its name.
    Shard,
    /// Something else that a path is mapped to. kcp has no name for it in its metrics.
    Backend,
}

/// A counter that is there once it has counted something, as kcp's are.
#[derive(Clone, Debug)]
struct Late {
    all: IntCounterVec,
    labels: Vec<String>,
    one: OnceLock<IntCounter>,
}

impl Late {
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

/// The shard in kcp's metrics where there is none, or none is known.
const UNKNOWN: &str = "unknown";

/// Why a TLS handshake with a shard failed, as kcp tells them apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TlsErrorKind {
    /// Signed by nobody we trust.
    UnknownCa,
    /// Out of its time.
    ExpiredCertificate,
    /// The peer does not speak TLS.
    CipherMismatch,
    /// Not for this name.
    HostnameMismatch,
    /// Anything else about the certificate.
    Other,
}

/// A phase of a request that is the gateway's own time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GatewayPhase {
    /// Finding the shard, patience included.
    Route,
    /// Finding out who it is.
    Auth,
    /// Getting a stream to the shard.
    Connect,
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

/// The methods that metrics know by name.
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
    /// Registers everything. Once per process.
    ///
    /// # Errors
    /// When called twice with the same registry.
    pub(crate) fn new(registry: &Metrics) -> Result<Self, MetricsError> {
        let shard = &["shard"];
        let by_shard_and_class = &["shard", "class"];
        let phases = registry.histograms(
            "fairlead_gateway_phase_duration_seconds",
            "Time spent in a phase: tls (per connection), route, auth, upstream_connect (per request).",
            &["phase"],
            PHASE_BUCKETS,
        )?;
        let open = registry.int_gauges(
            "fairlead_gateway_requests_open",
            "Requests being answered, by what kind of exchange they are.",
            &["class"],
        )?;
        Ok(Self {
            successes: Default::default(),
            registry: registry.clone(),
            requests: registry.histograms(
                "proxy_request_duration_seconds",
                "[ALPHA] Latency of requests, watches and upgrades included, by method and code.",
                &["method", "code"],
                REQUEST_BUCKETS,
            )?,
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
            indexed: registry.int_gauges(
                "kcp_indexed_logicalclusters",
                "[ALPHA] Workspaces in the index whose parent lives on a shard.",
                shard,
            )?,
            first_byte: registry.histograms(
                "fairlead_gateway_first_byte_duration_seconds",
                "Time from the request to the head of the shard's answer.",
                by_shard_and_class,
                PHASE_BUCKETS,
            )?,
            total: registry.histograms(
                "fairlead_gateway_request_duration_seconds",
                "Time from the request to the end of the answer.",
                by_shard_and_class,
                REQUEST_BUCKETS,
            )?,
            open: CLASSES.map(|class| open.with_label_values(&[class.as_str()])),
            own_answers: registry.counters(
                "fairlead_gateway_answers_total",
                "Answers that the gateway gave itself, by code and reason.",
                &["code", "why"],
            )?,
            forged_headers: registry.counter(
                "fairlead_gateway_forged_identity_headers_total",
                "Identity headers that clients sent and no shard saw.",
            )?,
            route: phases.with_label_values(&["route"]),
            auth: phases.with_label_values(&["auth"]),
            connect: phases.with_label_values(&["upstream_connect"]),
            index_age: registry.gauges(
                "fairlead_gateway_index_age_seconds",
                "How old the knowledge of a shard may be; 0 while its watches are open.",
                shard,
            )?,
            index_restarts: registry.int_gauges(
                "fairlead_gateway_index_watches_opened",
                "Watches opened on a shard since it is followed.",
                shard,
            )?,
            index_relists: registry.int_gauges(
                "fairlead_gateway_index_lists_read",
                "Complete lists read from a shard since it is followed.",
                shard,
            )?,
            index_lag: registry
                .gauges(
                    "fairlead_gateway_index_lag_seconds",
                    "How long the latest changes took from being read to being routed by.",
                    &[],
                )?
                .with_label_values(&[] as &[&str]),
            synced: registry
                .gauges("fairlead_gateway_index_synced", "1 once everything was read.", &[])?
                .with_label_values(&[] as &[&str]),
            table_bytes: registry
                .gauge("fairlead_gateway_table_bytes", "Heap memory of the routing table.")?,
            connections: registry.int_gauges(
                "fairlead_connections_open",
                "Open connections.",
                &["listener"],
            )?,
            handshakes: registry.counters(
                "fairlead_tls_handshakes_total",
                "TLS handshakes by result: full, resumed, failed, timeout.",
                &["listener", "result"],
            )?,
            peers_refused: registry.counters(
                "fairlead_gateway_peers_refused_total",
                "Connections from addresses that may not connect to the listener.",
                &["listener"],
            )?,
            phases,
        })
    }

    /// The metrics of a door.
    pub(crate) fn door(&self, name: &str) -> DoorMetrics {
        let handshakes = |result| self.handshakes.with_label_values(&[name, result]);
        DoorMetrics {
            open: self.connections.with_label_values(&[name]),
            handshakes_full: handshakes("full"),
            handshakes_resumed: handshakes("resumed"),
            handshakes_failed: handshakes("failed"),
            handshakes_timeout: handshakes("timeout"),
            peers_refused: self.peers_refused.with_label_values(&[name]),
            handshake_seconds: self.phases.with_label_values(&["tls"]),
        }
    }

    /// The metrics of a shard or of a mapped backend.
    pub(crate) fn server(&self, name: &str, server: Server) -> ShardMetrics {
        let by_class = |histogram: &HistogramVec| {
            CLASSES.map(|class| histogram.with_label_values(&[name, class.as_str()]))
        };
        let is_shard = server == Server::Shard;
        let shard = if is_shard { name } else { UNKNOWN };
        let body_bytes =
            || [&self.request_bytes, &self.response_bytes].map(|counters| Late::new(counters, &[shard]));
        ShardMetrics {
            body_bytes: is_shard.then(body_bytes),
            first_byte: by_class(&self.first_byte),
            total: by_class(&self.total),
            tls_errors: TLS_ERRORS.map(|(_, word)| Late::new(&self.tls_errors, &[shard, word])),
        }
    }

    /// The gauge of open exchanges of one kind.
    pub(crate) fn open(&self, class: RequestClass) -> IntGauge {
        self.open[class as usize].clone()
    }

    /// A request has ended.
    pub(crate) fn finished(&self, method: &Method, code: u16, duration: Duration) {
        let known = METHODS.iter().position(|(known, _)| known == method);
        let word = known.map_or("unknown", |at| METHODS[at].1);
        let histogram = |code: u16| {
            let mut digits = itoa::Buffer::new();
            self.requests.with_label_values(&[word, digits.format(code)])
        };
        match known {
            Some(at) if code == 200 => {
                self.successes[at].get_or_init(|| histogram(200)).observe(duration.as_secs_f64());
            }
            _ => histogram(code).observe(duration.as_secs_f64()),
        }
    }

    /// The gateway answered by itself.
    pub(crate) fn answered(&self, code: u16, why: &str) {
        let mut digits = itoa::Buffer::new();
        self.own_answers.with_label_values(&[digits.format(code), why]).inc();
    }

    /// A request to a mapped backend has ended that named a logical cluster of this shard.
    pub(crate) fn mapped_body_bytes(&self, shard: &str, of_request: u64, of_response: u64) {
        for (counters, count) in [(&self.request_bytes, of_request), (&self.response_bytes, of_response)] {
            if count > 0 {
                counters.with_label_values(&[shard]).inc_by(count);
            }
        }
    }

    /// A client sent identity headers.
    pub(crate) fn forged(&self, count: usize) {
        if count > 0 {
            self.forged_headers.inc_by(count as u64);
        }
    }

    /// A phase has ended.
    pub(crate) fn phase(&self, phase: GatewayPhase, duration: Duration) {
        let histogram = match phase {
            GatewayPhase::Route => &self.route,
            GatewayPhase::Auth => &self.auth,
            GatewayPhase::Connect => &self.connect,
        };
        histogram.observe(duration.as_secs_f64());
    }

    /// Everything as Prometheus text, with the index as it is now.
    ///
    /// # Errors
    /// When the registry holds something that cannot be printed.
    pub(crate) fn text(
        &self,
        table: &RoutingTable,
        index: &IndexReport,
    ) -> Result<bytes::Bytes, MetricsError> {
        let now = Instant::now();
        let root = table.load();
        self.index_lag.set(index.lag().as_secs_f64());
        self.synced.set(f64::from(u8::from(root.is_synced())));
        self.table_bytes.set(i64::try_from(root.heap_bytes()).unwrap_or(i64::MAX));
        // Series of shards that are gone go with them.
        self.indexed.reset();
        self.index_age.reset();
        self.index_restarts.reset();
        self.index_relists.reset();
        for shard in root.shards() {
            let label = &[&*shard.spec.name];
            let report = index.of(shard.index, now);
            self.indexed.with_label_values(label).set(i64::from(root.counts(shard.index).workspaces));
            let age = report.age.map_or(f64::INFINITY, |age| age.as_secs_f64());
            self.index_age.with_label_values(label).set(age);
            self.index_restarts
                .with_label_values(label)
                .set(i64::try_from(report.restarts).unwrap_or(i64::MAX));
            self.index_relists
                .with_label_values(label)
                .set(i64::try_from(report.relists).unwrap_or(i64::MAX));
        }
        self.registry.text()
    }
}

impl ShardMetrics {
    /// The head of the answer is here.
    pub(crate) fn first_byte(&self, class: RequestClass, after: Duration) {
        self.first_byte[class as usize].observe(after.as_secs_f64());
    }

    /// How many reads and writes it has begun to answer, and how many seconds they waited for it, since the start.
    pub(crate) fn answered(&self) -> (u64, f64) {
        let both = [RequestClass::Read, RequestClass::Write].map(|class| &self.first_byte[class as usize]);
        let sum =
            |sums: (u64, f64), of: &Histogram| (sums.0 + of.get_sample_count(), sums.1 + of.get_sample_sum());
        both.into_iter().fold((0, 0.0), sum)
    }

    /// The exchange has ended.
    pub(crate) fn total(&self, class: RequestClass, duration: Duration) {
        self.total[class as usize].observe(duration.as_secs_f64());
    }

    /// The exchange has ended: so many bytes of bodies each way.
    pub(crate) fn body_bytes(&self, of_request: u64, of_response: u64) {
        if let Some([requests, responses]) = &self.body_bytes {
            requests.add(of_request);
            responses.add(of_response);
        }
    }

    /// A handshake failed.
    pub(crate) fn tls_error(&self, kind: TlsErrorKind) {
        if let Some(at) = TLS_ERRORS.iter().position(|(known, _)| *known == kind) {
            self.tls_errors[at].add(1);
        }
    }
}

/// Makes the metrics of a server when it is first used.
pub(crate) type MakeMetrics = Arc<dyn Fn(&str, Server) -> ShardMetrics + Send + Sync>;

/// Those of all servers.
pub(crate) fn shard_metrics(metrics: &Arc<GatewayMetrics>) -> MakeMetrics {
    let metrics = Arc::clone(metrics);
    Arc::new(move |name, server| metrics.server(name, server))
}
