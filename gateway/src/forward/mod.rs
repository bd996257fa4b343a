//! One exchange: the request towards an upstream, its body, the response, retries, upgrades, and the end of watches.
//!
//! May use `auth` (the type of an identity), `policy`, `upstream`, `telemetry` and `request`. Must not know which protocol the
//! client speaks (it is a [`DownstreamExchange`](downstream::DownstreamExchange)), nor how the upstream was chosen.

mod body_copy;
pub(crate) mod date;
pub(crate) mod downstream;
pub(crate) mod exchange;
pub(crate) mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod headers;
mod keep_alive;
pub(crate) mod local_response;
pub(crate) mod request_context;
mod response_body;
mod retry_headers;
pub(crate) mod stream_deadline;
pub(crate) mod target;
pub(crate) mod telemetry;
pub(crate) mod tunnel;
pub(crate) mod upload;
pub(crate) mod upstream_request;
mod watch_framing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use fairlead_config::{KcpBehaviour, SlowClientsConfig};
use fairlead_process::Drain;

use crate::forward::body_copy::BodyCopies;
use crate::policy::connection::Connection;
use crate::request::identity_headers::KcpIdentityHeaders;
use crate::telemetry::Telemetry;
use crate::upstream::Upstreams;

/// Status code in metrics for requests whose client disconnected before there was a response.
pub(crate) const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Everything that forwarded requests share.
pub(crate) struct Forwarder {
    /// Shards and backends as servers.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Metrics, access log, traces.
    pub(crate) telemetry: Arc<Telemetry>,
    /// Limits on clients that send or read slowly.
    pub(crate) slow_clients: ArcSwap<SlowClientsConfig>,
    /// Where kcp-front-proxy's behaviour is wanted in place of ours.
    pub(crate) kcp_compatibility: Arc<ArcSwap<Vec<KcpBehaviour>>>,
    /// Copies of request bodies for further attempts.
    body_copies: Arc<BodyCopies>,
    /// Number of long-running exchanges started so far.
    long_running_count: AtomicU64,
}

impl Forwarder {
    /// A forwarder to these upstreams.
    pub(crate) fn new(
        upstreams: Arc<Upstreams>,
        telemetry: Arc<Telemetry>,
        slow_clients: SlowClientsConfig,
        kcp_compatibility: Arc<ArcSwap<Vec<KcpBehaviour>>>,
    ) -> Self {
        let slow_clients = ArcSwap::from_pointee(slow_clients);
        Self {
            upstreams,
            telemetry,
            slow_clients,
            kcp_compatibility,
            body_copies: Arc::default(),
            long_running_count: AtomicU64::new(0),
        }
    }

    /// Whether kcp-front-proxy's behaviour is configured here.
    pub(crate) fn emulates_kcp(&self, behaviour: KcpBehaviour) -> bool {
        self.kcp_compatibility.load().contains(&behaviour)
    }

    /// Which of kcp's ways of stamping identity headers are configured.
    pub(crate) fn kcp_identity_headers(&self) -> KcpIdentityHeaders {
        let kcp_compatibility = self.kcp_compatibility.load();
        KcpIdentityHeaders {
            nominations_last: kcp_compatibility.contains(&KcpBehaviour::IdentityHeadersFirst),
            keeps_uid: kcp_compatibility.contains(&KcpBehaviour::RemoteUid),
        }
    }

    /// Ends long-running exchanges while the connection's listener drains; `None` where kcp's behaviour is configured.
    pub(crate) fn drain(&self, connection: &Connection) -> Option<Drain> {
        (!self.emulates_kcp(KcpBehaviour::Drain)).then(|| connection.drain.clone())
    }

    /// A different number for every long-running exchange, which spreads their ends over a drain's window.
    pub(crate) fn number(&self) -> u64 {
        self.long_running_count.fetch_add(1, Ordering::Relaxed)
    }
}
