//! `migration.kcp.io`: logical clusters that move to another shard.

use super::build::{integer, list, object, string};
use super::fragments::{conditions, kind};
use super::{Column, ResourceDefinition, Scope, Version};

pub(super) fn resources() -> Vec<ResourceDefinition> {
    vec![
        ResourceDefinition {
            group: "migration.kcp.io",
            kind: "LogicalClusterDump",
            plural: "logicalclusterdumps",
            singular: "logicalclusterdump",
            short_names: &[],
            categories: &[],
            scope: Scope::Namespaced,
            versions: vec![dump()],
            schema_revision: Some("v260702-7381341f5"),
        },
        ResourceDefinition {
            versions: vec![migration()],
            schema_revision: Some("v260702-7381341f5"),
            ..ResourceDefinition::cluster_scoped(
                "migration.kcp.io",
                ["LogicalClusterMigration", "logicalclustermigrations", "logicalclustermigration"],
            )
        },
    ]
}

fn dump() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                ("continue", string().about("Where the previous piece ended.")),
                ("limit", integer().format("int64").about("Most entries per piece.")),
                ("maxBytes", integer().format("int64").about("Most bytes per piece.")),
            ]),
        ),
        (
            "status",
            object([
                ("continue", string()),
                (
                    "entries",
                    list(
                        object([("key", string()), ("value", string().format("byte"))])
                            .required(["key", "value"]),
                    ),
                ),
            ]),
        ),
    ]);
    Version::new("v1alpha1", schema)
}

fn migration() -> Version {
    let schema = kind([
        (
            "spec",
            object([("destinationShard", string().not_empty()), ("logicalCluster", string().not_empty())])
                .required(["destinationShard", "logicalCluster"]),
        ),
        (
            "status",
            object([
                ("conditions", conditions()),
                ("dumpContinue", string()),
                ("entriesCopied", integer().format("int64")),
                ("originShard", string()),
                (
                    "phase",
                    string()
                        .one_of([
                            "Preparing",
                            "Migrating",
                            "OriginCleanup",
                            "DestinationFinalize",
                            "Completed",
                            "Failed",
                        ])
                        .default("Preparing".into()),
                ),
            ]),
        ),
    ]);
    Version::new("v1alpha1", schema).with_status().columns(vec![
        Column::text("Logical Cluster", ".spec.logicalCluster"),
        Column::text("Phase", ".status.phase"),
        Column::text("Destination", ".spec.destinationShard"),
        Column::integer("Entries Copied", ".status.entriesCopied"),
    ])
}
