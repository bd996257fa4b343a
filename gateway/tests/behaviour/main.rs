//! Behaviours of a running gateway, seen from its clients and its shards over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod access_log;
mod acme;
mod authentication;
mod breaking;
mod cdn;
mod commands;
mod contract;
mod credentials;
mod document;
mod edge;
mod events;
mod every_listener;
mod explain;
mod fairness;
mod figures;
mod forms;
mod golden;
mod handover;
mod health;
mod http1;
mod identity;
mod index;
mod index_faults;
mod index_sources;
mod interim;
mod issuer;
mod kcp_compatibility;
mod limits;
mod listeners;
mod mapping;
mod matrix;
mod membership;
mod observability;
mod outcomes;
mod own_credentials;
mod paths;
mod peers;
mod picks;
#[allow(dead_code, reason = "shared with the hostile tests")]
mod pki;
mod process;
#[allow(dead_code, reason = "shared with the hostile tests")]
mod program;
#[allow(dead_code, reason = "shared with the tests of faults")]
mod relay;
mod repeats;
mod replicas;
mod rotation;
mod scale;
mod scrape;
mod sessions;
#[allow(dead_code, reason = "shared with the tests of faults")]
mod shard;
mod stream_deadline;
mod streaming;
mod switches;
mod tail;
mod tokens;
mod traces;
mod tunnels;
mod upstream;
mod upstream_identity;
mod world;
