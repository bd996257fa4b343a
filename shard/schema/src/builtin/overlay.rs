//! Corrections of the generated schemas: list types, map types, merge keys, enumerations, open objects.
//!
//! A list without an entry here is atomic, as Kubernetes defines all other lists of these kinds.

use serde_json::{Value, json};

/// An extension of one property of one definition.
pub(super) struct PropertyExtension {
    pub(super) definition: &'static str,
    pub(super) property: &'static str,
    pub(super) extension: Extension,
}

#[derive(Clone, Copy)]
pub(super) enum Extension {
    /// A list whose items have the key `key`. Strategic merge patch merges it too.
    MergeByKey(&'static str),
    /// A list whose items have the key `key` in server-side apply only. Strategic merge patch replaces it.
    MapByKey(&'static str),
    /// A list of distinct values. Strategic merge patch merges it too.
    MergeSet,
    /// A list of distinct values in server-side apply only. Strategic merge patch replaces it.
    Set,
    /// A string with a fixed set of values.
    Enum(&'static [&'static str]),
}

impl Extension {
    pub(super) fn keywords(self) -> Vec<(&'static str, Value)> {
        match self {
            Extension::MergeByKey(key) => vec![
                ("x-kubernetes-list-map-keys", json!([key])),
                ("x-kubernetes-list-type", json!("map")),
                ("x-kubernetes-patch-merge-key", json!(key)),
                ("x-kubernetes-patch-strategy", json!("merge")),
            ],
            Extension::MapByKey(key) => {
                vec![("x-kubernetes-list-map-keys", json!([key])), ("x-kubernetes-list-type", json!("map"))]
            }
            Extension::MergeSet => vec![
                ("x-kubernetes-list-type", json!("set")),
                ("x-kubernetes-patch-strategy", json!("merge")),
            ],
            Extension::Set => vec![("x-kubernetes-list-type", json!("set"))],
            Extension::Enum(values) => vec![("enum", json!(values))],
        }
    }
}

const fn property(
    definition: &'static str,
    property: &'static str,
    extension: Extension,
) -> PropertyExtension {
    PropertyExtension { definition, property, extension }
}

pub(super) static PROPERTY_EXTENSIONS: &[PropertyExtension] = &[
    property("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", Extension::MergeSet),
    property(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "ownerReferences",
        Extension::MergeByKey("uid"),
    ),
    property("io.k8s.api.core.v1.ServiceAccount", "secrets", Extension::MergeByKey("name")),
    property("io.k8s.api.core.v1.NamespaceStatus", "conditions", Extension::MergeByKey("type")),
    property("io.k8s.api.core.v1.NamespaceStatus", "phase", Extension::Enum(&["Active", "Terminating"])),
    property(
        "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec",
        "matchConditions",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "matchConditions",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "variables",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        "conditions",
        Extension::MapByKey("type"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        "validationActions",
        Extension::Set,
    ),
    property(
        "io.k8s.api.core.v1.ScopedResourceSelectorRequirement",
        "operator",
        Extension::Enum(&["DoesNotExist", "Exists", "In", "NotIn"]),
    ),
    property(
        "io.k8s.api.core.v1.ScopedResourceSelectorRequirement",
        "scopeName",
        Extension::Enum(&[
            "BestEffort",
            "CrossNamespacePodAffinity",
            "NotBestEffort",
            "NotTerminating",
            "PriorityClass",
            "Terminating",
            "VolumeAttributesClass",
        ]),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.MutatingWebhook",
        "matchConditions",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
        "webhooks",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingWebhook",
        "matchConditions",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        "webhooks",
        Extension::MergeByKey("name"),
    ),
    property(
        "io.k8s.api.certificates.v1.CertificateSigningRequestStatus",
        "conditions",
        Extension::MapByKey("type"),
    ),
    property(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        Extension::MapByKey("type"),
    ),
    property(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        Extension::MergeByKey("rule"),
    ),
];

/// Objects that server-side apply treats as one value (`x-kubernetes-map-type: atomic`).
pub(super) static ATOMIC_OBJECTS: &[&str] = &[
    "io.k8s.api.admissionregistration.v1.MatchResources",
    "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
    "io.k8s.api.admissionregistration.v1.ParamKind",
    "io.k8s.api.admissionregistration.v1.ParamRef",
    "io.k8s.api.admissionregistration.v1.Variable",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.core.v1.ScopeSelector",
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Replaces definitions whose generated schema differs from that of Kubernetes.
pub(super) fn replacement(definition: &str) -> Option<Value> {
    match definition {
        // The generated schema is that of custom resources.
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Some(json!({
            "description": "Quantity is a number with a suffix: n, u, m, k, M, G, T, P, E, or Ki, Mi, Gi, Ti, Pi, Ei, or a \
                decimal exponent. It is returned in its shortest form.",
            "oneOf": [{"type": "string"}, {"type": "number"}],
        })),
        // Any JSON value; the generated schema is an object.
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON" => Some(json!({
            "description": "JSON represents any valid JSON value: a boolean, number, string, list, object or null.",
        })),
        // Both alternatives refer to the definition itself; clients treat it as open.
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray" => Some(json!({
            "description": "A schema, or a list of schemas. Only the former is allowed in a structural schema.",
        })),
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool" => Some(json!({
            "description": "A schema, or a boolean that allows or forbids everything.",
        })),
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray" => {
            Some(json!({
                "description": "A schema, or a list of names.",
            }))
        }
        _ => None,
    }
}

/// Whether the generated schema requires a field that Kubernetes does not require: `metadata` of all kinds but one,
/// because its Rust field is not optional, and a name that may be empty for compatibility with old clients.
pub(super) fn is_wrongly_required(definition: &str, field: &str) -> bool {
    match field {
        "metadata" => definition != "io.k8s.api.core.v1.Event",
        "name" => definition == "io.k8s.api.core.v1.LocalObjectReference",
        _ => false,
    }
}

/// Whether a field is a Go struct that is not a pointer. An object without it has an empty one in Kubernetes, so nobody
/// adds or removes it.
pub(super) fn is_struct(definition: &str, field: &str) -> bool {
    let is_kind = |kinds: &[&str]| kinds.contains(&definition.rsplit('.').next().unwrap_or_default());
    match field {
        "metadata" => true,
        "spec" => {
            is_kind(&[
                "CertificateSigningRequest",
                "CustomResourceDefinition",
                "Lease",
                "Namespace",
                "ResourceQuota",
                "Scale",
            ]) || is_policy(definition)
        }
        "status" => is_kind(&[
            "CertificateSigningRequest",
            "CustomResourceDefinition",
            "Namespace",
            "ResourceQuota",
            "Scale",
            "ValidatingAdmissionPolicy",
        ]),
        "names" => is_kind(&["CustomResourceDefinitionSpec"]),
        "acceptedNames" => is_kind(&["CustomResourceDefinitionStatus"]),
        "clientConfig" => is_kind(&["MutatingWebhook", "ValidatingWebhook"]),
        "involvedObject" | "source" | "deprecatedSource" | "regarding" => is_kind(&["Event"]),
        "roleRef" => is_kind(&["ClusterRoleBinding", "RoleBinding"]),
        _ => false,
    }
}

/// Whether a definition is an object without fields. The other objects whose schemas have none are open.
pub(super) fn is_empty_object(definition: &str) -> bool {
    definition.ends_with(".CustomResourceSubresourceStatus")
}

/// Admission policies and their bindings.
fn is_policy(definition: &str) -> bool {
    definition.starts_with("io.k8s.api.admissionregistration.") && definition.contains("AdmissionPolicy")
}
