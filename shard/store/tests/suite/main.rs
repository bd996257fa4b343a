//! The contract of every backend, and the failures that the redb file has to survive.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backend;
mod backup;
mod contract;
mod crash;
mod ends;
mod histories;
mod leadership;
mod numbers;
mod opening;
mod replica;
mod restore;
