//! Details in which objects and defaults are treated as in Kubernetes.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn schema(properties: Value) -> Schema {
    let schema = json!({"type": "object", "properties": properties});
    Schema::compile(&schema, &CompileOptions::structural()).unwrap()
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn alternatives_are_not_compared_with_the_old_value() {
    let schema = schema(json!({"spec": {
        "type": "object",
        "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "b": {"type": "integer"}},
        "allOf": [{"properties": {"a": {"required": ["c"]}}}],
    }}));
    let (old, new) = (json!({"spec": {"a": {}, "b": 1}}), json!({"spec": {"a": {}, "b": 2}}));
    let expected = [
        "spec.a.c: Required value",
        r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated"#,
    ];
    assert_eq!(texts(&schema.validate_update(&new, &old)), expected);
}

#[test]
fn the_type_of_an_unchanged_object_is_validated_if_other_fields_have_changed() {
    let schema = schema(json!({"kind": {"type": "string", "maxLength": 1}, "spec": {"type": "integer"}}));
    let (old, new) = (json!({"kind": "Thing", "spec": 1}), json!({"kind": "Thing", "spec": 2}));
    assert_eq!(texts(&schema.validate_update(&new, &old)), ["kind: Too long: may not be more than 1 byte"]);
    assert_eq!(schema.validate_update(&old, &old), []);
}

#[test]
fn bounds_and_factors_are_compared_as_floats_if_they_are_no_integers_in_go() {
    let schema = schema(json!({
        "a": {"type": "integer", "maximum": i64::MAX}, "b": {"type": "integer", "multipleOf": 0.3},
    }));
    assert_eq!(
        texts(&schema.validate(&json!({"a": 1, "b": i64::MAX}))),
        [
            r#"<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in a"#,
            r#"<nil>: Invalid value: "": MultipleOf value must be of type integer (default format) in b"#,
            "b: Invalid value: 9.223372036854776e+18: b in body should be a multiple of 0.3",
        ]
    );
}

#[test]
fn items_of_a_set_differ_if_one_is_a_float() {
    let schema = schema(json!({"a": {
        "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}));
    assert_eq!(schema.validate(&json!({"a": [100.0, 100]})), []);
    assert_eq!(texts(&schema.validate(&json!({"a": [100, 100]}))), ["a[1]: Duplicate value: 100"]);
}

#[test]
fn metadata_of_embedded_resources_has_its_required_fields() {
    let resource = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let schema = schema(json!({"a": resource, "b": {"type": "object", "additionalProperties": resource}}));
    let mut object = json!({
        "a": {"metadata": {"ownerReferences": [{"kind": "A"}]}},
        "b": {"x.y": {"metadata": null}, "z": {"metadata": {"bogus": 1}}},
    });
    assert_eq!(schema.prune(&mut object), ["b[z].metadata.bogus"]);
    let expected = json!({
        "a": {"metadata": {"ownerReferences": [{"apiVersion": "", "kind": "A", "name": "", "uid": ""}]}},
        "b": {"x.y": {"metadata": {}}, "z": {"metadata": {}}},
    });
    assert_eq!(object, expected);
}

#[test]
fn wrong_types_of_embedded_resources_hide_other_errors_of_a_default() {
    let errors = |default: Value| {
        let schema = json!({"type": "object", "properties": {"a": {
            "type": "object", "x-kubernetes-embedded-resource": true, "maxProperties": 1,
            "x-kubernetes-preserve-unknown-fields": true, "default": default}}});
        texts(&check::check_structural(&schema, &FieldPath::root()))
    };
    let path = "properties[a].default";
    assert_eq!(
        errors(json!({"kind": 1, "x": 2})),
        [format!("{path}.kind: Invalid value: 1: must be a string")]
    );
    assert_eq!(
        errors(json!({"kind": "", "metadata": {"bogus": 1}})),
        [
            format!("{path}.apiVersion: Required value"),
            format!("{path}.kind: Invalid value: \"\": must not be empty")
        ]
    );
}

#[test]
fn a_default_of_a_kind_must_be_one() {
    let schema = json!({"type": "object", "properties": {"kind": {"type": "string", "default": ""}}});
    let errors = texts(&check::check_structural(&schema, &FieldPath::root()));
    let detail = r#"must result in valid metadata: kind: Invalid value: "": must not be empty"#;
    assert_eq!(errors[0], format!(r#"properties[kind].default: Invalid value: "": {detail}"#));
}
