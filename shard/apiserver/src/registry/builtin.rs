//! Built-in kinds as served resources.

use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_schema::FieldError;
use fairlead_schema::JsonPath;
use fairlead_schema::builtin::{BuiltinKind, Semantics, builtin_by_resource, builtin_kinds};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::shared_form::SHARED_FORM_SCHEMA;
use super::{
    Conversion, Registry, SelectableField, ServedKey, ServedResource, ServedVersion, Subresource, Versions,
};
use crate::resource::{Column, Columns, Deferral, Shape, Strategy, Verbs, WriteTarget};

/// Whether a resource is built in: its storage keys have no origin segment.
pub fn is_built_in(group: &str, resource: &str) -> bool {
    builtin_by_resource(group, "v1", resource).is_some()
}

/// The built-in kinds for which `registry_of` returns a registry.
pub fn built_in_resources(
    registry_of: impl Fn(&'static BuiltinKind) -> Option<Arc<dyn Registry>>,
) -> Vec<Arc<ServedResource>> {
    builtin_kinds()
        .iter()
        .filter_map(|kind| registry_of(kind).map(|registry| Arc::new(served(kind, registry))))
        .collect()
}

fn served(kind: &'static BuiltinKind, registry: Arc<dyn Registry>) -> ServedResource {
    let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
    let subresources = kind.subresources.iter().map(|subresource| Subresource {
        name: subresource.name,
        verbs: Verbs::named(subresource.verbs.iter().copied()),
        kind: subresource.body,
    });
    let selectable = kind.selectable_fields.iter().filter_map(|name| {
        // The source of an event is an object; its component is compared.
        let stored = match (kind.kind, *name) {
            ("Event", "source") => ".source.component".to_owned(),
            (_, name) => ServedResource::stored_field(kind.group, name),
        };
        Some(SelectableField { name: (*name).into(), path: JsonPath::parse(&stored).ok()?, default: "" })
    });
    let version = ServedVersion {
        name: kind.version.into(),
        shape: Shape::BuiltIn(kind),
        open_api: None,
        columns: Arc::new(BuiltInColumns(kind)),
        selectable_fields: selectable.collect(),
        deprecation_warning: None,
        subresources: subresources.collect(),
        strategy: Arc::new(BuiltInStrategy(kind)),
    };
    ServedResource {
        name: ResourceName::new(kind.group, kind.plural),
        kind: kind.kind.into(),
        list_kind: kind.list_kind().into(),
        singular: kind.singular.into(),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        origin: Origin::BuiltIn,
        versions: Arc::new(Versions { served: vec![version.clone()], storage: version }),
        // Compiled-in kinds never change while the process runs.
        key: ServedKey::of(&[b"built in", kind.group.as_bytes(), kind.plural.as_bytes()]),
        schema_hash: if kind.group == kind.storage_group() { 0 } else { SHARED_FORM_SCHEMA },
        conversion: Conversion::None,
        storage_version_hash: kind.storage_version_hash().map(Into::into),
        name_rule: kind.name_rule,
        verbs: Verbs::named(kind.verbs.iter().copied()),
        registry,
    }
}

struct BuiltInColumns(&'static BuiltinKind);

impl Columns for BuiltInColumns {
    fn definitions(&self) -> Vec<Column> {
        let column = |value: Value| serde_json::from_value(value).unwrap_or_default();
        self.0.table_columns().iter().map(|own| column(json!(own))).collect()
    }

    fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        self.0.table_cells(object, Timestamp::from_second(now).unwrap_or_default())
    }
}

struct BuiltInStrategy(&'static BuiltinKind);

impl BuiltInStrategy {
    fn semantics(&self) -> &'static dyn Semantics {
        self.0.semantics()
    }

    fn is_namespace(&self) -> bool {
        self.0.kind == "Namespace" && self.0.group.is_empty()
    }
}

impl Strategy for BuiltInStrategy {
    fn prepare_create(&self, object: &mut Value) {
        self.semantics().prepare_create(object);
    }

    fn prepare_update(&self, write: WriteTarget<'_>, old: &Value, new: &mut Value) {
        match write {
            WriteTarget::Main => self.semantics().prepare_update(new, old),
            // Only the finalizers of the namespace change; other fields of the request are ignored.
            WriteTarget::Subresource("finalize") => {
                let finalizers = new["spec"]["finalizers"].take();
                let resource_version = new["metadata"]["resourceVersion"].take();
                *new = old.clone();
                match finalizers.as_array() {
                    Some(all) if !all.is_empty() => new["spec"]["finalizers"] = finalizers,
                    _ => {
                        if let Some(spec) = new["spec"].as_object_mut() {
                            spec.remove("finalizers");
                        }
                    }
                }
                if resource_version.is_string() {
                    new["metadata"]["resourceVersion"] = resource_version;
                }
            }
            WriteTarget::Subresource("status") => self.semantics().prepare_status_update(new, old),
            WriteTarget::Subresource(name) => self.semantics().prepare_subresource_update(name, new, old),
        }
        self.semantics().default(new);
    }

    fn reset_fields(&self, write: WriteTarget<'_>) -> &'static [&'static [&'static str]] {
        let has_status = self.0.subresources.iter().any(|subresource| subresource.name == "status");
        match write {
            WriteTarget::Main | WriteTarget::Subresource("finalize") if has_status => &[&["status"]],
            WriteTarget::Subresource("status") => &[&["spec"]],
            _ => &[],
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        self.semantics().validate(object)
    }

    fn validate_update(&self, write: WriteTarget<'_>, old: &Value, new: &Value) -> Vec<FieldError> {
        match write {
            WriteTarget::Main => self.semantics().validate_update(new, old),
            WriteTarget::Subresource(name) => self.semantics().validate_subresource_update(name, new, old),
        }
    }

    fn begin_deletion(&self, object: &mut Value) -> Deferral {
        if !self.is_namespace() || !self.holds_deletion(object) {
            return Deferral::None;
        }
        object["status"]["phase"] = "Terminating".into();
        Deferral::Marked
    }

    fn holds_deletion(&self, object: &Value) -> bool {
        self.is_namespace()
            && object["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn allows_unconditional_update(&self) -> bool {
        self.0.allows_unconditional_update
    }

    fn allows_create_on_update(&self) -> bool {
        self.0.allows_create_on_update
    }

    fn returns_deleted(&self) -> bool {
        self.0.returns_deleted
    }

    fn counts_generations(&self) -> bool {
        self.0.has_generation
    }
}
