//! Metrics of requests, under the names and labels of a Kubernetes API server.
//!
//! Names of custom resources are text of tenants. They become labels up to a limit of distinct values; resources beyond it share the
//! label `other`. A request for a resource that does not exist has no resource label at all.

mod names;
mod series;
mod store;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlead_process::{Metrics, MetricsError};
use http::StatusCode;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use names::BoundedNames;
use series::SeriesTable;

use crate::concurrency::ConcurrencyLimiter;

pub use store::register_store_metrics;

pub(crate) use series::{LongRunning, RequestLabels, RequestScope, RequestSeries};

/// Upper bounds of durations in seconds: those of Kubernetes, and finer ones below.
const DURATIONS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0,
    5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Upper bounds of authentication and authorization, which are shorter.
const SHORT_DURATIONS: &[f64] = &[0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0];

/// The metrics. Cloning gives another handle.
#[derive(Clone)]
pub struct RequestMetrics(Arc<Inner>);

struct Inner {
    series: SeriesTable,
    concurrency: Arc<ConcurrencyLimiter>,
    lists: ListMetrics,
    authentication: [(IntCounter, Histogram); 2],
    authenticated: IntCounter,
    authorization: [(IntCounter, Histogram); 3],
}

struct ListMetrics {
    lists: IntCounterVec,
    returned: IntCounterVec,
    names: BoundedNames,
}

/// The result of an authorization.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AuthorizationResult {
    Allowed = 0,
    Denied = 1,
    NoOpinion = 2,
}

impl RequestMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let in_flight = metrics.int_gauges(
            "apiserver_current_inflight_requests",
            "Requests being served, without watches.",
            &["request_kind"],
        )?;
        let waiting = metrics.gauge(
            "fairlead_shard_requests_waiting_for_webhooks",
            "Requests that wait for a webhook of their logical cluster. They are not among those being served.",
        )?;
        let in_flight = |kind: &str| in_flight.with_label_values(&[kind]);
        let gauges = [in_flight("readOnly"), in_flight("mutating"), waiting];
        let authentications =
            metrics.counters("authentication_attempts", "Authentications by result.", &["result"])?;
        let authentication_durations = metrics.histograms(
            "authentication_duration_seconds",
            "Duration of authentications by result, in seconds.",
            &["result"],
            SHORT_DURATIONS,
        )?;
        let authorizations =
            metrics.counters("authorization_attempts_total", "Authorizations by result.", &["result"])?;
        let authorization_durations = metrics.histograms(
            "authorization_duration_seconds",
            "Duration of authorizations by result, in seconds.",
            &["result"],
            SHORT_DURATIONS,
        )?;
        let pair = |counters: &IntCounterVec, histograms: &HistogramVec, result: &str| {
            (counters.with_label_values(&[result]), histograms.with_label_values(&[result]))
        };
        let authenticated = metrics.counters(
            "authenticated_user_requests",
            "Authenticated requests. User names are not distinguished.",
            &["username"],
        )?;
        Ok(Self(Arc::new(Inner {
            series: SeriesTable::new(metrics, DURATIONS)?,
            concurrency: ConcurrencyLimiter::new(gauges),
            lists: ListMetrics {
                lists: metrics.counters(
                    "apiserver_cache_list_total",
                    "Lists, which are all read from the shard's own view of its store.",
                    &["group", "index", "resource"],
                )?,
                returned: metrics.counters(
                    "apiserver_cache_list_returned_objects_total",
                    "Objects that lists have returned.",
                    &["group", "resource"],
                )?,
                names: BoundedNames::default(),
            },
            authentication: ["success", "failure"]
                .map(|result| pair(&authentications, &authentication_durations, result)),
            authenticated: authenticated.with_label_values(&["other"]),
            authorization: ["allowed", "denied", "no-opinion"]
                .map(|result| pair(&authorizations, &authorization_durations, result)),
        })))
    }

    /// The limiter of concurrent requests, which these metrics show.
    pub(crate) fn concurrency(&self) -> Arc<ConcurrencyLimiter> {
        Arc::clone(&self.0.concurrency)
    }

    /// The series of requests with these labels. Costs two hashes and a shared lock.
    pub(crate) fn series(&self, labels: &RequestLabels<'_>) -> Arc<RequestSeries> {
        self.0.series.of(labels)
    }

    pub(crate) fn authenticated(&self, is_success: bool, started: Instant) {
        let (attempts, durations) = &self.0.authentication[usize::from(!is_success)];
        attempts.inc();
        durations.observe(started.elapsed().as_secs_f64());
        if is_success {
            self.0.authenticated.inc();
        }
    }

    pub(crate) fn authorized(&self, result: AuthorizationResult, duration: Duration) {
        let (attempts, durations) = &self.0.authorization[result as usize];
        attempts.inc();
        durations.observe(duration.as_secs_f64());
    }

    /// Counts a list. The result counts its objects.
    pub(crate) fn list(&self, is_built_in: bool, group: &str, resource: &str) -> IntCounter {
        let lists = &self.0.lists;
        let (group, resource) = lists.names.of(is_built_in, group, resource);
        lists.lists.with_label_values(&[group, "", resource]).inc();
        lists.returned.with_label_values(&[group, resource])
    }
}

/// The end of a request.
pub(crate) struct RequestEnd {
    pub(crate) code: StatusCode,
    pub(crate) is_dry_run: bool,
    /// `None` for a watch, whose duration says nothing about the server.
    pub(crate) duration: Option<Duration>,
    /// Bytes of a whole response.
    pub(crate) size: Option<usize>,
}
