//! Custom resources whose versions are converted by the rules of an APIConversion.

use std::sync::Arc;

use fairlead_apiserver::hub::HubOptions;
use fairlead_apiserver::registry::{Conversion, Registry, ServedResource, ServedVersion};
use fairlead_apiserver::resource::{CustomStrategy, Shape};
use fairlead_names::ResourceName;
use fairlead_schema::{ApiConversionRules, CompileOptions, Schema};
use serde_json::{Value, json};

use crate::client::{Server, TABLE};
use crate::host::{NameAndColor, custom};

const V1: &str = "/apis/sea.example.com/v1/namespaces/default/ships";
const V2: &str = "/apis/sea.example.com/v2/namespaces/default/ships";

/// `ships.sea.example.com`: `spec.metres` in v1, which is stored; `spec.length` with a unit in v2, which also has a crew.
fn schema(version: &str) -> Value {
    let spec = match version {
        "v1" => json!({"flag": {"type": "string"}, "metres": {"type": "integer"}}),
        _ => json!({
            "flag": {"type": "string"}, "length": {"type": "string", "maxLength": 20}, "crew": {"type": "integer"},
        }),
    };
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
}

fn rules() -> Arc<ApiConversionRules> {
    let versions: Vec<Value> =
        ["v1", "v2"].iter().map(|name| json!({"name": name, "schema": schema(name)})).collect();
    let conversion = json!({"spec": {"conversions": [
        {"from": "v1", "to": "v2", "rules": [
            {"field": ".spec.metres", "destination": ".spec.length", "transformation": "string(self) + ' m'"},
        ]},
        {"from": "v2", "to": "v1", "preserve": [".spec.crew"], "rules": [
            {"field": ".spec.length", "destination": ".spec.metres", "transformation": "int(self.replace(' m', ''))"},
        ]},
    ]}});
    Arc::new(ApiConversionRules::compile(&conversion, &json!({"spec": {"versions": versions}})).unwrap())
}

fn ships(registry: Arc<dyn Registry>) -> ServedResource {
    let version = |name: &str| ServedVersion {
        name: name.into(),
        shape: Shape::Structural(Arc::new(
            Schema::compile(&schema(name), &CompileOptions::structural()).unwrap(),
        )),
        open_api: Some(Arc::new(schema(name))),
        columns: Arc::new(NameAndColor),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: Vec::new(),
        strategy: Arc::new(CustomStrategy::default()),
    };
    ServedResource {
        name: ResourceName::new("sea.example.com", "ships"),
        conversion: Conversion::Rules(rules()),
        ..custom("ships", "Ship", true, vec![version("v2"), version("v1")], registry)
    }
}

async fn start() -> Server {
    Server::start_serving(HubOptions::default(), &|registry| vec![ships(registry)]).await
}

fn ship(name: &str, version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("sea.example.com/{version}"), "kind": "Ship", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn an_object_loses_nothing_on_its_way_through_the_stored_version() {
    let server = start().await;
    let created =
        server.create(V2, &ship("argo", "v2", json!({"length": "4 m", "crew": 50, "flag": "red"}))).await;
    assert_eq!(created["spec"], json!({"length": "4 m", "crew": 50, "flag": "red"}));
    let stored = server.get(&format!("{V1}/argo")).await.json();
    assert_eq!(stored["spec"], json!({"metres": 4, "flag": "red"}));
    let key = "preserve.conversion.apis.kcp.io/v2";
    assert_eq!(stored["metadata"]["annotations"][key], r#"{"spec.crew":50}"#);

    // A client of v1 changes what it knows, and replaces the whole object.
    let mut changed = stored.clone();
    changed["spec"] = json!({"metres": 5});
    assert_eq!(server.put(&format!("{V1}/argo"), &changed).await.code, 200);
    let read = server.get(&format!("{V2}/argo")).await.json();
    assert_eq!(read["spec"], json!({"length": "5 m", "crew": 50}));
    assert!(read["metadata"]["annotations"][key].is_null(), "{read}");

    let patch = json!({"spec": {"crew": null, "length": "6 m"}});
    let patched = server.patch(&format!("{V2}/argo"), "merge", &patch).await.json();
    assert_eq!(patched["spec"], json!({"length": "6 m"}));
    let stored = server.get(&format!("{V1}/argo")).await.json();
    assert_eq!(stored["spec"], json!({"metres": 6}));
    assert!(stored["metadata"]["annotations"][key].is_null(), "{stored}");
}

#[tokio::test]
async fn a_value_that_cannot_be_converted_is_refused() {
    let server = start().await;
    let (code, reason, message) =
        server.post(V2, &ship("argo", "v2", json!({"length": "long"}))).await.failure();
    assert_eq!((code, &*reason), (400, "BadRequest"));
    let expected = "Ship cannot be converted from v2 to v1: error converting: error executing transformation of \
                    spec.length to spec.metres: ";
    assert!(message.starts_with(expected), "{message}");
}

#[tokio::test]
async fn lists_and_watches_are_in_the_requested_version() {
    let server = start().await;
    server.create(V1, &ship("argo", "v1", json!({"metres": 1}))).await;
    server.create(V2, &ship("nike", "v2", json!({"length": "2 m", "crew": 7}))).await;
    let list = server.get(V2).await.json();
    let specs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]).collect();
    assert_eq!(specs, [&json!({"length": "1 m"}), &json!({"length": "2 m", "crew": 7})]);
    let table = server.get_as(V2, TABLE).await.json();
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);

    let mut watch = server.watch(&format!("{V2}?watch=true")).await;
    let mut stored = server.watch(&format!("{V1}?watch=true")).await;
    server.patch(&format!("{V1}/nike"), "merge", &json!({"spec": {"metres": 3}})).await;
    let (mut lengths, mut metres) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        lengths.push(watch.next().await.unwrap()["object"]["spec"].clone());
        metres.push(stored.next().await.unwrap()["object"]["spec"]["metres"].clone());
    }
    let crewed = |length: &str| json!({"length": length, "crew": 7});
    assert_eq!(lengths, [json!({"length": "1 m"}), crewed("2 m"), crewed("3 m")]);
    assert_eq!(metres, [1, 2, 3]);
}

#[tokio::test]
async fn an_apply_in_another_version_finds_the_owner_of_a_renamed_field() {
    let server = start().await;
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = if version == "v1" { V1 } else { V2 };
        let path = format!("{path}/argo?fieldManager={manager}");
        let kind = [("content-type", "application/apply-patch+yaml")];
        server.send("PATCH", &path, &kind, ship("argo", version, spec).to_string()).await
    };
    assert_eq!(apply("v1", "yard", json!({"metres": 3})).await.json()["spec"], json!({"metres": 3}));
    let refused = apply("v2", "pilot", json!({"length": "4 m"})).await;
    assert_eq!(refused.code, 409);
    assert_eq!(refused.json()["details"]["causes"][0]["field"], ".spec.metres");
    let same = apply("v2", "pilot", json!({"length": "3 m"})).await.json();
    assert_eq!(same["spec"]["length"], "3 m", "{same}");
}
