//! `core.kcp.io/v1alpha1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Object, Phase, is_default};
use crate::Condition;

/// The singleton object that represents its logical cluster.
pub type LogicalCluster = Object<LogicalClusterSpec, LogicalClusterStatus>;
/// A kcp process that stores logical clusters.
pub type Shard = Object<ShardSpec, ShardStatus>;

/// Spec of a LogicalCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicalClusterSpec {
    /// Whether users may delete the object directly.
    pub directly_deletable: bool,
    /// The Workspace that owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<LogicalClusterOwner>,
    /// The user that created the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<UserInfo>,
    /// Initializers, copied into the status when initialization begins.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Terminators, copied into the status when initialization begins.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// A reference to an object of another logical cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogicalClusterOwner {
    /// Group and version of the object.
    pub api_version: String,
    /// Plural name of its resource.
    pub resource: String,
    /// Name of the object.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
    /// Logical cluster that holds the object.
    pub cluster: String,
    /// UID of the object.
    pub uid: String,
}

/// An authenticated user: `authenticationv1.UserInfo`, also the JSON in owner annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// User name.
    #[serde(skip_serializing_if = "is_default")]
    pub username: String,
    /// UID of the user; often empty.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
    /// Groups of the user.
    #[serde(skip_serializing_if = "is_default")]
    pub groups: Vec<String>,
    /// Further attributes of the user.
    #[serde(skip_serializing_if = "is_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Status of a LogicalCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogicalClusterStatus {
    /// URL of the logical cluster.
    #[serde(rename = "URL", skip_serializing_if = "is_default")]
    pub url: String,
    /// Phase of the logical cluster.
    pub phase: Phase,
    /// Conditions of the logical cluster.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Pending initializers.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Pending terminators.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// Spec of a Shard: its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardSpec {
    /// URL for other servers.
    #[serde(rename = "baseURL")]
    pub base_url: String,
    /// URL for users; usually that of the front proxy.
    #[serde(rename = "externalURL", skip_serializing_if = "is_default")]
    pub external_url: String,
    /// URL for users of virtual workspaces.
    #[serde(rename = "virtualWorkspaceURL", skip_serializing_if = "is_default")]
    pub virtual_workspace_url: String,
}

/// Status of a Shard; kcp leaves it empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStatus {
    /// Quantities by resource.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity: BTreeMap<String, serde_json::Value>,
    /// Conditions of the shard.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
