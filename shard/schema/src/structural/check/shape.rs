//! The shape of a structural schema: which keywords may stand where.

use serde_json::{Map, Value};

use super::super::pattern;
use super::{array, entries, is_absent, is_true, is_zero, junctors, object, text};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};

/// Validates the invariants of a structural schema.
pub(super) fn check(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    check_node(fields, Level::Root, path, errors);
}

/// What keeps a schema from being read as a structural one. Kubernetes then reports no error of its shape.
pub(super) fn unsupported_keyword(fields: &Map<String, Value>) -> Option<&'static str> {
    let is_set = |keyword: &str| fields.get(keyword).is_some_and(|value| !is_zero(value));
    let own = [
        (is_set("id"), "OpenAPIV3Schema 'id' is not supported"),
        (is_set("$schema"), "OpenAPIV3Schema 'schema' is not supported"),
        (is_set("$ref"), "OpenAPIV3Schema '$ref' is not supported"),
        (is_set("patternProperties"), "OpenAPIV3Schema 'patternProperties' is not supported"),
        (is_set("dependencies"), "OpenAPIV3Schema 'dependencies' is not supported"),
        (!is_absent(fields, "additionalItems"), "OpenAPIV3Schema 'additionalItems' is not supported"),
        (is_set("definitions"), "OpenAPIV3Schema 'definitions' is not supported"),
        (
            fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)),
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
        ),
        (!array(fields, "items").is_empty(), "OpenAPIV3Schema 'items' must be a schema, but is an array"),
    ];
    let own = own.into_iter().find(|(is_set, _)| *is_set).map(|(_, detail)| detail);
    own.or_else(|| {
        let single = ["items", "additionalProperties", "not"];
        let mut below = single
            .into_iter()
            .filter_map(|keyword| object(fields, keyword))
            .chain(entries(fields, "properties").map(|(_, schema)| schema))
            .chain(junctors(fields).map(|(_, _, schema)| schema));
        below.find_map(unsupported_keyword)
    })
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
    if text(fields, "type") == "array" && is_absent(fields, "items") {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if let Some(items) = object(fields, "items") {
        check_node(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in entries(fields, "properties") {
        check_node(property, Level::Field, &path.child("properties").key(name), errors);
    }
    additional_properties(fields, level, path, errors);
    extensions(fields, path, errors);
    nested(fields, Skipped::of(fields), path, errors);
    node_type(fields, level, path, errors);
    type_and_meta(fields, level, path, errors);
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
    if !is_true(fields, "x-kubernetes-int-or-string") {
        return;
    }
    for extension in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if is_true(fields, extension) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.child(extension), &Value::Bool(true), detail));
        }
    }
}

/// Alternatives that may have a type: the two patterns that describe int-or-string to clients that do not support the
/// extension.
#[derive(Clone, Copy, PartialEq)]
enum Skipped {
    None,
    AnyOf,
    AnyOfOfFirstAllOf,
}

impl Skipped {
    fn of(fields: &Map<String, Value>) -> Self {
        let first = array(fields, "allOf").first().and_then(Value::as_object);
        if is_int_or_string(array(fields, "anyOf")) {
            Self::AnyOf
        } else if first.is_some_and(|first| is_int_or_string(array(first, "anyOf"))) {
            Self::AnyOfOfFirstAllOf
        } else {
            Self::None
        }
    }
}

/// Validates `allOf`, `anyOf`, `oneOf` and `not`: they may only contain validations.
fn nested(fields: &Map<String, Value>, skipped: Skipped, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (keyword, index, schema) in junctors(fields) {
        if keyword == "anyOf" && skipped == Skipped::AnyOf {
            continue;
        }
        let is_first = keyword == "allOf" && index == 0;
        let below = match skipped {
            Skipped::AnyOfOfFirstAllOf if is_first => Skipped::AnyOf,
            _ => Skipped::None,
        };
        nested_node(schema, below, &path.child(keyword).index(index), errors);
    }
    if let Some(not) = object(fields, "not") {
        nested_node(not, Skipped::None, &path.child("not"), errors);
    }
    let source = text(fields, "pattern");
    if let Err(error) = pattern::check(source) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid_str(path.child("pattern"), source, &detail));
    }
}

fn nested_node(
    fields: &Map<String, Value>,
    skipped: Skipped,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    nested(fields, skipped, path, errors);
    if let Some(items) = object(fields, "items") {
        nested_node(items, Skipped::None, &path.child("items"), errors);
    }
    for (name, property) in entries(fields, "properties") {
        let path = path.child("properties").key(name);
        nested_node(property, Skipped::None, &path, errors);
        if name == "metadata" {
            errors.push(FieldError::forbidden(path, "must not be specified in a nested context"));
        }
    }
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
        let is_set = match fields.get(keyword) {
            Some(Value::Object(_)) if keyword == "additionalProperties" => true,
            Some(value) if keyword == "default" => !value.is_null(),
            value => value.is_some_and(|value| !is_zero(value)),
        };
        if is_set {
            errors.push(FieldError::forbidden(path.child(keyword), detail));
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
    if is_true(fields, "x-kubernetes-embedded-resource") && actual != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if actual.is_empty() {
            FieldError::required(path_of_type.clone(), detail)
        } else {
            FieldError::invalid_str(path_of_type.clone(), actual, detail)
        });
    } else if actual.is_empty() {
        let may_be_empty = is_true(fields, "x-kubernetes-int-or-string")
            || is_true(fields, "x-kubernetes-preserve-unknown-fields");
        if !may_be_empty {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            errors.push(FieldError::required(path_of_type.clone(), detail));
        }
    }
    if level == Level::Root && !actual.is_empty() && actual != "object" {
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
        let path = path.key(name);
        let actual = text(property, "type");
        match name.as_str() {
            "apiVersion" | "kind" if actual != "string" => {
                errors.push(FieldError::invalid_str(path.child("type"), actual, "must be string"));
            }
            "metadata" => {
                if actual != "object" {
                    errors.push(FieldError::invalid_str(path.child("type"), actual, "must be object"));
                }
                if level == Level::Root {
                    root_metadata(property, path, errors);
                }
            }
            _ => {}
        }
    }
}

/// The metadata of the root may restrict names only.
fn root_metadata(fields: &Map<String, Value>, path: FieldPath, errors: &mut Vec<FieldError>) {
    let only_names = entries(fields, "properties").all(|(name, _)| name == "name" || name == "generateName");
    let is_allowed = |keyword: &str| matches!(keyword, "type" | "properties" | "default");
    if !only_names || fields.iter().any(|(keyword, value)| !is_allowed(keyword) && !is_zero(value)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}
