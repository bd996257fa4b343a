//! Pruning and defaults.

use super::*;

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
