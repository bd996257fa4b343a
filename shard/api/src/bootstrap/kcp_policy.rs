//! The RBAC policy of kcp in `system:admin`, which applies to every logical cluster of the shard.

use serde_json::Value;

use super::rbac::{allow, allow_all, allow_urls, cluster_role, cluster_role_binding};
use crate::keys::group;

/// ClusterRoles and ClusterRoleBindings.
pub(super) fn objects() -> Vec<Value> {
    let bootstrapper = group::WORKSPACE_BOOTSTRAPPER;
    let prefixed_bootstrapper = format!("{}{bootstrapper}", group::BINDING_PREFIX);
    vec![
        cluster_role(
            "system:kcp:tenancy:reader",
            vec![
                allow("get list watch", "tenancy.kcp.io", "workspaces"),
                allow("get list watch", "tenancy.kcp.io", "workspacetypes"),
                allow("get list watch", "core.kcp.io", "logicalclusters"),
            ],
        ),
        cluster_role(bootstrapper, allow_all()),
        cluster_role(
            group::LOGICAL_CLUSTER_ADMIN,
            vec![
                allow("*", "core.kcp.io", "logicalclusters logicalclusters/status"),
                allow("delete get update", "tenancy.kcp.io", "workspaces"),
            ],
        ),
        cluster_role(group::EXTERNAL_LOGICAL_CLUSTER_ADMIN, external_admin_rules()),
        cluster_role("system:kcp:workspace:access", vec![allow_urls("access", "/")]),
        cluster_role("system:kcp:metrics-reader", vec![allow_urls("get", "/metrics")]),
        cluster_role_binding("system:kcp:admin:cluster-admin", "cluster-admin", &[group::ADMIN]),
        cluster_role_binding(bootstrapper, bootstrapper, &[bootstrapper, &prefixed_bootstrapper]),
        binding_to_own_group(group::LOGICAL_CLUSTER_ADMIN),
        binding_to_own_group(group::EXTERNAL_LOGICAL_CLUSTER_ADMIN),
    ]
}

/// A binding with the same name for itself, its role and its group.
fn binding_to_own_group(name: &str) -> Value {
    cluster_role_binding(name, name, &[name])
}

/// Permissions of servers in each other's workspaces through the front proxy.
fn external_admin_rules() -> Vec<Value> {
    // kcp merges several declarations of this role into one rule per verb.
    let one_verb_each = |verbs: &str, group: &str, resources: &str| -> Vec<Value> {
        verbs.split_whitespace().map(|verb| allow(verb, group, resources)).collect()
    };
    [
        vec![
            allow("delete get update", "core.kcp.io", "logicalclusters logicalclusters/status"),
            allow("delete get patch update", "tenancy.kcp.io", "workspaces"),
            allow("get", "core", "secrets serviceaccounts"),
            allow_urls("access", "/"),
            allow("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
        one_verb_each("get patch update", "apis.kcp.io", "apiexportendpointslices/status"),
        one_verb_each("get list watch", "apis.kcp.io", "apiexportendpointslices"),
        one_verb_each("get patch update", "cache.kcp.io", "clustercachedresourceendpointslices/status"),
        one_verb_each("get list watch", "cache.kcp.io", "clustercachedresourceendpointslices"),
        vec![
            allow("get", "tenancy.kcp.io", "workspaceauthenticationconfigurations"),
            allow("create", "migration.kcp.io", "logicalclusterdumps"),
        ],
        one_verb_each("get patch update", "migration.kcp.io", "logicalclustermigrations"),
        one_verb_each("get patch update", "migration.kcp.io", "logicalclustermigrations/status"),
        vec![
            allow("list", "apis.kcp.io", "apibindings"),
            allow("get", "apis.kcp.io", "apiexports"),
            allow("get", "apis.kcp.io", "apiresourceschemas"),
        ],
        one_verb_each("create get", "apiextensions.k8s.io", "customresourcedefinitions"),
    ]
    .concat()
}
