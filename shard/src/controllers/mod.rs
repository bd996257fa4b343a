//! The controllers of the shard: each observes the state of one key, plans without side effects, and acts in one
//! batch of commits.
//!
//! They read the store and write to it directly; across shards they use the API of the other shard. They receive events
//! from the hub, and visit all keys at start and after their subscription lagged.

mod aggregation;
mod binding;
mod bound_conversion;
mod bound_definition;
mod cached_resource;
mod content_controllers;
mod default_binding;
mod definition;
mod deletion;
mod endpoint_slice;
mod event_expiry;
mod export;
mod garbage;
mod identity;
mod logical_cluster;
mod namespace;
mod partition_set;
mod permission_claims;
mod policy_status;
mod resource_quota;
#[cfg(test)]
mod testing;
mod token_secret;
mod workspace;
mod workspace_type;

pub(crate) use cached_resource::CachedResourceControllers;
pub(crate) use content_controllers::ContentControllers;
pub(crate) use default_binding::DefaultBindings;
pub(crate) use endpoint_slice::{CachedReferences, EndpointSliceControllers, SliceFamily};
pub(crate) use logical_cluster::LogicalClusters;
pub(crate) use partition_set::PartitionSetController;
pub(crate) use workspace::Workspaces;
pub(crate) use workspace_type::{TypeKey, WorkspaceTypes};
