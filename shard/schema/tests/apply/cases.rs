//! Single writes whose results once differed from those of Kubernetes.

use serde_json::{Value, json};

use super::engine::Engine;
use super::schemas::Schemas;
use super::sequence::{Operation, Step};

fn applied(spec_schema: &Value, manager: &str, spec: &Value, live: &Value) -> Value {
    let schema = || json!({"type": "object", "properties": {"spec": spec_schema}});
    let schemas = Schemas { v1: schema(), v2: schema(), e1: schema(), e2: schema(), rename: false };
    let step = Step {
        op: Operation::Apply,
        manager: manager.to_owned(),
        version: "v1",
        subresource: "",
        force: false,
        evolved: false,
        object: json!({"apiVersion": "g.io/v1", "kind": "T", "metadata": {"name": "n"}, "spec": spec}),
    };
    Engine::new(&schemas).run(&step, Some(live), "2026-01-01T00:00:01Z").unwrap()
}

#[test]
fn an_item_that_loses_its_keys_is_removed() {
    let schema = json!({"type": "object", "properties": {"items": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}},
    }}});
    let entry = |manager: &str, item: Value| {
        json!({
            "manager": manager, "operation": "Apply", "apiVersion": "g.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:items": {"k:{\"k\":\"a\"}": item}}}, "time": "2026-01-01T00:00:00Z",
        })
    };
    // The other manager owns the item, but not its key.
    let live = json!({
        "apiVersion": "g.io/v1", "kind": "T",
        "metadata": {"name": "n", "uid": "uid", "managedFields": [
            entry("first", json!({".": {}, "f:k": {}, "f:v": {}})), entry("second", json!({})),
        ]},
        "spec": {"items": [{"k": "a", "v": "1"}]},
    });
    let object = applied(&schema, "first", &json!({"items": []}), &live);
    assert_eq!(object["spec"], json!({"items": []}));
}

#[test]
fn the_annotation_of_kubectl_has_the_numbers_of_go() {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let schema =
        json!({"type": "object", "properties": {"v": {"type": "array", "items": {"type": "number"}}}});
    let live = json!({
        "apiVersion": "g.io/v1", "kind": "T",
        "metadata": {"name": "n", "uid": "uid", "annotations": {LAST_APPLIED: "{}"}},
    });
    let spec: Value = serde_json::from_str(r#"{"v": [2.0, 1.5, 1e-7, 1e21, 18446744073709551615]}"#).unwrap();
    let object = applied(&schema, "kubectl", &spec, &live);
    let annotation = object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    let expected = r#""spec":{"v":[2,1.5,1e-7,1e+21,18446744073709552000]}}"#;
    assert!(annotation.trim_end().ends_with(expected), "{annotation}");
}
