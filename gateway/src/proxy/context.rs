//! What the data plane remembers of one request.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use prometheus::IntGauge;

use crate::core::Forward;
use crate::listener::OpenRequest;
use crate::request::RequestClass;
use crate::upstream::Pass;

/// Lives from the head of the request to the end of the answer.
pub(crate) struct Context {
    pub(super) began: Instant,
    pub(super) class: RequestClass,
    pub(super) client: IpAddr,
    /// Set once the request may go to a shard.
    pub(super) forward: Option<Forward>,
    /// The right to ask the pool for a stream, while this request does.
    pub(super) pass: Option<Pass>,
    pub(super) asked_pool: Option<Instant>,
    pub(super) connect: Connect,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    /// Whether the last byte that went to the client ended a line, and so an event of a watch.
    pub(super) at_line_end: bool,
    _open: Option<OpenRequest>,
    _counted: Option<OpenGauge>,
}

/// How far the request came on its way to a shard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Connect {
    /// Nothing was tried, or it is being tried.
    Pending,
    /// There was a stream.
    Done,
    /// There was none: the shard saw nothing of the request.
    Failed,
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            class: RequestClass::Read,
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            forward: None,
            pass: None,
            asked_pool: None,
            connect: Connect::Pending,
            request_bytes: 0,
            response_bytes: 0,
            at_line_end: true,
            _open: None,
            _counted: None,
        }
    }

    pub(super) fn begin(&mut self, class: RequestClass, client: IpAddr, open: OpenRequest, gauge: IntGauge) {
        gauge.inc();
        self.class = class;
        self.client = client;
        self._open = Some(open);
        self._counted = Some(OpenGauge(gauge));
    }
}

/// Counts down also when the request's task is simply dropped.
struct OpenGauge(IntGauge);

impl Drop for OpenGauge {
    fn drop(&mut self) {
        self.0.dec();
    }
}
