//! Observability: metrics, access log, traces, the busiest workspaces, and subscriptions to completed requests.
//!
//! May use `request`. Must not know the state that it reports: other folders pass in values and set gauges.

pub(crate) mod access_log;
pub(crate) mod metrics;
mod random;
pub(crate) mod request_stats;
pub(crate) mod tail;
pub(crate) mod top;
pub(crate) mod trace;

use std::sync::Arc;

use access_log::AccessLog;
use metrics::GatewayMetrics;
use tail::Tail;
use top::TopWorkspaces;
use trace::Tracing;

/// All reporting of requests.
pub(crate) struct Telemetry {
    /// Prometheus metrics.
    pub(crate) metrics: Arc<GatewayMetrics>,
    /// Requests per workspace.
    pub(crate) top: Arc<TopWorkspaces>,
    /// The access log.
    pub(crate) access_log: Arc<AccessLog>,
    /// Spans for the collector.
    pub(crate) traces: Tracing,
    /// Subscriptions of admin API clients to completed requests.
    pub(crate) tail: Arc<Tail>,
}
