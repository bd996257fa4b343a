//! Behaviours of a running gateway, seen from its clients and its shards over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod authentication;
mod ending;
mod figures;
mod golden;
mod identity;
mod index;
mod mapping;
mod outcomes;
mod peers;
mod pki;
mod process;
mod rotation;
mod shard;
mod streaming;
mod world;
