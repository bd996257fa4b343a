//! A kcp shard: logical clusters, tenancy, API exports, their controllers.
//!
//! The shard hosts the generic API server and decides which logical clusters exist (a scope is one logical cluster), which
//! resources each serves, which actions a user may perform, and which writes are valid. Controllers create, initialize
//! and delete workspaces.
//!
//! The crate does not depend on the gateway: it calls the gateway's placement API over HTTP.

mod admission;
mod backup;
mod bootstrap;
mod bound_conversion;
mod controller_runtime;
mod controllers;
mod creation_fence;
mod definition_names;
mod export_directory;
mod exports;
mod external_clusters;
mod global;
mod host;
mod index;
mod names;
mod peers;
mod permission_claims;
mod placement;
mod quota;
mod replication;
mod resource_locks;
mod run;
mod service_accounts;
mod shard_selector;
mod start;
mod virtual_storage;
mod virtual_workspaces;
mod workspace_authentication;
mod workspace_owner;
mod workspace_types;
mod writes;

pub use run::{ShardError, run};
pub use start::create_files;
