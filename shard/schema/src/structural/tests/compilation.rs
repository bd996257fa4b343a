//! Schemas that compile, and errors of those that do not.

use super::*;

#[test]
fn equal_schemas_share_a_hash() {
    let one = schema(widget());
    assert_eq!(one.hash(), schema(widget()).hash());
    assert_eq!(one.hash(), Schema::hash_of(&widget(), Dialect::Structural));
    let mut changed = widget();
    changed["properties"]["spec"]["properties"]["max"]["default"] = json!(6);
    assert_ne!(one.hash(), schema(changed).hash());
}

#[test]
fn structural_errors_have_a_path() {
    let at = FieldPath::new("s");
    let property = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
    let table = [
        (json!({}), vec!["s.type: Required value: must not be empty at the root"]),
        (json!({"type": "string"}), vec![r#"s.type: Invalid value: "string": must be object at the root"#]),
        (
            property(json!({})),
            vec!["s.properties[x].type: Required value: must not be empty for specified object fields"],
        ),
        (
            property(json!({"type": "array", "items": {}})),
            vec!["s.properties[x].items.type: Required value: must not be empty for specified array items"],
        ),
        (
            property(json!({"type": "array"})),
            vec!["s.properties[x].items: Required value: must be specified"],
        ),
        (
            property(json!({"type": "nope"})),
            vec![
                r#"s.properties[x].type: Unsupported value: "nope": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        ),
        (
            property(json!({"type": "null"})),
            vec![
                "s.properties[x].type: Forbidden: type cannot be set to null, use nullable as an alternative",
                r#"s.properties[x].type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        ),
        (
            property(json!({"$ref": "#/definitions/x", "type": "object"})),
            vec!["s.properties[x].$ref: Forbidden: $ref is not supported"],
        ),
        (
            property(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
            vec![
                "s.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            property(
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            ),
            vec![
                "s.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            vec!["s.additionalProperties: Forbidden: must not be used at the root"],
        ),
        (
            property(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
            vec![
                "s.properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
        (
            property(json!({"type": "string", "x-kubernetes-list-type": "set"})),
            vec![
                r#"s.properties[x].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
            ],
        ),
        (
            property(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
            vec![
                "s.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            property(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            ),
            vec![
                "s.properties[x].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            property(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
            vec![
                r#"s.properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"#,
            ],
        ),
        (
            property(
                json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            ),
            vec![
                "s.properties[x].type: Required value: must be object if x-kubernetes-embedded-resource is true",
            ],
        ),
        (
            property(json!({"type": "object", "anyOf": [{"type": "object"}]})),
            vec!["s.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "object", "not": {"properties": {"y": {"maximum": 1}}}}),
            vec!["s.properties[y]: Required value: because it is defined in s.not.properties[y]"],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            vec![
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            property(json!({"type": "integer", "default": "x"})),
            vec![
                r#"s.properties[x].default: Invalid value: "string":  in body must be of type integer: "string""#,
            ],
        ),
        (
            property(json!({"type": "object", "default": {"a": 1}})),
            vec![r#"s.properties[x].default: Invalid value: {"a":1}: must not have unknown fields"#],
        ),
        (json!({"type": "object", "default": {}}), vec!["s.default: Forbidden: must not be set at the root"]),
        // Valid schemas.
        (widget(), vec![]),
        (
            property(
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            vec![],
        ),
        (
            property(json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}]})),
            vec![],
        ),
        (
            json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}}),
            vec![],
        ),
        (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), vec![]),
        (
            property(json!({"type": "object", "properties": {"y": {"type": "integer"}},
            "oneOf": [{"required": ["y"]}, {"properties": {"y": {"maximum": 1}}}]})),
            vec![],
        ),
    ];
    for (schema, expected) in table {
        assert_eq!(texts(&check_structural(&schema, &at)), expected, "{schema}");
    }
}

#[test]
fn compile_reports_broken_keywords() {
    let table = [
        (
            json!({"type": "object", "properties": {"x": 5}}),
            "properties[x]: Invalid value: 5: must be a schema object",
        ),
        (
            json!({"type": "string", "maxLength": -1}),
            "maxLength: Invalid value: -1: must be a non-negative integer",
        ),
        (json!({"type": "integer", "minimum": "a"}), r#"minimum: Invalid value: "a": must be a number"#),
    ];
    for (schema, expected) in table {
        let errors = Schema::compile(&schema, &CompileOptions::structural()).unwrap_err();
        assert_eq!(texts(&errors), [expected]);
    }
    let errors = Schema::compile(&json!({"type": "string", "pattern": "("}), &CompileOptions::structural())
        .unwrap_err();
    assert!(errors[0].message.contains("must be a valid regular expression, but isn't"), "{errors:?}");
}
