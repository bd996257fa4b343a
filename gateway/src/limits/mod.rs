//! How much a client, a workspace, or everybody together may ask of a door.
//!
//! A door without quotas costs one atomic load. With them: an atomic operation or two for everybody together, and per kind
//! of key a look-up in a map that is locked for as long as that takes. Not measured yet.

mod address;
mod meter;
mod quota;
mod rate;

pub(crate) use address::{AddressQuotas, Connected};
pub(crate) use quota::{Counting, DoorQuotas, Exceeded, Kind, Ticket, Whom};
#[cfg(test)]
pub(crate) use quota::{Scope, What};
