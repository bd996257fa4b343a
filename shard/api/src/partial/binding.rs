//! The partial APIBinding.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::raw::Text;
use crate::annotation;

/// The fields of an APIBinding (v1alpha2) that indexes and controllers need.
#[derive(Clone, Debug, Default)]
pub struct PartialBinding<'a> {
    /// Name of the binding.
    pub name: Cow<'a, str>,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Label [`crate::label::EXPORT`]: the hash of the export's logical cluster or path and name.
    pub export_hash: Option<Cow<'a, str>>,
    /// Annotations that start with [`annotation::EXTRA_PREFIX`], in the order of the object.
    pub extra_annotations: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Path of the export; empty for the logical cluster of the binding.
    pub export_path: Cow<'a, str>,
    /// Name of the export.
    pub export_name: Cow<'a, str>,
    /// Phase; empty for new bindings.
    pub phase: Cow<'a, str>,
    /// Logical cluster of the export; empty until it was found.
    pub export_cluster: Cow<'a, str>,
    /// The bound resources.
    pub resources: Vec<PartialBoundResource<'a>>,
    /// JSON of `status.exportPermissionClaims`.
    pub export_claims: Option<&'a RawValue>,
    /// Types of the conditions that are true.
    pub true_conditions: Vec<Cow<'a, str>>,
}

/// A resource in the status of an APIBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialBoundResource<'a> {
    /// API group; empty for the core group.
    pub group: Cow<'a, str>,
    /// Plural name.
    pub resource: Cow<'a, str>,
    /// UID of the APIResourceSchema.
    pub schema: Cow<'a, str>,
    /// Identity of the export.
    pub identity: Cow<'a, str>,
    /// Whether the shard stores no objects of it: it has no storage versions.
    pub is_virtual: bool,
}

impl<'a> PartialBinding<'a> {
    /// Decodes the partial APIBinding.
    ///
    /// # Errors
    /// The bytes are not JSON, or a decoded field has the wrong type.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        let raw: Binding<'a> = serde_json::from_slice(bytes)?;
        let export = raw.spec.reference.export;
        let resource = |bound: BoundResource<'a>| PartialBoundResource {
            group: bound.group.0,
            resource: bound.resource.0,
            schema: bound.schema.uid.0,
            identity: bound.schema.identity_hash.0,
            is_virtual: bound.storage_versions.is_empty(),
        };
        Ok(Self {
            name: raw.metadata.name.0,
            is_deleted: raw.metadata.deletion_timestamp.is_some(),
            export_hash: raw.metadata.labels.export.map(|text| text.0),
            extra_annotations: raw.metadata.annotations.0,
            export_path: export.path.0,
            export_name: export.name.0,
            phase: raw.status.phase.0,
            export_cluster: raw.status.api_export_cluster_name.0,
            resources: raw.status.bound_resources.into_iter().map(resource).collect(),
            export_claims: raw.status.export_permission_claims,
            true_conditions: raw.status.conditions.into_iter().filter_map(Condition::if_true).collect(),
        })
    }

    /// Whether a condition is true.
    pub fn is_condition_true(&self, kind: &str) -> bool {
        self.true_conditions.iter().any(|known| known == kind)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Binding<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    labels: Labels<'a>,
    #[serde(borrow)]
    annotations: ExtraAnnotations<'a>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels<'a> {
    #[serde(borrow, rename = "internal.apis.kcp.io/export")]
    export: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec<'a> {
    #[serde(borrow)]
    reference: Reference<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference<'a> {
    #[serde(borrow)]
    export: Export<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Export<'a> {
    #[serde(borrow)]
    path: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
    #[serde(borrow)]
    api_export_cluster_name: Text<'a>,
    #[serde(borrow)]
    bound_resources: Vec<BoundResource<'a>>,
    #[serde(borrow)]
    export_permission_claims: Option<&'a RawValue>,
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
}

impl<'a> Condition<'a> {
    fn if_true(self) -> Option<Cow<'a, str>> {
        (self.status.0 == "True").then_some(self.kind.0)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BoundResource<'a> {
    #[serde(borrow)]
    group: Text<'a>,
    #[serde(borrow)]
    resource: Text<'a>,
    #[serde(borrow)]
    schema: Schema<'a>,
    storage_versions: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Schema<'a> {
    #[serde(borrow, rename = "UID")]
    uid: Text<'a>,
    #[serde(borrow)]
    identity_hash: Text<'a>,
}

/// The annotations of one prefix; the others are skipped.
#[derive(Default)]
struct ExtraAnnotations<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for ExtraAnnotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Extra;

        impl<'de> Visitor<'de> for Extra {
            type Value = ExtraAnnotations<'de>;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut annotations = Vec::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    if key.0.starts_with(annotation::EXTRA_PREFIX) {
                        annotations.push((key.0, map.next_value::<Text<'de>>()?.0));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(ExtraAnnotations(annotations))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(ExtraAnnotations::default())
            }
        }

        deserializer.deserialize_any(Extra)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_bound_binding_is_decoded() {
        let bytes = br#"{"metadata":{"name":"b","labels":{"internal.apis.kcp.io/export":"hash","x":"y"},
            "annotations":{"kcp.io/path":"root","extra.apis.kcp.io/docs":"at \"home\"","other":"z"}},
            "spec":{"reference":{"export":{"path":"root:p","name":"e"}},"permissionClaims":[{"a":1}]},
            "status":{"phase":"Bound","apiExportClusterName":"p","exportPermissionClaims":[{"resource":"secrets"}],
            "conditions":[{"type":"Ready","status":"True"},{"type":"Other","status":"False"}],
            "boundResources":[{"group":"g","resource":"rs","schema":{"name":"n","UID":"u","identityHash":"i"},
            "storageVersions":["v1"]}]}}"#;
        let binding = PartialBinding::decode(bytes).unwrap();
        assert_eq!((&*binding.name, binding.is_deleted, &*binding.phase), ("b", false, "Bound"));
        assert_eq!(
            (&*binding.export_path, &*binding.export_name, &*binding.export_cluster),
            ("root:p", "e", "p")
        );
        assert_eq!(binding.export_hash.as_deref(), Some("hash"));
        assert_eq!(binding.extra_annotations, [("extra.apis.kcp.io/docs".into(), r#"at "home""#.into())]);
        assert_eq!(
            binding.resources,
            [PartialBoundResource {
                group: "g".into(),
                resource: "rs".into(),
                schema: "u".into(),
                identity: "i".into(),
                is_virtual: false,
            }]
        );
        assert_eq!(binding.export_claims.unwrap().get(), r#"[{"resource":"secrets"}]"#);
        assert!(binding.is_condition_true("Ready") && !binding.is_condition_true("Other"));
        assert!(matches!(binding.name, Cow::Borrowed(_)), "text is borrowed");
    }

    #[test]
    fn a_new_binding_and_one_that_is_being_deleted_are_decoded() {
        let bytes =
            br#"{"metadata":{"name":"b","annotations":null,"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let binding = PartialBinding::decode(bytes).unwrap();
        assert!(binding.is_deleted && binding.export_claims.is_none());
        assert!(binding.resources.is_empty() && binding.extra_annotations.is_empty());
        assert!(PartialBinding::decode(b"[").is_err());
    }
}
