//! What every server process is: reloadable TLS listeners, readiness, drain, metrics registry, logs, limits on bad peers, `Status` errors.
//!
//! It does not know what a process serves, nor who its users are: a peer's certificates are handed on unjudged. There
//! is no global state but the logger and signal handlers; registries, shutdown and tasks are values that are passed.

mod activity;
mod certificates;
mod challenges;
mod chatter;
mod connection;
mod exit;
mod handover;
mod lifecycle;
mod limits;
mod logging;
mod metrics;
mod peers;
mod proxy_protocol;
mod quota;
mod readiness;
mod reload;
mod reply;
mod request_body;
mod server;
mod service;
mod socket;
mod status;
mod status_format;
mod supervised;
mod tls;
mod untaken;

pub use activity::{Activity, Idle, OpenRequest};
pub use certificates::{NamedCertificate, Provisional};
pub use challenges::{ACME_PROTOCOL, ChallengeFolder};
pub use chatter::{Chatter, Farewell, said_too_much};
pub use connection::ConnectionInfo;
pub use exit::{FatalError, run};
pub use handover::{HandoverError, Inheritance, InheritedSockets, Predecessor, Successor, socket_number};
pub use lifecycle::{Drain, Shutdown, TaskFailed, Tasks, on_reopen_signal, signals};
pub use limits::{OpenFiles, check_open_files};
pub use logging::{LoggingError, init_logging};
pub use metrics::{METRICS_CONTENT_TYPE, Metrics, MetricsError};
pub use peers::AllowedPeers;
pub use proxy_protocol::{ProxyHeaderError, proxied_client};
pub use quota::{AddressQuotas, Connected, Counting, Debt, Meter, Meters, Pace, network_of};
pub use readiness::{ALL_PROBES, Health, Probe, ReadyFlag};
pub use reload::{Held, LoadError, Looks, ReloadStanding, ReloadTrigger, Reloadable, Reloads, chain};
pub use reply::{BodyError, Service};
pub use request_body::{RequestBody, RequestBodyError};
pub use server::{BindError, BoundServer, ServerMetrics, ServerOptions};
pub use service::ServiceManager;
pub use socket::tune_socket;
pub use status::{GroupResource, Status, StatusCause, StatusDetails, StatusMetadata, StatusReason};
pub use status_format::StatusFormat;
pub use tls::{ClientCertificates, PeerChain, ReloadableTls, TlsError, TlsSource};
