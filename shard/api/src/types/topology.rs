//! `topology.kcp.io/v1alpha1`.

use serde::{Deserialize, Serialize};

use super::{LabelSelector, NoStatus, Object, is_default};
use crate::Condition;

/// A named group of shards.
pub type Partition = Object<PartitionSpec, NoStatus>;
/// A division of shards into partitions.
pub type PartitionSet = Object<PartitionSetSpec, PartitionSetStatus>;

/// Spec of a Partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionSpec {
    /// Selector of the partition's shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Spec of a PartitionSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartitionSetSpec {
    /// Labels by whose values shards are divided.
    #[serde(skip_serializing_if = "is_default")]
    pub dimensions: Vec<String>,
    /// The shards to divide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_selector: Option<LabelSelector>,
}

/// Status of a PartitionSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionSetStatus {
    /// Number of partitions.
    #[serde(skip_serializing_if = "is_default")]
    pub count: u32,
    /// Conditions of the partition set.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
