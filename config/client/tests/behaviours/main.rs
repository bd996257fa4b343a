//! Behaviours of the client against a scripted server over real TLS on the loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod credentials;
mod kubeconfig;
mod reflector;
mod requests;
mod support;
