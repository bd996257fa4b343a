//! Keywords of JSON schema and extensions of Kubernetes: which are supported, and their values.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{array, entries, is_absent, is_true, is_zero, junctors, object, text};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};

/// Validates a schema and all schemas in it.
pub(super) fn check(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let context = Context { is_root: true, is_metadata: false, no_defaults: None };
    check_node(fields, &context, path, errors);
}

/// What the parents of a schema decide.
#[derive(Clone)]
struct Context {
    is_root: bool,
    /// Whether the schema applies to the type or metadata of an object.
    is_metadata: bool,
    /// Why the schema may not have defaults.
    no_defaults: Option<String>,
}

fn check_node(
    fields: &Map<String, Value>,
    context: &Context,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    unsupported_keywords(fields, context, path, errors);
    let nested = Context { is_root: false, ..context.clone() };
    additional_properties(fields, &nested, path, errors);
    for (name, property) in entries(fields, "properties") {
        let mut of_property = nested.clone();
        let has_metadata = context.is_root || is_true(fields, "x-kubernetes-embedded-resource");
        if has_metadata && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            of_property.is_metadata = true;
            if context.is_root {
                of_property.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        check_node(property, &of_property, &path.child("properties").key(name), errors);
    }
    if let Some(not) = object(fields, "not") {
        check_node(not, &nested, &path.child("not"), errors);
    }
    for (keyword, index, schema) in junctors(fields) {
        check_node(schema, &nested, &path.child(keyword).index(index), errors);
    }
    for keyword in ["definitions", "dependencies"] {
        for (name, schema) in entries(fields, keyword) {
            check_node(schema, &nested, &path.child(keyword).key(name), errors);
        }
    }
    if let Some(items) = object(fields, "items") {
        check_node(items, &nested, &path.child("items"), errors);
    }
    for (index, items) in array(fields, "items").iter().enumerate() {
        if let Some(items) = items.as_object() {
            check_node(items, &nested, &path.child("items").index(index), errors);
        }
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if fields.get(preserve) == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(path.child(preserve), &Value::Bool(false), detail));
    }
    map_type(fields, path, errors);
    list_type(fields, path, errors);
}

/// Reports JSON schema keywords that Kubernetes refuses.
fn unsupported_keywords(
    fields: &Map<String, Value>,
    context: &Context,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let mut forbid = |keyword: &str, detail: &str| {
        errors.push(FieldError::forbidden(path.child(keyword), detail));
    };
    if let Some(reason) = context.no_defaults.as_deref().filter(|_| !is_absent(fields, "default")) {
        forbid("default", &format!("must not be set {reason}"));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let is_set = match keyword {
            "additionalItems" | "dependencies" | "$ref" => !is_absent(fields, keyword),
            _ => fields.get(keyword).is_some_and(|value| !is_zero(value)),
        };
        if is_set {
            forbid(keyword, &format!("{keyword} is not supported"));
        }
    }
    if is_true(fields, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        forbid("uniqueItems", detail);
    }
    if !array(fields, "items").is_empty() {
        forbid("items", "items must be a schema object and not an array");
    }
    if context.is_metadata && is_true(fields, "x-kubernetes-embedded-resource") {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    match text(fields, "type") {
        "" | "array" | "boolean" | "integer" | "number" | "object" | "string" => {}
        other => {
            if other == "null" {
                forbid("type", "type cannot be set to null, use nullable as an alternative");
            }
            let known = ["array", "boolean", "integer", "number", "object", "string"];
            errors.push(FieldError::not_supported(path.child("type"), &Value::from(other), &known));
        }
    }
}

fn additional_properties(
    fields: &Map<String, Value>,
    context: &Context,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(additional) = fields.get("additionalProperties").filter(|value| !value.is_null()) else {
        return;
    };
    let path = path.child("additionalProperties");
    if entries(fields, "properties").next().is_some() && *additional != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(path.clone(), detail));
    }
    if let Some(schema) = additional.as_object() {
        let mut context = context.clone();
        if context.is_metadata {
            let reason = "inside additionalProperties applying to object metadata";
            context.no_defaults = Some(reason.to_owned());
        }
        check_node(schema, &context, &path, errors);
    }
}

fn map_type(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let map_type = text(fields, "x-kubernetes-map-type");
    if is_absent(fields, "x-kubernetes-map-type") {
        return;
    }
    expect_type(fields, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
    if !["atomic", "granular"].contains(&map_type) {
        let path = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(path, &Value::from(map_type), &["atomic", "granular"]));
    }
}

fn list_type(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (list_type, keys_name) = (text(fields, "x-kubernetes-list-type"), "x-kubernetes-list-map-keys");
    let keys: Vec<&str> = array(fields, keys_name).iter().filter_map(Value::as_str).collect();
    let list_type_path = path.child("x-kubernetes-list-type");
    let is_specified = !is_absent(fields, "x-kubernetes-list-type");
    if is_specified {
        let detail = "must be array if x-kubernetes-list-type is specified";
        let is_array = expect_type(fields, "array", detail, path, errors);
        if is_array && list_type == "set" {
            set_list(fields, path, errors);
        }
        if !["atomic", "map", "set"].contains(&list_type) {
            let known = ["atomic", "set", "map"];
            errors.push(FieldError::not_supported(list_type_path.clone(), &Value::from(list_type), &known));
        }
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if is_specified {
            FieldError::invalid_str(list_type_path, list_type, detail)
        } else {
            FieldError::required(list_type_path, detail)
        });
    }
    if list_type == "map" {
        map_list(fields, &keys, path, errors);
    }
    if let ("map" | "set", Some(items)) = (list_type, object(fields, "items"))
        && is_true(items, "nullable")
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(path.child("items").child("nullable"), &detail));
    }
    if list_type == "map" {
        map_keys(fields, &keys, path, errors);
    }
}

fn map_list(fields: &Map<String, Value>, keys: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_path.clone(), detail));
    }
    let items_path = path.child("items");
    let Some(items) = object(fields, "items") else {
        if is_absent(fields, "items") {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(items_path, detail));
        } else {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(items_path, &fields["items"], detail));
        }
        return;
    };
    let item_type = text(items, "type");
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid_str(items_path.child("type"), item_type, detail));
        return;
    }
    let mut seen = HashSet::new();
    for key in keys {
        match object(items, "properties").and_then(|properties| object(properties, key)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let path = items_path.child("properties").key(key).child("type");
                // As in Kubernetes, the type of the item and not of the key.
                errors.push(FieldError::invalid_str(path, item_type, detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_path.clone(), &Value::from(keys.to_vec()), detail));
            }
        }
        if !seen.insert(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_path.clone(), &Value::from(keys.to_vec()), detail));
        }
    }
}

/// Validates that every item has the keys of its list.
fn map_keys(fields: &Map<String, Value>, keys: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(items) = object(fields, "items") else { return };
    let required: HashSet<&str> = array(items, "required").iter().filter_map(Value::as_str).collect();
    for key in keys {
        let Some(property) = object(items, "properties").and_then(|properties| object(properties, key))
        else {
            continue;
        };
        let path = path.child("items").child("properties").key(key);
        if !required.contains(key) && is_absent(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(path.child("default"), detail));
        }
        if is_true(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(path.child("nullable"), detail));
        }
    }
}

fn set_list(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(items) = object(fields, "items") else { return };
    let list_type = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
    let extension = match text(items, "type") {
        // A list without a list type is atomic.
        "array" if !list_type.is_null() && *list_type != "atomic" => "x-kubernetes-list-type",
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    // As in Kubernetes, the list type of the item in both cases.
    errors.push(FieldError::invalid(path.child("items").child(extension), list_type, detail));
}

/// Reports another type than the expected one. Returns whether the type is the expected one.
fn expect_type(
    fields: &Map<String, Value>,
    expected: &str,
    detail: &str,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> bool {
    match text(fields, "type") {
        "" => errors.push(FieldError::required(path.child("type"), detail)),
        actual if actual != expected => {
            errors.push(FieldError::invalid_str(path.child("type"), actual, detail))
        }
        _ => return true,
    }
    false
}
