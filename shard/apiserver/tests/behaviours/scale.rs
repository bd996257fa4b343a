//! The `scale` subresource.

use std::sync::Arc;

use fairlead_apiserver::hub::HubOptions;
use fairlead_apiserver::registry::{Registry, ServedResource, ServedVersion, Subresource};
use fairlead_apiserver::resource::{CustomStrategy, SCALE, Shape};
use fairlead_schema::crd::{CrdSpec, apply_defaults};
use serde_json::{Value, json};

use crate::client::{Server, TABLE};
use crate::host::{NameAndColor, STATUS, custom};

pub(crate) const FLEETS: &str = "/apis/example.com/v1/namespaces/default/fleets";

pub(crate) async fn server() -> Server {
    let mut definition = json!({"metadata": {"name": "fleets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.ships.count",
                "statusReplicasPath": ".status.count", "labelSelectorPath": ".status.selector"}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    }});
    apply_defaults(&mut definition);
    let spec = CrdSpec::parse(&definition).unwrap();
    let fleets = |registry: Arc<dyn Registry>| -> Vec<ServedResource> {
        let version = &spec.versions[0];
        let scale = Subresource { name: SCALE, kind: Some(("autoscaling", "v1", "Scale")), ..STATUS };
        let served = ServedVersion {
            name: "v1".into(),
            shape: Shape::Structural(Arc::new(version.schema.clone())),
            open_api: Some(version.open_api_schema.clone()),
            columns: Arc::new(NameAndColor),
            selectable_fields: Vec::new(),
            deprecation_warning: None,
            subresources: vec![STATUS, scale],
            strategy: Arc::new(CustomStrategy { has_status_subresource: true, scale: version.scale.clone() }),
        };
        vec![custom("fleets", "Fleet", true, vec![served], registry)]
    };
    Server::start_serving(HubOptions::default(), &fleets).await
}

pub(crate) fn fleet(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_a_view_of_the_replicas_of_an_object() {
    let server = server().await;
    let created = server.create(FLEETS, &fleet(&json!({"ships": {"count": 3, "kind": "frigate"}}))).await;
    let status = json!({"status": {"count": 2, "selector": "a=b"}});
    assert_eq!(server.patch(&format!("{FLEETS}/f/status"), "merge", &status).await.code, 200);
    let scale = server.get(&format!("{FLEETS}/f/scale")).await.json();
    assert_eq!((&scale["apiVersion"], &scale["kind"]), (&json!("autoscaling/v1"), &json!("Scale")));
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 3}), &json!({"replicas": 2, "selector": "a=b"}))
    );

    let mut wanted = scale.clone();
    wanted["spec"]["replicas"] = json!(7);
    wanted["status"]["replicas"] = json!(9);
    let written = server.put(&format!("{FLEETS}/f/scale"), &wanted).await;
    assert_eq!(written.code, 200, "{written:?}");
    assert_eq!(
        (&written.json()["kind"], &written.json()["spec"]),
        (&json!("Scale"), &json!({"replicas": 7}))
    );
    let object = server.get(&format!("{FLEETS}/f")).await.json();
    assert_eq!(object["spec"], json!({"ships": {"count": 7, "kind": "frigate"}}));
    assert_eq!((&object["status"]["count"], &object["metadata"]["generation"]), (&json!(2), &json!(2)));

    // The resourceVersion of the Scale is that of the object.
    let stale = server.put(&format!("{FLEETS}/f/scale"), &wanted).await.failure();
    assert_eq!((stale.0, &*stale.1), (409, "Conflict"));
    for (kind, patch) in [
        ("merge", json!({"spec": {"replicas": 4}})),
        ("json", json!([{"op": "replace", "path": "/spec/replicas", "value": 4}])),
    ] {
        let patched = server.patch(&format!("{FLEETS}/f/scale"), kind, &patch).await;
        assert_eq!(patched.json()["spec"], json!({"replicas": 4}), "{kind}: {patched:?}");
    }
    let table = server.get_as(&format!("{FLEETS}/f/scale"), TABLE).await.json();
    let headings: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(headings, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("f"), json!(4), json!(2)]);
}

#[tokio::test(start_paused = true)]
async fn invalid_scales_are_refused_in_the_words_of_kubernetes() {
    let server = server().await;
    server.create(FLEETS, &fleet(&json!({}))).await;
    let scale = format!("{FLEETS}/f/scale");
    let (code, reason, message) = server.get(&scale).await.failure();
    assert_eq!((code, &*reason), (500, "InternalError"));
    assert_eq!(
        message,
        "Internal error occurred: the spec replicas field \".spec.ships.count\" does not exist"
    );
    let nothing = server.patch(&scale, "merge", &json!({"metadata": {}})).await.failure();
    assert_eq!(
        (nothing.0, &*nothing.2),
        (400, "the spec replicas field \".spec.ships.count\" cannot be empty")
    );
    assert_eq!(server.patch(&scale, "merge", &json!({"spec": {"replicas": 1}})).await.code, 200);
    let negative = server.patch(&scale, "merge", &json!({"spec": {"replicas": -1}})).await.failure();
    assert_eq!(
        (negative.0, &*negative.2),
        (
            422,
            "Fleet.example.com \"f\" is invalid: .spec.ships.count: Invalid value: -1: should be a non-negative integer"
        )
    );
    let strategic = server.patch(&scale, "strategic-merge", &json!({"spec": {"replicas": 2}})).await;
    assert_eq!(strategic.code, 415);
    let wrong = server.put(&scale, &fleet(&json!({}))).await;
    assert_eq!(wrong.code, 400, "{wrong:?}");
    let invalid = server.post(FLEETS, &fleet(&json!({"ships": {"count": "many"}}))).await.failure();
    assert!(
        invalid.2.contains(".spec.ships.count accessor error: many is of the type string, expected int64"),
        "{invalid:?}"
    );
    assert_eq!(server.get(&format!("{FLEETS}/none/scale")).await.code, 404);
    assert_eq!(server.delete(&scale).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn discovery_and_documents_name_the_kind_of_a_scale() {
    let server = server().await;
    let resources = server.get("/apis/example.com/v1").await.json();
    let scale = resources["resources"].as_array().unwrap().iter().find(|one| one["name"] == "fleets/scale");
    let scale = scale.unwrap_or_else(|| panic!("{resources}"));
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"], &scale["verbs"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"), &json!(["get", "patch", "update"]))
    );
    let document = server.get("/openapi/v3/apis/example.com/v1").await.json();
    let path = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/fleets/{name}/scale"];
    assert_eq!(
        path["put"]["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert!(document["components"]["schemas"]["io.k8s.api.autoscaling.v1.Scale"].is_object());
}
