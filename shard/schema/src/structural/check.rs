//! Validates the schema of a CRD: it must be structural (KEP-2332), use only features of Kubernetes, and have valid
//! defaults.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    Additional, CompileOptions, DefaultValue, Inner, NodeId, Property, Schema, defaults, prune, rules,
};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};
use crate::structural::rules::Rules;

/// Validates the `openAPIV3Schema` of a CRD at `path` (`spec.versions[0].schema.openAPIV3Schema`). Paths and texts are
/// those of Kubernetes.
///
/// If the result is empty, [`Schema::compile`] can fail only with its own errors (patterns, malformed keywords);
/// callers must call both.
pub fn check_structural(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(fields) = schema.as_object() else {
        return vec![FieldError::required(path.clone(), "schemas are required")];
    };
    check_node(fields, Level::Root, path, &mut errors);
    if errors.is_empty() {
        check_defaults(schema, path, &mut errors);
    }
    if !errors.is_empty() {
        // Rules are compiled for structural schemas only.
        errors.extend(rules::check_declarations(schema, path));
    }
    errors
}

/// The errors of defaults that break the schema's rules.
pub(super) fn check_defaults_by_rules(schema: &Inner, rules: &Rules, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |property: &Property, path: &FieldPath| {
        if let Some(DefaultValue { value: default, .. }) = property.default.as_deref() {
            errors.extend(rules::check_default(
                schema,
                rules,
                property.node,
                default,
                &path.child("default"),
            ));
        }
    };
    each_property(schema, schema.root, path, &mut check);
    errors
}

/// Calls a function for each place that may have a default, with its path in the schema.
fn each_property(schema: &Inner, id: NodeId, path: &FieldPath, call: &mut dyn FnMut(&Property, &FieldPath)) {
    let node = schema.node(id);
    let mut visit = |property: &Property, path: FieldPath| {
        call(property, &path);
        each_property(schema, property.node, &path, call);
    };
    for property in &node.properties {
        visit(property, path.child("properties").key(&property.name));
    }
    if let Some(items) = &node.items {
        visit(items, path.child("items"));
    }
    if let Additional::Schema(additional) = &node.additional {
        visit(additional, path.child("additionalProperties"));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Field,
    Item,
}

fn check_node(fields: &Map<String, Value>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    unsupported_keywords(fields, path, errors);
    if let Some(items) = object(fields, "items") {
        check_node(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in entries(fields, "properties") {
        check_node(property, Level::Field, &path.child("properties").key(name), errors);
    }
    additional_properties(fields, level, path, errors);
    extensions(fields, path, errors);
    list_type(fields, path, errors);
    map_type(fields, path, errors);
    nested(fields, fields, path, errors);
    node_type(fields, level, path, errors);
    type_and_meta(fields, level, path, errors);
}

/// Reports JSON schema keywords that Kubernetes refuses.
fn unsupported_keywords(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let refused = ["$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties"];
    for keyword in refused {
        if fields.get(keyword).is_some_and(|value| !is_zero(value)) {
            errors.push(FieldError::forbidden(path.child(keyword), &format!("{keyword} is not supported")));
        }
    }
    if is_true(fields, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(path.child("uniqueItems"), detail));
    }
    if fields.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(path.child("items"), detail));
    }
    match text(fields, "type") {
        "" | "array" | "boolean" | "integer" | "number" | "object" | "string" => {}
        other => {
            let known = ["array", "boolean", "integer", "number", "object", "string"];
            errors.push(FieldError::not_supported(path.child("type"), &Value::from(other), &known));
            if other == "null" {
                let detail = "type cannot be set to null, use nullable as an alternative";
                errors.push(FieldError::forbidden(path.child("type"), detail));
            }
        }
    }
    if text(fields, "type") == "array" && is_absent(fields, "items") {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
}

fn additional_properties(
    fields: &Map<String, Value>,
    level: Level,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(additional) = fields.get("additionalProperties").filter(|value| !value.is_null()) else {
        return;
    };
    let path = path.child("additionalProperties");
    if entries(fields, "properties").next().is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(path.clone(), detail));
    }
    if level == Level::Root {
        errors.push(FieldError::forbidden(path.clone(), "must not be used at the root"));
    }
    if is_true(fields, "x-kubernetes-embedded-resource") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(path.clone(), detail));
    }
    if let Some(schema) = additional.as_object() {
        check_node(schema, Level::Field, &path, errors);
    }
}

fn extensions(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if fields.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            path.child(preserve),
            &Value::Bool(false),
            "must be true or undefined",
        ));
    }
    if is_true(fields, "x-kubernetes-int-or-string") {
        for extension in [preserve, "x-kubernetes-embedded-resource"] {
            if is_true(fields, extension) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::forbidden(path.child(extension), detail));
            }
        }
    }
}

fn list_type(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (list_type, keys_name) = (text(fields, "x-kubernetes-list-type"), "x-kubernetes-list-map-keys");
    let keys: Vec<&str> = array(fields, keys_name).iter().filter_map(Value::as_str).collect();
    let list_type_path = path.child("x-kubernetes-list-type");
    if !list_type.is_empty() {
        if !["atomic", "map", "set"].contains(&list_type) {
            let known = ["atomic", "set", "map"];
            errors.push(FieldError::not_supported(list_type_path.clone(), &Value::from(list_type), &known));
        }
        expect_type(fields, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list_type.is_empty() {
            FieldError::required(list_type_path, detail)
        } else {
            FieldError::invalid_str(list_type_path, list_type, detail)
        });
    }
    match list_type {
        "map" => map_list(fields, &keys, path, errors),
        "set" => set_list(fields, path, errors),
        _ => {}
    }
}

fn map_list(fields: &Map<String, Value>, keys: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_path, detail));
        return;
    }
    let items_path = path.child("items");
    let Some(items) = object(fields, "items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(items_path, detail));
        return;
    };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid_str(items_path.child("type"), text(items, "type"), detail));
    }
    if is_true(items, "nullable") {
        let detail = "cannot be nullable when x-kubernetes-list-type is map";
        errors.push(FieldError::forbidden(items_path.child("nullable"), detail));
    }
    let required: HashSet<&str> = array(items, "required").iter().filter_map(Value::as_str).collect();
    let mut seen = HashSet::new();
    for (index, key) in keys.iter().enumerate() {
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(keys_path.index(index), &Value::from(*key)));
            continue;
        }
        let Some(property) = object(items, "properties").and_then(|properties| object(properties, key))
        else {
            let detail = "entries must all be names of item properties";
            errors.push(FieldError::invalid(keys_path.clone(), &Value::from(keys.to_vec()), detail));
            continue;
        };
        let property_path = items_path.child("properties").key(key);
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid_str(property_path.child("type"), text(property, "type"), detail));
        }
        if is_true(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(property_path.child("nullable"), detail));
        }
        if !required.contains(key) && is_absent(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(property_path.child("default"), detail));
        }
    }
}

fn set_list(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(items) = object(fields, "items") else { return };
    let path = path.child("items");
    if is_true(items, "nullable") {
        let detail = "cannot be nullable when x-kubernetes-list-type is set";
        errors.push(FieldError::forbidden(path.child("nullable"), detail));
    }
    let (extension, value) = match text(items, "type") {
        "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type")),
        "array" => match text(items, "x-kubernetes-list-type") {
            // A list without a list type is atomic.
            "" => return,
            other => ("x-kubernetes-list-type", other),
        },
        _ => return,
    };
    if value != "atomic" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(FieldError::invalid_str(path.child(extension), value, detail));
    }
}

fn map_type(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let map_type = text(fields, "x-kubernetes-map-type");
    if map_type.is_empty() {
        return;
    }
    if !["atomic", "granular"].contains(&map_type) {
        let path = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(path, &Value::from(map_type), &["atomic", "granular"]));
    }
    expect_type(fields, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
}

fn expect_type(
    fields: &Map<String, Value>,
    expected: &str,
    detail: &str,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    match text(fields, "type") {
        "" => errors.push(FieldError::required(path.child("type"), detail)),
        actual if actual != expected => {
            errors.push(FieldError::invalid_str(path.child("type"), actual, detail))
        }
        _ => {}
    }
}

/// Validates `allOf`, `anyOf`, `oneOf` and `not`: they may only contain validations, and only of fields that `core`
/// specifies.
fn nested(
    fields: &Map<String, Value>,
    core: &Map<String, Value>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let int_or_string = is_true(core, "x-kubernetes-int-or-string");
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let alternatives = array(fields, keyword);
        // The two patterns that describe int-or-string to clients that do not support the extension.
        if int_or_string && keyword == "anyOf" && is_int_or_string(alternatives) {
            continue;
        }
        for (index, alternative) in alternatives.iter().enumerate() {
            let Some(alternative) = alternative.as_object() else { continue };
            let is_int_or_string_pattern = int_or_string
                && keyword == "allOf"
                && index == 0
                && is_int_or_string(array(alternative, "anyOf"));
            if !is_int_or_string_pattern {
                nested_node(alternative, core, &path.child(keyword).index(index), errors);
            }
        }
    }
    if let Some(not) = object(fields, "not") {
        nested_node(not, core, &path.child("not"), errors);
    }
}

fn nested_node(
    fields: &Map<String, Value>,
    core: &Map<String, Value>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    nested(fields, core, path, errors);
    let keywords = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (keyword, detail) in keywords {
        if fields.get(keyword).is_some_and(|value| !is_zero(value)) {
            errors.push(FieldError::forbidden(path.child(keyword), detail));
        }
    }
    if let Some(items) = object(fields, "items") {
        let path = path.child("items");
        match object(core, "items") {
            Some(core) => nested_node(items, core, &path, errors),
            None => errors.push(FieldError::required(path, "because it is defined in a nested schema")),
        }
    }
    for (name, property) in entries(fields, "properties") {
        let path = path.child("properties").key(name);
        if name == "metadata" {
            errors.push(FieldError::forbidden(path.clone(), "must not be specified in a nested context"));
        }
        let core_property = object(core, "properties").and_then(|properties| object(properties, name));
        match core_property.or_else(|| object(core, "additionalProperties")) {
            Some(core) => nested_node(property, core, &path, errors),
            None if is_true(core, "x-kubernetes-preserve-unknown-fields") => {}
            None => {
                errors.push(FieldError::required(path, "must be specified outside of the nested schema too"))
            }
        }
    }
}

fn is_int_or_string(alternatives: &[Value]) -> bool {
    let is = |schema: &Value, name: &str| {
        schema.as_object().is_some_and(|fields| fields.len() == 1 && text(fields, "type") == name)
    };
    matches!(alternatives, [first, second] if is(first, "integer") && is(second, "string"))
}

fn node_type(fields: &Map<String, Value>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let actual = text(fields, "type");
    let path_of_type = path.child("type");
    if is_true(fields, "x-kubernetes-embedded-resource") {
        if actual != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            errors.push(if actual.is_empty() {
                FieldError::required(path_of_type, detail)
            } else {
                FieldError::invalid_str(path_of_type, actual, detail)
            });
        }
    } else if actual.is_empty() {
        let may_be_empty = is_true(fields, "x-kubernetes-int-or-string")
            || is_true(fields, "x-kubernetes-preserve-unknown-fields");
        if !may_be_empty {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            errors.push(FieldError::required(path_of_type, detail));
        }
    } else if level == Level::Root && actual != "object" {
        errors.push(FieldError::invalid_str(path_of_type, actual, "must be object at the root"));
    }
}

/// Validates the schemas of `apiVersion`, `kind` and `metadata` at the root and in embedded resources.
fn type_and_meta(fields: &Map<String, Value>, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let embedded = is_true(fields, "x-kubernetes-embedded-resource");
    let has_properties = entries(fields, "properties").next().is_some();
    if embedded && !has_properties && !is_true(fields, "x-kubernetes-preserve-unknown-fields") {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), detail));
    }
    if level != Level::Root && !embedded {
        return;
    }
    let path = path.child("properties");
    for (name, property) in entries(fields, "properties") {
        match name.as_str() {
            "apiVersion" | "kind" if text(property, "type") != "string" => {
                let path = path.key(name).child("type");
                errors.push(FieldError::invalid_str(path, text(property, "type"), "must be string"));
            }
            "metadata" => metadata(property, &path.key(name), errors),
            _ => {}
        }
    }
}

fn metadata(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if text(fields, "type") != "object" {
        errors.push(FieldError::invalid_str(path.child("type"), text(fields, "type"), "must be object"));
    }
    let only_names = entries(fields, "properties").all(|(name, _)| name == "name" || name == "generateName");
    let is_allowed = |keyword: &str| matches!(keyword, "type" | "properties" | "description" | "title");
    if !only_names || !fields.keys().all(|keyword| is_allowed(keyword)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path.clone(), detail));
    }
}

/// Validates that defaults are valid, pruned and complete.
fn check_defaults(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if schema.get("default").is_some_and(|default| !default.is_null()) {
        errors.push(FieldError::forbidden(path.child("default"), "must not be set at the root"));
    }
    // The caller compiles the schema too and reports its errors.
    if let Ok(compiled) = Schema::compile(schema, &CompileOptions::structural()) {
        let schema = &compiled.inner;
        each_property(schema, schema.root, path, &mut |property, path| {
            check_default(schema, property, path, errors)
        });
    }
}

fn check_default(schema: &Inner, property: &Property, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    if let Some(DefaultValue { value: default, .. }) = property.default.as_deref() {
        let path = path.child("default");
        let mut completed = default.clone();
        let unknown = prune::prune_nested(schema, property.node, &mut completed);
        if unknown.is_empty() {
            defaults::apply(schema, property.node, &mut completed);
            errors.extend(schema.validate(property.node, &completed, &path));
        } else {
            errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
        }
    }
}

fn object<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Map<String, Value>> {
    fields.get(name).and_then(Value::as_object)
}

fn array<'f>(fields: &'f Map<String, Value>, name: &str) -> &'f [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries<'f>(
    fields: &'f Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'f String, &'f Map<String, Value>)> {
    let entries = object(fields, name).into_iter().flatten();
    entries.filter_map(|(name, schema)| schema.as_object().map(|schema| (name, schema)))
}

fn text<'f>(fields: &'f Map<String, Value>, name: &str) -> &'f str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}

fn is_absent(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).is_none_or(Value::is_null)
}

/// Whether Go would omit the value, because it is a zero value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
