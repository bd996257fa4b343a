//! Listeners: sockets, TLS, the PROXY protocol, certificates from an ACME authority, and worker threads; listeners are added, changed and
//! drained while the process runs.
//!
//! May use `http` (it serves the connections), `admin` (the list of listeners), `auth`, `policy`, `upstream` and `telemetry`. Must not
//! know requests: paths, workspaces and shards.

mod accept;
pub(crate) mod acme;
pub(crate) mod bound;
mod connection_limit;
pub(crate) mod listener_manager;
mod pingora_app;
mod socket;
mod socket_file;
pub(crate) mod workers;
