//! `topology.kcp.io`: groups of shards.

use super::build::{Schema, atomic_list, integer, list, map_of, object, string};
use super::fragments::{conditions, kind, label_selector};
use super::{Column, ResourceDefinition, Version};

const LABEL_VALUE_PATTERN: &str = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const KEY_MESSAGE: &str = r#"Label key prefixes are optional and limited to 253 characters. They should match "^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$". Names are limited to 63 characters and should match "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$". "/" is used as separator."#;
const VALUE_MESSAGE: &str = r#"Label values are limited to 63 characters and should match "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"."#;
const OPERATOR_MESSAGE: &str = "There should be at least one value for In and NotIn operators. There should not be any value for Exists and DoesNotExist operators.";

pub(super) fn resources() -> Vec<ResourceDefinition> {
    let resource = |kind, plural, singular, version| ResourceDefinition {
        versions: vec![version],
        schema_revision: Some("v240903-d6797056a"),
        ..ResourceDefinition::cluster_scoped("topology.kcp.io", [kind, plural, singular])
    };
    vec![
        resource("Partition", "partitions", "partition", partition()),
        resource("PartitionSet", "partitionsets", "partitionset", partition_set()),
    ]
}

fn partition() -> Version {
    let schema = kind([(
        "spec",
        object([("selector", label_selector().about("Labels of the shards in this partition."))]),
    )])
    .required(["spec"]);
    Version::new("v1alpha1", schema)
        .columns(vec![Column::text("Owner", ".metadata.ownerReferences[*].name"), Column::age()])
}

fn partition_set() -> Version {
    let schema = kind([
        (
            "spec",
            object([
                ("dimensions", list(string()).about("Labels whose values tell the partitions apart.")),
                ("shardSelector", shard_selector().about("The shards to divide.")),
            ]),
        ),
        (
            "status",
            object([("conditions", conditions()), ("count", integer().about("Number of partitions."))]),
        ),
    ])
    .required(["spec"]);
    Version::new("v1alpha1", schema)
        .with_status()
        .columns(vec![Column::text("Count", ".status.count"), Column::age()])
}

/// A label selector whose syntax is checked, unlike that of [`super::fragments::label_selector`].
fn shard_selector() -> Schema {
    object([
        (
            "matchExpressions",
            atomic_list(
                object([
                    (
                        "key",
                        string()
                            .max_length(317)
                            .rule(&on_label_key("self"), KEY_MESSAGE),
                    ),
                    (
                        "operator",
                        string().one_of(["In", "NotIn", "Exists", "DoesNotExist"]),
                    ),
                    (
                        "values",
                        atomic_list(string().max_length(63).pattern(LABEL_VALUE_PATTERN)),
                    ),
                ])
                .required(["key", "operator"])
                .rule(
                    r#"self.operator in ["In", "NotIn"] ? size(self.values) > 0 : (self.operator in ["Exists", "DoesNotExist"] ? !has(self.values) : true)"#,
                    OPERATOR_MESSAGE,
                ),
            )
            .max_items(10),
        ),
        (
            "matchLabels",
            map_of(string().max_length(380))
                .max_properties(10)
                .rule(&format!("self.all(k, {})", on_label_key("k")), KEY_MESSAGE)
                .rule(
                    &format!(r#"self.all(k, self[k].matches("{LABEL_VALUE_PATTERN}"))"#),
                    VALUE_MESSAGE,
                ),
        ),
    ])
    .atomic()
}

/// A CEL expression that applies to the variable, a label key with an optional prefix.
fn on_label_key(variable: &str) -> String {
    let prefix = "^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$";
    let part = |index| format!(r#"{variable}.split("/", 2)[{index}]"#);
    format!(
        r#"{variable}.contains("/") ? {}.matches("{prefix}") && {}.matches("{LABEL_VALUE_PATTERN}") : {variable}.matches("{LABEL_VALUE_PATTERN}")"#,
        part(0),
        part(1),
    )
}
