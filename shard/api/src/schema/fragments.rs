//! Schemas that several kcp kinds share.

use super::build::{Schema, any_object, atomic_list, boolean, list, map_list, map_of, object, set, string};

/// An API group; empty for the core group.
pub(super) const GROUP_PATTERN: &str =
    r"^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$";
/// The plural name of a resource.
pub(super) const RESOURCE_PATTERN: &str = "^[a-z][-a-z0-9]*[a-z0-9]$";
/// A workspace path or logical cluster name: DNS labels joined by colons.
pub(super) const PATH_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The name of a Workspace or WorkspaceType object.
pub(super) const WORKSPACE_NAME_PATTERN: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
/// The name in a reference to a WorkspaceType. kcp leaves the end unanchored.
pub(super) const TYPE_NAME_PATTERN: &str = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?";
/// `<cluster or path>:<type>` or `system:<anything>`.
pub(super) const INITIALIZER_PATTERN: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$";
/// The version of an API.
pub(super) const VERSION_PATTERN: &str = "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$";

/// The schema of an object: type and object metadata, with the given spec and status.
pub(super) fn kind<const N: usize>(parts: [(&str, Schema); N]) -> Schema {
    parts.into_iter().fold(
        object([
            ("apiVersion", string().about("Group and version of this representation.")),
            ("kind", string().about("The kind of this object.")),
            ("metadata", any_object()),
        ]),
        |object, (name, schema)| object.field(name, schema),
    )
}

/// The phases of Workspaces and LogicalClusters.
pub(super) fn phase() -> Schema {
    string()
        .one_of(["Scheduling", "Initializing", "Ready", "Unavailable", "Inactive", "Terminating", "Deleting"])
        .default("Scheduling".into())
        .about("Where in its life cycle the object is.")
}

pub(super) fn initializers() -> Schema {
    list(string().pattern(INITIALIZER_PATTERN))
        .about("Initializers that have to finish before the phase is Ready.")
}

pub(super) fn terminators() -> Schema {
    list(string().pattern(INITIALIZER_PATTERN))
        .about("Terminators that have to finish before the deletion completes.")
}

/// A list of conditions in the style of Cluster API, not keyed by type.
pub(super) fn conditions() -> Schema {
    list(
        object([
            ("lastTransitionTime", string().format("date-time").about("When the condition last changed.")),
            ("message", string().about("Details for people.")),
            ("reason", string().about("The cause in one CamelCase word.")),
            ("severity", string().about("Error, Warning or Info; only when status is False.")),
            ("status", string().about("True, False or Unknown.")),
            ("type", string().about("Type of the condition.")),
        ])
        .required(["lastTransitionTime", "status", "type"]),
    )
    .about("Observations about the object.")
}

/// A reference to an APIExport (or another named object) in a workspace.
pub(super) fn export_reference() -> Schema {
    object([
        ("name", string().about("Name of the object.")),
        (
            "path",
            string()
                .pattern(PATH_PATTERN)
                .about("Path of the workspace that holds it; empty for the same workspace."),
        ),
    ])
    .required(["name"])
}

/// A reference to a WorkspaceType.
pub(super) fn type_reference() -> Schema {
    object([
        ("name", string().pattern(TYPE_NAME_PATTERN).about("Name of the type.")),
        ("path", string().pattern(PATH_PATTERN).about("Path of the workspace that holds the type.")),
    ])
    .required(["name"])
}

/// `metav1.LabelSelector`.
pub(super) fn label_selector() -> Schema {
    object([("matchExpressions", match_expressions()), ("matchLabels", match_labels())]).atomic()
}

/// A label selector that can also match everything.
pub(super) fn claim_selector() -> Schema {
    object([
        ("matchAll", boolean().about("Selects every object; excludes the other fields.")),
        ("matchExpressions", match_expressions()),
        ("matchLabels", match_labels()),
    ])
    .atomic()
}

fn match_expressions() -> Schema {
    atomic_list(
        object([
            ("key", string().about("The label.")),
            ("operator", string().about("In, NotIn, Exists or DoesNotExist.")),
            ("values", atomic_list(string())),
        ])
        .required(["key", "operator"]),
    )
    .about("Requirements that must all hold.")
}

fn match_labels() -> Schema {
    map_of(string()).about("Labels that must be present with these values.")
}

/// The reference to the key of an identity.
pub(super) fn identity() -> Schema {
    object([(
        "secretRef",
        object([("name", string()), ("namespace", string())])
            .atomic()
            .about("The Secret whose `key` is the identity's private part."),
    )])
    .about("The secret identity that tells apart equally named APIs of different providers.")
}

/// The endpoints of an endpoint slice.
pub(super) fn endpoints() -> Schema {
    map_list(
        ["url"],
        object([
            (
                "shards",
                object([("matchAll", boolean().about("All shards.")), ("selector", label_selector())])
                    .rule(
                        "!(has(self.matchAll) && self.matchAll && has(self.selector))",
                        "matchAll and selector are mutually exclusive",
                    )
                    .about("The shards that the endpoint is for."),
            ),
            ("url", string().not_empty().about("Base of the virtual workspace.")),
        ])
        .required(["url"]),
    )
    .about("One entry per shard that serves consumers.")
}

/// Group and resource of a permission claim, v1alpha2.
pub(super) fn claim_fields() -> Schema {
    object([
        ("group", string().pattern(GROUP_PATTERN).default("".into()).about("API group; empty for core.")),
        (
            "identityHash",
            string()
                .default("".into())
                .about("Identity of the export that provides the resource; empty for built-in ones."),
        ),
        ("resource", string().pattern(RESOURCE_PATTERN).about("Plural name of the resource.")),
        ("verbs", set(string()).min_items(1).about("Verbs that the provider may use; * is all.")),
    ])
}

/// The maximal permission policy of an APIExport.
pub(super) fn maximal_permission_policy() -> Schema {
    object([(
        "local",
        any_object().about("RBAC of the export's workspace, subjects prefixed with apis.kcp.io:binding:"),
    )])
    .exactly_one_of(["local"])
    .about("Upper limit of consumers' permissions on the exported resources.")
}

/// The status of an APIExport; equal in v1alpha1 and v1alpha2.
pub(super) fn export_status() -> Schema {
    object([
        ("conditions", conditions()),
        ("identityHash", string().about("SHA-256 of the identity's key.")),
        ("virtualWorkspaces", list(object([("url", string().not_empty())]).required(["url"]))),
    ])
}

/// The reference to the export, immutable.
pub(super) fn binding_reference() -> Schema {
    object([("export", export_reference())])
        .rule("self == oldSelf", "APIExport reference must not be changed")
        .about("Reference to the bound export.")
}

/// The status of an APIBinding; the versions differ in the schema of claims.
pub(super) fn binding_status(applied_claims: Schema, export_claims: Schema) -> Schema {
    object([
        ("apiExportClusterName", string().about("Logical cluster of the export.")),
        ("appliedPermissionClaims", applied_claims.about("Claims that have taken effect.")),
        (
            "boundResources",
            map_list(
                ["group", "resource"],
                object([
                    ("group", string()),
                    ("resource", string()),
                    (
                        "schema",
                        object([
                            ("UID", string().not_empty()),
                            ("identityHash", string().not_empty()),
                            ("name", string().not_empty()),
                        ])
                        .required(["UID", "identityHash", "name"]),
                    ),
                    ("storageVersions", set(string())),
                ])
                .required(["group", "resource", "schema"]),
            )
            .about("The resources that this binding serves."),
        ),
        ("conditions", conditions()),
        ("exportPermissionClaims", export_claims.about("Claims of the export.")),
        ("phase", string().one_of(["", "Binding", "Bound"]).about("Phase of the binding.")),
    ])
}
