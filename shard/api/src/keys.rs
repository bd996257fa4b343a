//! The names that kcp gives a meaning: annotations, labels, finalizers, groups, condition types.

/// Annotation keys.
pub mod annotation {
    /// Logical cluster of an object; put into everything that is read, never stored.
    pub const CLUSTER: &str = "kcp.io/cluster";
    /// Shard of an object in the cache server; put into what is read, never stored.
    pub const CACHE_SHARD: &str = "kcp.io/shard";
    /// Canonical path of the workspace that holds the object.
    pub const PATH: &str = "kcp.io/path";
    /// Shard that a Workspace or LogicalCluster lives on.
    pub const SHARD: &str = "core.kcp.io/shard";
    /// Older, hashed form of [`SHARD`] on Workspaces.
    pub const SHARD_HASH: &str = "internal.tenancy.kcp.io/shard";
    /// Logical cluster chosen for a Workspace.
    pub const WORKSPACE_CLUSTER: &str = "internal.tenancy.kcp.io/cluster";
    /// Type of a LogicalCluster, `<path>:<name>`.
    pub const TYPE: &str = "internal.tenancy.kcp.io/type";
    /// JSON user info of the creator of a Workspace or LogicalCluster.
    pub const OWNER: &str = "experimental.tenancy.kcp.io/owner";
    /// Groups that may enter; `a,b;c` is (a and b) or c.
    pub const REQUIRED_GROUPS: &str = "authorization.kcp.io/required-groups";
    /// `true` shuts a logical cluster.
    pub const INACTIVE: &str = "core.kcp.io/inactive";
    /// Older name of [`INACTIVE`].
    pub const INACTIVE_LEGACY: &str = "internal.kcp.io/inactive";
    /// Limit on the number of objects in a logical cluster.
    pub const MAX_TOTAL_OBJECTS: &str = "core.kcp.io/max-total-objects";
    /// A logical cluster that is being moved.
    pub const MIGRATING: &str = "internal.kcp.io/migrating";
    /// Which binding or CRD owns which resource of a logical cluster (JSON object).
    pub const RESOURCE_BINDINGS: &str = "internal.apis.kcp.io/resource-bindings";
    /// Comma-separated reasons to copy an object to the cache server.
    pub const REPLICATE: &str = "internal.kcp.io/replicate";
    /// Any value on a Shard: no new workspaces.
    pub const UNSCHEDULABLE: &str = "experimental.core.kcp.io/unschedulable";
    /// Marks the CRD of a bound schema.
    pub const BOUND_CRD: &str = "apis.kcp.io/bound-crd";
    /// Logical cluster of the schema behind a bound CRD.
    pub const SCHEMA_CLUSTER: &str = "apis.kcp.io/schema-cluster";
    /// Name of the schema behind a bound CRD.
    pub const SCHEMA_NAME: &str = "apis.kcp.io/schema-name";
    /// Identity of a bound CRD, added when it is read for a logical cluster.
    pub const IDENTITY: &str = "apis.kcp.io/identity";
    /// Storage of a bound CRD that is not stored on the shard, added when it is read.
    pub const SCHEMA_STORAGE: &str = "apis.kcp.io/schema-storage";
    /// `path-segment` on a CRD: objects may have any name that fits in a URL.
    pub const VALIDATE_NAME: &str = "internal.kcp.io/validate-name";
    /// Leave to define APIs in groups that belong to Kubernetes.
    pub const API_APPROVED: &str = "api-approved.kubernetes.io";
    /// On an APIExport: make no default endpoint slice.
    pub const SKIP_ENDPOINT_SLICE: &str = "apiexports.apis.kcp.io/skip-endpointslice";
    /// Bootstrap creates the object once and leaves it alone afterwards.
    pub const CREATE_ONLY: &str = "bootstrap.kcp.io/create-only";
    /// Bootstrap creates the object with the named battery only.
    pub const BATTERY: &str = "bootstrap.kcp.io/battery";
    /// Resource version in the origin, on copies in the cache server.
    pub const ORIGINAL_RESOURCE_VERSION: &str = "cache.kcp.io/original-resource-version";
    /// UID in the origin, on copies in the cache server.
    pub const ORIGINAL_UID: &str = "cache.kcp.io/original-resource-UID";
}

/// Label keys and fixed values.
pub mod label {
    /// Phase of a Workspace or LogicalCluster.
    pub const PHASE: &str = "tenancy.kcp.io/phase";
    /// Region of a Shard, copied to Workspaces.
    pub const REGION: &str = "region";
    /// Name of a Shard.
    pub const NAME: &str = "name";
    /// Hash of the export that an APIBinding refers to.
    pub const EXPORT: &str = "internal.apis.kcp.io/export";
    /// Prefix of the labels on objects that an export may see.
    pub const CLAIMED_PREFIX: &str = "claimed.internal.apis.kcp.io/";
    /// Value of the claim label by which an export sees its own APIBindings.
    pub const REFLEXIVE_CLAIM: &str = "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ";
    /// Prefix of the labels for waiting initializers.
    pub const INITIALIZER_PREFIX: &str = "initializer.internal.kcp.io/";
    /// Prefix of the labels for waiting terminators.
    pub const TERMINATOR_PREFIX: &str = "terminator.internal.kcp.io/";
}

/// Finalizers.
pub mod finalizer {
    /// On a Workspace: its logical cluster still exists.
    pub const WORKSPACE: &str = "core.kcp.io/logicalcluster";
    /// On a LogicalCluster: its content still exists.
    pub const LOGICAL_CLUSTER: &str = "core.kcp.io/logicalcluster-deletion";
    /// On a LogicalCluster: terminators still wait.
    pub const HAS_TERMINATORS: &str = "kcp.io/has-terminators";
    /// On an APIBinding: bound objects still exist.
    pub const API_BINDING: &str = "apis.kcp.io/apibinding-finalizer";
}

/// Groups of users, and the prefix under which exports judge them.
pub mod group {
    /// Everything, even past admission.
    pub const MASTERS: &str = "system:masters";
    /// Everybody with an identity.
    pub const AUTHENTICATED: &str = "system:authenticated";
    /// Everybody without one.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// Administrators of a kcp installation.
    pub const ADMIN: &str = "system:kcp:admin";
    /// A scheduler that writes logical clusters straight to a shard.
    pub const LOGICAL_CLUSTER_ADMIN: &str = "system:kcp:logical-cluster-admin";
    /// The same through the front proxy.
    pub const EXTERNAL_LOGICAL_CLUSTER_ADMIN: &str = "system:kcp:external-logical-cluster-admin";
    /// Fills new workspaces.
    pub const WORKSPACE_BOOTSTRAPPER: &str = "system:kcp:tenancy:workspace-bootstrapper";
    /// Prefix of users and groups in maximal permission policies.
    pub const BINDING_PREFIX: &str = "apis.kcp.io:binding:";
}

/// Condition types.
pub mod condition_type {
    /// Summary.
    pub const READY: &str = "Ready";
    /// A shard has been found.
    pub const WORKSPACE_SCHEDULED: &str = "WorkspaceScheduled";
    /// All initializers are done.
    pub const WORKSPACE_INITIALIZED: &str = "WorkspaceInitialized";
    /// The content is gone.
    pub const WORKSPACE_CONTENT_DELETED: &str = "WorkspaceContentDeleted";
    /// The mounted object is ready.
    pub const WORKSPACE_MOUNT_READY: &str = "WorkspaceMountReady";
    /// Default bindings are complete.
    pub const API_BINDINGS_INITIALIZED: &str = "APIBindingsInitialized";
    /// Default bindings are up to date.
    pub const API_BINDINGS_RECONCILED: &str = "APIBindingsReconciled";
    /// The referenced export is usable.
    pub const API_EXPORT_VALID: &str = "APIExportValid";
    /// A binding serves what its export offers now.
    pub const BINDING_UP_TO_DATE: &str = "BindingUpToDate";
    /// A binding was complete once.
    pub const INITIAL_BINDING_COMPLETED: &str = "InitialBindingCompleted";
    /// Accepted claims are in force.
    pub const PERMISSION_CLAIMS_APPLIED: &str = "PermissionClaimsApplied";
    /// Accepted claims are offered claims.
    pub const PERMISSION_CLAIMS_VALID: &str = "PermissionClaimsValid";
    /// Objects of a deleted binding are gone.
    pub const BINDING_RESOURCE_DELETE_SUCCESS: &str = "BindingResourceDeleteSuccess";
    /// An export's identity is known and unchanged.
    pub const IDENTITY_VALID: &str = "IdentityValid";
    /// URLs of virtual workspaces are published.
    pub const VIRTUAL_WORKSPACE_URLS_READY: &str = "VirtualWorkspaceURLsReady";
    /// The partition of an endpoint slice is usable.
    pub const PARTITION_VALID: &str = "PartitionValid";
}

/// The name of the only LogicalCluster object in each logical cluster.
pub const LOGICAL_CLUSTER_NAME: &str = "cluster";
/// The initializer of default APIBindings.
pub const API_BINDINGS_INITIALIZER: &str = "system:apibindings";
/// The namespace of identity secrets.
pub const IDENTITY_NAMESPACE: &str = "kcp-system";
/// The user that owns what bootstrap creates.
pub const BOOTSTRAP_USER: &str = "system:kcp-bootstrapper";
