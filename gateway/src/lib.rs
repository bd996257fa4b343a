//! The front proxy: finds the shard, authenticates, forwards.
//!
//! One request is one straight pass: `listener` (which door), `request` (path and headers, read once), `route` over
//! `table` (which shard), `identity` (who), `limits` (how much), `upstream` and `proxy` (the data plane), `observe`. Beside the
//! path, never on it: `index` keeps the table true, `pick` answers shards. It knows no resources, schemas or stores.

mod access_log;
mod acme;
mod admin;
mod answer;
mod authentication;
mod chance;
mod coalesce;
mod core;
mod cors;
mod doors;
mod ending;
mod explain;
mod figures;
mod flags;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gulp;
mod identity;
mod index;
mod lanes;
mod life;
mod limits;
mod listener;
mod local;
mod mapping;
mod mount;
mod moved;
mod observe;
mod peers;
mod pick;
mod proxy;
mod request;
mod route;
mod screen;
mod seen;
mod server;
mod service_accounts;
mod shard_credentials;
mod status;
mod table;
mod tail;
mod top;
mod trace;
mod untaken;
mod upgrade;
mod upstream;
mod workspaces;

#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub use pick::simulation;

pub use flags::{FlagError, FrontProxyFlags, Parsed};
pub use life::Life;
pub use server::{Environment, Gateway, Refused, SharedGateway, StartError, follow_configuration};
pub use upgrade::on_upgrade_signal;
