//! What the data plane remembers of one request.

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

/// The length of a UUID.
const USUAL_ID: usize = 36;

/// Lives from the head of the request to the end of the answer.
pub(crate) struct RequestContext {
    pub(crate) began: Instant,
    pub(crate) class: RequestClass,
    pub(crate) client: IpAddr,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    /// Where the last byte that went to the client was among the events of a watch.
    pub(crate) boundary: WatchFraming,
    /// How long a watch may be silent before a blank goes to its client.
    pub(crate) keep_alive: Option<Duration>,
    /// What is remembered of it for those who look afterwards.
    pub(crate) seen: RequestStats,
    /// What the access log and traces want of its head, where there are any.
    pub(crate) kept: Option<Box<LogFields>>,
    /// If it is traced.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Counted in its workspace while it lives.
    pub(crate) watching: Option<OpenWatch>,
    open: OpenRequest,
    _counted: OpenGauge,
}

/// The bytes of a text, of which one of usual length lies beside the rest: each allocation more is a cache miss more.
pub(crate) type LogPath = SmallVec<[u8; 128]>;

/// What is kept of a request's head, which is gone when its answer has begun.
#[derive(Debug, Default)]
pub(crate) struct LogFields {
    /// Of what is no request, nothing.
    pub(crate) asked: Option<(Version, LogPath)>,
    /// Whom its user acts for.
    pub(crate) impersonated: Option<HeaderValue>,
    /// The trace that it is a part of, recorded or not.
    pub(crate) trace: Option<TraceId>,
    /// What the answer is called. An id of the usual length lies here.
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
            boundary: WatchFraming::Lines { is_between: true },
            keep_alive: None,
            seen: RequestStats::default(),
            kept: None,
            trace: None,
            watching: None,
            open,
            _counted: OpenGauge(gauge),
        }
    }

    /// The connection that it came over.
    pub(crate) fn connection(&self) -> &Connection {
        self.open.connection()
    }
}

/// Counts down also when the request's task is simply dropped.
struct OpenGauge(IntGauge);

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}
