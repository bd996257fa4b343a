//! `topology.kcp.io/v1alpha1`.

use serde::{Deserialize, Serialize};

use super::{LabelSelector, NoStatus, Object, is_default};
use crate::Condition;

/// A named group of shards.
pub type Partition = Object<PartitionSpec, NoStatus>;
/// Divides shards into partitions.
pub type PartitionSet = Object<PartitionSetSpec, PartitionSetStatus>;

/// The shards of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionSpec {
    /// Their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// How shards are divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartitionSetSpec {
    /// Labels whose values tell partitions apart.
    #[serde(skip_serializing_if = "is_default")]
    pub dimensions: Vec<String>,
    /// The shards to divide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_selector: Option<LabelSelector>,
}

/// State of a partition set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionSetStatus {
    /// Number of partitions.
    #[serde(skip_serializing_if = "is_default")]
    pub count: u32,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
