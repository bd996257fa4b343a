//! The process: assembles the gateway, applies changed settings, hands over to a successor, and stops.

pub(crate) mod flags;
pub(crate) mod gateway;
pub(crate) mod lifecycle;
mod settings;
pub(crate) mod upgrade;
