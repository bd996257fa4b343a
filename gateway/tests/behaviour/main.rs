//! Behaviours of a running gateway, seen from its clients and its shards over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod authentication;
mod contract;
mod ending;
mod figures;
mod golden;
mod http1;
mod identity;
mod index;
mod index_faults;
mod index_sources;
mod mapping;
mod outcomes;
mod paths;
mod peers;
mod pki;
mod process;
#[allow(dead_code, reason = "shared with the hostile tests")]
mod program;
mod rotation;
mod shard;
mod streaming;
mod upstream;
mod world;
