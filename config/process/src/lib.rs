//! Foundation of every server process: reloadable TLS listeners, readiness, drain, metrics registry, logs, limits on
//! misbehaving peers, `Status` errors.
//!
//! The crate does not know what a process serves, nor its users: the certificates of a peer are passed on without
//! authentication. There is no global state but the logger and signal handlers; registries, shutdown and tasks are values that
//! are passed.

mod activity;
mod certificates;
mod challenges;
mod connection;
mod error;
mod exit;
mod frame_budget;
mod handover;
mod lifecycle;
mod logging;
mod metrics;
mod open_files;
mod peers;
mod process_error;
mod proxy_protocol;
mod quota;
mod readiness;
mod reload;
mod request_body;
mod response;
mod server;
mod service_manager;
mod signals;
mod slow_reader;
mod socket;
mod status;
mod status_format;
mod supervised;
mod tls;
mod tls_error;
mod write_batch;

pub use activity::{Activity, IdleReason, OpenRequest};
pub use certificates::{NamedCertificate, ProvisionalCertificate};
pub use challenges::{ACME_PROTOCOL, ChallengeFolder};
pub use connection::ConnectionInfo;
pub use error::{FatalError, chain};
pub use exit::run;
pub use frame_budget::{FrameBudget, GoawayHandle, HeaderReadAhead, is_frame_budget_exceeded};
pub use handover::{HandoverError, Inheritance, InheritedSockets, Predecessor, Successor, socket_number};
pub use lifecycle::{Drain, Shutdown, TaskFailed, Tasks};
pub use logging::{LoggingError, init_logging};
pub use metrics::{METRICS_CONTENT_TYPE, Metrics, MetricsError};
pub use open_files::{OpenFiles, check_open_files};
pub use peers::AllowedPeers;
pub use process_error::ProcessError;
pub use proxy_protocol::{ProxyHeaderError, proxied_client};
pub use quota::{AddressQuotas, ConnectionGuard, Counting, Meter, Meters, Rate, RateState, network_of};
pub use readiness::{ALL_PROBES, Health, Probe, ReadyFlag};
pub use reload::{LoadError, ReloadCounts, ReloadHold, ReloadStatus, ReloadTrigger, Reloadable, Reloads};
pub use request_body::{RequestBody, RequestBodyError};
pub use response::{BodyError, Service};
pub use server::{BindError, BoundServer, ServerMetrics, ServerOptions};
pub use service_manager::ServiceManager;
pub use signals::{on_reopen_signal, signals};
pub use socket::tune_socket;
pub use status::{GroupResource, Status, StatusCause, StatusDetails, StatusMetadata, StatusReason};
pub use status_format::StatusFormat;
pub use tls::{ClientCertificates, PeerChain, ReloadableTls, TlsSource};
pub use tls_error::TlsError;
