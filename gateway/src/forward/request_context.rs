//! The state of one request from its head to the end of its response.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{HeaderValue, Version};
use prometheus::IntGauge;
use smallvec::SmallVec;

use crate::forward::watch_framing::WatchFraming;
use crate::policy::connection::{Connection, OpenRequest};
use crate::request::RequestClass;
use crate::telemetry::request_stats::RequestStats;
use crate::telemetry::top::OpenWatch;
use crate::telemetry::trace::{Trace, TraceId};

/// Length of a UUID as text, in bytes.
const USUAL_ID: usize = 36;

/// The state of one request.
pub(crate) struct RequestContext {
    pub(crate) began: Instant,
    pub(crate) class: RequestClass,
    pub(crate) client: IpAddr,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    /// Position in the stream of watch events that was sent to the client.
    pub(crate) framing: WatchFraming,
    /// Interval after which a space is written to an idle watch.
    pub(crate) keep_alive: Option<Duration>,
    /// Statistics, read once when the request completes.
    pub(crate) stats: RequestStats,
    /// Fields of the request head for the access log and traces, if either is on.
    pub(crate) log_fields: Option<Box<LogFields>>,
    /// The trace, if the request is sampled.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Counts the watch in its workspace.
    pub(crate) watching: Option<OpenWatch>,
    open: OpenRequest,
    _counted: OpenGauge,
}

/// A path as bytes; paths of usual length are stored inline, because each allocation costs a cache miss.
pub(crate) type LogPath = SmallVec<[u8; 128]>;

/// Fields of the request head, which is dropped when the response begins.
#[derive(Debug, Default)]
pub(crate) struct LogFields {
    /// Version and path; `None` for bytes that are no request.
    pub(crate) request: Option<(Version, LogPath)>,
    /// The user that is impersonated.
    pub(crate) impersonated: Option<HeaderValue>,
    /// Id of the trace that the request belongs to, sampled or not.
    pub(crate) trace: Option<TraceId>,
    /// Audit-Id of the response, stored inline if it is a UUID.
    pub(crate) audit_id: OnceLock<SmallVec<[u8; USUAL_ID]>>,
}

impl RequestContext {
    pub(crate) fn begin(class: RequestClass, client: IpAddr, open: OpenRequest, gauge: IntGauge) -> Self {
        gauge.inc();
        Self {
            began: Instant::now(),
            class,
            client,
            request_bytes: 0,
            response_bytes: 0,
            framing: WatchFraming::Lines { is_between: true },
            keep_alive: None,
            stats: RequestStats::default(),
            log_fields: None,
            trace: None,
            watching: None,
            open,
            _counted: OpenGauge(gauge),
        }
    }

    /// The connection of the request.
    pub(crate) fn connection(&self) -> &Connection {
        self.open.connection()
    }
}

/// Decrements the gauge when dropped, also when the request's task is cancelled.
struct OpenGauge(IntGauge);

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}
