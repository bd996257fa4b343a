//! Quotas: rate limits, counters per key, and quotas of addresses before authentication.

mod address;
mod meter;
mod rate;

pub use address::{AddressQuotas, ConnectionGuard, network_of};
pub use meter::{Meter, Meters};
pub use rate::{Counting, Rate, RateState};
