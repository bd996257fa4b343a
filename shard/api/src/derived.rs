//! Objects that kcp derives from other objects.

use serde_json::{Map, Value, json};

use crate::keys::{LOGICAL_CLUSTER_NAME, annotation, finalizer};
use crate::naming::{binding_labels, canonical_path, default_binding_name};
use crate::{ExportReference, LogicalClusterOwner, ObjectMeta, PermissionClaim, TypeReference, UserInfo};

/// The scheduler's input for the LogicalCluster of a new workspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewLogicalCluster {
    /// The Workspace that owns it; a home workspace has none.
    pub owner: Option<LogicalClusterOwner>,
    /// Canonical path of the workspace.
    pub path: String,
    /// Reference of its type, with the canonical path.
    pub type_reference: TypeReference,
    /// Name of the chosen shard.
    pub shard: String,
    /// Value of the Workspace's owner annotation.
    pub owner_annotation: Option<String>,
    /// Value of the Workspace's required-groups annotation.
    pub required_groups: Option<String>,
    /// Initializers; see [`crate::initializers`].
    pub initializers: Vec<String>,
    /// Terminators; see [`crate::terminators`].
    pub terminators: Vec<String>,
}

impl NewLogicalCluster {
    /// The LogicalCluster to create in the chosen logical cluster. `spec.createdBy` is parsed from the owner annotation.
    pub fn build(&self) -> Value {
        let mut annotations = Map::new();
        annotations.insert(annotation::TYPE.to_owned(), self.type_reference.to_string().into());
        annotations.insert(annotation::PATH.to_owned(), self.path.clone().into());
        annotations.insert(annotation::SHARD.to_owned(), self.shard.clone().into());
        for (key, value) in [
            (annotation::OWNER, &self.owner_annotation),
            (annotation::REQUIRED_GROUPS, &self.required_groups),
        ] {
            if let Some(value) = value {
                annotations.insert(key.to_owned(), value.clone().into());
            }
        }
        let mut spec = json!({"directlyDeletable": false});
        if let Some(owner) = &self.owner {
            spec["owner"] = json!(owner);
        }
        let creator =
            self.owner_annotation.as_deref().and_then(|owner| serde_json::from_str::<UserInfo>(owner).ok());
        if let Some(creator) = creator {
            spec["createdBy"] = json!(creator);
        }
        if !self.initializers.is_empty() {
            spec["initializers"] = json!(self.initializers);
        }
        if !self.terminators.is_empty() {
            spec["terminators"] = json!(self.terminators);
        }
        json!({
            "apiVersion": "core.kcp.io/v1alpha1",
            "kind": "LogicalCluster",
            "metadata": {
                "name": LOGICAL_CLUSTER_NAME,
                "annotations": annotations,
                "finalizers": [finalizer::LOGICAL_CLUSTER],
            },
            "spec": spec,
        })
    }
}

/// An APIBinding (v1alpha2) to an export whose logical cluster is known, before any controller processes it: label,
/// finalizer, path annotation, and every claim of the export accepted.
pub fn api_binding(
    name: &str,
    reference: &ExportReference,
    export_cluster: &str,
    holder_path: &str,
    claims: &[PermissionClaim],
) -> Value {
    let mut spec = json!({"reference": {"export": reference}});
    if !claims.is_empty() {
        spec["permissionClaims"] = claims.iter().map(accepted).collect();
    }
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIBinding",
        "metadata": {
            "name": name,
            "annotations": {annotation::PATH: holder_path},
            "finalizers": [finalizer::API_BINDING],
            "labels": binding_labels(export_cluster, &reference.name),
        },
        "spec": spec,
    })
}

/// The default APIBinding of a new workspace; see [`crate::API_BINDINGS_INITIALIZER`].
pub fn default_api_binding(
    cluster: &str,
    reference: &ExportReference,
    export_cluster: &str,
    holder_path: &str,
    claims: &[PermissionClaim],
) -> Value {
    let name = default_binding_name(cluster, &reference.path, &reference.name);
    api_binding(&name, reference, export_cluster, holder_path, claims)
}

/// The default APIExportEndpointSlice of an export. `None` if an annotation of the export disables it. `cluster` is the
/// logical cluster of both.
pub fn default_endpoint_slice(export: &ObjectMeta, cluster: &str) -> Option<Value> {
    if export.annotation(annotation::SKIP_ENDPOINT_SLICE).is_some() {
        return None;
    }
    Some(json!({
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExportEndpointSlice",
        "metadata": {
            "name": export.name,
            "ownerReferences": [{
                "apiVersion": "apis.kcp.io/v1alpha1",
                "kind": "APIExport",
                "name": export.name,
                "uid": export.uid,
            }],
        },
        "spec": {"export": {"name": export.name, "path": canonical_path(export, cluster)}},
    }))
}

fn accepted(claim: &PermissionClaim) -> Value {
    let mut accepted = json!({
        "group": claim.group,
        "resource": claim.resource,
        "verbs": claim.verbs,
        "state": "Accepted",
        "selector": claim.default_selector.as_ref().map_or_else(|| json!({"matchAll": true}), |selector| json!(selector)),
    });
    if !claim.identity_hash.is_empty() {
        accepted["identityHash"] = claim.identity_hash.clone().into();
    }
    accepted
}

/// The ClusterRoleBinding that makes `user` administrator of a new workspace.
pub fn workspace_admin_binding(user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "workspace-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// An APIResourceSchema that cannot become a CRD, because it was not read from a server. This is a programming error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the APIResourceSchema has no {0}")]
pub struct IncompleteSchema(&'static str);

/// The CRD (in `system:bound-crds`) that serves a bound APIResourceSchema. Its name is the schema's UID, so that resources of
/// different providers with the same name do not collide.
///
/// # Errors
/// [`IncompleteSchema`] if the object has no name, UID or spec.
pub fn bound_crd(schema: &Value, schema_cluster: &str) -> Result<Value, IncompleteSchema> {
    let metadata = &schema["metadata"];
    let uid = metadata["uid"].as_str().ok_or(IncompleteSchema("uid"))?;
    let name = metadata["name"].as_str().ok_or(IncompleteSchema("name"))?;
    let spec = schema["spec"].as_object().ok_or(IncompleteSchema("spec"))?;

    let mut annotations = Map::new();
    annotations.insert(annotation::BOUND_CRD.to_owned(), "".into());
    annotations.insert(annotation::SCHEMA_CLUSTER.to_owned(), schema_cluster.into());
    annotations.insert(annotation::SCHEMA_NAME.to_owned(), name.into());
    if let Some(approval) = metadata["annotations"].get(annotation::API_APPROVED) {
        annotations.insert(annotation::API_APPROVED.to_owned(), approval.clone());
    }
    if spec.get("nameValidation") == Some(&Value::from("PathSegmentName")) {
        annotations.insert(annotation::VALIDATE_NAME.to_owned(), "path-segment".into());
    }

    let versions: Vec<Value> = spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version.is_object())
        .map(|version| {
            let mut version = version.clone();
            version["schema"] = json!({"openAPIV3Schema": version["schema"].take()});
            version
        })
        .collect();
    let field = |name: &str| spec.get(name).cloned().unwrap_or_default();
    let conversion = spec.get("conversion").cloned().unwrap_or_else(|| json!({"strategy": "None"}));
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": uid, "annotations": annotations},
        "spec": {
            "conversion": conversion,
            "group": spec.get("group").cloned().unwrap_or_else(|| "".into()),
            "names": field("names"),
            "scope": field("scope"),
            "versions": versions,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClaimSelector;

    #[test]
    fn a_new_logical_cluster_refers_to_its_workspace() {
        let cluster = NewLogicalCluster {
            owner: Some(LogicalClusterOwner {
                api_version: "tenancy.kcp.io/v1alpha1".to_owned(),
                resource: "workspaces".to_owned(),
                name: "team-a".to_owned(),
                cluster: "root".to_owned(),
                uid: "u".to_owned(),
                namespace: String::new(),
            }),
            path: "root:team-a".to_owned(),
            type_reference: TypeReference { name: "universal".to_owned(), path: "root".to_owned() },
            shard: "alpha".to_owned(),
            owner_annotation: Some(r#"{"username":"alice","groups":["a"]}"#.to_owned()),
            required_groups: None,
            initializers: vec!["root:universal".to_owned()],
            terminators: Vec::new(),
        };
        assert_eq!(
            cluster.build(),
            json!({
                "apiVersion": "core.kcp.io/v1alpha1",
                "kind": "LogicalCluster",
                "metadata": {
                    "name": "cluster",
                    "annotations": {
                        "core.kcp.io/shard": "alpha",
                        "experimental.tenancy.kcp.io/owner": r#"{"username":"alice","groups":["a"]}"#,
                        "internal.tenancy.kcp.io/type": "root:universal",
                        "kcp.io/path": "root:team-a",
                    },
                    "finalizers": ["core.kcp.io/logicalcluster-deletion"],
                },
                "spec": {
                    "directlyDeletable": false,
                    "createdBy": {"username": "alice", "groups": ["a"]},
                    "initializers": ["root:universal"],
                    "owner": {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "name": "team-a",
                              "cluster": "root", "uid": "u"},
                },
            })
        );
    }

    #[test]
    fn default_bindings_accept_every_claim() {
        let reference = ExportReference { path: "root".to_owned(), name: "tenancy.kcp.io".to_owned() };
        let claims = [
            PermissionClaim {
                resource: "configmaps".to_owned(),
                verbs: vec!["get".to_owned()],
                ..PermissionClaim::default()
            },
            PermissionClaim {
                group: "wild.west".to_owned(),
                resource: "sheriffs".to_owned(),
                verbs: vec!["*".to_owned()],
                identity_hash: "abc".to_owned(),
                default_selector: Some(ClaimSelector {
                    match_labels: [("a".to_owned(), "b".to_owned())].into(),
                    ..ClaimSelector::default()
                }),
            },
        ];
        let binding = default_api_binding("puoirgi47r0swyej", &reference, "root", "root:a", &claims);
        assert_eq!(binding["metadata"]["name"], "tenancy.kcp.io-7pcuj");
        assert_eq!(
            binding["spec"],
            json!({
                "reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}},
                "permissionClaims": [
                    {"group": "", "resource": "configmaps", "verbs": ["get"], "state": "Accepted",
                     "selector": {"matchAll": true}},
                    {"group": "wild.west", "resource": "sheriffs", "verbs": ["*"], "state": "Accepted",
                     "identityHash": "abc", "selector": {"matchLabels": {"a": "b"}}},
                ],
            })
        );
    }

    #[test]
    fn exports_get_a_default_endpoint_slice_unless_annotated() {
        let mut export = ObjectMeta { name: "a".to_owned(), uid: "u".to_owned(), ..ObjectMeta::default() };
        let slice = default_endpoint_slice(&export, "abc").unwrap();
        assert_eq!(slice["spec"], json!({"export": {"name": "a", "path": "abc"}}));
        export.annotations.insert(annotation::PATH.to_owned(), "root:x".to_owned());
        let slice = default_endpoint_slice(&export, "abc").unwrap();
        assert_eq!(slice["spec"]["export"]["path"], "root:x");
        export.annotations.insert(annotation::SKIP_ENDPOINT_SLICE.to_owned(), String::new());
        assert_eq!(default_endpoint_slice(&export, "abc"), None);
    }

    #[test]
    fn bound_crds_keep_approval_name_validation_and_webhooks() {
        let schema = json!({
            "metadata": {"name": "v1.pods.core", "uid": "u-1",
                         "annotations": {"api-approved.kubernetes.io": "yes", "other": "x"}},
            "spec": {
                "group": "", "scope": "Namespaced", "nameValidation": "PathSegmentName",
                "names": {"plural": "pods", "kind": "Pod"},
                "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}],
            },
        });
        let crd = bound_crd(&schema, "abc").unwrap();
        assert_eq!(crd["metadata"]["name"], "u-1");
        assert_eq!(
            crd["metadata"]["annotations"],
            json!({"api-approved.kubernetes.io": "yes", "apis.kcp.io/bound-crd": "",
                   "apis.kcp.io/schema-cluster": "abc", "apis.kcp.io/schema-name": "v1.pods.core",
                   "internal.kcp.io/validate-name": "path-segment"})
        );
        assert_eq!(
            crd["spec"]["versions"],
            json!([{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}])
        );
        assert_eq!(crd["spec"]["conversion"]["strategy"], "Webhook");
        let missing = bound_crd(&json!({"metadata": {"name": "a"}}), "abc").unwrap_err();
        assert_eq!(missing.to_string(), "the APIResourceSchema has no uid");
    }
}
