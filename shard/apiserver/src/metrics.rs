//! Metrics of requests.

use std::time::Instant;

use fairlead_process::{Metrics, MetricsError};
use http::{Method, StatusCode};
use prometheus::{HistogramVec, IntCounterVec, IntGauge};

/// Request metrics under the names of a Kubernetes API server.
#[derive(Clone)]
pub struct RequestMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
    in_flight: IntGauge,
}

impl RequestMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            total: metrics.counters(
                "apiserver_request_total",
                "Requests by method and code.",
                &["verb", "code"],
            )?,
            duration: metrics.histograms(
                "apiserver_request_duration_seconds",
                "Time until the response headers, in seconds.",
                &["verb"],
                &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            )?,
            in_flight: metrics.gauge("apiserver_current_inflight_requests", "Requests being served.")?,
        })
    }

    pub(crate) fn begin(&self) -> Timer<'_> {
        self.in_flight.inc();
        Timer { metrics: self, started: Instant::now() }
    }
}

/// A request in flight, until this is dropped.
pub(crate) struct Timer<'m> {
    metrics: &'m RequestMetrics,
    started: Instant,
}

impl Timer<'_> {
    pub(crate) fn finish(self, method: &Method, code: StatusCode) {
        let verb = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        self.metrics.total.with_label_values(&[verb, code.as_str()]).inc();
        self.metrics.duration.with_label_values(&[verb]).observe(self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
    }
}
