//! Validation of objects and of their changes.

use super::*;

#[test]
fn recorded_errors_have_their_texts() {
    let schema = schema(widget());
    let bad = json!({
        "spec": {
            "color": "pink", "ports": [{"name": "http"}, {"name": "http"}, {"name": "toolongname"}],
            "q": [1], "replicas": -1, "tags": ["a", "a"],
        },
        "status": {"replicas": "x"},
    });
    let errors = schema.validate(&bad);
    assert_eq!(
        texts(&errors),
        [
            r#"spec.color: Unsupported value: "pink": supported values: "red", "green", "blue""#,
            "spec.ports[2].name: Too long: may not be more than 8 bytes",
            r#"spec.q: Invalid value: "array": spec.q in body must be of type integer,string: "array""#,
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
            r#"status.replicas: Invalid value: "string": status.replicas in body must be of type integer: "string""#,
            r#"spec.ports[1]: Duplicate value: {"name":"http"}"#,
            r#"spec.tags[1]: Duplicate value: "a""#,
        ]
    );
    assert_eq!(errors[2].reason(), "FieldValueTypeInvalid");
    assert_eq!(texts(&schema.validate(&json!({}))), ["spec: Required value"]);
    assert_eq!(texts(&schema.validate(&json!({"spec": {}}))), ["spec.color: Required value"]);
}

#[test]
fn every_keyword_is_checked() {
    let text = |schema: Value, value: Value| {
        let schema = json!({"type": "object", "properties": {"x": schema}});
        texts(&self::schema(schema).validate(&json!({"x": value})))
    };
    let table = [
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            vec![r#"x: Invalid value: "a": x in body should be at least 2 chars long"#],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            vec!["x: Too long: may not be more than 2 bytes"],
        ),
        (json!({"type": "string", "maxLength": 3}), json!("äöü"), vec![]),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            vec![r#"x: Invalid value: "A": x in body should match '^[a-z]+$'"#],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!("A"),
            vec![r#"x: Invalid value: "A": x in body must be of type date: "A""#],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_u64),
            vec![r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in x"#],
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                r#"x: Invalid value: "number": x in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in x"#,
            ],
        ),
        (json!({"type": "integer"}), json!(2.0), vec![]),
        (json!({"type": "integer"}), json!(i64::MIN), vec![]),
        (
            json!({"type": "integer"}),
            json!(9_223_372_036_854_775_808_u64),
            vec![
                r#"x: Invalid value: "number": x in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in x"#,
            ],
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
        (json!({"type": "number", "multipleOf": 0.1}), json!(2.3), vec![]),
        (json!({"type": "number", "multipleOf": 2.5}), json!(7.5), vec![]),
        (json!({"type": "number"}), json!(2), vec![]),
        (
            json!({"type": "boolean"}),
            json!(null),
            vec![r#"x: Invalid value: "null": x in body must be of type boolean: "null""#],
        ),
        (json!({"type": "boolean", "nullable": true}), json!(null), vec![]),
        (
            json!({"type": "integer", "maximum": 5}),
            json!(6),
            vec!["x: Invalid value: 6: x in body should be less than or equal to 5"],
        ),
        (
            json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
            json!(5),
            vec!["x: Invalid value: 5: x in body should be less than 5"],
        ),
        (
            json!({"type": "integer", "minimum": 5, "exclusiveMinimum": true}),
            json!(5),
            vec!["x: Invalid value: 5: x in body should be greater than 5"],
        ),
        (
            json!({"type": "integer", "maximum": 9_007_199_254_740_992_u64}),
            json!(9_007_199_254_740_993_u64),
            vec![
                "x: Invalid value: 9007199254740993: x in body should be less than or equal to 9007199254740992",
            ],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            vec!["x: Invalid value: 4: x in body should be a multiple of 3"],
        ),
        (json!({"type": "number", "multipleOf": 0.5}), json!(1.5), vec![]),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["x: Invalid value: 0: x in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            vec!["x: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!([1]),
            vec![r#"x[0]: Invalid value: "integer": x[0] in body must be of type string: "integer""#],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"a": "1", "b": "2"}),
            vec!["x: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            vec!["x: Invalid value: 0: x in body should have at least 1 properties"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a": 1}),
            vec![r#"x.a: Invalid value: "integer": x.a in body must be of type string: "integer""#],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            vec![r#"x: Unsupported value: 3: supported values: "1", "2""#],
        ),
        (json!({"type": "integer", "enum": [1, 2]}), json!(2.0), vec![]),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(3),
            vec![
                r#"<nil>: Invalid value: "": "x" must validate at least one schema (anyOf)"#,
                "x: Invalid value: 3: x in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 7}]}),
            json!(6),
            vec![
                r#"<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 5}, {"minimum": 7}]}),
            json!(1),
            vec![
                r#"<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found none valid"#,
                "x: Invalid value: 1: x in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 7}]}),
            json!(8),
            vec![
                "x: Invalid value: 8: x in body should be less than or equal to 7",
                r#"<nil>: Invalid value: "": "x" must validate all the schemas (allOf)"#,
            ],
        ),
        (
            json!({"type": "integer", "not": {"minimum": 5}}),
            json!(8),
            vec![r#"<nil>: Invalid value: "": "x" must not validate the schema (not)"#],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("5"),
            vec![],
        ),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!({"any": [1, null]}), vec![]),
    ];
    for (schema, value, expected) in table {
        assert_eq!(text(schema.clone(), value.clone()), expected, "{schema} {value}");
    }
}

#[test]
fn updates_do_not_validate_unchanged_values() {
    let schema = schema(widget());
    let old = json!({"spec": {
        "color": "pink", "replicas": -1, "tags": ["a", "a"],
        "ports": [{"name": "toolongname", "port": 1}, {"name": "b", "port": 2}],
    }});
    let mut new = old.clone();
    new["spec"]["ports"] = json!([{"name": "b", "port": 3}, {"name": "toolongname", "port": 1}]);
    assert_eq!(schema.validate_update(&new, &old), []);
    new["spec"]["color"] = json!("mauve");
    new["spec"]["ports"][1]["name"] = json!("othertoolong");
    assert_eq!(
        texts(&schema.validate_update(&new, &old)),
        [
            r#"spec.color: Unsupported value: "mauve": supported values: "red", "green", "blue""#,
            "spec.ports[1].name: Too long: may not be more than 8 bytes",
        ]
    );
    let clean = json!({"spec": {"color": "red", "tags": ["a"]}});
    let repeated = json!({"spec": {"color": "red", "tags": ["a", "a"]}});
    assert_eq!(texts(&schema.validate_update(&repeated, &clean)), [r#"spec.tags[1]: Duplicate value: "a""#]);
}
