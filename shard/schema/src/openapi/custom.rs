//! OpenAPI components of custom resources.

use serde_json::{Map, Value, json};

use super::OpenApiResource;
use crate::builtin::{REFERENCE_PREFIX, definition_json};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The component name of a custom resource's kind: the group reversed, then version and kind, such as
/// `dev.wildwest.v1alpha1.Cowboy`.
#[must_use]
pub fn custom_definition_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().filter(|part| !part.is_empty()).collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// The component of a custom resource: its schema with the common fields of objects and its group, version and kind.
pub(super) fn component(resource: &OpenApiResource, schema: &Value) -> Value {
    let mut component = schema.clone();
    if !component.is_object() {
        component = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    complete_embedded(&mut component);
    let Value::Object(fields) = &mut component else { return component };
    add_object_fields(fields);
    let types = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    fields.insert("x-kubernetes-group-version-kind".to_owned(), types);
    component
}

/// Adds type and metadata to embedded resources, at any depth.
fn complete_embedded(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            complete_embedded(inner);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(complete_embedded);
    }
    if fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_object_fields(fields);
    }
}

/// Adds `apiVersion`, `kind` and `metadata` with the descriptions of built-in kinds.
fn add_object_fields(fields: &mut Map<String, Value>) {
    fields.entry("type").or_insert_with(|| json!("object"));
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return };
    for field in ["apiVersion", "kind"] {
        properties
            .insert(field.to_owned(), json!({"type": "string", "description": field_description(field)}));
    }
    let mut metadata = json!({"allOf": [{"$ref": format!("{REFERENCE_PREFIX}{OBJECT_META}")}]});
    metadata["description"] = field_description("metadata");
    properties.insert("metadata".to_owned(), metadata);
}

fn field_description(field: &str) -> Value {
    let text = definition_json("io.k8s.api.core.v1.ConfigMap").map_or("{}", |text| text.get());
    let definition: Value = serde_json::from_str(text).unwrap_or_default();
    definition["properties"][field]["description"].clone()
}
