//! How much a client, a workspace, or everybody together may ask of a door. Rates, meters and what addresses may do are those of
//! every server: `fairlead_process`.
//!
//! A door without quotas costs one atomic load. With them: an atomic operation or two for everybody together, and per kind
//! of key a look-up in a map that is locked for as long as that takes. With all of
//! them and turns at shards: 0.4 µs per request over HTTP/1.1, 1.6 over HTTP/2 (`gateway/README.md`, Speed).

mod quota;

#[cfg(test)]
pub(crate) use quota::Scope;
pub(crate) use quota::{DoorQuotas, Exceeded, Kind, Ticket, What, Whom};
