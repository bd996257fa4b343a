//! Names of resources, origins and logical clusters that the shard's code refers to.

use std::sync::LazyLock;

use fairlead_names::{Origin, ResourceName};

macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident = $group:literal / $resource:literal;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<ResourceName> =
            LazyLock::new(|| ResourceName::new($group, $resource));)*
    };
}

resources! {
    API_BINDINGS = "apis.kcp.io" / "apibindings";
    API_CONVERSIONS = "apis.kcp.io" / "apiconversions";
    API_EXPORT_ENDPOINT_SLICES = "apis.kcp.io" / "apiexportendpointslices";
    API_EXPORTS = "apis.kcp.io" / "apiexports";
    API_RESOURCE_SCHEMAS = "apis.kcp.io" / "apiresourceschemas";
    CLUSTER_CACHED_RESOURCES = "cache.kcp.io" / "clustercachedresources";
    CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES = "cache.kcp.io" / "clustercachedresourceendpointslices";
    CLUSTER_ROLES = "rbac.authorization.k8s.io" / "clusterroles";
    CLUSTER_ROLE_BINDINGS = "rbac.authorization.k8s.io" / "clusterrolebindings";
    CONFIG_MAPS = "" / "configmaps";
    CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io" / "customresourcedefinitions";
    EVENTS = "" / "events";
    LOGICAL_CLUSTERS = "core.kcp.io" / "logicalclusters";
    NAMESPACES = "" / "namespaces";
    PARTITION_SETS = "topology.kcp.io" / "partitionsets";
    PARTITIONS = "topology.kcp.io" / "partitions";
    RESOURCE_QUOTAS = "" / "resourcequotas";
    ROLES = "rbac.authorization.k8s.io" / "roles";
    ROLE_BINDINGS = "rbac.authorization.k8s.io" / "rolebindings";
    SECRETS = "" / "secrets";
    SERVICE_ACCOUNTS = "" / "serviceaccounts";
    SHARDS = "core.kcp.io" / "shards";
    VALIDATING_ADMISSION_POLICIES = "admissionregistration.k8s.io" / "validatingadmissionpolicies";
    WORKSPACES = "tenancy.kcp.io" / "workspaces";
    WORKSPACE_AUTHENTICATION_CONFIGURATIONS = "tenancy.kcp.io" / "workspaceauthenticationconfigurations";
    WORKSPACE_TYPES = "tenancy.kcp.io" / "workspacetypes";
}

/// The origin of the objects of local and system CRDs.
pub(crate) const CUSTOM: Origin = Origin::Custom;
/// The origin of the objects of built-in kinds.
pub(crate) const BUILT_IN: Origin = Origin::BuiltIn;

/// The finalizer that keeps a CustomResourceDefinition until its objects are removed.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The logical cluster whose roles apply in every logical cluster.
pub(crate) const SYSTEM_ADMIN: &str = "system:admin";
/// The logical cluster with the CRDs that every logical cluster serves.
pub(crate) const SYSTEM_CRDS: &str = "system:system-crds";
/// The logical cluster with the CRDs of bound schemas.
pub(crate) const BOUND_CRDS: &str = "system:bound-crds";
/// The logical cluster that binds root's exports on every shard.
pub(crate) const SYSTEM_SHARD: &str = "system:shard";
