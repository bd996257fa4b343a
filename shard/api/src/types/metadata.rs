//! What all kinds have in common.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::is_default;

/// One object with the spec and status of its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object<Spec, Status>
where
    Spec: Default,
    Status: Default + PartialEq,
{
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name, labels and so on.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: Spec,
    /// What is.
    #[serde(skip_serializing_if = "is_default")]
    pub status: Status,
}

/// The status of kinds that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

/// The parts of `metav1.ObjectMeta` that kcp's own logic looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name.
    pub name: String,
    /// UID; empty before the object is created.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
    /// Revision of the last write; empty before the object is created.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_version: String,
    /// Counts changes of the spec.
    #[serde(skip_serializing_if = "is_default")]
    pub generation: i64,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// RFC 3339; set while finalizers hold a deleted object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers.
    #[serde(skip_serializing_if = "is_default")]
    pub finalizers: Vec<String>,
    /// Owners.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether the object waits for its finalizers.
    pub fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
    /// Whether this owner is the managing controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels with these values.
    #[serde(skip_serializing_if = "is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for the first two.
    #[serde(skip_serializing_if = "is_default")]
    pub values: Vec<String>,
}

/// Where a Workspace or LogicalCluster is in its life. The order is that of a life without trouble; admission
/// refuses steps back among the first three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// No shard yet.
    #[default]
    Scheduling,
    /// Initializers are at work.
    Initializing,
    /// In use.
    Ready,
    /// Out of reach; routed requests get 503.
    Unavailable,
    /// Shut by an administrator.
    Inactive,
    /// Being deleted, terminators are at work.
    Terminating,
    /// Being deleted, content goes away.
    Deleting,
}

impl Phase {
    /// As it is written in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduling => "Scheduling",
            Self::Initializing => "Initializing",
            Self::Ready => "Ready",
            Self::Unavailable => "Unavailable",
            Self::Inactive => "Inactive",
            Self::Terminating => "Terminating",
            Self::Deleting => "Deleting",
        }
    }

    /// The phase of that name; `None` for the empty text of a new object and for anything unknown.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Scheduling,
            Self::Initializing,
            Self::Ready,
            Self::Unavailable,
            Self::Inactive,
            Self::Terminating,
            Self::Deleting,
        ]
        .into_iter()
        .find(|phase| phase.as_str() == text)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
