//! Policies of listeners and what they apply to: the listener and its connections, client addresses, request filters, CORS, quotas
//! and slow-reader protection.
//!
//! May use `upstream` (a listener's identity towards shards), `telemetry` and `request`. Must not know workspaces or credentials.

pub(crate) mod client_address;
pub(crate) mod connection;
pub(crate) mod connection_backlog;
pub(crate) mod cors;
pub(crate) mod listener;
pub(crate) mod quota;
pub(crate) mod request_filter;
