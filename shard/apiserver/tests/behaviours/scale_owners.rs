//! The owners of the replicas of an object, as writes of its Scale change them, and server-side apply of a Scale.

use serde_json::{Value, json};

use crate::client::{Server, TestResponse};
use crate::policies::{Policies, rule};
use crate::scale::{FLEETS, fleet, server};
use crate::webhooks::{Webhooks, configure};

const FLEET: &str = "/apis/example.com/v1/namespaces/default/fleets/f";
const SCALE: &str = "/apis/example.com/v1/namespaces/default/fleets/f/scale";

async fn apply(server: &Server, path: &str, query: &str, configuration: &Value) -> TestResponse {
    let headers = [("content-type", "application/apply-patch+yaml")];
    server.send("PATCH", &format!("{path}?{query}"), &headers, configuration.to_string()).await
}

fn applied_fleet(count: u32) -> Value {
    fleet(&json!({"ships": {"count": count, "kind": "frigate"}}))
}

fn scale(replicas: u32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "f"}, "spec": {"replicas": replicas},
    })
}

/// Manager, operation, version, subresource and fields of each entry, by manager.
fn owners(object: &Value) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entry = |entry: &Value| {
        json!([
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry["subresource"],
            entry["fieldsV1"]
        ])
    };
    let mut entries: Vec<Value> = entries.iter().map(entry).collect();
    entries.sort_by_key(ToString::to_string);
    entries
}

fn count() -> Value {
    json!({"f:spec": {"f:ships": {"f:count": {}}}})
}

/// Fields of a schema that keeps unknown fields: the objects that contain them are fields as well.
fn kind() -> Value {
    json!({"f:spec": {".": {}, "f:ships": {".": {}, "f:kind": {}}}})
}

fn count_and_kind() -> Value {
    json!({"f:spec": {".": {}, "f:ships": {".": {}, "f:count": {}, "f:kind": {}}}})
}

/// A server with a fleet of three ships that `a` has applied.
async fn with_applied_fleet() -> Server {
    let server = server().await;
    assert_eq!(apply(&server, FLEET, "fieldManager=a", &applied_fleet(3)).await.code, 201);
    server
}

async fn stored(server: &Server) -> Value {
    server.get(FLEET).await.json()
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_scale_takes_the_replicas_from_their_owner() {
    for (method, content_type, body) in [
        ("PUT", "application/json", scale(7)),
        ("PATCH", "application/merge-patch+json", json!({"spec": {"replicas": 7}})),
        (
            "PATCH",
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]),
        ),
    ] {
        let server = with_applied_fleet().await;
        let mut body = body;
        if method == "PUT" {
            body["metadata"] = server.get(SCALE).await.json()["metadata"].clone();
        }
        let headers = [("content-type", content_type)];
        let path = format!("{SCALE}?fieldManager=b");
        let written = server.send(method, &path, &headers, body.to_string()).await;
        assert_eq!(written.code, 200, "{content_type}: {written:?}");
        // As in Kubernetes, a Scale is shown without its owners.
        assert_eq!(written.json()["metadata"]["managedFields"], Value::Null);
        assert_eq!(server.get(SCALE).await.json()["metadata"]["managedFields"], Value::Null);
        let object = stored(&server).await;
        assert_eq!(
            owners(&object),
            [
                json!(["a", "Apply", "example.com/v1", null, kind()]),
                json!(["b", "Update", "example.com/v1", "scale", count()]),
            ],
            "{content_type}"
        );
        let conflict = apply(&server, FLEET, "fieldManager=a", &applied_fleet(4)).await.failure();
        assert_eq!(
            conflict,
            (
                409,
                "Conflict".to_owned(),
                "Apply failed with 1 conflict: conflict with \"b\" with subresource \"scale\" using example.com/v1: \
                 .spec.ships.count"
                    .to_owned()
            )
        );
        let forced = apply(&server, FLEET, "fieldManager=a&force=true", &applied_fleet(4)).await;
        assert_eq!(owners(&forced.json()), [json!(["a", "Apply", "example.com/v1", null, count_and_kind()])]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_without_change_keeps_the_owners_of_the_replicas() {
    let server = with_applied_fleet().await;
    let before = stored(&server).await;
    let same =
        server.patch(&format!("{SCALE}?fieldManager=b"), "merge", &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(same.code, 200);
    assert_eq!(stored(&server).await, before);
}

#[tokio::test(start_paused = true)]
async fn replicas_without_an_owner_get_none() {
    let server = server().await;
    let path = format!("{FLEETS}?fieldManager=a");
    server.create(&path, &fleet(&json!({"ships": {"kind": "frigate"}}))).await;
    let before = owners(&stored(&server).await);
    let patch = json!({"spec": {"replicas": 3}});
    assert_eq!(server.patch(&format!("{SCALE}?fieldManager=b"), "merge", &patch).await.code, 200);
    let object = stored(&server).await;
    assert_eq!((&object["spec"]["ships"]["count"], owners(&object)), (&json!(3), before));
}

#[tokio::test(start_paused = true)]
async fn a_scale_can_be_applied() {
    let server = with_applied_fleet().await;
    let conflict = apply(&server, SCALE, "fieldManager=s", &scale(5)).await.failure();
    assert_eq!(
        conflict,
        (
            409,
            "Conflict".to_owned(),
            "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas".to_owned()
        )
    );
    assert_eq!(stored(&server).await["spec"]["ships"]["count"], 3);

    // A value that is the same is shared.
    let shared = apply(&server, SCALE, "fieldManager=s", &scale(3)).await;
    assert_eq!((shared.code.as_u16(), &shared.json()["spec"]), (200, &json!({"replicas": 3})));
    assert_eq!(
        owners(&stored(&server).await),
        [
            json!(["a", "Apply", "example.com/v1", null, count_and_kind()]),
            json!(["s", "Apply", "example.com/v1", "scale", count()]),
        ]
    );

    let dry_run = apply(&server, SCALE, "fieldManager=s&force=true&dryRun=All", &scale(5)).await;
    assert_eq!((dry_run.code.as_u16(), &dry_run.json()["spec"]), (200, &json!({"replicas": 5})));
    assert_eq!(stored(&server).await["spec"]["ships"]["count"], 3);

    let forced = apply(&server, SCALE, "fieldManager=s&force=true", &scale(5)).await;
    assert_eq!((forced.code.as_u16(), &forced.json()["spec"]), (200, &json!({"replicas": 5})));
    let object = stored(&server).await;
    assert_eq!(object["spec"], json!({"ships": {"count": 5, "kind": "frigate"}}));
    assert_eq!(
        owners(&object),
        [
            json!(["a", "Apply", "example.com/v1", null, kind()]),
            json!(["s", "Apply", "example.com/v1", "scale", count()]),
        ]
    );

    // The same configuration again writes nothing.
    let revision = server.store().revision();
    assert_eq!(apply(&server, SCALE, "fieldManager=s", &scale(5)).await.code, 200);
    assert_eq!(server.store().revision(), revision);
}

#[tokio::test(start_paused = true)]
async fn refused_configurations_of_a_scale_state_the_reason() {
    let server = with_applied_fleet().await;
    let other = |pointer: &str, value: Value| {
        let mut scale = scale(3);
        *scale.pointer_mut(pointer).unwrap() = value;
        scale
    };
    let stale = json!({"name": "f", "resourceVersion": "1"});
    for (path, configuration, code, expected) in [
        (SCALE, applied_fleet(3), 400, "invalid object type: example.com/v1, Kind=Fleet"),
        (SCALE, other("/spec", json!({"count": 3})), 400, ".spec.count: field not declared in schema"),
        (SCALE, other("/spec/replicas", json!("many")), 400, ".spec.replicas: expected numeric"),
        (SCALE, other("/metadata/name", json!("g")), 400, "the name of the object (g)"),
        (SCALE, other("/metadata", stale), 409, "the object has been modified"),
        (SCALE, other("/spec/replicas", json!(-1)), 409, "conflict with \"a\""),
        ("absent", scale(3), 404, "fleets.example.com \"absent\" not found"),
    ] {
        let path = if path == "absent" { format!("{FLEETS}/absent/scale") } else { path.to_owned() };
        let failure = apply(&server, &path, "fieldManager=s", &configuration).await.failure();
        assert_eq!(failure.0, code, "{configuration}: {failure:?}");
        assert!(failure.2.contains(expected), "{configuration}: {failure:?}");
    }
    let negative = other("/spec/replicas", json!(-1));
    let failure = apply(&server, SCALE, "fieldManager=s&force=true", &negative).await.failure();
    assert_eq!(failure.0, 422, "{failure:?}");
    let without_manager = apply(&server, SCALE, "", &scale(3)).await.failure();
    assert_eq!(without_manager.0, 422, "{without_manager:?}");
}

#[tokio::test]
async fn mutating_webhooks_see_the_owners_of_a_scale_and_validating_ones_do_not() {
    let (server, webhooks) = (with_applied_fleet().await, Webhooks::start().await);
    let rules = json!([{
        "operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["*"], "resources": ["fleets/scale"],
    }]);
    for kind in ["mutating", "validating"] {
        let changes = json!({"name": "w.example.com", "rules": rules});
        configure(&server, kind, "w", vec![webhooks.webhook(&format!("{kind}/a"), &changes)]).await;
    }
    let patch = json!({"spec": {"replicas": 7}});
    assert_eq!(server.patch(&format!("{SCALE}?fieldManager=b"), "merge", &patch).await.code, 200);
    let reviews = webhooks.take_reviews();
    let [mutating, validating] = &*reviews else { panic!("two reviews: {reviews:?}") };
    assert_eq!(mutating["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    assert_eq!(owners(&mutating["object"]), [json!(["b", "Update", "autoscaling/v1", "scale", replicas])]);
    assert_eq!(owners(&mutating["oldObject"]), [json!(["a", "Apply", "autoscaling/v1", null, replicas])]);
    assert_eq!(validating["object"]["spec"], json!({"replicas": 7}));
    for field in ["object", "oldObject"] {
        assert_eq!(validating[field]["metadata"]["managedFields"], Value::Null, "{field}");
    }
}

#[tokio::test]
async fn a_mutating_webhook_may_change_the_owners_of_a_scale() {
    for (path, expected) in [("take-over/a", vec!["a", "webhook"]), ("release/a", vec!["a"])] {
        let (server, webhooks) = (with_applied_fleet().await, Webhooks::start().await);
        let rules = json!([{
            "operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["*"], "resources": ["fleets/scale"],
        }]);
        let changes = json!({"name": "w.example.com", "rules": rules});
        configure(&server, "mutating", "w", vec![webhooks.webhook(path, &changes)]).await;
        let patch = json!({"spec": {"replicas": 7}});
        assert_eq!(server.patch(&format!("{SCALE}?fieldManager=b"), "merge", &patch).await.code, 200);
        let object = stored(&server).await;
        let managers: Vec<Value> = owners(&object).iter().map(|entry| entry[0].clone()).collect();
        assert_eq!(
            (managers, &object["spec"]["ships"]["count"]),
            (expected.iter().map(|name| json!(name)).collect(), &json!(7))
        );
    }
}

#[tokio::test]
async fn a_mutating_policy_merges_configurations_into_a_scale() {
    let policies = Policies(with_applied_fleet().await);
    for (source, expected) in [
        ("Object{spec: Object.spec{replicas: 9}}", Ok(9)),
        ("Object{spec: Object.spec{count: 9}}", Err("count")),
    ] {
        let policy = json!({
            "matchConstraints": {"resourceRules": [rule("example.com", "fleets/scale")]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": source}}],
        });
        policies.mutating("p", &policy, &json!({})).await;
        let response = policies.0.patch(SCALE, "merge", &json!({"spec": {"replicas": 7}})).await;
        match expected {
            Ok(replicas) => assert_eq!(response.json()["spec"], json!({"replicas": replicas}), "{source}"),
            Err(expected) => {
                let message = response.failure().2;
                assert!(message.contains(expected), "{source}: {message}");
            }
        }
    }
}
