//! The contract of every backend on a real etcd, and the failures that the store has to survive. Needs the program `etcd`;
//! `deploy/tools.sh etcd` installs it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backend;
mod concurrent;
#[path = "../../../store/tests/suite/contract/mod.rs"]
mod contract;
mod copy;
mod election;
mod etcd;
mod faults;
mod members;
mod numbers;
mod opening;
mod proxy;
mod replicas;
