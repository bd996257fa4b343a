//! The process: assembles the gateway, applies changed settings, hands over to a successor, and stops.
//!
//! May use all other folders, and none of them may use it. Must not know single requests.

pub(crate) mod flags;
pub(crate) mod gateway;
pub(crate) mod lifecycle;
mod settings;
pub(crate) mod upgrade;
