//! The cache server: objects of all shards under `/shards/…/clusters/…`.
//!
//! Each shard writes copies of what other shards need to know (exports, types, schemas, roles, shards), and every shard
//! reads all of them. A copy is stored under the shard and the logical cluster that it comes from, with the identity
//! that its origin gave it. There are no schemas, no admission and no finalizers here: whoever is in `system:masters`
//! is believed, and nobody else gets in.
//!
//! It must not know controllers: it never writes an object by itself but the definitions of what it serves.

mod bootstrap;
mod definitions;
mod host;
mod path;
mod process;
mod server;

pub use host::MASTERS;
pub use process::{StartError, main};
pub use server::CacheServer;
