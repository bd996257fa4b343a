//! Behaviours of a running installation, seen from its clients. Each test starts its own installation with `fairlead up`.
//! All tests are in one binary, because linking takes longer than most of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod admin;
mod backup;
mod cache_servers;
mod chaos;
mod comer;
mod edge;
mod identity;
mod installation;
mod kcp_flags;
mod kube_rs;
mod kubectl;
mod python;
mod replicas;
mod sharing;
mod store_copy;
mod stores;
mod versions;
mod wire;
