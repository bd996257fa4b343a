//! Typed views of the kcp kinds, for reading. Unknown fields do not survive a round trip: code that changes stored objects
//! must edit their JSON tree.

mod apis;
mod core_group;
mod metadata;
mod tenancy;
mod topology;

pub use apis::{
    APIBinding, APIBindingSpec, APIBindingStatus, APIExport, APIExportEndpointSlice,
    APIExportEndpointSliceSpec, APIExportEndpointSliceStatus, APIExportSpec, APIExportStatus,
    APIResourceSchema, APIResourceSchemaSpec, AcceptedClaim, BindingReference, BoundResource, BoundSchema,
    ClaimSelector, ClaimState, Endpoint, EndpointShards, ExportReference, ExportedResource, Identity,
    PermissionClaim, PermissionPolicy, SchemaConversion, SchemaNames, SchemaVersion, SecretReference,
    Storage,
};
pub use core_group::{
    LogicalCluster, LogicalClusterOwner, LogicalClusterSpec, LogicalClusterStatus, Shard, ShardSpec,
    ShardStatus, UserInfo,
};
pub use metadata::{LabelSelector, NoStatus, Object, ObjectMeta, OwnerReference, Phase, SelectorRequirement};
pub use tenancy::{
    DefaultBinding, ExtendedTypes, MountReference, PolicyRule, TypeReference, TypeSelector,
    TypeVirtualWorkspace, Workspace, WorkspaceLocation, WorkspaceMount, WorkspaceSpec, WorkspaceStatus,
    WorkspaceType, WorkspaceTypeSpec, WorkspaceTypeStatus,
};
pub use topology::{Partition, PartitionSet, PartitionSetSpec, PartitionSetStatus, PartitionSpec};

/// For `skip_serializing_if`.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
