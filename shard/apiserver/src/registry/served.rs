//! A resource that is served in a scope.

use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_schema::apply::ObjectType;
use fairlead_schema::builtin::normalize_definition;
use fairlead_schema::names::NameRule;
use fairlead_schema::{ApiConversionRules, JsonPath, definition_merge_type};
use serde_json::Value;

use super::conversion_webhook::ConversionWebhook;
use super::{CatalogKey, Registry, ServedKey};
use crate::resource::{Columns, Shape, ShapeError, Strategy, Undecodable, Verb, Verbs};

/// A resource: its names, versions, verbs and rules, and the registry that holds its objects.
///
/// Immutable and shared: scopes that serve the same (schema, origin, names) share one `Arc`.
#[derive(Clone)]
pub struct ServedResource {
    /// Group and plural name.
    pub name: ResourceName,
    /// The kind, `ConfigMap`.
    pub kind: Arc<str>,
    /// The kind of its lists, `ConfigMapList`.
    pub list_kind: Arc<str>,
    /// The singular name, `configmap`.
    pub singular: Arc<str>,
    /// Short names, `cm`.
    pub short_names: Vec<Arc<str>>,
    /// Categories, `kcp`.
    pub categories: Vec<Arc<str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The origin of its definition; part of the storage key.
    pub origin: Origin,
    /// Its versions.
    pub versions: Arc<Versions>,
    /// The content hash of the schema with which objects are stored; 0 for built-in kinds.
    pub schema_hash: u64,
    /// The conversion between its versions.
    pub conversion: Conversion,
    /// `storageVersionHash` of discovery; `None` for kinds that are not stored.
    pub storage_version_hash: Option<Arc<str>>,
    /// The hash of all fields that clients see.
    pub key: ServedKey,
    /// The rule for names of its objects.
    pub name_rule: NameRule,
    /// The supported verbs.
    pub verbs: Verbs,
    /// The registry, which carries out the requests.
    pub registry: Arc<dyn Registry>,
}

impl ServedResource {
    /// The served version of this name.
    pub fn version(&self, name: &str) -> Option<&ServedVersion> {
        self.versions.served.iter().find(|version| &*version.name == name)
    }

    /// The subresource of this name in a served version.
    pub fn subresource(&self, version: &str, name: &str) -> Option<&Subresource> {
        self.version(version)?.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// The rules of a version; those of the storage version if it is not served.
    pub fn strategy(&self, version: &str) -> &dyn Strategy {
        &*self.version(version).unwrap_or(&self.versions.storage).strategy
    }

    /// The resource without a verb.
    pub fn without(&self, verb: Verb) -> Self {
        Self { verbs: self.verbs.without(verb), key: self.key.without(verb), ..self.clone() }
    }

    /// The resource as a view shows it: with these verbs, those that `subresource` returns for its subresources by name (`None`: without
    /// the subresource), and another registry.
    pub fn view(
        &self,
        verbs: Verbs,
        subresource: impl Fn(&str) -> Option<Verbs>,
        registry: Arc<dyn Registry>,
    ) -> Self {
        let version = |version: &ServedVersion| {
            let mut version = version.clone();
            version.subresources.retain_mut(|own| {
                let verbs = subresource(own.name);
                own.verbs = verbs.unwrap_or_default();
                verbs.is_some()
            });
            version
        };
        let served: Vec<ServedVersion> = self.versions.served.iter().map(version).collect();
        let of_subresources =
            served.iter().flat_map(|version| &version.subresources).map(|own| format!("{own:?}"));
        let shown = format!("{verbs:?} {}", of_subresources.collect::<Vec<_>>().join(" "));
        let versions = Arc::new(Versions { served, storage: version(&self.versions.storage) });
        Self { verbs, versions, registry, key: self.key.view(&shown), ..self.clone() }
    }

    /// `group/version`, or just the version in the core group.
    pub fn api_version(&self, version: &str) -> String {
        if self.name.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.name.group) }
    }
}

impl core::fmt::Debug for ServedResource {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "ServedResource({}, {:?})", self.name, self.origin)
    }
}

/// The versions of a definition. Shared by the resources of all scopes with the same definition, because schemas are large.
pub struct Versions {
    /// The served versions, best first.
    pub served: Vec<ServedVersion>,
    /// The version in which objects are stored; need not be served.
    pub storage: ServedVersion,
}

/// One version of a resource.
#[derive(Clone)]
pub struct ServedVersion {
    /// The name, `v1alpha1`.
    pub name: Arc<str>,
    /// The shape of its objects.
    pub shape: Shape,
    /// Its schema as OpenAPI publishes it: a CRD's `openAPIV3Schema`, or `None` for a built-in kind,
    /// whose definition is in the schema crate.
    pub open_api: Option<Arc<Value>>,
    /// The columns of its tables.
    pub columns: Arc<dyn Columns>,
    /// Fields besides name and namespace that field selectors may use.
    pub selectable_fields: Vec<SelectableField>,
    /// The `Warning` header of its responses.
    pub deprecation_warning: Option<Arc<str>>,
    /// `status`, `scale`, …. Versions of a CRD may have different ones.
    pub subresources: Vec<Subresource>,
    /// The rules of its kind, which depend on its subresources.
    pub strategy: Arc<dyn Strategy>,
}

/// A field that field selectors may use.
#[derive(Clone)]
pub struct SelectableField {
    /// The name in the selector, `spec.signerName`.
    pub name: Arc<str>,
    /// The path of the value.
    pub path: JsonPath,
    /// The value that an absent field counts as.
    pub default: &'static str,
}

impl SelectableField {
    /// The field's value as a text, for comparison in selectors.
    pub fn value(&self, object: &Value) -> String {
        match self.path.find_first(object) {
            None | Some(Value::Null) => self.default.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// The conversion of objects from the stored version to the requested one and back.
#[derive(Clone)]
pub enum Conversion {
    /// Only `apiVersion` changes (strategy `None` of a CRD).
    None,
    /// A pure function from an object to the named version. It keeps fields that the other version does not have in annotations, so
    /// that no conversion loses data. The error is the reason why the object cannot be converted.
    Function(fn(object: Value, to_version: &str) -> Result<Value, String>),
    /// The rules of an APIConversion. As a function, they keep in annotations what the other version does not have.
    Rules(Arc<ApiConversionRules>),
    /// A webhook converts objects when they enter or leave the registry.
    Webhook(Arc<ConversionWebhook>),
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The name, `status`.
    pub name: &'static str,
    /// The supported verbs.
    pub verbs: Verbs,
    /// Group, version and kind, where they are not the resource's own.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
}

impl Subresource {
    /// The OpenAPI definition of its kind. `None`: it is the kind of the resource.
    fn definition(&self) -> Option<String> {
        let (group, version, kind) = self.kind?;
        let family = group.split('.').next().unwrap_or(group);
        Some(format!("io.k8s.api.{family}.{version}.{kind}"))
    }

    /// The type by which its objects are merged. `None`: they are of the kind of the resource.
    pub(crate) fn merge_type(&self) -> Option<ObjectType<'static>> {
        Some(definition_merge_type(&self.definition()?))
    }

    /// Drops unknown fields of a decoded object and returns their paths. `None`: it is of the kind of the resource, whose
    /// shape decides.
    pub(crate) fn admit(&self, object: &mut Value) -> Option<Result<Vec<String>, ShapeError>> {
        let (_, version, kind) = self.kind?;
        let admitted = normalize_definition(&self.definition()?, object);
        Some(admitted.map_err(|error| ShapeError::Kind(Undecodable::new(kind, version, error.to_string()))))
    }
}

/// The resources of one scope, in a stable order; shared by scopes with the same resources.
pub struct Catalog {
    /// The resources, sorted by group, then resource.
    pub resources: Vec<Arc<ServedResource>>,
    key: CatalogKey,
}

impl Catalog {
    /// A catalog of these resources, which are sorted by group and resource.
    pub fn new(resources: Vec<Arc<ServedResource>>) -> Self {
        Self { key: CatalogKey::of(resources.iter().map(|resource| resource.key)), resources }
    }

    /// The hash of all its resources; keys the caches of discovery and OpenAPI documents.
    pub fn key(&self) -> CatalogKey {
        self.key
    }
}
