//! Definitions of the served resources: resources of kcp and policies of Kubernetes that shards share, without
//! schemas.

use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::registry::{
    Conversion, Registry, ServedKey, ServedResource, ServedVersion, Versions, built_in_resources,
};
use fairlead_apiserver::resource::{PrinterColumns, Shape, Strategy, Verb, Verbs, WriteTarget};
use fairlead_names::{Origin, ResourceName};
use fairlead_schema::FieldError;
use fairlead_schema::builtin::storage_version_hash;
use fairlead_schema::crd::CrdSpec;
use fairlead_schema::metadata::Scope;
use fairlead_schema::names::NameRule;
use fairlead_schema::version_priority;
use serde_json::{Value, json};

/// The shard of the cache's definitions.
pub(crate) const OWN_SHARD: &str = "system:cache:server";
/// The logical cluster of the cache's definitions.
pub(crate) const OWN_CLUSTER: &str = "system:system-crds";

/// kcp's resources, by group.
const KCP_RESOURCES: &[(&str, &[&str])] = &[
    ("apis.kcp.io", &["apiconversions", "apiexportendpointslices", "apiexports", "apiresourceschemas"]),
    ("cache.kcp.io", &["cachedobjects", "clustercachedresourceendpointslices", "clustercachedresources"]),
    ("core.kcp.io", &["logicalclusters", "shards"]),
    ("migration.kcp.io", &["logicalclustermigrations"]),
    ("tenancy.kcp.io", &["workspacetypes"]),
];

/// Policies of Kubernetes: group, kind, plural, whether they are namespaced.
const POLICIES: &[(&str, &str, &str, bool)] = &[
    (ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", false),
    (ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", false),
    (ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    (ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    (ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    (ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    (RBAC, "ClusterRole", "clusterroles", false),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", false),
    (RBAC, "Role", "roles", true),
    (RBAC, "RoleBinding", "rolebindings", true),
];
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The group and resource of CustomResourceDefinitions.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// The resource name of CustomResourceDefinitions.
pub(crate) fn definitions_name() -> ResourceName {
    ResourceName::new(DEFINITIONS.0, DEFINITIONS.1)
}

/// Whether storage keys of a resource have no origin segment, which is the case for CustomResourceDefinitions only.
pub(crate) fn is_built_in(group: &str, resource: &str) -> bool {
    (group, resource) == DEFINITIONS
}

/// The CustomResourceDefinitions that shards read, without status.
pub(crate) fn definitions() -> Vec<Value> {
    let of_kcp = KCP_RESOURCES.iter().flat_map(|(group, plurals)| {
        plurals.iter().filter_map(|plural| fairlead_api::resource(group, plural))
    });
    let mut definitions: Vec<Value> =
        of_kcp.map(|definition| without_schema(definition.custom_resource_definition())).collect();
    definitions.extend(POLICIES.iter().map(|policy| policy_definition(*policy)));
    definitions
}

/// The served resources, sorted by group and resource: CustomResourceDefinitions, read-only, and the resources they
/// define.
///
/// # Errors
/// A compiled-in definition is invalid, which a test excludes.
pub(crate) fn served_resources(
    registry: &Arc<dyn Registry>,
) -> Result<Vec<Arc<ServedResource>>, Vec<FieldError>> {
    let mut served =
        built_in_resources(|kind| is_built_in(kind.group, kind.plural).then(|| Arc::clone(registry)));
    for definition in &mut served {
        if let Some(definition) = Arc::get_mut(definition) {
            definition.verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);
            let mut version = definition.versions.storage.clone();
            version.subresources = Vec::new();
            definition.versions = Arc::new(Versions { served: vec![version.clone()], storage: version });
        }
    }
    for definition in definitions() {
        let spec = CrdSpec::parse(&definition)?;
        served.extend(resource_without_schema(&spec, Arc::clone(registry)).map(Arc::new));
    }
    served.sort_by_cached_key(|resource| (resource.name.group.clone(), resource.name.resource.clone()));
    Ok(served)
}

fn without_schema(mut definition: Value) -> Value {
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["schema"] = open_schema();
        if let Some(version) = version.as_object_mut() {
            version.remove("subresources");
        }
    }
    definition
}

fn policy_definition((group, kind, plural, namespaced): (&str, &str, &str, bool)) -> Value {
    let mut annotations = json!({annotation::API_APPROVED: "https://github.com/kcp-dev/kubernetes/pull/4"});
    let mut names = json!({
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": plural,
        "singular": kind.to_ascii_lowercase(),
    });
    if group == RBAC {
        annotations[annotation::VALIDATE_NAME] = "path-segment".into();
    } else {
        names["categories"] = json!(["api-extensions"]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": annotations},
        "spec": {
            "conversion": {"strategy": "None"},
            "group": group,
            "names": names,
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": open_schema()}],
        },
    })
}

fn open_schema() -> Value {
    json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}

fn resource_without_schema(spec: &CrdSpec, registry: Arc<dyn Registry>) -> Option<ServedResource> {
    let mut versions: Vec<ServedVersion> = spec
        .versions
        .iter()
        .map(|version| ServedVersion {
            name: version.name.as_str().into(),
            shape: Shape::Anything,
            open_api: Some(Arc::clone(&version.open_api_schema)),
            columns: Arc::new(PrinterColumns::new(version.columns.clone())),
            selectable_fields: Vec::new(),
            deprecation_warning: None,
            subresources: Vec::new(),
            strategy: Arc::new(CopyStrategy),
        })
        .collect();
    versions.sort_by_cached_key(|version| version_priority(&version.name));
    let storage_name = &spec.storage_version()?.name;
    let storage = versions.iter().find(|version| *version.name == **storage_name)?.clone();
    let texts = |texts: &[String]| texts.iter().map(|text| Arc::from(&**text)).collect();
    Some(ServedResource {
        name: ResourceName::new(&spec.group, &spec.names.plural),
        kind: spec.names.kind.as_str().into(),
        list_kind: spec.names.list_kind.as_str().into(),
        singular: spec.names.singular.as_str().into(),
        short_names: texts(&spec.names.short_names),
        categories: texts(&spec.names.categories),
        namespaced: spec.scope == Scope::Namespaced,
        origin: Origin::Custom,
        // The definitions never change while the process runs.
        key: ServedKey::of(&[b"copy", spec.group.as_bytes(), spec.names.plural.as_bytes()]),
        versions: Arc::new(Versions { served: versions, storage }),
        schema_hash: 0,
        conversion: Conversion::None,
        storage_version_hash: Some(
            storage_version_hash("", &spec.group, storage_name, &spec.names.kind).into(),
        ),
        // The shard that wrote the copy has validated the name by the resource's own rule.
        name_rule: NameRule::PathSegment,
        verbs: Verbs::STANDARD,
        registry,
    })
}

/// Stores a copy as its writer sends it, including its status.
pub(crate) struct CopyStrategy;

impl Strategy for CopyStrategy {
    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _write: WriteTarget<'_>, _old: &Value, _new: &mut Value) {}

    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_update(&self, _write: WriteTarget<'_>, _old: &Value, _new: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_definitions_are_those_of_kcp() {
        let definitions = definitions();
        assert_eq!(definitions.len(), 21);
        for definition in &definitions {
            let parsed = CrdSpec::parse(definition).unwrap();
            assert_eq!(definition["metadata"]["name"], format!("{}.{}", parsed.names.plural, parsed.group));
            for version in definition["spec"]["versions"].as_array().unwrap() {
                assert_eq!(version["schema"], open_schema());
                assert_eq!(version.get("subresources"), None);
            }
        }
    }
}
