//! Behaviours of a cache server that clients observe, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "tests")]

mod access;
mod cached_resources;
mod copies;
mod process;
mod serving;
mod support;
