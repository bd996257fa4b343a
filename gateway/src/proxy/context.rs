//! What the data plane remembers of one request.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use crate::listener::{Connection, OpenRequest};
use crate::request::RequestClass;
use crate::seen::Seen;
use crate::top::OpenWatch;

/// Lives from the head of the request to the end of the answer.
pub(super) struct Context {
    pub(super) began: Instant,
    pub(super) class: RequestClass,
    pub(super) client: IpAddr,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    /// Whether the last byte that went to the client ended a line, and so an event of a watch.
    pub(super) at_line_end: bool,
    /// How long a watch may be silent before a blank goes to its client.
    pub(super) keep_alive: Option<Duration>,
    /// What is remembered of it for those who look afterwards.
    pub(super) seen: Seen,
    /// Counted in its workspace while it lives.
    pub(super) watching: Option<OpenWatch>,
    open: OpenRequest,
    _counted: OpenGauge,
}

impl Context {
    pub(super) fn begin(class: RequestClass, client: IpAddr, open: OpenRequest, gauge: IntGauge) -> Self {
        gauge.inc();
        Self {
            began: Instant::now(),
            class,
            client,
            request_bytes: 0,
            response_bytes: 0,
            at_line_end: true,
            keep_alive: None,
            seen: Seen::default(),
            watching: None,
            open,
            _counted: OpenGauge(gauge),
        }
    }

    /// The connection that it came over.
    pub(super) fn connection(&self) -> &Connection {
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
