//! Kubernetes objects that the index reads, and their conversion to records of the table. Pure functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_config::ShardPlacementConfig;
use serde::{Deserialize, Deserializer};

use crate::routing::table::{
    Change, ClusterRecord, PlacementConstraints, ShardSpec, WorkspaceRecord, WorkspaceTarget,
};

/// A `Shard` of `core.kcp.io/v1alpha1`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ShardObject {
    metadata: ShardMeta,
    #[serde(default)]
    spec: ShardObjectSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct ShardMeta {
    name: Arc<str>,
    #[serde(default, deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: ShardAnnotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ShardAnnotations {
    /// The logical cluster of the object.
    #[serde(rename = "kcp.io/cluster", default)]
    cluster: Box<str>,
    /// No new workspaces if the annotation is present, with any value.
    #[serde(rename = "experimental.core.kcp.io/unschedulable")]
    unschedulable: Option<String>,
    /// Fairlead's annotation: the shard is being drained.
    #[serde(rename = "fairlead.dev/drain")]
    drain: Option<String>,
    #[serde(rename = "fairlead.dev/weight")]
    weight: Option<String>,
    #[serde(rename = "fairlead.dev/capacity")]
    capacity: Option<String>,
}

/// An invalid annotation of a `Shard`. The operator has to fix it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum InvalidAnnotation {
    /// An invalid weight.
    #[error("fairlead.dev/weight: {0:?} is not an integer from 1 to 10000; the annotation is ignored")]
    Weight(String),
    /// An invalid capacity.
    #[error("fairlead.dev/capacity: {0:?} is not an integer; the shard gets no workspaces")]
    Capacity(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ShardObjectSpec {
    #[serde(rename = "baseURL", default)]
    base_url: String,
}

impl ShardObject {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.metadata.name
    }

    /// The logical cluster of the object.
    pub(super) fn logical_cluster(&self) -> &str {
        &self.metadata.annotations.cluster
    }

    /// The placement constraints of the annotations, and the annotations that are invalid. An invalid weight counts as none. An
    /// invalid capacity counts as 0, because too many workspaces would be worse than too few.
    pub(super) fn placement_constraints(&self) -> (PlacementConstraints, Vec<InvalidAnnotation>) {
        let ShardAnnotations { drain, weight, capacity, .. } = &self.metadata.annotations;
        let mut invalid = Vec::new();
        let weight = weight.as_ref().and_then(|text| {
            let read = text.trim().parse().ok().filter(|weight| ShardPlacementConfig::is_weight(*weight));
            read.or_else(|| {
                invalid.push(InvalidAnnotation::Weight(text.clone()));
                None
            })
        });
        let capacity = capacity.as_ref().map(|text| {
            text.trim().parse().unwrap_or_else(|_| {
                invalid.push(InvalidAnnotation::Capacity(text.clone()));
                0
            })
        });
        (PlacementConstraints { draining: drain.is_some(), weight, capacity }, invalid)
    }

    pub(super) fn into_spec(self) -> ShardSpec {
        ShardSpec {
            constraints: self.placement_constraints().0,
            name: self.metadata.name,
            url: self.spec.base_url.trim_end_matches('/').into(),
            labels: Arc::new(self.metadata.labels),
            cordoned: self.metadata.annotations.unschedulable.is_some(),
        }
    }
}

/// A `Workspace` of `tenancy.kcp.io/v1alpha1`, reduced to the table's record while it is decoded, because a page of a list
/// holds many of them at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "WireWorkspace")]
pub(super) struct WorkspaceObject(WorkspaceRecord);

#[derive(Deserialize)]
struct WireWorkspace {
    metadata: WorkspaceMeta,
    #[serde(default)]
    spec: WorkspaceSpec,
    #[serde(default)]
    status: WorkspaceStatus,
}

#[derive(Deserialize)]
struct WorkspaceMeta {
    name: Box<str>,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: ClusterAnnotation,
}

#[derive(Default, Deserialize)]
struct ClusterAnnotation {
    #[serde(rename = "kcp.io/cluster", default)]
    cluster: Box<str>,
}

#[derive(Default, Deserialize)]
struct WorkspaceSpec {
    #[serde(default)]
    cluster: Box<str>,
    #[serde(rename = "URL", default)]
    url: Box<str>,
    mount: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct WorkspaceStatus {
    #[serde(default)]
    phase: Box<str>,
}

impl From<WireWorkspace> for WorkspaceObject {
    fn from(WireWorkspace { metadata, spec, status }: WireWorkspace) -> Self {
        let target = if &*status.phase == "Scheduling" {
            WorkspaceTarget::Pending
        } else if !spec.cluster.is_empty() {
            WorkspaceTarget::Cluster(spec.cluster)
        } else if spec.mount.is_none() {
            WorkspaceTarget::Unmounted
        } else if is_usable_mount_url(&spec.url) {
            WorkspaceTarget::Mount(spec.url)
        } else {
            WorkspaceTarget::None
        };
        Self(WorkspaceRecord {
            parent: metadata.annotations.cluster,
            name: metadata.name,
            target,
            unavailable: &*status.phase == "Unavailable",
        })
    }
}

/// Whether a mount's URL can be used: absolute, with a host, and at most 4096 bytes long. It was copied from an
/// object in a user's workspace, so it is not trusted.
fn is_usable_mount_url(url: &str) -> bool {
    const MAX_LENGTH: usize = 4096;
    url.len() <= MAX_LENGTH
        && url.parse::<http::Uri>().is_ok_and(|uri| {
            uri.host().is_some_and(|host| !host.is_empty())
                && matches!(uri.scheme_str(), Some("https" | "http"))
        })
}

impl WorkspaceObject {
    /// `None` for an object without a valid logical cluster in its annotations.
    pub(super) fn into_record(self) -> Option<WorkspaceRecord> {
        is_id(&self.0.parent).then_some(self.0)
    }

    pub(super) fn into_change(self) -> Option<Change> {
        self.into_record().map(Change::PutWorkspace)
    }

    pub(super) fn into_removal(self) -> Option<Change> {
        let WorkspaceRecord { parent, name, .. } = self.into_record()?;
        Some(Change::RemoveWorkspace { parent, name })
    }
}

/// Whether a text can be the id of a logical cluster; the slash separates a stored id from a name.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

/// A `LogicalCluster` of `core.kcp.io/v1alpha1`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LogicalClusterObject {
    metadata: LogicalClusterMeta,
    #[serde(default)]
    spec: LogicalClusterSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct LogicalClusterMeta {
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: LogicalClusterAnnotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LogicalClusterAnnotations {
    #[serde(rename = "kcp.io/cluster", default)]
    cluster: Box<str>,
    #[serde(rename = "internal.tenancy.kcp.io/type")]
    workspace_type: Option<Box<str>>,
    #[serde(rename = "internal.kcp.io/migrating")]
    migrating: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct LogicalClusterSpec {
    owner: Option<Owner>,
}

#[derive(Clone, Debug, Deserialize)]
struct Owner {
    #[serde(default)]
    uid: Box<str>,
}

impl LogicalClusterObject {
    /// The UID of the `Workspace` that owns it.
    pub(super) fn workspace_uid(&self) -> Option<&str> {
        self.spec.owner.as_ref().map(|owner| &*owner.uid).filter(|uid| !uid.is_empty())
    }

    /// `None` for an object without a valid logical cluster in its annotations.
    pub(super) fn into_record(self) -> Option<ClusterRecord> {
        let LogicalClusterAnnotations { cluster, workspace_type, migrating } = self.metadata.annotations;
        is_id(&cluster).then_some(ClusterRecord {
            id: cluster,
            workspace_type,
            migrating: migrating.is_some(),
        })
    }

    pub(super) fn into_change(self) -> Option<Change> {
        self.into_record().map(Change::PutCluster)
    }

    pub(super) fn into_removal(self) -> Option<Change> {
        self.into_record().map(|record| Change::RemoveCluster(record.id))
    }
}

/// The part of an `APIExport` with the identity hash, by which its resources are addressed across logical clusters.
#[derive(Debug, Deserialize)]
pub(super) struct ExportIdentity {
    #[serde(default)]
    status: ExportStatus,
}

#[derive(Debug, Default, Deserialize)]
struct ExportStatus {
    #[serde(rename = "identityHash", default)]
    identity_hash: String,
}

impl ExportIdentity {
    pub(super) fn into_hash(self) -> Option<String> {
        Some(self.status.identity_hash).filter(|hash| !hash.is_empty())
    }
}

/// Go servers write `null` for empty maps.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn workspace(spec: &str, phase: &str) -> String {
        let json = format!(
            r#"{{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace",
                "metadata":{{"name":"w","uid":"u","annotations":{{"kcp.io/cluster":"p","other":"x"}}}},
                "spec":{spec},"status":{{"phase":"{phase}","conditions":[]}}}}"#
        );
        let object: WorkspaceObject = serde_json::from_str(&json).unwrap();
        let record = object.into_record().unwrap();
        assert_eq!((&*record.parent, &*record.name), ("p", "w"));
        let available = if record.unavailable { "unavailable " } else { "" };
        format!("{available}{:?}", record.target)
    }

    #[test]
    fn workspaces_are_converted() {
        let ready = r#"{"cluster":"c","URL":"https://x/clusters/c","type":{"name":"universal"}}"#;
        let mount = r#"{"mount":{"ref":{"kind":"K"}},"URL":"https://x/clusters/y"}"#;
        for (spec, phase, expected) in [
            (ready, "Ready", "Cluster(\"c\")"),
            (ready, "Initializing", "Cluster(\"c\")"),
            (ready, "Terminating", "Cluster(\"c\")"),
            (ready, "Inactive", "Cluster(\"c\")"),
            (ready, "Unavailable", "unavailable Cluster(\"c\")"),
            (ready, "Scheduling", "Pending"),
            ("{}", "Scheduling", "Pending"),
            ("{}", "", "Unmounted"),
            (mount, "Ready", "Mount(\"https://x/clusters/y\")"),
            (mount, "Unavailable", "unavailable Mount(\"https://x/clusters/y\")"),
            (r#"{"mount":{"ref":{}}}"#, "Unavailable", "unavailable None"),
            // An unusable URL counts as none.
            (r#"{"mount":{"ref":{}},"URL":"/clusters/y"}"#, "Ready", "None"),
            (r#"{"mount":{"ref":{}},"URL":"ftp://x/clusters/y"}"#, "Ready", "None"),
            (r#"{"mount":{"ref":{}},"URL":"https:///clusters/y"}"#, "Ready", "None"),
            // The logical cluster comes first, as in kcp.
            (r#"{"cluster":"c","mount":{"ref":{}},"URL":"https://x/clusters/y"}"#, "Ready", "Cluster(\"c\")"),
            // A URL without a mount is the address of the workspace itself.
            (r#"{"URL":"https://x/clusters/y"}"#, "Ready", "Unmounted"),
        ] {
            assert_eq!(workspace(spec, phase), expected, "{spec} {phase}");
        }
    }

    #[test]
    fn logical_clusters_are_converted() {
        let json = r#"{"metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"c","kcp.io/path":"root:w",
            "internal.tenancy.kcp.io/type":"root:universal"}},"spec":{"owner":{"uid":"u","name":"w"}},"status":{}}"#;
        let object: LogicalClusterObject = serde_json::from_str(json).unwrap();
        assert_eq!(object.workspace_uid(), Some("u"));
        let expected =
            ClusterRecord { id: "c".into(), workspace_type: Some("root:universal".into()), migrating: false };
        assert_eq!(object.into_record(), Some(expected));
        let json =
            r#"{"metadata":{"annotations":{"kcp.io/cluster":"root","internal.kcp.io/migrating":"true"}}}"#;
        let object: LogicalClusterObject = serde_json::from_str(json).unwrap();
        assert_eq!(object.workspace_uid(), None);
        assert!(object.into_record().unwrap().migrating);
        for json in [r#"{"metadata":{}}"#, r#"{"metadata":{"annotations":{"kcp.io/cluster":"a/b"}}}"#] {
            let object: LogicalClusterObject = serde_json::from_str(json).unwrap();
            assert_eq!(object.into_record(), None, "{json}");
        }
    }

    #[test]
    fn shards_are_converted() {
        let json = r#"{"metadata":{"name":"alpha","labels":{"name":"alpha"},"annotations":null},
            "spec":{"baseURL":"https://alpha:6443/","externalURL":"https://kcp"}}"#;
        let object: ShardObject = serde_json::from_str(json).unwrap();
        let spec = object.into_spec();
        assert_eq!((&*spec.name, &*spec.url, spec.cordoned), ("alpha", "https://alpha:6443", false));
        assert_eq!(spec.labels["name"], "alpha");
        let json =
            r#"{"metadata":{"name":"a","annotations":{"experimental.core.kcp.io/unschedulable":"true"}}}"#;
        assert!(serde_json::from_str::<ShardObject>(json).unwrap().into_spec().cordoned);
    }

    #[test]
    fn placement_annotations_are_parsed() {
        let placement_constraints =
            |draining, weight, capacity| PlacementConstraints { draining, weight, capacity };
        let weight = |text: &str| InvalidAnnotation::Weight(text.to_owned());
        let capacity = |text: &str| InvalidAnnotation::Capacity(text.to_owned());
        for (annotations, expected, invalid) in [
            ("{}", placement_constraints(false, None, None), vec![]),
            (r#"{"fairlead.dev/drain":""}"#, placement_constraints(true, None, None), vec![]),
            (
                r#"{"fairlead.dev/weight":" 3","fairlead.dev/capacity":"0"}"#,
                placement_constraints(false, Some(3), Some(0)),
                vec![],
            ),
            (r#"{"fairlead.dev/weight":"0"}"#, placement_constraints(false, None, None), vec![weight("0")]),
            (
                r#"{"fairlead.dev/weight":"10001"}"#,
                placement_constraints(false, None, None),
                vec![weight("10001")],
            ),
            (
                r#"{"fairlead.dev/weight":"1.5"}"#,
                placement_constraints(false, None, None),
                vec![weight("1.5")],
            ),
            (
                r#"{"fairlead.dev/capacity":"10k"}"#,
                placement_constraints(false, None, Some(0)),
                vec![capacity("10k")],
            ),
            (
                r#"{"fairlead.dev/weight":"x","fairlead.dev/capacity":"-1"}"#,
                placement_constraints(false, None, Some(0)),
                vec![weight("x"), capacity("-1")],
            ),
        ] {
            let json = format!(r#"{{"metadata":{{"name":"a","annotations":{annotations}}}}}"#);
            let object: ShardObject = serde_json::from_str(&json).unwrap();
            assert_eq!(object.placement_constraints(), (expected, invalid), "{annotations}");
            assert_eq!(object.into_spec().constraints, expected);
        }
    }
}
