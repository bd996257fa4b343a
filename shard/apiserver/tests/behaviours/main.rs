//! The behaviours of the API server, tested by requests and responses, over a store in memory whose feed is
//! delayed at random; `FAIRLEAD_TEST_STORE` names another store (`redb`, `etcd`). The clock is paused: waiting costs nothing
//! and times are exact.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod admission_requests;
mod api_conversions;
mod apply;
mod audit;
mod client;
mod conversions;
mod creates;
mod deletes;
mod discovery;
mod events;
mod future_revisions;
mod host;
mod https;
mod limits;
mod lists;
mod metrics;
mod mutating_policies;
mod negotiation;
mod open_api;
mod patches;
mod policies;
mod remote_policies;
mod requests;
mod rules;
mod scale;
mod scale_owners;
mod stores;
mod tokens;
mod updates;
mod watches;
mod webhooks;
mod writes;
