//! A kcp shard: logical clusters, tenancy, API exports, their controllers.
//!
//! It hosts the generic API server: it says which logical clusters there are (a scope is one logical
//! cluster), which resources each serves, who may do what, and what a write must look like; controllers
//! carry workspaces through their lives. It must not know the gateway: what the gateway does for it
//! (choosing a shard for a workspace) is an HTTP service it asks.

mod admission;
mod bootstrap;
mod controller_runtime;
mod controllers;
mod creation_fence;
mod exports;
mod global;
mod host;
mod index;
mod names;
mod peers;
mod placement;
mod replication;
mod run;
mod workspace_owner;
mod workspace_types;
mod writes;

pub use run::{ShardError, run};
