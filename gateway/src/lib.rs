//! The front proxy: finds the shard, authenticates, forwards. It must not know resources, schemas or stores.
//!
//! The folders stand in the order in which a request passes through them. Each may use only those below it, which
//! `tests/tests/tidy` checks; each `mod.rs` says what its folder is for and what it must not know.

mod process;

mod listener;

mod http;

mod admin;

mod pipeline;

mod forward;

mod auth;

mod routing;

mod policy;

mod upstream;

mod telemetry;

mod request;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub use routing::placement::simulation;

pub use process::flags::{FlagError, FrontProxyFlags, Parsed};
pub use process::gateway::{
    Environment, Gateway, RejectedConfiguration, SharedGateway, StartError, follow_configuration,
};
pub use process::lifecycle::ServiceNotifier;
pub use process::upgrade::on_upgrade_signal;
