//! The cache server: serves copies of objects of all shards under `/shards/…/clusters/…`.
//!
//! Each shard writes copies of the objects that other shards need (exports, types, schemas, roles, shards), and every
//! shard reads all of them. A copy is stored under the shard and the logical cluster of the original, with the UID and
//! generation of the original. There are no schemas, no admission and no finalizers: members of `system:masters` may
//! write anything, and all other clients are denied.
//!
//! Several cache servers on one etcd serve together and follow each other's writes.
//!
//! This crate has no controllers. The server writes no objects itself, except for the definitions of the served
//! resources.

mod bootstrap;
mod cached_resources;
mod definitions;
mod host;
mod leadership;
mod path;
mod process;
mod server;

pub use host::{CacheAccess, ClientAuthentication, MASTERS};
pub use process::{StartError, main};
pub use server::{CacheServer, EmbeddedCache};
