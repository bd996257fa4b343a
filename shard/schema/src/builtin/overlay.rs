//! Corrections of the generated schemas: list types, map types, merge keys, enumerations, open objects.
//!
//! A list without an entry here is atomic, as Kubernetes defines all other lists of these kinds.

use serde_json::{Value, json};

/// An extension of one property of one definition.
pub(super) struct PropertyNote {
    pub(super) definition: &'static str,
    pub(super) property: &'static str,
    pub(super) note: Note,
}

#[derive(Clone, Copy)]
pub(super) enum Note {
    /// A list whose items have the key `key`. Strategic merge patch merges it too.
    MergedBy(&'static str),
    /// A list whose items have the key `key` in server-side apply only. Strategic merge patch replaces it.
    MapBy(&'static str),
    /// A list of distinct values. Strategic merge patch merges it too.
    MergedSet,
    /// A string with a fixed set of values.
    OneOf(&'static [&'static str]),
}

impl Note {
    pub(super) fn extensions(self) -> Vec<(&'static str, Value)> {
        match self {
            Note::MergedBy(key) => vec![
                ("x-kubernetes-list-map-keys", json!([key])),
                ("x-kubernetes-list-type", json!("map")),
                ("x-kubernetes-patch-merge-key", json!(key)),
                ("x-kubernetes-patch-strategy", json!("merge")),
            ],
            Note::MapBy(key) => {
                vec![("x-kubernetes-list-map-keys", json!([key])), ("x-kubernetes-list-type", json!("map"))]
            }
            Note::MergedSet => vec![
                ("x-kubernetes-list-type", json!("set")),
                ("x-kubernetes-patch-strategy", json!("merge")),
            ],
            Note::OneOf(values) => vec![("enum", json!(values))],
        }
    }
}

const fn note(definition: &'static str, property: &'static str, note: Note) -> PropertyNote {
    PropertyNote { definition, property, note }
}

pub(super) static PROPERTY_NOTES: &[PropertyNote] = &[
    note("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", Note::MergedSet),
    note("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", Note::MergedBy("uid")),
    note("io.k8s.api.core.v1.ServiceAccount", "secrets", Note::MergedBy("name")),
    note("io.k8s.api.core.v1.NamespaceStatus", "conditions", Note::MergedBy("type")),
    note("io.k8s.api.core.v1.NamespaceStatus", "phase", Note::OneOf(&["Active", "Terminating"])),
    note(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        Note::MapBy("type"),
    ),
    note(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        Note::MergedBy("rule"),
    ),
];

/// Objects that server-side apply treats as one value (`x-kubernetes-map-type: atomic`).
pub(super) static ATOMIC_OBJECTS: &[&str] = &[
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Replaces definitions whose generated schema differs from that of Kubernetes.
pub(super) fn replacement(definition: &str) -> Option<Value> {
    match definition {
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
