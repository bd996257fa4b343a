//! Types that all kinds share.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::is_default;

/// An object with the spec and status of its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object<Spec, Status>
where
    Spec: Default,
    Status: Default + PartialEq,
{
    /// Group and version.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: Spec,
    /// Observed state.
    #[serde(skip_serializing_if = "is_default")]
    pub status: Status,
}

/// The status of kinds without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

/// The fields of `metav1.ObjectMeta` that kcp's logic reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty before it is created.
    #[serde(skip_serializing_if = "is_default")]
    pub uid: String,
    /// Revision of the last write; empty before the object is created.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_version: String,
    /// Number of changes of the spec.
    #[serde(skip_serializing_if = "is_default")]
    pub generation: i64,
    /// Time of creation (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Time of the deletion request (RFC 3339); set while finalizers delay the deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Labels of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub finalizers: Vec<String>,
    /// References to the object's owners.
    #[serde(skip_serializing_if = "is_default")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether the object is being deleted and waits for its finalizers.
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
    /// Labels that must be present with these values.
    #[serde(skip_serializing_if = "is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; all must hold.
    #[serde(skip_serializing_if = "is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement of a [`LabelSelector`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    /// Key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(skip_serializing_if = "is_default")]
    pub values: Vec<String>,
}

/// Phase of the life cycle of a Workspace or LogicalCluster, in the usual order. Admission rejects steps back among the first
/// three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// No shard is selected yet.
    #[default]
    Scheduling,
    /// Initializers are pending.
    Initializing,
    /// The workspace can be used.
    Ready,
    /// The workspace cannot be reached; routed requests get 503.
    Unavailable,
    /// An administrator made the logical cluster inactive.
    Inactive,
    /// The object is being deleted; terminators are pending.
    Terminating,
    /// The object is being deleted; its content is being removed.
    Deleting,
}

impl Phase {
    /// The phase as text, as in objects.
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

    /// The phase with that name. `None` for the empty text of a new object and for unknown text.
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
