//! How much somebody may ask: rates, what is counted of each of many, and what an address may do before anybody is known.

mod address;
mod meter;
mod rate;

pub use address::{AddressQuotas, Connected, network_of};
pub use meter::{Meter, Meters};
pub use rate::{Counting, Debt, Pace};
