//! `core.kcp.io/v1alpha1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Object, Phase, is_default};
use crate::Condition;

/// The singleton that stands for its logical cluster.
pub type LogicalCluster = Object<LogicalClusterSpec, LogicalClusterStatus>;
/// A kcp process that stores logical clusters.
pub type Shard = Object<ShardSpec, ShardStatus>;

/// Origin of a logical cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicalClusterSpec {
    /// Whether users may delete it directly.
    pub directly_deletable: bool,
    /// The Workspace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<LogicalClusterOwner>,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<UserInfo>,
    /// Copied into the status when initialization begins.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Copied into the status when initialization begins.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// An object of another logical cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicalClusterOwner {
    /// Group and version.
    pub api_version: String,
    /// Plural name.
    pub resource: String,
    /// Name.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
    /// Logical cluster.
    pub cluster: String,
    /// UID.
    pub uid: String,
}

/// Who somebody is: `authenticationv1.UserInfo`, also the JSON in owner annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name.
    #[serde(skip_serializing_if = "is_default")]
    pub username: String,
    /// UID; often empty.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
    /// Groups.
    #[serde(skip_serializing_if = "is_default")]
    pub groups: Vec<String>,
    /// Extra facts.
    #[serde(skip_serializing_if = "is_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// State of a logical cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogicalClusterStatus {
    /// Where it is served.
    #[serde(rename = "URL", skip_serializing_if = "is_default")]
    pub url: String,
    /// Phase.
    pub phase: Phase,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Initializers still at work.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Terminators still at work.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// Addresses of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardSpec {
    /// For other servers.
    #[serde(rename = "baseURL")]
    pub base_url: String,
    /// For users; usually the front proxy.
    #[serde(rename = "externalURL", skip_serializing_if = "is_default")]
    pub external_url: String,
    /// For users of virtual workspaces.
    #[serde(rename = "virtualWorkspaceURL", skip_serializing_if = "is_default")]
    pub virtual_workspace_url: String,
}

/// State of a shard; kcp leaves it empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStatus {
    /// Quantities by resource.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity: BTreeMap<String, serde_json::Value>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
