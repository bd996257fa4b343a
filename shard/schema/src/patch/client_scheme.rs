//! Strategic merge patches of custom resources that have the name of a Kubernetes kind, such as Pods or Deployments.
//!
//! kubectl sends this patch type for every kind that it is compiled with. Kubernetes' kinds define how their lists merge; the
//! table has these lists. All other lists are replaced, and objects are merged field by field.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::strategic::{UnknownFields, apply};
use super::strategic_error::StrategicPatchError;
use crate::builtin::{PATCH_STRATEGY, REFERENCE_PREFIX, Shape, ShapeTable, shape_table};

/// The groups of Kubernetes' Go client.
const GROUPS: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Fields that contain lists with a merge strategy: definition, field, definition of the value.
const OBJECTS: &[(&str, &str, &str)] = &[
    ("Pod", "spec", "PodSpec"),
    ("Pod", "status", "PodStatus"),
    ("PodStatusResult", "status", "PodStatus"),
    ("PodTemplate", "template", "PodTemplateSpec"),
    ("PodTemplateSpec", "metadata", "ObjectMeta"),
    ("PodTemplateSpec", "spec", "PodSpec"),
    ("ReplicationController", "spec", "WorkloadSpec"),
    ("ReplicationController", "status", "Conditions"),
    ("Deployment", "spec", "WorkloadSpec"),
    ("Deployment", "status", "Conditions"),
    ("ReplicaSet", "spec", "WorkloadSpec"),
    ("ReplicaSet", "status", "Conditions"),
    ("StatefulSet", "spec", "WorkloadSpec"),
    ("StatefulSet", "status", "Conditions"),
    ("DaemonSet", "spec", "WorkloadSpec"),
    ("DaemonSet", "status", "Conditions"),
    ("Job", "spec", "WorkloadSpec"),
    ("Job", "status", "Conditions"),
    ("CronJob", "spec", "CronJobSpec"),
    ("CronJobSpec", "jobTemplate", "JobTemplateSpec"),
    ("JobTemplateSpec", "metadata", "ObjectMeta"),
    ("JobTemplateSpec", "spec", "WorkloadSpec"),
    ("WorkloadSpec", "template", "PodTemplateSpec"),
    ("Service", "spec", "ServiceSpec"),
    ("Service", "status", "Conditions"),
    ("Node", "spec", "NodeSpec"),
    ("Node", "status", "NodeStatus"),
    ("Namespace", "status", "Conditions"),
    ("PersistentVolumeClaim", "status", "Conditions"),
    ("PodDisruptionBudget", "spec", "PodDisruptionBudgetSpec"),
    ("PodDisruptionBudget", "status", "Conditions"),
    ("HorizontalPodAutoscaler", "status", "Conditions"),
    ("PodCertificateRequest", "status", "Conditions"),
    ("FlowSchema", "status", "Conditions"),
    ("PriorityLevelConfiguration", "status", "Conditions"),
    ("ServiceCIDR", "status", "Conditions"),
    ("StorageVersionMigration", "status", "Conditions"),
    ("DeviceTaintRule", "status", "Conditions"),
    ("ResourcePoolStatusRequest", "status", "Conditions"),
    ("ResourceClaim", "status", "ResourceClaimStatus"),
    ("ResourceClaimTemplate", "spec", "ObjectTemplate"),
    ("CSINode", "spec", "CSINodeSpec"),
    ("PodGroup", "spec", "PodGroupSpec"),
    ("PodGroup", "status", "PodGroupStatus"),
    ("Volume", "ephemeral", "EphemeralVolume"),
    ("EphemeralVolume", "volumeClaimTemplate", "ObjectTemplate"),
    ("ObjectTemplate", "metadata", "ObjectMeta"),
];

/// Fields whose objects are replaced: definition, field.
const REPLACED: &[(&str, &str)] = &[("PodDisruptionBudgetSpec", "selector")];

/// Lists with a merge strategy: definition, field, merge key (none for a set), definition of the items.
const LISTS: &[(&str, &str, Option<&str>, &str)] = &[
    ("ObjectMeta", "ownerReferences", Some("uid"), "Any"),
    ("ObjectMeta", "finalizers", None, "Any"),
    ("Conditions", "conditions", Some("type"), "Any"),
    ("ComponentStatus", "conditions", Some("type"), "Any"),
    ("PodSpec", "containers", Some("name"), "Container"),
    ("PodSpec", "initContainers", Some("name"), "Container"),
    ("PodSpec", "ephemeralContainers", Some("name"), "Container"),
    ("PodSpec", "volumes", Some("name"), "Volume"),
    ("PodSpec", "imagePullSecrets", Some("name"), "Any"),
    ("PodSpec", "hostAliases", Some("ip"), "Any"),
    ("PodSpec", "topologySpreadConstraints", Some("topologyKey"), "Any"),
    ("PodSpec", "resourceClaims", Some("name"), "Any"),
    ("PodSpec", "schedulingGates", Some("name"), "Any"),
    ("PodStatus", "conditions", Some("type"), "Any"),
    ("PodStatus", "podIPs", Some("ip"), "Any"),
    ("PodStatus", "hostIPs", Some("ip"), "Any"),
    ("PodStatus", "resourceClaimStatuses", Some("name"), "Any"),
    ("Container", "ports", Some("containerPort"), "Any"),
    ("Container", "env", Some("name"), "Any"),
    ("Container", "volumeMounts", Some("mountPath"), "Any"),
    ("Container", "volumeDevices", Some("devicePath"), "Any"),
    ("ServiceSpec", "ports", Some("port"), "Any"),
    ("ServiceAccount", "secrets", Some("name"), "Any"),
    ("NodeSpec", "podCIDRs", None, "Any"),
    ("NodeStatus", "addresses", Some("type"), "Any"),
    ("NodeStatus", "conditions", Some("type"), "Any"),
    ("ResourceClaimStatus", "reservedFor", Some("uid"), "Any"),
    ("CSINodeSpec", "drivers", Some("name"), "Any"),
    ("PodGroupSpec", "resourceClaims", Some("name"), "Any"),
    ("PodGroupStatus", "conditions", Some("type"), "Any"),
    ("PodGroupStatus", "resourceClaimStatuses", Some("name"), "Any"),
];

/// Whether kubectl may send strategic merge patches for custom resources of the group.
#[must_use]
pub fn is_client_scheme_group(group: &str) -> bool {
    GROUPS.contains(&group)
}

/// Applies a strategic merge patch to an object of a kind that Kubernetes' clients know.
///
/// # Errors
/// [`StrategicPatchError`] if the patch is malformed.
pub fn apply_client_scheme_patch(
    kind: &str,
    object: &mut Value,
    patch: &Value,
) -> Result<(), StrategicPatchError> {
    let shapes = shapes();
    let shape = shapes.get(kind).or_else(|| shapes.get("Other")).unwrap_or(&Shape::Any);
    apply(shapes, UnknownFields::Merged, shape, object, patch)
}

/// The shapes, built when they are needed first: some kilobytes.
fn shapes() -> &'static ShapeTable {
    static SHAPES: OnceLock<ShapeTable> = OnceLock::new();
    SHAPES.get_or_init(|| {
        let reference = |name: &str| json!({"$ref": format!("{REFERENCE_PREFIX}{name}")});
        let mut definitions: Map<String, Value> = Map::new();
        let mut add = |definition: &str, field: &str, schema: Value| {
            let entry = definitions.entry(definition).or_insert_with(
                || json!({"type": "object", "properties": {"metadata": reference("ObjectMeta")}}),
            );
            entry["properties"][field] = schema;
        };
        add("Other", "metadata", reference("ObjectMeta"));
        for (definition, field, value) in OBJECTS {
            add(definition, field, reference(value));
        }
        for (definition, field) in REPLACED {
            add(definition, field, json!({PATCH_STRATEGY: "replace"}));
        }
        for (definition, field, key, items) in LISTS {
            let mut list = json!({"type": "array", "items": reference(items), PATCH_STRATEGY: "merge"});
            if let Some(key) = key {
                list["x-kubernetes-patch-merge-key"] = (*key).into();
            }
            add(definition, field, list);
        }
        shape_table(&definitions)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_kubernetes_kinds_merge_by_their_keys() {
        let mut deployment = json!({
            "metadata": {"finalizers": ["a"]},
            "spec": {"template": {"spec": {
                "containers": [{"name": "a", "image": "1", "ports": [{"containerPort": 1}], "args": ["x"]}],
                "tolerations": [{"key": "x"}],
            }}},
        });
        let patch = json!({
            "metadata": {"finalizers": ["b"]},
            "spec": {"template": {"spec": {
                "containers": [
                    {"name": "b", "image": "2"},
                    {"name": "a", "ports": [{"containerPort": 2}], "args": ["y"]},
                ],
                "tolerations": [{"key": "y"}],
            }}},
        });
        apply_client_scheme_patch("Deployment", &mut deployment, &patch).unwrap();
        assert_eq!(deployment["metadata"]["finalizers"], json!(["b", "a"]), "new items come first");
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["tolerations"], json!([{"key": "y"}]));
        let containers = pod["containers"].as_array().unwrap();
        let one = containers.iter().find(|container| container["name"] == "a").unwrap();
        assert_eq!(
            *one,
            json!({"name": "a", "image": "1", "ports": [{"containerPort": 2}, {"containerPort": 1}], "args": ["y"]})
        );
        assert_eq!(containers.len(), 2);

        let removal =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}}}});
        apply_client_scheme_patch("Deployment", &mut deployment, &removal).unwrap();
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn only_groups_of_the_go_client_have_such_kinds() {
        for (group, expected) in [("", true), ("apps", true), ("example.com", false), ("x.k8s.io", false)] {
            assert_eq!(is_client_scheme_group(group), expected, "{group}");
        }
    }
}
