//! Behaviours of the running system, seen from its clients.
//!
//! This crate may use everything as a client would, and must not know what is inside the servers: it starts real
//! binaries, talks to their sockets and reads what the operating system tells about them.
//!
//! - [`harness`] starts, stops and kills processes, makes certificates and finds kubectl.
//! - [`cdn`] stands between clients and an edge gateway.
//! - [`comer`] runs the pattern of two gateways and proves who can do what at which door.
//! - [`load`] puts load on a running system and measures it; the `bench` binary is its command line.
//! - [`dashboards`] are what operators look at; [`scene`] is an installation in which everything happens that they show; [`draw`]
//!   draws them.

pub mod cdn;
pub mod comer;
pub mod dashboards;
pub mod draw;
pub mod harness;
pub mod load;
pub mod recordings;
pub mod scene;
