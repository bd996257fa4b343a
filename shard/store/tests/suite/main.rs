//! What every backend of the store has to do, seen through the trait, and what the redb file has to survive.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backend;
mod commits;
mod compaction;
mod crash;
mod feed;
mod model;
mod opening;
mod reads;
