//! Rules of the repository that the compiler does not check. Each rule is one file, with tests on inputs that break it.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "tests")]

mod comments;
mod commits;
mod compression;
mod crates;
mod documents;
mod lexer;
mod modules;
mod outside_paths;
mod sources;
mod words;
mod workspace;
