#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn schema(json: Value) -> Schema {
    Schema::compile(&json, &CompileOptions::structural()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The schema of the recorded Widget, without its CEL rules.
fn widget() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": {"type": "string", "enum": ["red", "green", "blue"]},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "max": {"type": "integer", "default": 5},
                    "ports": {
                        "type": "array", "maxItems": 4,
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "maxLength": 8},
                                "port": {"type": "integer", "default": 80},
                            },
                        },
                    },
                    "q": {"x-kubernetes-int-or-string": true},
                    "replicas": {"type": "integer", "default": 1, "minimum": 0},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                },
            },
            "status": {
                "type": "object",
                "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}},
            },
        },
    })
}

#[test]
fn a_recorded_object_is_pruned_and_defaulted() {
    let schema = schema(widget());
    let mut object = json!({
        "apiVersion": "golden.example.com/v1", "kind": "Widget", "metadata": {"name": "w2"},
        "spec": {"bogus": 1, "color": "red", "ports": [{"name": "http"}], "tags": ["a", "b"]},
    });
    assert_eq!(schema.prune(&mut object), ["spec.bogus"]);
    schema.apply_defaults(&mut object);
    assert_eq!(
        object["spec"],
        json!({"color": "red", "max": 5, "ports": [{"name": "http", "port": 80}], "replicas": 1, "tags": ["a", "b"]})
    );
    assert_eq!(schema.validate(&object), []);
}

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
fn pruning_honours_the_extensions() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "open": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"closed": {"type": "object", "properties": {"a": {"type": "string"}}}},
            },
            "map": {"type": "object", "additionalProperties": {
                "type": "object", "properties": {"a": {"type": "string"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "embedded": {
                "type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}},
            },
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "iors": {"x-kubernetes-int-or-string": true},
        },
    }));
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "metadata": {"kept": 1}, "status": {"gone": 1},
        "open": {"x": {"y": 1}, "closed": {"a": "1", "b": 2}},
        "map": {"k": {"a": "1", "b": 2}},
        "list": [{"a": "1"}, {"b": {"c": 1}}],
        "embedded": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"x": 1}, "data": 1},
        "any": {"deep": {"er": 1}},
        "iors": {"not": "an object"},
    });
    let unknown = schema.prune(&mut object);
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"kept": 1},
            "open": {"x": {"y": 1}, "closed": {"a": "1"}},
            "map": {"k": {"a": "1"}},
            "list": [{"a": "1"}, {}],
            "embedded": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {}},
            "any": {"deep": {"er": 1}},
            "iors": {},
        })
    );
    assert_eq!(
        unknown,
        ["embedded.spec.x", "embedded.data", "iors.not", "list[1].b", "map.k.b", "open.closed.b", "status",]
    );
}

#[test]
fn defaults_reach_everywhere() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "replicas": {"type": "integer", "default": 1},
                "nullable": {"type": "string", "nullable": true, "default": "d"},
                "plain": {"type": "string"},
            }},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 7}},
            "list": {"type": "array", "items": {"type": "integer", "default": 8}},
        },
    }));
    let table = [
        (json!({}), json!({"spec": {"replicas": 1, "nullable": "d"}})),
        (
            json!({"spec": {"replicas": null, "nullable": null, "plain": null}}),
            json!({"spec": {"replicas": 1, "nullable": null}}),
        ),
        (
            json!({"spec": {"replicas": 0, "nullable": ""}, "map": {"a": null, "b": 1}, "list": [null, 2]}),
            json!({"spec": {"replicas": 0, "nullable": ""}, "map": {"a": 7, "b": 1}, "list": [8, 2]}),
        ),
        (json!({"spec": "wrong"}), json!({"spec": "wrong"})),
    ];
    for (mut object, expected) in table {
        schema.apply_defaults(&mut object);
        assert_eq!(object, expected);
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

#[test]
fn recursive_references_are_resolved() {
    let definitions = json!({
        "Node": {"type": "object", "properties": {
            "name": {"type": "string", "default": "unnamed"},
            "next": {"$ref": "#/components/schemas/Node"},
            "meta": {"allOf": [{"$ref": "#/components/schemas/Alias"}], "default": {}, "description": "wrapped"},
            "free": {"type": "object"},
            "anything": {},
        }},
        "Alias": {"$ref": "#/components/schemas/Meta"},
        "Meta": {"type": "object", "properties": {"labels": {
            "type": "object", "additionalProperties": {"type": "string"}}}},
    });
    let schemas = definitions.as_object().unwrap();
    let root = json!({"$ref": "#/components/schemas/Node"});
    let schema = Schema::compile(&root, &CompileOptions::open_api(schemas)).unwrap();
    let mut object = json!({
        "next": {"next": {"bogus": 1, "meta": {"labels": {"a": "b"}, "x": 1}}, "free": {"kept": 1}},
        "anything": {"kept": 1}, "metadata": {"unknown": "here"},
    });
    assert_eq!(schema.prune(&mut object), ["next.next.meta.x", "next.next.bogus", "metadata"]);
    schema.apply_defaults(&mut object);
    assert_eq!(
        object,
        json!({
            "name": "unnamed", "meta": {}, "anything": {"kept": 1},
            "next": {"name": "unnamed", "meta": {}, "free": {"kept": 1},
                "next": {"name": "unnamed", "meta": {"labels": {"a": "b"}}}},
        })
    );
    object["next"]["next"]["name"] = json!(1);
    assert_eq!(
        texts(&schema.validate(&object)),
        [
            r#"next.next.name: Invalid value: "integer": next.next.name in body must be of type string: "integer""#
        ]
    );
    let errors = Schema::compile(&root, &CompileOptions::structural()).unwrap_err();
    assert_eq!(texts(&errors), [r##"$ref: Invalid value: "#/components/schemas/Node": cannot be resolved"##]);
}

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
fn embedded_resources_are_pruned_and_validated() {
    let schema = schema(json!({
        "type": "object",
        "properties": {"list": {"type": "array", "items": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}},
    }));
    let mut object = json!({"list": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"bogus": 1, "labels": {"a": "b"}}, "spec": {"x": 1}},
        {"metadata": {"labels": {"a b": "c"}}},
        {"apiVersion": "a/b/c", "kind": "P od", "metadata": {"name": 1}},
    ]});
    assert_eq!(schema.prune(&mut object), ["list[0].metadata.bogus"]);
    assert_eq!(object["list"][0]["metadata"], json!({"labels": {"a": "b"}}));
    let found = texts(&schema.validate(&object));
    let starts = [
        "list[1].apiVersion: Required value",
        "list[1].kind: Required value",
        "list[1].metadata.labels: Invalid value: \"a b\": name part",
        r#"list[2].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
        r#"list[2].kind: Invalid value: "P od": may have mixed case"#,
        r#"list[2].metadata.name: Invalid value: "number": list[2].metadata.name in body must be of type string"#,
    ];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (text, start) in found.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn the_cost_of_hostile_schemas_and_objects_is_bounded() {
    // A list can have a large default in each item.
    let default = "x".repeat(100_000);
    let greedy = schema(json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "object", "properties": {"d": {"type": "string", "default": default}}}}}}));
    let mut object = json!({"l": vec![json!({}); 1000]});
    assert_eq!(greedy.apply_defaults(&mut object), DefaultingResult::LimitReached);
    assert!(object.to_string().len() < 9 << 20);
    assert_eq!(greedy.apply_defaults(&mut json!({"l": [{}]})), DefaultingResult::Complete);

    // The number of findings is bounded.
    let strings = schema(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}),
    );
    assert_eq!(strings.validate(&json!({"l": vec![1; 10_000]})).len(), 1000);
    let mut object = json!({"l": [], "x": 1});
    for index in 0..10_000 {
        object[format!("x{index}")] = json!(1);
    }
    assert_eq!(strings.prune(&mut object).len(), 1000);
    assert_eq!(object, json!({"l": []}));

    // The work of alternatives is bounded.
    let alternatives = vec![json!({"items": {"maxLength": 1}}); 30_000];
    let wide = schema(json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string"}, "anyOf": alternatives}}}));
    let found = texts(&wide.validate(&json!({"l": vec!["long"; 900]})));
    assert!(found.iter().any(|text| text.contains("too complex together")), "{:?}", found.first());

    // The work of a large pattern is bounded; a short text is matched.
    let matched = schema(json!({"type": "object", "properties": {
        "s": {"type": "string", "pattern": r"^\pL*a\pL{30}c$"}}}));
    for (length, expected) in [(1_000, "should match"), (1_000_000, "too complex together")] {
        let found = texts(&matched.validate(&json!({"s": "ab".repeat(length / 2)})));
        assert!(found.len() == 1 && found[0].contains(expected), "{length}: {found:?}");
    }

    // The memory of a schema is bounded.
    let huge = json!({"type": "object", "allOf": vec![json!({}); MAX_NODES_IN_TEST]});
    let errors = Schema::compile(&huge, &CompileOptions::structural()).unwrap_err();
    assert_eq!(texts(&errors), ["<nil>: Forbidden: must not have more than 100000 schemas in it"]);
}

const MAX_NODES_IN_TEST: usize = 200_000;

#[test]
fn large_enumerations_use_an_index() {
    let values: Vec<Value> =
        (0..1000).map(|index| json!(format!("v{index}"))).chain([json!(7), json!(null)]).collect();
    let schema = schema(json!({"type": "object", "properties": {
        "e": {"x-kubernetes-int-or-string": true, "nullable": true, "enum": values}}}));
    for right in [json!("v999"), json!(7), json!(7.0)] {
        assert_eq!(schema.validate(&json!({"e": right})), []);
    }
    // Kubernetes never finds `null` in an enumeration.
    for wrong in [json!("7"), json!(null)] {
        assert_eq!(schema.validate(&json!({"e": wrong})).len(), 1);
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

/// A definition of 170 KB would otherwise keep 890 MB.
#[test]
fn the_patterns_of_all_rules_have_one_limit() {
    let rules: Vec<Value> = (0..200)
        .map(|number| json!({"rule": format!("self.matches('^(ab?){{1,900}}{number}$') || true")}))
        .collect();
    let with = |rules: &[Value]| {
        let schema = json!({"type": "object", "properties": {
            "x": {"type": "string", "maxLength": 10, "x-kubernetes-validations": rules}}});
        let compiled = Schema::compile(&schema, &CompileOptions::structural()).unwrap();
        compiled.with_rules(&schema, &FieldPath::root()).map(drop)
    };
    assert_eq!(with(&rules[..20]), Ok(()));
    let errors = with(&rules).unwrap_err();
    assert!((100..200).contains(&errors.len()), "{}", errors.len());
    assert!(errors[0].to_string().contains("expression too large"), "{}", errors[0]);
}
