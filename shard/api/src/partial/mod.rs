//! Partial objects: the few fields of a stored object that indexes and controllers need, decoded directly from its bytes.
//!
//! Cost: one scan of the bytes. Text is borrowed unless it contains JSON escapes. All other fields (managedFields above all)
//! are skipped without being built.

mod binding;

use std::borrow::Cow;

use serde::Deserialize;

pub use self::binding::{PartialBinding, PartialBoundResource};
use crate::Phase;

/// The fields of a Workspace that an index needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialWorkspace<'a> {
    /// Name of the Workspace.
    pub name: Cow<'a, str>,
    /// UID of the Workspace.
    pub uid: Cow<'a, str>,
    /// Revision of the last write.
    pub resource_version: Cow<'a, str>,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Phase; new objects do not have one yet.
    pub phase: Option<Phase>,
    /// Logical cluster, once scheduled.
    pub cluster: Option<Cow<'a, str>>,
    /// URL, once scheduled. For a mount it is the target of its requests.
    pub url: Option<Cow<'a, str>>,
    /// Name of the type.
    pub type_name: Option<Cow<'a, str>>,
    /// Path of the type.
    pub type_path: Option<Cow<'a, str>>,
    /// Whether it mounts another object.
    pub is_mount: bool,
    /// Annotation [`crate::annotation::SHARD`].
    pub shard: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::CLUSTER`]: the parent. Present only in objects read from a server.
    pub parent_cluster: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::WORKSPACE_CLUSTER`].
    pub chosen_cluster: Option<Cow<'a, str>>,
}

/// The fields of a LogicalCluster that an index needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialLogicalCluster<'a> {
    /// UID of the LogicalCluster.
    pub uid: Cow<'a, str>,
    /// Revision of the last write.
    pub resource_version: Cow<'a, str>,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Phase; new objects do not have one yet.
    pub phase: Option<Phase>,
    /// URL of the logical cluster.
    pub url: Option<Cow<'a, str>>,
    /// The owning Workspace: logical cluster, name, UID.
    pub owner: Option<PartialOwner<'a>>,
    /// Pending initializers, from the status.
    pub initializers: Vec<Cow<'a, str>>,
    /// Pending terminators, from the status.
    pub terminators: Vec<Cow<'a, str>>,
    /// Annotation [`crate::annotation::CLUSTER`]. Present only in objects read from a server.
    pub cluster: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::PATH`].
    pub path: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::TYPE`].
    pub type_reference: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::SHARD`].
    pub shard: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::REQUIRED_GROUPS`].
    pub required_groups: Option<Cow<'a, str>>,
    /// Annotation [`crate::annotation::REPLICATE`].
    pub replicate: Option<Cow<'a, str>>,
    /// Whether [`crate::annotation::INACTIVE`] or its older form is `true`.
    pub is_inactive: bool,
    /// Annotation [`crate::annotation::MAX_TOTAL_OBJECTS`], if it is a number.
    pub max_total_objects: Option<i64>,
}

/// The owner of a logical cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialOwner<'a> {
    /// Logical cluster of the Workspace.
    pub cluster: Cow<'a, str>,
    /// Name of the Workspace.
    pub name: Cow<'a, str>,
    /// UID of the Workspace.
    pub uid: Cow<'a, str>,
}

impl<'a> PartialWorkspace<'a> {
    /// Decodes the partial Workspace.
    ///
    /// # Errors
    /// The bytes are not JSON, or a decoded field has the wrong type.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        let raw: raw::Workspace<'a> = serde_json::from_slice(bytes)?;
        let annotations = raw.metadata.annotations;
        Ok(Self {
            name: raw.metadata.name.0,
            uid: raw.metadata.uid.0,
            resource_version: raw.metadata.resource_version.0,
            is_deleted: raw.metadata.deletion_timestamp.is_some(),
            phase: Phase::parse(&raw.status.phase.0),
            cluster: text(raw.spec.cluster),
            url: text(raw.spec.url),
            type_name: text(raw.spec.type_reference.name),
            type_path: text(raw.spec.type_reference.path),
            is_mount: raw.spec.mount.is_some(),
            shard: text(annotations.shard),
            parent_cluster: text(annotations.cluster),
            chosen_cluster: text(annotations.chosen_cluster),
        })
    }
}

impl<'a> PartialLogicalCluster<'a> {
    /// Decodes the partial LogicalCluster.
    ///
    /// # Errors
    /// The bytes are not JSON, or a decoded field has the wrong type.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        let raw: raw::LogicalCluster<'a> = serde_json::from_slice(bytes)?;
        let annotations = raw.metadata.annotations;
        let is_true = |value: &Option<raw::Text<'_>>| value.as_ref().is_some_and(|text| text.0 == "true");
        Ok(Self {
            uid: raw.metadata.uid.0,
            resource_version: raw.metadata.resource_version.0,
            is_deleted: raw.metadata.deletion_timestamp.is_some(),
            phase: Phase::parse(&raw.status.phase.0),
            url: text(raw.status.url),
            owner: raw.spec.owner.map(|owner| PartialOwner {
                cluster: owner.cluster.0,
                name: owner.name.0,
                uid: owner.uid.0,
            }),
            initializers: raw.status.initializers.into_iter().map(|text| text.0).collect(),
            terminators: raw.status.terminators.into_iter().map(|text| text.0).collect(),
            is_inactive: is_true(&annotations.inactive) || is_true(&annotations.inactive_legacy),
            max_total_objects: annotations.max_total_objects.and_then(|text| text.0.parse().ok()),
            cluster: text(annotations.cluster),
            path: text(annotations.path),
            type_reference: text(annotations.type_reference),
            shard: text(annotations.shard),
            required_groups: text(annotations.required_groups),
            replicate: text(annotations.replicate),
        })
    }
}

/// The text, if it is present and not empty.
fn text<'a>(value: Option<raw::Text<'a>>) -> Option<Cow<'a, str>> {
    value.map(|text| text.0).filter(|text| !text.is_empty())
}

/// The JSON structure of the fields above.
mod raw {
    use super::{Cow, Deserialize};

    /// A wrapper. serde borrows text only in a field of exactly this type, not inside an `Option`.
    #[derive(Default, Deserialize)]
    #[serde(transparent)]
    pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Workspace<'a> {
        #[serde(borrow)]
        pub(super) metadata: Metadata<'a>,
        #[serde(borrow)]
        pub(super) spec: WorkspaceSpec<'a>,
        #[serde(borrow)]
        pub(super) status: Status<'a>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct LogicalCluster<'a> {
        #[serde(borrow)]
        pub(super) metadata: Metadata<'a>,
        #[serde(borrow)]
        pub(super) spec: LogicalClusterSpec<'a>,
        #[serde(borrow)]
        pub(super) status: Status<'a>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Metadata<'a> {
        #[serde(borrow)]
        pub(super) name: Text<'a>,
        #[serde(borrow)]
        pub(super) uid: Text<'a>,
        #[serde(borrow)]
        pub(super) resource_version: Text<'a>,
        #[serde(borrow)]
        pub(super) deletion_timestamp: Option<Text<'a>>,
        #[serde(borrow)]
        pub(super) annotations: Annotations<'a>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Annotations<'a> {
        #[serde(borrow, rename = "kcp.io/cluster")]
        pub(super) cluster: Option<Text<'a>>,
        #[serde(borrow, rename = "kcp.io/path")]
        pub(super) path: Option<Text<'a>>,
        #[serde(borrow, rename = "core.kcp.io/shard")]
        pub(super) shard: Option<Text<'a>>,
        #[serde(borrow, rename = "internal.tenancy.kcp.io/cluster")]
        pub(super) chosen_cluster: Option<Text<'a>>,
        #[serde(borrow, rename = "internal.tenancy.kcp.io/type")]
        pub(super) type_reference: Option<Text<'a>>,
        #[serde(borrow, rename = "authorization.kcp.io/required-groups")]
        pub(super) required_groups: Option<Text<'a>>,
        #[serde(borrow, rename = "internal.kcp.io/replicate")]
        pub(super) replicate: Option<Text<'a>>,
        #[serde(borrow, rename = "core.kcp.io/max-total-objects")]
        pub(super) max_total_objects: Option<Text<'a>>,
        #[serde(borrow, rename = "core.kcp.io/inactive")]
        pub(super) inactive: Option<Text<'a>>,
        #[serde(borrow, rename = "internal.kcp.io/inactive")]
        pub(super) inactive_legacy: Option<Text<'a>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct WorkspaceSpec<'a> {
        #[serde(borrow)]
        pub(super) cluster: Option<Text<'a>>,
        #[serde(borrow, rename = "URL")]
        pub(super) url: Option<Text<'a>>,
        #[serde(borrow, rename = "type")]
        pub(super) type_reference: TypeReference<'a>,
        pub(super) mount: Option<serde::de::IgnoredAny>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct TypeReference<'a> {
        #[serde(borrow)]
        pub(super) name: Option<Text<'a>>,
        #[serde(borrow)]
        pub(super) path: Option<Text<'a>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct LogicalClusterSpec<'a> {
        #[serde(borrow)]
        pub(super) owner: Option<Owner<'a>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Owner<'a> {
        #[serde(borrow)]
        pub(super) cluster: Text<'a>,
        #[serde(borrow)]
        pub(super) name: Text<'a>,
        #[serde(borrow)]
        pub(super) uid: Text<'a>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Status<'a> {
        #[serde(borrow)]
        pub(super) phase: Text<'a>,
        #[serde(borrow, rename = "URL")]
        pub(super) url: Option<Text<'a>>,
        #[serde(borrow)]
        pub(super) initializers: Vec<Text<'a>>,
        #[serde(borrow)]
        pub(super) terminators: Vec<Text<'a>>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_workspace_is_decoded() {
        let bytes = br#"{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"team-a",
            "uid":"u-1","resourceVersion":"17","labels":{"region":"eu"},"managedFields":[{"a":1}],
            "annotations":{"kcp.io/cluster":"root","core.kcp.io/shard":"alpha","other":"x",
            "internal.tenancy.kcp.io/cluster":"abc"}},
            "spec":{"type":{"name":"universal","path":"root"},"cluster":"abc","URL":"https://x/clusters/root:team-a"},
            "status":{"phase":"Ready","conditions":[]}}"#;
        let partial = PartialWorkspace::decode(bytes).unwrap();
        assert_eq!(
            partial,
            PartialWorkspace {
                name: "team-a".into(),
                uid: "u-1".into(),
                resource_version: "17".into(),
                is_deleted: false,
                phase: Some(Phase::Ready),
                cluster: Some("abc".into()),
                url: Some("https://x/clusters/root:team-a".into()),
                type_name: Some("universal".into()),
                type_path: Some("root".into()),
                is_mount: false,
                shard: Some("alpha".into()),
                parent_cluster: Some("root".into()),
                chosen_cluster: Some("abc".into()),
            }
        );
        assert!(matches!(partial.cluster, Some(Cow::Borrowed(_))), "optional text is borrowed");
        assert!(matches!(partial.name, Cow::Borrowed(_)), "text is borrowed");
    }

    #[test]
    fn mounts_and_new_workspaces_are_decoded() {
        let mount =
            PartialWorkspace::decode(br#"{"metadata":{"name":"m"},"spec":{"mount":{"ref":{"kind":"K"}}}}"#);
        assert!(mount.unwrap().is_mount);
        let new = PartialWorkspace::decode(
            br#"{"metadata":{"name":"n","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
        );
        let new = new.unwrap();
        assert!(new.is_deleted && !new.is_mount);
        assert_eq!((new.phase, new.cluster), (None, None));
    }

    #[test]
    fn a_logical_cluster_is_decoded() {
        let bytes = br#"{"metadata":{"name":"cluster","uid":"u","annotations":{"kcp.io/path":"root:a",
            "internal.tenancy.kcp.io/type":"root:universal","internal.kcp.io/inactive":"true"}},
            "spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1","resource":"workspaces","cluster":"root",
            "name":"a","uid":"w"},"initializers":["root:universal"]},
            "status":{"phase":"Initializing","initializers":["system:apibindings"]}}"#;
        let partial = PartialLogicalCluster::decode(bytes).unwrap();
        assert_eq!(partial.phase, Some(Phase::Initializing));
        assert_eq!(partial.initializers, ["system:apibindings"]);
        assert_eq!(partial.path.as_deref(), Some("root:a"));
        assert_eq!(partial.type_reference.as_deref(), Some("root:universal"));
        assert!(partial.is_inactive);
        let owner = partial.owner.unwrap();
        assert_eq!((&*owner.cluster, &*owner.name, &*owner.uid), ("root", "a", "w"));
    }

    #[test]
    fn bytes_that_are_not_json_are_an_error() {
        assert!(PartialWorkspace::decode(b"{").is_err());
        assert!(PartialLogicalCluster::decode(b"17").is_err());
    }
}
