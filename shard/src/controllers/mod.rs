//! Controllers: each observes the state of one key, plans purely, and acts in one commit.
//!
//! They read the store and write to it directly; across shards they use the API of the other shard. They
//! hang off the hub for events, and look at everything at start and whenever they fell behind.

mod binding;
mod definition;
mod deletion;
mod driver;
mod logical_cluster;
mod namespace;
mod queue;
#[cfg(test)]
mod testing;
mod upkeep;
mod workspace;
mod workspace_type;

use binding::{BindingKey, Bindings};
use definition::DefinitionCleanup;
use deletion::Deletion;
pub(crate) use deletion::creation_fence;
pub(crate) use driver::{Controller, drive, feed};
pub(crate) use logical_cluster::LogicalClusters;
use namespace::Namespaces;
pub(crate) use queue::{Next, Queue};
pub(crate) use upkeep::Upkeep;
pub(crate) use workspace::{WorkspaceKey, WorkspaceOwner, Workspaces};
pub(crate) use workspace_type::{TypeKey, WorkspaceTypes};
