//! Creates the API server's resources from definitions.

use std::sync::Arc;

use fairlead_api::ResourceDefinition;
use fairlead_apiserver::registry::Registry;
use fairlead_apiserver::registry::{Conversion, ServedKey, ServedResource, ServedVersion, Versions};
use fairlead_apiserver::resource::{CustomStrategy, PrinterColumns, Shape, Verb, Verbs};
use fairlead_names::{Origin, ResourceName};
use fairlead_schema::builtin::storage_version_hash;
use fairlead_schema::names::NameRule;
use fairlead_schema::version_priority;
use fairlead_schema::{ColumnType, CompileOptions, FieldError, FieldPath, JsonPath, PrinterColumn, Schema};
use serde_json::Value;

use crate::bound_conversion::RuleConversion;

use super::compiled::{CompiledDefinition, CompiledDefinitions, STATUS};

/// A resource of kcp's API groups.
///
/// # Errors
/// When a compiled-in schema does not compile, which a test excludes.
pub(super) fn own_resource(
    definition: &ResourceDefinition,
    origin: Origin,
    registry: Arc<dyn Registry>,
) -> Result<ServedResource, Vec<FieldError>> {
    let mut versions = Vec::new();
    for version in &definition.versions {
        let schema = Schema::compile(&version.schema, &CompileOptions::structural())?;
        let columns = version.columns.iter().filter_map(|column| {
            Some(PrinterColumn {
                name: column.name.to_owned(),
                column_type: ColumnType::parse(column.type_name)?,
                format: String::new(),
                description: String::new(),
                priority: 0,
                path: JsonPath::parse(column.json_path).ok()?,
            })
        });
        versions.push(ServedVersion {
            name: version.name.into(),
            shape: Shape::Structural(Arc::new(schema)),
            open_api: Some(Arc::new(version.schema.clone())),
            columns: Arc::new(PrinterColumns::new(columns.collect())),
            selectable_fields: Vec::new(),
            deprecation_warning: None,
            subresources: version.status.then_some(STATUS).into_iter().collect(),
            strategy: Arc::new(CustomStrategy { has_status_subresource: version.status, scale: None }),
        });
    }
    versions.sort_by_cached_key(|version| version_priority(&version.name));
    let storage_name = definition.storage_version().map_or("", |version| version.name);
    let Some(storage) = versions.iter().find(|version| &*version.name == storage_name).cloned() else {
        let detail = "exactly one version must be the storage version";
        return Err(vec![FieldError::forbidden(FieldPath::new("versions"), detail)]);
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
    Ok(ServedResource {
        name: ResourceName::new(definition.group, definition.plural),
        kind: definition.kind.into(),
        list_kind: format!("{}List", definition.kind).into(),
        singular: definition.singular.into(),
        short_names: texts(definition.short_names),
        categories: texts(definition.categories),
        namespaced: definition.scope == fairlead_api::Scope::Namespaced,
        schema_hash: schema_hash(&storage),
        storage_version_hash: Some(
            storage_version_hash("", definition.group, storage_name, definition.kind).into(),
        ),
        // kcp's own definitions are compiled in; only the identity of their export may change.
        key: ServedKey::of(&[
            b"own",
            definition.group.as_bytes(),
            definition.plural.as_bytes(),
            origin.segment().unwrap_or_default().as_bytes(),
        ]),
        versions: Arc::new(Versions { served: versions, storage }),
        origin,
        conversion: if definition.versions.len() > 1 {
            Conversion::Function(convert_apis)
        } else {
            Conversion::None
        },
        name_rule: NameRule::Dns1123Subdomain,
        verbs: Verbs::STANDARD,
        registry,
    })
}

/// A CRD of a logical cluster or of a bound schema.
pub(super) struct Definition<'d> {
    /// The logical cluster; empty for a bound schema.
    pub(super) cluster: &'d str,
    /// The origin of its objects.
    pub(super) origin: Origin,
    /// The `spec` of the CRD.
    pub(super) spec: &'d Value,
    /// The conversion by the rules of an APIConversion, if there is one.
    pub(super) rules: Option<RuleConversion>,
    /// The rule for names of objects.
    pub(super) name_rule: NameRule,
    /// Whether the CRD is being deleted, so that no objects are created.
    pub(super) is_terminating: bool,
}

impl Definition<'_> {
    /// The resource and its compiled definition. `None` if the stored definition is invalid.
    pub(super) fn resource(
        &self,
        compiled: &CompiledDefinitions,
        registry: Arc<dyn Registry>,
    ) -> Option<(ServedResource, Arc<CompiledDefinition>)> {
        let definition = compiled.get(self.spec)?;
        let CompiledDefinition { group, names, namespaced, versions, conversion, .. } = &*definition;
        let storage = &versions.storage;
        let texts = |texts: &[String]| texts.iter().map(|text| Arc::from(&**text)).collect();
        let storage_version_hash = storage_version_hash(self.cluster, group, &storage.name, &names.kind);
        let rule: &[u8] = match self.name_rule {
            NameRule::PathSegment => b"path segment",
            _ => b"subdomain",
        };
        let resource = ServedResource {
            name: ResourceName::new(group, &names.plural),
            kind: names.kind.as_str().into(),
            list_kind: names.list_kind.as_str().into(),
            singular: names.singular.as_str().into(),
            short_names: texts(&names.short_names),
            categories: texts(&names.categories),
            namespaced: *namespaced,
            schema_hash: schema_hash(storage),
            versions: Arc::clone(versions),
            conversion: self.rules.as_ref().map_or(conversion, |rules| &rules.conversion).clone(),
            // The logical cluster is part of storageVersionHash.
            key: ServedKey::of(&[
                b"defined",
                self.cluster.as_bytes(),
                self.origin.segment().unwrap_or_default().as_bytes(),
                &definition.digest,
                rule,
                self.rules.as_ref().map_or(&[][..], |rules| &rules.digest),
            ]),
            origin: self.origin.clone(),
            storage_version_hash: Some(storage_version_hash.into()),
            name_rule: self.name_rule,
            verbs: Verbs::STANDARD,
            registry,
        };
        let resource = if self.is_terminating { resource.without(Verb::Create) } else { resource };
        Some((resource, definition))
    }
}

/// The schema hash that is stored beside an object.
fn schema_hash(storage: &ServedVersion) -> u64 {
    match &storage.shape {
        Shape::Structural(schema) => schema.hash().as_u128() as u64,
        Shape::Anything | Shape::BuiltIn(_) => 0,
    }
}

/// Converts an object between the versions of `apis.kcp.io`.
fn convert_apis(object: Value, to_version: &str) -> Result<Value, String> {
    match to_version {
        "v1alpha1" => Ok(fairlead_api::apis_to_v1alpha1(object)),
        _ => fairlead_api::apis_to_v1alpha2(object).map_err(|error| error.to_string()),
    }
}
