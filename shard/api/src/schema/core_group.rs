//! `core.kcp.io`: logical clusters and shards.

use super::build::{any_object, boolean, int_or_string, list, map_of, object, string};
use super::fragments::{conditions, initializers, kind, phase, terminators};
use super::{Column, ResourceDefinition, Version};

/// `resource.Quantity` of Kubernetes.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(super) fn resources() -> Vec<ResourceDefinition> {
    vec![
        ResourceDefinition {
            versions: vec![logical_cluster()],
            schema_revision: Some("v260522-2bf05df66"),
            ..ResourceDefinition::cluster_scoped(
                "core.kcp.io",
                ["LogicalCluster", "logicalclusters", "logicalcluster"],
            )
        },
        ResourceDefinition {
            versions: vec![shard()],
            schema_revision: Some("v260302-ae9fdd9c1"),
            ..ResourceDefinition::cluster_scoped("core.kcp.io", ["Shard", "shards", "shard"])
        },
    ]
}

fn logical_cluster() -> Version {
    let schema = kind([
        ("metadata", any_object().field("name", string().one_of(["cluster"]))),
        (
            "spec",
            object([
                (
                    "createdBy",
                    object([
                        ("extra", map_of(list(string()))),
                        ("groups", list(string())),
                        ("uid", string()),
                        ("username", string()),
                    ])
                    .about("The user that created the workspace."),
                ),
                (
                    "directlyDeletable",
                    boolean()
                        .default(false.into())
                        .about("Whether users may delete this object itself, not only its owner."),
                ),
                ("initializers", initializers()),
                ("owner", owner()),
                ("terminators", terminators()),
            ])
            .default(serde_json::json!({})),
        ),
        (
            "status",
            object([
                ("URL", string().about("Where the logical cluster is served.")),
                ("conditions", conditions()),
                ("initializers", initializers()),
                ("phase", phase()),
                ("terminators", terminators()),
            ])
            .default(serde_json::json!({})),
        ),
    ]);
    Version::new("v1alpha1", schema).with_status().columns(vec![
        Column::text("Phase", ".status.phase"),
        Column::text("URL", ".status.URL"),
        Column::age(),
    ])
}

fn owner() -> super::Schema {
    object([
        ("apiVersion", string().pattern("^([^/]+/)?[^/]+$")),
        ("cluster", string().not_empty()),
        ("name", string().not_empty()),
        ("namespace", string()),
        ("resource", string().not_empty()),
        ("uid", string()),
    ])
    .required(["apiVersion", "cluster", "name", "resource", "uid"])
    .about("The object, usually a Workspace of another logical cluster, that this one belongs to.")
}

fn shard() -> Version {
    let url = || string().format("uri").not_empty();
    let schema = kind([
        (
            "spec",
            object([
                ("baseURL", url().about("Where other servers reach the shard.")),
                (
                    "externalURL",
                    url().about("Where users reach the workspaces of the shard; usually the front proxy."),
                ),
                ("virtualWorkspaceURL", url().about("Where the shard's virtual workspaces are.")),
            ])
            .required(["baseURL"]),
        ),
        (
            "status",
            object([
                ("capacity", map_of(int_or_string().pattern(QUANTITY_PATTERN))),
                ("conditions", conditions()),
            ]),
        ),
    ]);
    Version::new("v1alpha1", schema).with_status().columns(vec![
        Column::text("Region", ".metadata.labels['region']"),
        Column::text("URL", ".spec.baseURL"),
        Column::text("External URL", ".spec.externalURL"),
        Column::age(),
    ])
}
