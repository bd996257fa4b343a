//! Behaviours of a running installation, seen from its clients. Each test starts an installation of its own with
//! `fairlead up`. One binary for all of them, because linking takes longer than most of the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod admin;
mod chaos;
mod comer;
mod edge;
mod installation;
mod kube_rs;
mod kubectl;
mod wire;
