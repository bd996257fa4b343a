//! Behaviours of the stream, the controller and the example against servers on the loopback, which the test starts and stops.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod controller;
mod example;
mod objects;
mod support;
