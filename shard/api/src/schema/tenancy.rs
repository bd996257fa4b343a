//! `tenancy.kcp.io`: workspaces and their types.

use serde_json::json;

use super::build::{Schema, any_object, atomic_list, boolean, list, map_of, object, string};
use super::fragments::{
    PATH_PATTERN, WORKSPACE_NAME_PATTERN, conditions, initializers, kind, label_selector, phase, terminators,
    type_reference,
};
use super::{Column, ResourceDefinition, Version, authentication};

pub(super) fn resources() -> Vec<ResourceDefinition> {
    vec![
        ResourceDefinition {
            schema_revision: Some("v250827-717cfea84"),
            versions: vec![authentication::workspace_authentication_configuration()],
            ..resource(
                "WorkspaceAuthenticationConfiguration",
                "workspaceauthenticationconfigurations",
                "workspaceauthenticationconfiguration",
            )
        },
        ResourceDefinition {
            short_names: &["ws"],
            schema_revision: Some("v260522-2bf05df66"),
            versions: vec![workspace()],
            ..resource("Workspace", "workspaces", "workspace")
        },
        ResourceDefinition {
            schema_revision: Some("v260519-96f2749"),
            versions: vec![workspace_type()],
            ..resource("WorkspaceType", "workspacetypes", "workspacetype")
        },
    ]
}

fn resource(kind: &'static str, plural: &'static str, singular: &'static str) -> ResourceDefinition {
    ResourceDefinition::cluster_scoped("tenancy.kcp.io", [kind, plural, singular])
}

fn object_name() -> Schema {
    string().min_length(1).max_length(63).pattern(WORKSPACE_NAME_PATTERN)
}

fn workspace() -> Version {
    let schema = kind([
        ("metadata", any_object().field("name", object_name())),
        (
            "spec",
            object([
                ("URL", string().about("Where the workspace is served; set by the system.")),
                (
                    "cluster",
                    string()
                        .rule("self == oldSelf", "cluster is immutable")
                        .about("The logical cluster behind the workspace; set by the system."),
                ),
                (
                    "location",
                    object([("selector", label_selector().about("Labels of the shards that fit."))])
                        .about("Where the workspace may be placed."),
                ),
                ("mount", mount()),
                (
                    "type",
                    type_reference()
                        .rule("self.name == oldSelf.name", "name is immutable")
                        .rule("has(oldSelf.path) == has(self.path)", "path is immutable")
                        .rule(
                            "!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path",
                            "path is immutable",
                        )
                        .about("The type, which decides about content, initializers and children."),
                ),
            ])
            .default(json!({}))
            .rule("!has(oldSelf.URL) || has(self.URL)", "URL cannot be unset")
            .rule("!has(oldSelf.cluster) || has(self.cluster)", "cluster cannot be unset"),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                ("initializers", initializers()),
                ("phase", phase()),
                ("terminators", terminators()),
            ])
            .default(json!({})),
        ),
    ])
    .required(["spec"]);
    Version::new("v1alpha1", schema).with_status().columns(vec![
        Column::text("Type", ".spec.type.name"),
        Column::text("Region", ".metadata.labels['region']"),
        Column::text("Phase", ".status.phase"),
        Column::text("URL", ".spec.URL"),
        Column::age(),
    ])
}

fn mount() -> Schema {
    let reference =
        object([("apiVersion", string()), ("kind", string()), ("name", string()), ("namespace", string())])
            .required(["apiVersion", "kind", "name"])
            .rule("has(oldSelf.apiVersion) == has(self.apiVersion)", "apiVersion is immutable")
            .rule("has(oldSelf.kind) == has(self.kind)", "kind is immutable")
            .rule("has(oldSelf.name) == has(self.name)", "name is immutable");
    object([("ref", reference)])
        .required(["ref"])
        .rule("self == oldSelf", "mount is immutable")
        .about("An object of the same workspace whose URL is served instead of a logical cluster.")
}

fn workspace_type() -> Version {
    let schema = kind([
        ("metadata", any_object().field("name", object_name().none_of(["system", "any"]))),
        (
            "spec",
            object([
                (
                    "additionalWorkspaceLabels",
                    map_of(string()).about("Labels given to new workspaces of this type."),
                ),
                (
                    "authenticationConfigurations",
                    list(object([("name", string())]).required(["name"]))
                        .about("WorkspaceAuthenticationConfigurations whose issuers the workspaces trust."),
                ),
                (
                    "defaultAPIBindingLifecycle",
                    string()
                        .one_of(["InitializeOnly", "Maintain"])
                        .about("Whether default bindings are also kept up to date."),
                ),
                (
                    "defaultAPIBindings",
                    list(
                        object([("export", string()), ("path", string().pattern(PATH_PATTERN))])
                            .required(["export"]),
                    )
                    .about("Exports that new workspaces are bound to."),
                ),
                (
                    "defaultChildWorkspaceType",
                    type_reference()
                        .default(json!({"name": "universal", "path": "root"}))
                        .about("The type of children that name none."),
                ),
                (
                    "extend",
                    object([("with", list(type_reference()))]).about("Types that this one builds on."),
                ),
                ("initializer", boolean().about("Whether this type initializes new workspaces.")),
                ("initializerPermissions", policy_rules()),
                ("limitAllowedChildren", type_selector().about("Types that children may have.")),
                ("limitAllowedParents", type_selector().about("Types that parents may have.")),
                ("terminator", boolean().about("Whether this type cleans up deleted workspaces.")),
                ("terminatorPermissions", policy_rules()),
            ]),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                (
                    "virtualWorkspaces",
                    list(
                        object([
                            ("type", string().one_of(["initializing", "terminating"])),
                            ("url", string().not_empty()),
                        ])
                        .required(["url"]),
                    )
                    .about("Where initializers and terminators do their work, per shard."),
                ),
            ]),
        ),
    ]);
    Version::new("v1alpha1", schema).with_status()
}

fn type_selector() -> Schema {
    object([("none", boolean().about("No type at all.")), ("types", list(type_reference()).min_items(1))])
        .exactly_one_of(["none", "types"])
}

/// `rbacv1.PolicyRule`.
fn policy_rules() -> Schema {
    list(
        object([
            ("apiGroups", atomic_list(string())),
            ("nonResourceURLs", atomic_list(string())),
            ("resourceNames", atomic_list(string())),
            ("resources", atomic_list(string())),
            ("verbs", atomic_list(string())),
        ])
        .required(["verbs"]),
    )
    .about("RBAC rules that limit access through the virtual workspace.")
}
