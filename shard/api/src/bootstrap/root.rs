//! The objects of the logical cluster `root` in a fresh installation.

use serde_json::{Value, json};

use super::rbac::{allow, allow_named, allow_urls, annotated, cluster_role, cluster_role_binding};
use super::{binding_to_root, logical_cluster, namespace};
use crate::keys::{BOOTSTRAP_USER, annotation, group};
use crate::naming::owner_annotation;
use crate::{UserInfo, resource, resources};

/// An export of `root` with its resources, sorted by name.
struct RootExport {
    name: &'static str,
    resources: &'static [&'static str],
}

const EXPORTS: [RootExport; 5] = [
    RootExport {
        name: "cache.kcp.io",
        resources: &["clustercachedresourceendpointslices", "clustercachedresources"],
    },
    RootExport { name: "migration.kcp.io", resources: &["logicalclusterdumps", "logicalclustermigrations"] },
    RootExport { name: "shards.core.kcp.io", resources: &["shards"] },
    RootExport {
        name: TENANCY,
        resources: &["workspaceauthenticationconfigurations", "workspaces", "workspacetypes"],
    },
    RootExport { name: TOPOLOGY, resources: &["partitions", "partitionsets"] },
];
const TENANCY: &str = "tenancy.kcp.io";
const TOPOLOGY: &str = "topology.kcp.io";

/// The names of root's exports. Each has an identity secret of the same name in [`crate::IDENTITY_NAMESPACE`].
pub fn root_export_names() -> impl Iterator<Item = &'static str> {
    EXPORTS.iter().map(|export| export.name)
}

/// The export of `root` that offers this resource.
pub fn root_export_of(group: &str, plural: &str) -> Option<&'static str> {
    EXPORTS
        .iter()
        .find(|export| export_group(export.name) == group && export.resources.contains(&plural))
        .map(|export| export.name)
}

/// Objects of `root` that all other objects depend on, in the order of creation: schemas, exports (a controller fills in
/// their identity), the LogicalCluster, bindings.
pub fn root_phase0() -> Vec<Value> {
    let mut objects: Vec<Value> =
        resources().iter().filter_map(|resource| resource.api_resource_schema()).collect();
    objects.extend(EXPORTS.iter().map(export));
    objects.push(root_logical_cluster());
    objects.extend(
        EXPORTS
            .iter()
            .filter(|export| export.name != "migration.kcp.io")
            .map(|export| binding_to_root(export.name, "root")),
    );
    objects
}

/// Objects of `root` that need its APIs: workspace types and roles of users. Members of the groups `home_creators` get a home
/// workspace (kcp's default: `system:authenticated`).
pub fn root_phase1(home_creators: &[&str]) -> Vec<Value> {
    let mut objects = vec![namespace("default", &[(annotation::CREATE_ONLY, "true")])];
    objects.extend(workspace_types());
    objects.extend(access());
    objects.extend(export_permissions());
    objects.extend(home_permissions(home_creators));
    objects.extend(metrics_viewer());
    objects
}

fn export(export: &RootExport) -> Value {
    let group = export_group(export.name);
    let exported: Vec<Value> = export
        .resources
        .iter()
        .filter_map(|plural| {
            let schema = resource(group, plural)?.schema_name()?;
            Some(json!({"group": group, "name": plural, "schema": schema, "storage": {"crd": {}}}))
        })
        .collect();
    let mut spec = json!({"resources": exported});
    if export.name == TENANCY {
        spec["maximalPermissionPolicy"] = json!({"local": {}});
    }
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": export.name, "annotations": {annotation::PATH: "root"}},
        "spec": spec,
    })
}

/// The export of shards has a name other than its group, because LogicalCluster, of the same group, is served without a binding.
fn export_group(export: &str) -> &str {
    export.strip_prefix("shards.").unwrap_or(export)
}

fn root_logical_cluster() -> Value {
    let owner = owner_annotation(&UserInfo { username: BOOTSTRAP_USER.to_owned(), ..UserInfo::default() });
    let cluster = annotated(logical_cluster(), annotation::OWNER, &owner);
    annotated(cluster, annotation::TYPE, "root:root")
}

fn workspace_types() -> Vec<Value> {
    let at_root = |name: &str| json!({"name": name, "path": "root"});
    let workspace_type = |name: &str, default_child: &str, spec: Value| {
        let mut object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "WorkspaceType",
            "metadata": {"name": name, "annotations": {annotation::PATH: "root"}},
            "spec": spec,
        });
        object["spec"]["defaultChildWorkspaceType"] = at_root(default_child);
        if name != "universal" {
            object["spec"]["extend"] = json!({"with": [at_root("universal")]});
        }
        object
    };
    let universal = json!({
        "initializer": true,
        "defaultAPIBindings": [{"export": TENANCY, "path": "root"}, {"export": TOPOLOGY, "path": "root"}],
    });
    let no_parent = || json!({"limitAllowedParents": {"none": true}});
    let organization = json!({
        "limitAllowedChildren": {"types": [at_root("universal")]},
        "limitAllowedParents": {"types": [at_root("root")]},
    });
    let team = json!({"limitAllowedParents": {"types": [at_root("organization"), at_root("team")]}});
    let battery = |object| annotated(object, annotation::BATTERY, "workspace-types");
    vec![
        workspace_type("universal", "universal", universal),
        annotated(workspace_type("root", "organization", no_parent()), annotation::CREATE_ONLY, "true"),
        workspace_type("home", "universal", no_parent()),
        battery(workspace_type("organization", "universal", organization)),
        battery(workspace_type("team", "universal", team)),
    ]
}

fn access() -> Vec<Value> {
    vec![
        replicated(
            "core.kcp.io",
            cluster_role_binding(
                "system:kcp:tenancy:authenticated:access",
                "system:kcp:workspace:access",
                &[group::AUTHENTICATED],
            ),
        ),
        cluster_role_binding(
            "system:kcp:authenticated:tenancy:reader",
            "system:kcp:tenancy:reader",
            &[group::AUTHENTICATED],
        ),
        replicated(
            TENANCY,
            cluster_role(
                "system:kcp:universal-workspacetype-use",
                vec![allow_named("use", TENANCY, "workspacetypes", "universal organization team")],
            ),
        ),
        replicated(
            TENANCY,
            cluster_role_binding(
                "system:kcp:authenticated:universal-workspacetype-use",
                "system:kcp:universal-workspacetype-use",
                &[group::AUTHENTICATED],
            ),
        ),
    ]
}

/// Permission to bind root's exports, and the maximal permissions of consumers.
fn export_permissions() -> Vec<Value> {
    let apis = "apis.kcp.io";
    let apis_and_tenancy = "apis.kcp.io,tenancy.kcp.io";
    let prefixed = |group: &str| format!("{}{group}", group::BINDING_PREFIX);
    let bind = |short: &str, export: &str| {
        let role = format!("system:kcp:apiexport:{short}:bind");
        let binding = format!("system:kcp:authenticated:apiexport:{short}:bind");
        [
            replicated(apis, cluster_role(&role, vec![allow_named("bind", apis, "apiexports", export)])),
            replicated(apis, cluster_role_binding(&binding, &role, &[group::AUTHENTICATED])),
        ]
    };
    let policy = |reasons: &str, short: &str, group: &str, rules: Vec<Value>| {
        let role = format!("system:kcp:apiexport:{short}:maximal-permission-policy");
        let binding = format!("system:kcp:authenticated:apiexport:{short}:maximal-permission-policy");
        [
            replicated(reasons, cluster_role(&role, rules)),
            replicated(reasons, cluster_role_binding(&binding, &role, &[&prefixed(group)])),
        ]
    };
    let tenancy = vec![
        allow("*", TENANCY, "workspaces workspaceauthenticationconfigurations workspacetypes"),
        allow("list watch get", TENANCY, "workspaces/status workspacetypes/status"),
    ];
    let topology = vec![allow("*", TOPOLOGY, "partitions partitionsets")];
    [
        bind("tenancy", TENANCY),
        bind("topology", TOPOLOGY),
        policy(apis_and_tenancy, "tenancy", group::AUTHENTICATED, tenancy),
        policy(apis, "topology", group::AUTHENTICATED, topology),
        policy(apis_and_tenancy, "kcp-admin", group::ADMIN, vec![allow("*", TENANCY, "*")]),
    ]
    .concat()
}

/// A service account and a user that may read the metrics of shards.
fn metrics_viewer() -> [Value; 4] {
    let name = "metrics-viewer";
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "metrics", "namespace": "default"},
    });
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": "metrics",
            "namespace": "default",
            "annotations": {"kubernetes.io/service-account.name": "metrics"},
        },
    });
    let mut binding = cluster_role_binding(name, name, &[]);
    binding["subjects"] = json!([
        {"kind": "ServiceAccount", "name": "metrics", "namespace": "default"},
        {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
    ]);
    [cluster_role(name, vec![allow_urls("get", "/metrics")]), account, binding, secret]
        .map(|object| annotated(object, annotation::BATTERY, name))
}

fn home_permissions(creators: &[&str]) -> [Value; 2] {
    let role = "system:kcp:home-clusterworkspace-create";
    [
        cluster_role(role, vec![allow_named("get create", TENANCY, "workspaces", "~")]),
        cluster_role_binding("system:kcp:configured-group:home-clusterworkspace-create", role, creators),
    ]
}

/// Marks an object for replication to the cache server, as a controller would do after evaluating its rules.
fn replicated(reasons: &str, object: Value) -> Value {
    annotated(object, annotation::REPLICATE, reasons)
}
