//! Observability: metrics, access log, traces, busy workspaces, and subscriptions to requests as they end.
//!
//! May use `request`. Must not know what it observes: other rooms hand in values and set gauges.

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

/// Everything that requests are reported to.
pub(crate) struct Telemetry {
    /// Prometheus metrics.
    pub(crate) metrics: Arc<GatewayMetrics>,
    /// Requests per workspace.
    pub(crate) top: Arc<TopWorkspaces>,
    /// A line per request.
    pub(crate) access_log: Arc<AccessLog>,
    /// Spans.
    pub(crate) traces: Tracing,
    /// Clients of the admin API that watch requests as they end.
    pub(crate) tail: Arc<Tail>,
}
