//! The objects of a fresh installation, as pure functions.
//!
//! All of them can be written directly to a store, without admission and defaulting. They contain finalizers, the namespace
//! label and binding labels. They lack identities, UIDs and times.

mod kcp_policy;
mod kubernetes_policy;
mod rbac;
mod root;

use serde_json::{Value, json};

pub use self::root::{root_export_names, root_export_of, root_phase0, root_phase1};
use crate::derived::api_binding;
use crate::keys::{IDENTITY_NAMESPACE, LOGICAL_CLUSTER_NAME, annotation, finalizer, label};
use crate::{ExportReference, ShardSpec, system_resources};

/// The number of these objects' content. It is raised when one of them changes, so that of two versions that run side by side
/// the older one does not replace what the newer one has written.
pub const BOOTSTRAP_VERSION: u32 = 1;

/// The CRDs of `system:system-crds`.
pub fn system_crds() -> Vec<Value> {
    system_resources().map(|resource| resource.custom_resource_definition()).collect()
}

/// The objects of `system:shard`, which lets a shard read root's APIs in all its logical clusters.
pub fn system_shard() -> Vec<Value> {
    let mut objects = vec![logical_cluster(), namespace("default", &[(annotation::CREATE_ONLY, "true")])];
    objects.extend(root_export_names().map(|name| binding_to_root(name, "system:shard")));
    objects
}

/// The objects of `system:admin`: namespaces, and roles that apply to all logical clusters of the shard.
pub fn system_admin() -> Vec<Value> {
    let mut objects: Vec<Value> =
        ["default", "kube-public", "kube-system"].iter().map(|name| namespace(name, &[])).collect();
    objects.extend(kubernetes_policy::objects());
    objects.extend(kcp_policy::objects());
    objects
}

/// The objects that the initializer `root:universal` creates in a new workspace.
pub fn universal_workspace() -> Vec<Value> {
    ["default", "kube-system"]
        .iter()
        .map(|name| namespace(name, &[(annotation::CREATE_ONLY, "true")]))
        .collect()
}

/// The namespace of identity secrets. It is created with the first of them.
pub fn identity_namespace() -> Value {
    namespace(IDENTITY_NAMESPACE, &[])
}

/// The secret of an export's identity. `key` is encoded in base64, as in every Secret.
pub fn identity_secret(export: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": export, "namespace": IDENTITY_NAMESPACE},
        "type": "Opaque",
        "data": {"key": key},
    })
}

/// The registration of a shard in `root`. Empty URLs default to the base URL.
pub fn shard_registration(name: &str, spec: &ShardSpec) -> Value {
    let or_base = |url: &String| {
        if url.is_empty() { spec.base_url.clone() } else { url.clone() }
    };
    json!({
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "Shard",
        "metadata": {"name": name, "labels": {label::NAME: name}},
        "spec": {
            "baseURL": spec.base_url,
            "externalURL": or_base(&spec.external_url),
            "virtualWorkspaceURL": or_base(&spec.virtual_workspace_url),
        },
    })
}

/// A LogicalCluster without an owner.
fn logical_cluster() -> Value {
    json!({
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": LOGICAL_CLUSTER_NAME, "finalizers": [finalizer::LOGICAL_CLUSTER]},
        "spec": {"directlyDeletable": false},
    })
}

/// An APIBinding with the name of its export in `root`.
fn binding_to_root(export: &str, holder_path: &str) -> Value {
    let reference = ExportReference { path: "root".to_owned(), name: export.to_owned() };
    api_binding(export, &reference, "root", holder_path, &[])
}

fn namespace(name: &str, annotations: &[(&str, &str)]) -> Value {
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    annotations.iter().fold(namespace, |namespace, (key, value)| rbac::annotated(namespace, key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content that belongs to [`BOOTSTRAP_VERSION`].
    const DIGEST: &str = "23c3ce95f44e5c75c64aebc8d987df1ec20fc0591cb0aac6ecdcb2a2f945333d";

    #[test]
    fn the_version_is_that_of_the_content() {
        let steps =
            [system_crds(), system_admin(), system_shard(), root_phase0(), root_phase1(&["creators"])];
        let digest = fairlead_names::hex_sha256(Value::from(steps.concat()).to_string().as_bytes());
        assert_eq!(digest, DIGEST, "objects have changed: raise BOOTSTRAP_VERSION, and set the digest");
    }
}
