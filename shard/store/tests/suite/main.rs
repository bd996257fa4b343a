//! The behaviour of every backend through the trait, and the failures that the redb file has to survive.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backend;
mod backup;
mod commits;
mod compaction;
mod crash;
mod feed;
mod model;
mod opening;
mod reads;
mod restore;
