//! Names with a meaning in kcp: annotations, labels, finalizers, groups, condition types.

/// Annotation keys.
pub mod annotation {
    /// Logical cluster of an object. It is added to every object that is read and never stored.
    pub const CLUSTER: &str = "kcp.io/cluster";
    /// Shard of an object in the cache server. It is added to objects that are read and never stored.
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
    /// Groups with access; `a,b;c` is (a and b) or c.
    pub const REQUIRED_GROUPS: &str = "authorization.kcp.io/required-groups";
    /// `true` makes a logical cluster inactive: its requests are rejected.
    pub const INACTIVE: &str = "core.kcp.io/inactive";
    /// Older name of [`INACTIVE`].
    pub const INACTIVE_LEGACY: &str = "internal.kcp.io/inactive";
    /// Limit on the number of objects in a logical cluster.
    pub const MAX_TOTAL_OBJECTS: &str = "core.kcp.io/max-total-objects";
    /// `true` on a ResourceQuota: it limits the whole logical cluster, not only its namespace.
    pub const CLUSTER_SCOPED_QUOTA: &str = "experimental.quota.kcp.io/cluster-scoped";
    /// Present on a logical cluster during its migration.
    pub const MIGRATING: &str = "internal.kcp.io/migrating";
    /// Owner (APIBinding or CRD) of each resource of a logical cluster, as a JSON object.
    pub const RESOURCE_BINDINGS: &str = "internal.apis.kcp.io/resource-bindings";
    /// Prefix of the annotations of an APIExport that its APIBindings have, too.
    pub const EXTRA_PREFIX: &str = "extra.apis.kcp.io/";
    /// Comma-separated reasons to copy an object to the cache server.
    pub const REPLICATE: &str = "internal.kcp.io/replicate";
    /// Any value on a Shard excludes it from scheduling of new workspaces.
    pub const UNSCHEDULABLE: &str = "experimental.core.kcp.io/unschedulable";
    /// Kind of the objects that a ClusterCachedResource publishes.
    pub const CACHED_RESOURCE_KIND: &str = "cache.kcp.io/resource-kind";
    /// Scope of these objects, `Cluster` or `Namespaced`.
    pub const CACHED_RESOURCE_SCOPE: &str = "cache.kcp.io/resource-scope";
    /// Present on the CRD of a bound schema.
    pub const BOUND_CRD: &str = "apis.kcp.io/bound-crd";
    /// Logical cluster of the schema behind a bound CRD.
    pub const SCHEMA_CLUSTER: &str = "apis.kcp.io/schema-cluster";
    /// Name of the schema behind a bound CRD.
    pub const SCHEMA_NAME: &str = "apis.kcp.io/schema-name";
    /// Identity of a bound CRD, added when it is read for a logical cluster.
    pub const IDENTITY: &str = "apis.kcp.io/identity";
    /// Storage of a bound CRD that is not stored on the shard, added when it is read.
    pub const SCHEMA_STORAGE: &str = "apis.kcp.io/schema-storage";
    /// `path-segment` on a CRD permits every object name that is valid in a URL.
    pub const VALIDATE_NAME: &str = "internal.kcp.io/validate-name";
    /// Approval to define APIs in groups that belong to Kubernetes.
    pub const API_APPROVED: &str = "api-approved.kubernetes.io";
    /// On an APIExport: no default endpoint slice is created.
    pub const SKIP_ENDPOINT_SLICE: &str = "apiexports.apis.kcp.io/skip-endpointslice";
    /// Bootstrap creates the object once and does not update it.
    pub const CREATE_ONLY: &str = "bootstrap.kcp.io/create-only";
    /// Bootstrap creates the object only with the named battery.
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

/// Finalizer names.
pub mod finalizer {
    /// On a Workspace: removed once its logical cluster is deleted.
    pub const WORKSPACE: &str = "core.kcp.io/logicalcluster";
    /// On a LogicalCluster: removed once its content is deleted.
    pub const LOGICAL_CLUSTER: &str = "core.kcp.io/logicalcluster-deletion";
    /// On a LogicalCluster: removed once all terminators are done.
    pub const HAS_TERMINATORS: &str = "kcp.io/has-terminators";
    /// On a ClusterCachedResource: removed once its copies are deleted.
    pub const CACHED_RESOURCE: &str = "cache.kcp.io/clustercachedresource";
    /// On an APIBinding: removed once the bound objects are deleted.
    pub const API_BINDING: &str = "apis.kcp.io/apibinding-finalizer";
}

/// Groups of users, and the prefix of users and groups in the RBAC of exports.
pub mod group {
    /// Members may do everything. Admission does not restrict them.
    pub const MASTERS: &str = "system:masters";
    /// All authenticated users.
    pub const AUTHENTICATED: &str = "system:authenticated";
    /// All requests without credentials.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// Administrators of a kcp installation.
    pub const ADMIN: &str = "system:kcp:admin";
    /// Scheduler that creates logical clusters directly on a shard.
    pub const LOGICAL_CLUSTER_ADMIN: &str = "system:kcp:logical-cluster-admin";
    /// Scheduler that creates logical clusters through the front proxy.
    pub const EXTERNAL_LOGICAL_CLUSTER_ADMIN: &str = "system:kcp:external-logical-cluster-admin";
    /// Initializer of new workspaces.
    pub const WORKSPACE_BOOTSTRAPPER: &str = "system:kcp:tenancy:workspace-bootstrapper";
    /// Prefix of users and groups in maximal permission policies.
    pub const BINDING_PREFIX: &str = "apis.kcp.io:binding:";
}

/// Condition types.
pub mod condition_type {
    /// Summary of the other conditions.
    pub const READY: &str = "Ready";
    /// A shard has been selected.
    pub const WORKSPACE_SCHEDULED: &str = "WorkspaceScheduled";
    /// All initializers are done.
    pub const WORKSPACE_INITIALIZED: &str = "WorkspaceInitialized";
    /// The content is deleted.
    pub const WORKSPACE_CONTENT_DELETED: &str = "WorkspaceContentDeleted";
    /// The mounted object is ready.
    pub const WORKSPACE_MOUNT_READY: &str = "WorkspaceMountReady";
    /// All default bindings are complete.
    pub const API_BINDINGS_INITIALIZED: &str = "APIBindingsInitialized";
    /// Default bindings are up to date.
    pub const API_BINDINGS_RECONCILED: &str = "APIBindingsReconciled";
    /// The referenced export is usable.
    pub const API_EXPORT_VALID: &str = "APIExportValid";
    /// A binding serves the current resources of its export.
    pub const BINDING_UP_TO_DATE: &str = "BindingUpToDate";
    /// A binding has been complete at least once.
    pub const INITIAL_BINDING_COMPLETED: &str = "InitialBindingCompleted";
    /// Accepted claims are in force.
    pub const PERMISSION_CLAIMS_APPLIED: &str = "PermissionClaimsApplied";
    /// All accepted claims are claims of the export.
    pub const PERMISSION_CLAIMS_VALID: &str = "PermissionClaimsValid";
    /// Objects of a deleted binding are deleted.
    pub const BINDING_RESOURCE_DELETE_SUCCESS: &str = "BindingResourceDeleteSuccess";
    /// An export's identity is known and unchanged.
    pub const IDENTITY_VALID: &str = "IdentityValid";
    /// A ClusterCachedResource, or the one that an endpoint slice refers to, is usable.
    pub const RESOURCE_VALID: &str = "ResourceValid";
    /// Objects of a ClusterCachedResource are copied to the cache server.
    pub const REPLICATION_STARTED: &str = "ReplicationStarted";
    /// URLs of virtual workspaces are published.
    pub const VIRTUAL_WORKSPACE_URLS_READY: &str = "VirtualWorkspaceURLsReady";
    /// The partition of an endpoint slice is usable.
    pub const PARTITION_VALID: &str = "PartitionValid";
    /// The selector of a partition set is usable.
    pub const PARTITION_SET_VALID: &str = "PartitionSetValid";
    /// The Partitions of a partition set exist.
    pub const PARTITIONS_READY: &str = "PartitionsReady";
}

/// The name of the only LogicalCluster object in each logical cluster.
pub const LOGICAL_CLUSTER_NAME: &str = "cluster";
/// The initializer of default APIBindings.
pub const API_BINDINGS_INITIALIZER: &str = "system:apibindings";
/// The namespace of identity secrets.
pub const IDENTITY_NAMESPACE: &str = "kcp-system";
/// The user that owns the objects of bootstrap.
pub const BOOTSTRAP_USER: &str = "system:kcp-bootstrapper";
