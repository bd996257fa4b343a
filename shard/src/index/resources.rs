//! Creates the API server's resources from definitions.

use std::sync::Arc;

use fairlead_api::ResourceDefinition;
use fairlead_apiserver::registry::Registry;
use fairlead_apiserver::registry::{Conversion, SelectableField, ServedResource, ServedVersion, Subresource};
use fairlead_apiserver::resource::{CustomStrategy, PrinterColumns, Shape, Verb, Verbs};
use fairlead_apiserver::version_priority;
use fairlead_names::{Origin, ResourceName};
use fairlead_schema::builtin::storage_version_hash;
use fairlead_schema::crd::CrdSpec;
use fairlead_schema::names::NameRule;
use fairlead_schema::{ColumnType, CompileOptions, FieldError, JsonPath, PrinterColumn, Schema};
use serde_json::Value;

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
    let mut has_status = false;
    for version in &definition.versions {
        let schema = Schema::compile(&version.schema, &CompileOptions::structural())?;
        has_status |= version.status;
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
        });
    }
    versions.sort_by_cached_key(|version| version_priority(&version.name));
    let storage = definition.storage_version();
    let storage_name = storage.map_or("", |version| version.name);
    let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect();
    Ok(ServedResource {
        name: ResourceName::new(definition.group, definition.plural),
        kind: definition.kind.into(),
        list_kind: format!("{}List", definition.kind).into(),
        singular: definition.singular.into(),
        short_names: texts(definition.short_names),
        categories: texts(definition.categories),
        namespaced: definition.scope == fairlead_api::Scope::Namespaced,
        schema_hash: storage_hash(&versions, storage_name),
        storage_version_hash: Some(
            storage_version_hash("", definition.group, storage_name, definition.kind).into(),
        ),
        versions,
        storage_version: storage_name.into(),
        origin,
        conversion: if definition.versions.len() > 1 {
            Conversion::Function(convert_apis)
        } else {
            Conversion::None
        },
        name_rule: NameRule::Dns1123Subdomain,
        verbs: Verbs::STANDARD,
        subresources: has_status.then_some(STATUS).into_iter().collect(),
        strategy: Arc::new(CustomStrategy { has_status_subresource: has_status }),
        registry,
    })
}

/// A resource that a CRD of a logical cluster defines.
pub(super) fn local_resource(
    cluster: &str,
    spec: &CrdSpec,
    name_rule: NameRule,
    is_terminating: bool,
    registry: Arc<dyn Registry>,
) -> ServedResource {
    let has_status = spec.storage_version().is_some_and(|version| version.has_status);
    let mut versions: Vec<ServedVersion> = spec
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| ServedVersion {
            name: version.name.as_str().into(),
            shape: Shape::Structural(Arc::new(version.schema.clone())),
            open_api: Some(version.open_api_schema.clone()),
            columns: Arc::new(PrinterColumns::new(version.columns.clone())),
            selectable_fields: version
                .selectable_fields
                .iter()
                .map(|field| SelectableField {
                    name: field.label.as_str().into(),
                    path: field.path.clone(),
                    default: "",
                })
                .collect(),
            deprecation_warning: version.deprecation_warning.as_deref().map(Into::into),
        })
        .collect();
    versions.sort_by_cached_key(|version| version_priority(&version.name));
    let storage = spec.storage_version().map_or("", |version| &version.name);
    let texts = |texts: &[String]| texts.iter().map(|text| Arc::from(&**text)).collect();
    let verbs = if is_terminating { Verbs::STANDARD.without(Verb::Create) } else { Verbs::STANDARD };
    ServedResource {
        name: ResourceName::new(&spec.group, &spec.names.plural),
        kind: spec.names.kind.as_str().into(),
        list_kind: spec.names.list_kind.as_str().into(),
        singular: spec.names.singular.as_str().into(),
        short_names: texts(&spec.names.short_names),
        categories: texts(&spec.names.categories),
        namespaced: spec.scope == fairlead_schema::metadata::Scope::Namespaced,
        schema_hash: storage_hash(&versions, storage),
        versions,
        storage_version: storage.into(),
        origin: Origin::Custom,
        conversion: Conversion::None,
        storage_version_hash: Some(
            storage_version_hash(cluster, &spec.group, storage, &spec.names.kind).into(),
        ),
        name_rule,
        verbs,
        subresources: has_status.then_some(STATUS).into_iter().collect(),
        strategy: Arc::new(CustomStrategy { has_status_subresource: has_status }),
        registry,
    }
}

const STATUS: Subresource =
    Subresource { name: "status", verbs: Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]), kind: None };

/// The schema hash that is stored beside an object: of the storage version, or of the first version if the storage
/// version is not served.
fn storage_hash(versions: &[ServedVersion], storage: &str) -> u64 {
    let version = versions.iter().find(|version| &*version.name == storage).or(versions.first());
    match version.map(|version| &version.shape) {
        Some(Shape::Structural(schema)) => schema.hash().as_u128() as u64,
        Some(Shape::Anything | Shape::BuiltIn(_)) | None => 0,
    }
}

/// Converts an object between the versions of `apis.kcp.io`.
fn convert_apis(object: &mut Value, to_version: &str) {
    let original = object.take();
    *object = match to_version {
        "v1alpha1" => fairlead_api::apis_to_v1alpha1(original),
        // A value that cannot be converted is left unchanged and fails validation.
        _ => fairlead_api::apis_to_v1alpha2(original.clone()).unwrap_or(original),
    };
}
