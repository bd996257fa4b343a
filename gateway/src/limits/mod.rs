//! How much a client, a workspace, or everybody together may ask of a door. Rates, meters and what addresses may do are those of
//! every server: `fairlead_process`.
//!
//! A door without quotas costs one atomic load. With them: an atomic operation or two for everybody together, and per kind
//! of key a look-up in a map that is locked for as long as that takes. With all of
//! them 0.4 to 1.6 µs per request (`make bench-gateway`), most of it for lines of the cache that other threads have.

mod quota;

#[cfg(test)]
pub(crate) use quota::Scope;
pub(crate) use quota::{DoorQuotas, Exceeded, Kind, Ticket, What, Whom};
