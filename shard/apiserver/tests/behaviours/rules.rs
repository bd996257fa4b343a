//! Validation rules of custom resources (KEP-2876).

use serde_json::{Value, json};

use crate::client::{Server, TestResponse};

const RULED: &str = "/apis/rules.example.com/v1/namespaces/default/ruleds";

fn spec(spec: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": spec})
}

/// The causes of a 422: reason, field and message.
fn causes(response: &TestResponse) -> Vec<[String; 3]> {
    assert_eq!(response.code, 422, "{response:?}");
    let status = response.json();
    assert_eq!(status["reason"], "Invalid");
    let causes = status["details"]["causes"].as_array().unwrap();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
    causes.iter().map(|cause| ["reason", "field", "message"].map(|field| text(cause, field))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_create_has_to_obey_the_rules() {
    let server = Server::start().await;
    let table = [
        (
            spec(json!({"color": "red", "replicas": 9})),
            vec![["FieldValueInvalid", "spec", "Invalid value: replicas must not exceed max"]],
        ),
        (
            json!({"metadata": {"name": "a-long-name"}, "spec": {"color": "red", "replicas": 9}}),
            vec![
                ["FieldValueInvalid", "<nil>", "Invalid value: the name is too long"],
                ["FieldValueInvalid", "spec", "Invalid value: replicas must not exceed max"],
            ],
        ),
        (
            spec(json!({"color": "red", "ports": [{"name": "x", "port": 1}, {"name": "y", "port": 0}]})),
            vec![["FieldValueInvalid", "spec.ports[1]", "Invalid value: ports are positive"]],
        ),
        (
            spec(json!({"color": "pink", "replicas": 9})),
            vec![
                [
                    "FieldValueNotSupported",
                    "spec.color",
                    "Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
                ],
                [
                    "FieldValueInvalid",
                    "<nil>",
                    "Invalid value: null: some validation rules were not checked because the object was invalid; correct \
                     the existing errors to complete validation",
                ],
            ],
        ),
    ];
    for (object, expected) in table {
        assert_eq!(causes(&server.post(RULED, &object).await), expected, "{object}");
    }
    // The rules see defaults.
    server.create(RULED, &spec(json!({"color": "red", "replicas": 5}))).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_create_has_the_recorded_status() {
    let server = Server::start().await;
    let response = server.post(RULED, &spec(json!({"color": "red", "replicas": 9}))).await;
    assert_eq!(
        response.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "Ruled.rules.example.com \"a\" is invalid: spec: Invalid value: replicas must not exceed max",
            "details": {"name": "a", "group": "rules.example.com", "kind": "Ruled", "causes": [
                {"reason": "FieldValueInvalid", "message": "Invalid value: replicas must not exceed max", "field": "spec"},
            ]},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn transition_rules_compare_with_the_stored_object() {
    let server = Server::start().await;
    let ports = json!([{"name": "x", "port": 1}, {"name": "y"}]);
    let created = server.create(RULED, &spec(json!({"color": "red", "ports": ports}))).await;
    let path = format!("{RULED}/a");

    let immutable = ["FieldValueForbidden", "spec.color", "Forbidden: color is immutable"];
    let patched = server.patch(&path, "merge", &json!({"spec": {"color": "blue"}})).await;
    assert_eq!(causes(&patched), [immutable]);
    let mut replaced = created;
    replaced["spec"]["color"] = "blue".into();
    assert_eq!(causes(&server.put(&path, &replaced).await), [immutable]);

    // Items of a map list are found by their keys.
    let patch = json!([
        {"op": "replace", "path": "/spec/ports", "value": [{"name": "z"}, {"name": "y", "port": 2}, {"name": "x", "port": 3}]},
    ]);
    assert_eq!(
        causes(&server.patch(&path, "json", &patch).await),
        [["FieldValueForbidden", "spec.ports[2]", "Forbidden: the port of x is immutable"]]
    );
    let patch = json!([{"op": "replace", "path": "/spec/ports", "value": [{"name": "y", "port": 2}]}]);
    assert_eq!(server.patch(&path, "json", &patch).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn rules_hold_for_the_status_too() {
    let server = Server::start().await;
    server.create(RULED, &spec(json!({"color": "red"}))).await;
    let path = format!("{RULED}/a/status");
    assert_eq!(server.patch(&path, "merge", &json!({"status": {"phase": "Done"}})).await.code, 200);
    let refused = server.patch(&path, "merge", &json!({"status": {"phase": "New"}})).await;
    assert_eq!(
        causes(&refused),
        [["FieldValueInvalid", "status.phase", "Invalid value: \"New\": Done is final"]]
    );
}

#[tokio::test(start_paused = true)]
async fn violations_that_an_update_does_not_change_are_warnings() {
    let server = Server::start().await;
    // The other version has no rules.
    let without_rules = RULED.replace("/v1/", "/v1beta1/");
    let ports = json!([{"name": "x"}, {"name": "y", "port": 0}]);
    server.create(&without_rules, &spec(json!({"color": "red", "ports": ports}))).await;
    let path = format!("{RULED}/a");
    let response = server.patch(&path, "merge", &json!({"spec": {"replicas": 2}})).await;
    assert_eq!(response.code, 200, "{response:?}");
    let warnings: Vec<_> = response.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"spec.ports[1]: Invalid value: ports are positive\""]);

    let patch = json!([{"op": "replace", "path": "/spec/ports/0", "value": {"name": "x", "port": -1}}]);
    assert_eq!(
        causes(&server.patch(&path, "json", &patch).await),
        [["FieldValueInvalid", "spec.ports[0]", "Invalid value: ports are positive"]]
    );
}
