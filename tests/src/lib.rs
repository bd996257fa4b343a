//! Tests of the running system, from the point of view of its clients.
//!
//! This crate uses the system as a client does, and must not depend on the servers' internals: it starts real binaries,
//! connects to their sockets and reads `/proc`.
//!
//! - [`harness`] starts, stops and kills processes, makes certificates and finds kubectl.
//! - [`cdn`] simulates a content delivery network between clients and an edge gateway.
//! - [`comer`] runs the pattern of two gateways and checks what each identity may do at each of them.
//! - [`load`] puts load on a running system and measures it; the `bench` binary is its command line.
//! - [`dashboards`] generates the Grafana dashboards, [`scenario`] runs an installation that produces all their data, [`draw`]
//!   draws them.
//! - [`history`] checks what concurrent clients and watchers have seen of a system.
//! - [`recordings`] reads and makes the recordings of a kcp that tests compare with.

pub mod cdn;
pub mod comer;
pub mod dashboards;
pub mod draw;
pub mod harness;
pub mod history;
pub mod load;
pub mod recordings;
pub mod scenario;
