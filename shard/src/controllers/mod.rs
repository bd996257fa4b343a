//! Controllers: each observes the state of one key, plans purely, and acts in one commit.
//!
//! They read the store and write to it directly; across shards they use the API of the other shard. They
//! hang off the hub for events, and look at everything at start and whenever they fell behind.

mod driver;
mod logical_cluster;
mod queue;
mod workspace;

pub(crate) use driver::{Controller, drive, feed};
pub(crate) use logical_cluster::LogicalClusters;
pub(crate) use queue::{Next, Queue};
pub(crate) use workspace::{WorkspaceKey, Workspaces};
