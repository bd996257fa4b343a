//! The OpenAPI v2 document (`/openapi/v2`) of the built-in kinds, for kubectl 1.27 and 1.28 and other older clients.
//!
//! It is derived from the v3 documents, so both say the same.

use serde_json::{Map, Value, json};

use super::{Components, DiscoveryPath, OpenApiResource, operations};

/// The prefix of references to schemas in v2.
const REFERENCE_PREFIX: &str = "#/definitions/";

/// Keywords of schemas that v2 knows, besides extensions.
const KEYWORDS: [&str; 21] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "default",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "uniqueItems",
];

/// Assembles the document of resources and of paths besides them. Costs some ten milliseconds and megabytes.
#[must_use]
pub fn open_api_v2(resources: &[OpenApiResource], others: &[DiscoveryPath]) -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    let mut add = |(path, item): (String, Value)| {
        components.add_referenced(&item.to_string());
        paths.insert(path, path_item(&item));
    };
    others.iter().for_each(|other| add(other.path_item()));
    for resource in resources {
        add(operations::resource_list(&resource.group, &resource.version));
        operations::paths_of(resource).into_iter().for_each(&mut add);
    }
    let definitions: Map<String, Value> = components
        .schemas
        .iter()
        .filter_map(|(name, definition)| {
            Some((name.clone(), schema(&serde_json::to_value(definition).ok()?)))
        })
        .collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn path_item(item: &Value) -> Value {
    let mut converted = Map::new();
    for (name, value) in item.as_object().into_iter().flatten() {
        let value = match name.as_str() {
            "parameters" => parameters(value),
            _ => operation(value),
        };
        converted.insert(name.clone(), value);
    }
    Value::Object(converted)
}

fn operation(operation: &Value) -> Value {
    let mut converted = Map::new();
    for (name, value) in operation.as_object().into_iter().flatten() {
        match name.as_str() {
            "parameters" | "requestBody" | "responses" => {}
            _ => drop(converted.insert(name.clone(), value.clone())),
        }
    }
    let mut all = match parameters(&operation["parameters"]) {
        Value::Array(all) => all,
        _ => Vec::new(),
    };
    let body = &operation["requestBody"];
    let consumes = media_types(&body["content"]);
    if let Some(first) = body["content"].as_object().and_then(|content| content.values().next()) {
        let mut parameter = json!({"name": "body", "in": "body", "schema": schema(&first["schema"])});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        all.insert(0, parameter);
    }
    if !all.is_empty() {
        converted.insert("parameters".to_owned(), all.into());
    }
    let types = if consumes.is_empty() { json!(["*/*"]) } else { consumes.into() };
    converted.insert("consumes".to_owned(), types);
    converted.insert("produces".to_owned(), media_types(&operation["responses"]["200"]["content"]).into());
    converted.insert("schemes".to_owned(), json!(["https"]));
    let responses = operation["responses"].as_object().into_iter().flatten();
    let responses = responses.map(|(code, response)| {
        let mut converted = json!({"description": response["description"]});
        if let Some(first) = response["content"].as_object().and_then(|content| content.values().next()) {
            converted["schema"] = schema(&first["schema"]);
        }
        (code.clone(), converted)
    });
    converted.insert("responses".to_owned(), Value::Object(responses.collect()));
    Value::Object(converted)
}

fn media_types(content: &Value) -> Vec<Value> {
    content.as_object().into_iter().flatten().map(|(media, _)| Value::from(media.as_str())).collect()
}

/// Parameters have the type beside the name instead of in a schema.
fn parameters(parameters: &Value) -> Value {
    let converted = parameters.as_array().into_iter().flatten().map(|parameter| {
        let mut converted = parameter.clone();
        let schema = converted["schema"].take();
        if let Some(fields) = converted.as_object_mut() {
            fields.remove("schema");
            fields.extend(
                schema.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        converted
    });
    Value::Array(converted.collect())
}

/// A schema without the keywords that v2 lacks. A reference beside other keywords needs no `allOf` around it.
fn schema(schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut converted = Map::new();
    for (name, value) in fields {
        let is_known = KEYWORDS.contains(&name.as_str()) || name.starts_with("x-");
        let value = match name.as_str() {
            _ if !is_known => continue,
            "$ref" => reference(value),
            "items" | "additionalProperties" => self::schema(value),
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                properties
                    .map(|(name, value)| (name.clone(), self::schema(value)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            "allOf" => match value.as_array().map(Vec::as_slice) {
                Some([only]) if only.get("$ref").is_some() => {
                    converted.insert("$ref".to_owned(), reference(&only["$ref"]));
                    continue;
                }
                _ => value.as_array().into_iter().flatten().map(self::schema).collect::<Vec<_>>().into(),
            },
            _ => value.clone(),
        };
        converted.insert(name.clone(), value);
    }
    Value::Object(converted)
}

fn reference(reference: &Value) -> Value {
    let text = reference.as_str().unwrap_or_default();
    text.replacen(crate::builtin::REFERENCE_PREFIX, REFERENCE_PREFIX, 1).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::builtin_kinds;

    fn document() -> Value {
        let resources: Vec<OpenApiResource> = builtin_kinds().iter().map(OpenApiResource::from).collect();
        open_api_v2(&resources, &[DiscoveryPath::Core, DiscoveryPath::Version])
    }

    #[test]
    fn the_document_has_what_older_clients_read() {
        let document = document();
        let path = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"];
        let patch = &path["patch"];
        let names: Vec<&str> = patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["body", "dryRun", "fieldManager", "fieldValidation", "force"]);
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "", "version": "v1", "kind": "ConfigMap"})
        );
        assert_eq!(
            path["parameters"][0],
            json!({
                "name": "name", "in": "path", "required": true, "type": "string", "uniqueItems": true,
                "description": "name of the ConfigMap",
            })
        );
        let map = &document["definitions"]["io.k8s.api.core.v1.ConfigMap"];
        assert_eq!(
            map["properties"]["metadata"]["$ref"],
            "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert_eq!(map["x-kubernetes-group-version-kind"][0]["kind"], "ConfigMap");
        assert!(
            document["paths"]["/api/"]["get"].is_object()
                && document["paths"]["/version/"]["get"].is_object()
        );
    }

    #[test]
    fn every_reference_has_a_definition_and_nothing_refers_to_v3() {
        let document = document();
        let text = document.to_string();
        for part in text.split(REFERENCE_PREFIX).skip(1) {
            let target = part.split('"').next().unwrap();
            assert!(document["definitions"].get(target).is_some(), "{target}");
        }
        // JSONSchemaProps has properties with the names of other keywords.
        for keyword in ["#/components", "\"requestBody\""] {
            assert!(!text.contains(keyword), "{keyword}");
        }
    }
}
