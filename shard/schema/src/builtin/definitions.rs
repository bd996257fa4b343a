//! OpenAPI component definitions of the built-in kinds, generated once from the k8s-openapi types.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, ResourceQuota, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event as EventsEvent;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, Patch, Status,
};
use k8s_openapi::apimachinery::pkg::version::Info;
use schemars::generate::SchemaSettings;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::kind::builtin_kinds;
use super::overlay;
use super::reference::{REFERENCE_PREFIX, referenced};
use super::shape::{ShapeTable, shape_table};
use crate::apply::{ObjectType, TypeRef, TypeTable};

/// The generated definitions: their text for OpenAPI documents, and their shapes for all other uses. The generated
/// trees are dropped because they are ten times as large.
struct Definitions {
    texts: BTreeMap<String, Box<RawValue>>,
    shapes: ShapeTable,
    merge_types: TypeTable,
    merge_type_of: BTreeMap<String, TypeRef>,
}

/// The OpenAPI v3 component of that name as JSON text; references are relative to `#/components/schemas/`.
///
/// The first call generates all definitions (about ten milliseconds); later calls are map look-ups.
#[must_use]
pub fn definition_json(name: &str) -> Option<&'static RawValue> {
    definitions().texts.get(name).map(AsRef::as_ref)
}

/// All definitions as a tree, for compilers that follow references. The tree has some megabytes and should not be
/// kept.
#[must_use]
pub fn open_api_components() -> Map<String, Value> {
    let parsed = definitions().texts.iter().filter_map(|(name, text)| {
        let schema = serde_json::from_str(text.get()).ok()?;
        Some((name.clone(), schema))
    });
    parsed.collect()
}

/// The shapes of all definitions.
pub(crate) fn builtin_shapes() -> &'static ShapeTable {
    &definitions().shapes
}

/// The types by which server-side apply merges the objects of all definitions.
pub(crate) fn builtin_merge_types() -> &'static TypeTable {
    &definitions().merge_types
}

/// The type by which server-side apply merges the objects of a definition.
pub(crate) fn builtin_merge_type(definition: &str) -> Option<ObjectType<'static>> {
    let definitions = definitions();
    let root = definitions.merge_type_of.get(definition)?;
    Some(ObjectType::new(&definitions.merge_types, &definitions.merge_types, *root))
}

/// The schema of a definition without references, in the form of a CRD's `openAPIV3Schema`.
///
/// `metadata` is an open object, as in CRDs. Recursion (only in `JSONSchemaProps`) ends in an open value. Each call
/// builds a new tree: meant for schema compilers, which run once per kind.
#[must_use]
pub fn structural_schema(definition: &str) -> Option<Value> {
    definition_json(definition)?;
    let mut ancestors = Vec::new();
    let mut schema = inline(definition, &mut ancestors);
    if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
        *metadata = json!({"type": "object"});
    }
    Some(schema)
}

fn definitions() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let schemas = generate();
        let texts = schemas.iter().filter_map(|(name, schema)| {
            let text = serde_json::value::to_raw_value(schema).ok()?;
            Some((name.clone(), text))
        });
        let (merge_types, merge_type_of) = TypeTable::of_definitions(&schemas, &overlay::is_struct);
        Definitions { texts: texts.collect(), shapes: shape_table(&schemas), merge_types, merge_type_of }
    })
}

fn generate() -> Map<String, Value> {
    let settings = SchemaSettings::openapi3();
    let mut generator = settings.into_generator();
    macro_rules! add {
        ($($kind:ty),* $(,)?) => {$( generator.subschema_for::<$kind>(); )*};
    }
    add!(
        ConfigMap,
        Event,
        EventsEvent,
        Namespace,
        ResourceQuota,
        Secret,
        ServiceAccount,
        CertificateSigningRequest,
        Lease,
        ClusterRole,
        ClusterRoleBinding,
        Role,
        RoleBinding,
        CustomResourceDefinition,
        MutatingAdmissionPolicy,
        MutatingAdmissionPolicyBinding,
        MutatingWebhookConfiguration,
        ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
        LocalSubjectAccessReview,
        SelfSubjectAccessReview,
        SelfSubjectRulesReview,
        SubjectAccessReview,
        SelfSubjectReview,
        TokenRequest,
        TokenReview,
        Scale,
        APIGroup,
        APIGroupList,
        APIResourceList,
        APIVersions,
        Info,
        DeleteOptions,
        Patch,
        Status,
    );
    let mut schemas = generator.take_definitions(true);
    for (name, schema) in &mut schemas {
        if let Some(replacement) = overlay::replacement(name) {
            *schema = replacement;
        }
        complete(name, schema);
    }
    for kind in builtin_kinds() {
        set_type(&mut schemas, kind.definition, kind.group, kind.version, kind.kind);
        if kind.is_stored() {
            let list = list_definition(kind.definition, kind.group, kind.version, &kind.list_kind());
            schemas.insert(format!("{}List", kind.definition), list);
        }
    }
    for (definition, group, kind) in [
        ("io.k8s.api.authentication.v1.TokenRequest", "authentication.k8s.io", "TokenRequest"),
        ("io.k8s.api.autoscaling.v1.Scale", "autoscaling", "Scale"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup", "", "APIGroup"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList", "", "APIGroupList"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList", "", "APIResourceList"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions", "", "APIVersions"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "", "DeleteOptions"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.Status", "", "Status"),
    ] {
        set_type(&mut schemas, definition, group, "v1", kind);
    }
    schemas
}

/// Removes requirements that the generator adds wrongly, and adds list types, map types and patch strategies.
fn complete(name: &str, schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|field| !overlay::is_wrongly_required(name, field.as_str().unwrap_or_default()));
        if required.is_empty() {
            fields.remove("required");
        }
    }
    if overlay::ATOMIC_OBJECTS.contains(&name) {
        fields.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    let Some(Value::Object(properties)) = fields.get_mut("properties") else {
        return;
    };
    for (property, schema) in properties {
        let Value::Object(schema) = schema else { continue };
        let is_items = property == "items" && name.ends_with("List");
        if schema.get("type") == Some(&json!("array")) && !is_items {
            schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
        }
        for entry in
            overlay::PROPERTY_EXTENSIONS.iter().filter(|n| n.definition == name && n.property == property)
        {
            for (keyword, value) in entry.extension.keywords() {
                schema.insert(keyword.to_owned(), value);
            }
        }
    }
}

/// The component of a list of `item` definitions.
pub(crate) fn list_definition(item: &str, group: &str, version: &str, list_kind: &str) -> Value {
    let reference = |name: &str| json!({"$ref": format!("{REFERENCE_PREFIX}{name}")});
    json!({
        "description": format!("{list_kind} is a list of objects."),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": "API version of this representation.", "type": "string"},
            "items": {"description": "The objects.", "type": "array", "items": reference(item)},
            "kind": {"description": "Kind of the object.", "type": "string"},
            "metadata": reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"),
        },
        "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": list_kind}],
    })
}

fn set_type(schemas: &mut Map<String, Value>, definition: &str, group: &str, version: &str, kind: &str) {
    if let Some(Value::Object(schema)) = schemas.get_mut(definition) {
        let types = json!([{"group": group, "version": version, "kind": kind}]);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), types);
    }
}

/// Inlines a definition. `ancestors` are the definitions that are being inlined, to detect recursion.
fn inline(definition: &str, ancestors: &mut Vec<String>) -> Value {
    let parsed = definition_json(definition).map(|text| serde_json::from_str(text.get()));
    let Some(Ok(schema)) = parsed else {
        return open_value();
    };
    if ancestors.iter().any(|name| name == definition) {
        return open_value();
    }
    ancestors.push(definition.to_owned());
    let schema = inline_schema(schema, ancestors);
    ancestors.pop();
    schema
}

fn inline_schema(schema: Value, ancestors: &mut Vec<String>) -> Value {
    let Value::Object(mut fields) = schema else {
        return schema;
    };
    if let Some(definition) = referenced(&fields) {
        let mut target = inline(&definition, ancestors);
        // Keywords beside a reference (its description) belong to the field and take precedence.
        if let Value::Object(target) = &mut target {
            fields.remove("$ref");
            fields.remove("allOf");
            target.extend(fields);
        }
        return target;
    }
    fields.remove("x-kubernetes-group-version-kind");
    if !["type", "properties", "x-kubernetes-preserve-unknown-fields"]
        .iter()
        .any(|key| fields.contains_key(*key))
    {
        return open_value();
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.remove(key) {
            fields.insert(key.to_owned(), inline_schema(inner, ancestors));
        }
    }
    if let Some(Value::Object(properties)) = fields.remove("properties") {
        let properties =
            properties.into_iter().map(|(name, schema)| (name, inline_schema(schema, ancestors)));
        fields.insert("properties".to_owned(), Value::Object(properties.collect()));
    } else if fields.get("type") == Some(&json!("object")) && !fields.contains_key("additionalProperties") {
        fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    Value::Object(fields)
}

fn open_value() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn definition(name: &str) -> Value {
        serde_json::from_str(definition_json(name).unwrap().get()).unwrap()
    }

    #[test]
    fn definitions_include_the_overlay() {
        let map = definition("io.k8s.api.core.v1.ConfigMap");
        assert_eq!(map.get("required"), None, "metadata is not required");
        assert_eq!(
            map["x-kubernetes-group-version-kind"],
            json!([{"group": "", "version": "v1", "kind": "ConfigMap"}])
        );
        assert!(map["properties"]["data"]["description"].as_str().unwrap().contains("configuration data"));
        let event = definition("io.k8s.api.core.v1.Event");
        assert_eq!(event["required"], json!(["involvedObject", "metadata"]));
        let meta = definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        assert_eq!(meta["properties"]["finalizers"]["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(meta["properties"]["ownerReferences"]["x-kubernetes-list-map-keys"], json!(["uid"]));
        assert_eq!(meta["properties"]["managedFields"]["x-kubernetes-list-type"], "atomic");
        let rule = definition("io.k8s.api.rbac.v1.PolicyRule");
        assert_eq!(rule["required"], json!(["verbs"]));
        assert_eq!(rule["properties"]["verbs"]["x-kubernetes-list-type"], "atomic");
        assert_eq!(definition("io.k8s.api.rbac.v1.Subject")["x-kubernetes-map-type"], "atomic");
    }

    #[test]
    fn every_reference_has_a_definition() {
        for (name, text) in &definitions().texts {
            for part in text.get().split(REFERENCE_PREFIX).skip(1) {
                let target = part.split('"').next().unwrap();
                assert!(definitions().texts.contains_key(target), "{name} refers to {target}");
            }
        }
    }

    #[test]
    fn structural_schemas_have_no_references() {
        for kind in builtin_kinds() {
            let text = structural_schema(kind.definition).unwrap().to_string();
            assert!(!text.contains("$ref\":\"#"), "{}", kind.kind);
            assert!(!text.contains("allOf\":[{\"$ref"), "{}", kind.kind);
        }
        let schema = structural_schema("io.k8s.api.rbac.v1.Role").unwrap();
        assert_eq!(schema["properties"]["metadata"], json!({"type": "object"}));
        assert_eq!(schema["properties"]["rules"]["items"]["properties"]["verbs"]["items"]["type"], "string");
    }

    /// An extension that applies to no property is a mistake in the table.
    #[test]
    fn every_extension_of_the_overlay_applies() {
        for entry in overlay::PROPERTY_EXTENSIONS {
            let schema = definition(entry.definition);
            assert!(
                schema["properties"].get(entry.property).is_some(),
                "{} {}",
                entry.definition,
                entry.property
            );
        }
        for name in overlay::ATOMIC_OBJECTS {
            assert!(definition_json(name).is_some(), "{name}");
        }
    }
}
