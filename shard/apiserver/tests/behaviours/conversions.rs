//! Custom resources with a conversion webhook, called over TLS.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fairlead_apiserver::hub::HubOptions;
use fairlead_apiserver::registry::Registry;
use fairlead_apiserver::registry::{
    Conversion, ConversionCache, ConversionWebhook, SelectableField, ServedResource, ServedVersion,
};
use fairlead_apiserver::resource::{CustomStrategy, Shape};
use fairlead_names::ResourceName;
use fairlead_schema::crd::{ReviewVersion, WebhookClient};
use fairlead_schema::{CompileOptions, JsonPath, Schema};
use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{Server, TABLE, WatchStream};
use crate::host::{NameAndColor, custom};
use crate::https::HttpsServer;

const V1: &str = "/apis/sea.example.com/v1/namespaces/default/boats";
const V2: &str = "/apis/sea.example.com/v2/namespaces/default/boats";

/// `boats.sea.example.com`: `spec.metres` in v1, which is stored; `spec.length` with a unit and a default in v2.
struct Boats {
    server: Server,
    reviews: Arc<Mutex<Vec<Value>>>,
    /// The path that the webhook serves: how it behaves.
    behaviour: Arc<Mutex<&'static str>>,
    _webhook: HttpsServer,
}

impl Boats {
    async fn start() -> Self {
        let reviews = Arc::new(Mutex::new(Vec::new()));
        let behaviour = Arc::new(Mutex::new("convert"));
        let (seen, acts) = (Arc::clone(&reviews), Arc::clone(&behaviour));
        let webhook = HttpsServer::start(move |path, review| {
            assert_eq!(path, "/convert");
            seen.lock().unwrap().push(review["request"].clone());
            let behaviour = *acts.lock().unwrap();
            reply(behaviour, review)
        })
        .await;
        let client =
            WebhookClient { config: webhook.client_config("/convert"), review_version: ReviewVersion::V1 };
        let conversion =
            Conversion::Webhook(Arc::new(ConversionWebhook::new(&client, ConversionCache::new())));
        let boats = |registry: Arc<dyn Registry>| vec![boats(registry, conversion.clone())];
        let server = Server::start_serving(HubOptions::default(), &boats).await;
        Self { server, reviews, behaviour, _webhook: webhook }
    }

    fn behave(&self, behaviour: &'static str) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.reviews.lock().unwrap())
    }
}

fn boats(registry: Arc<dyn Registry>, conversion: Conversion) -> ServedResource {
    let version = |name: &str, field: &str, schema: Value| {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: schema, "flag": {"type": "string"}}},
        }});
        ServedVersion {
            name: name.into(),
            shape: Shape::Structural(Arc::new(
                Schema::compile(&schema, &CompileOptions::structural()).unwrap(),
            )),
            open_api: Some(Arc::new(schema)),
            columns: Arc::new(NameAndColor),
            selectable_fields: vec![SelectableField {
                name: format!("spec.{field}").into(),
                path: JsonPath::parse(&format!(".spec.{field}")).unwrap(),
                default: "",
            }],
            deprecation_warning: None,
            subresources: Vec::new(),
            strategy: Arc::new(CustomStrategy::default()),
        }
    };
    let versions = vec![
        version("v2", "length", json!({"type": "string", "default": "1 m"})),
        version("v1", "metres", json!({"type": "integer"})),
    ];
    ServedResource {
        name: ResourceName::new("sea.example.com", "boats"),
        conversion,
        ..custom("boats", "Boat", true, versions, registry)
    }
}

async fn reply(behaviour: &'static str, review: Value) -> Response<Full<Bytes>> {
    let request = &review["request"];
    let mut objects = request["objects"].as_array().unwrap().clone();
    let desired = request["desiredAPIVersion"].as_str().unwrap();
    for object in &mut objects {
        object["apiVersion"] = desired.into();
        let spec = object["spec"].as_object_mut().unwrap();
        if desired.ends_with("/v2") {
            let metres = spec.remove("metres").unwrap_or_default();
            spec.insert("length".to_owned(), format!("{metres} m").into());
            object["metadata"]["labels"] = json!({"unit": "metre"});
        } else {
            let length = spec.remove("length").unwrap_or_default();
            let metres: i64 = length.as_str().unwrap().trim_end_matches(" m").parse().unwrap();
            spec.insert("metres".to_owned(), metres.into());
            spec.insert("unknown".to_owned(), 1.into());
        }
    }
    let mut response =
        json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects});
    match behaviour {
        "fail" => response["result"] = json!({"status": "Failed", "message": "no such unit"}),
        "hang" => std::future::pending().await,
        "lose" => response["convertedObjects"] = json!([]),
        "rename" => response["convertedObjects"][0]["metadata"]["name"] = "other".into(),
        "redirect" => {
            let response = Response::builder().status(307).header("location", "https://localhost/");
            return response.body(Full::default()).unwrap();
        }
        _ => {}
    }
    let answer = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
    Response::new(Full::from(answer.to_string()))
}

fn boat(name: &str, version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("sea.example.com/{version}"), "kind": "Boat", "metadata": {"name": name}, "spec": spec})
}

/// Type and length of the next events.
async fn lengths(watch: &mut WatchStream, count: usize) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lengths = Vec::new();
    for _ in 0..count {
        let event = watch.next().await.unwrap();
        lengths.push((text(&event["type"]), text(&event["object"]["spec"]["length"])));
    }
    lengths
}

#[tokio::test]
async fn an_object_is_converted_between_the_stored_and_the_requested_version() {
    let boats = Boats::start().await;
    let created = boats.server.create(V2, &boat("argo", "v2", json!({"length": "4 m"}))).await;
    assert_eq!(created["spec"], json!({"length": "4 m"}));
    assert_eq!(created["apiVersion"], "sea.example.com/v2");
    let reviews = boats.take_reviews();
    let [to_storage, to_response] = &*reviews else { panic!("{reviews:?}") };
    assert_eq!(to_storage["desiredAPIVersion"], "sea.example.com/v1");
    assert_eq!(to_response["desiredAPIVersion"], "sea.example.com/v2");

    // The stored version needs no call and is pruned by its schema. A state is converted once, however often it is read.
    let stored = boats.server.get(&format!("{V1}/argo")).await.json();
    assert_eq!(stored["spec"], json!({"metres": 4}));
    let read = boats.server.get(&format!("{V2}/argo")).await.json();
    assert_eq!(read, created);
    assert_eq!(boats.take_reviews(), Vec::<Value>::new());

    let patched =
        boats.server.patch(&format!("{V2}/argo"), "merge", &json!({"spec": {"length": "5 m"}})).await;
    assert_eq!(patched.json()["spec"], json!({"length": "5 m"}));
    assert_eq!(boats.server.get(&format!("{V1}/argo")).await.json()["spec"], json!({"metres": 5}));
    assert_ne!(patched.json()["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(patched.json()["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(boats.server.delete(&format!("{V2}/argo")).await.code, 200);
}

#[tokio::test]
async fn lists_are_converted_in_batches_and_selected_after_the_conversion() {
    let boats = Boats::start().await;
    for metres in 0..200 {
        boats.server.create(V1, &boat(&format!("b{metres:03}"), "v1", json!({"metres": metres % 2}))).await;
    }
    assert_eq!(boats.take_reviews(), Vec::<Value>::new());
    let list = boats.server.get(V2).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
    assert_eq!(list["items"][7]["spec"], json!({"length": "1 m"}));
    assert_eq!(
        (list["apiVersion"].as_str(), list["kind"].as_str()),
        (Some("sea.example.com/v2"), Some("BoatList"))
    );
    let sizes: Vec<usize> =
        boats.take_reviews().iter().map(|review| review["objects"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [128, 72]);

    for (query, expected) in [
        ("fieldSelector=spec.length=0%20m", 100),
        ("labelSelector=unit=metre", 200),
        ("labelSelector=unit!=metre", 0),
        ("fieldSelector=metadata.name=b003", 1),
    ] {
        let list = boats.server.get(&format!("{V2}?{query}")).await.json();
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{query}");
    }
    // Everything was in the cache.
    assert_eq!(boats.take_reviews(), Vec::<Value>::new());
    let refused = boats.server.get(&format!("{V2}?fieldSelector=spec.metres=1")).await.failure();
    assert_eq!((refused.0, &*refused.2), (400, "field label not supported: spec.metres"));

    let (mut token, mut pages, mut names) = (String::new(), 0, Vec::new());
    loop {
        let page = boats.server.get(&format!("{V2}?limit=90&continue={token}")).await.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()));
        pages += 1;
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((pages, names.len()), (3, 200));
    let table = boats.server.get_as(V2, TABLE).await.json();
    assert_eq!(table["rows"].as_array().unwrap().len(), 200);
}

#[tokio::test]
async fn watches_deliver_converted_objects_in_order() {
    let boats = Boats::start().await;
    boats.server.create(V1, &boat("argo", "v1", json!({"metres": 1}))).await;
    let mut watch = boats.server.watch(&format!("{V2}?watch=true")).await;
    let mut selected = boats.server.watch(&format!("{V2}?watch=true&fieldSelector=spec.length=2%20m")).await;
    for metres in [2, 3] {
        let patch = json!({"spec": {"metres": metres}});
        assert_eq!(boats.server.patch(&format!("{V1}/argo"), "merge", &patch).await.code, 200);
    }
    boats.server.delete(&format!("{V1}/argo")).await;
    let event = |kind: &str, length: &str| (kind.to_owned(), length.to_owned());
    assert_eq!(
        lengths(&mut watch, 4).await,
        [event("ADDED", "1 m"), event("MODIFIED", "2 m"), event("MODIFIED", "3 m"), event("DELETED", "3 m")]
    );
    assert_eq!(lengths(&mut selected, 2).await, [event("ADDED", "2 m"), event("DELETED", "2 m")]);
}

#[tokio::test]
async fn a_webhook_that_lies_fails_the_request_in_the_words_of_kubernetes() {
    let boats = Boats::start().await;
    boats.server.create(V1, &boat("argo", "v1", json!({"metres": 1}))).await;
    let read = "conversion webhook for sea.example.com/v1, Kind=Boat ";
    for (behaviour, expected) in [
        ("fail", "failed: no such unit"),
        ("lose", "returned 0 objects, expected 1"),
        ("rename", "returned invalid object: must have the same name: argo != other"),
        ("redirect", "failed: the server responded with status 307"),
    ] {
        boats.behave(behaviour);
        for path in [format!("{V2}/argo"), V2.to_owned()] {
            let (code, reason, message) = boats.server.get(&path).await.failure();
            assert_eq!((code, &*reason), (500, ""), "{behaviour} {path}");
            assert_eq!(message, format!("{read}{expected}"), "{path}");
        }
        let error = boats.server.watch(&format!("{V2}?watch=true")).await.next().await.unwrap();
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(500)));
        let (code, _, message) =
            boats.server.post(V2, &boat("second", "v2", json!({"length": "1 m"}))).await.failure();
        assert_eq!(code, 500);
        assert!(message.starts_with("conversion webhook for sea.example.com/v2, Kind=Boat "), "{message}");
        // The stored version does not depend on the webhook.
        assert_eq!(boats.server.get(&format!("{V1}/argo")).await.code, 200);
    }
    boats.behave("convert");
    assert_eq!(boats.server.get(&format!("{V2}/argo")).await.json()["spec"], json!({"length": "1 m"}));
}

#[tokio::test]
async fn a_webhook_that_hangs_fails_after_its_time_out_and_delays_no_other_request() {
    let boats = Boats::start().await;
    boats.server.create(V1, &boat("argo", "v1", json!({"metres": 1}))).await;
    boats.server.create(V1, &boat("idle", "v1", json!({"metres": 1}))).await;
    // The connection exists before the clock stops.
    assert_eq!(boats.server.get(&format!("{V2}/idle")).await.code, 200);
    boats.behave("hang");
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let path = format!("{V2}/argo");
    let (one, other, stored) = tokio::join!(boats.server.get(&path), boats.server.get(&path), async {
        let stored = boats.server.get(&format!("{V1}/argo")).await;
        (stored.code, started.elapsed())
    });
    assert_eq!((stored.0.as_u16(), stored.1.as_secs()), (200, 0));
    // Both wait for the same call.
    assert!(started.elapsed().as_secs() <= 31, "{:?}", started.elapsed());
    for response in [one, other] {
        let message = response.failure().2;
        assert!(
            message.starts_with("conversion webhook for sea.example.com/v1, Kind=Boat failed: ")
                && message.contains("context deadline exceeded"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_delays_no_other_reader() {
    let boats = Boats::start().await;
    boats.server.create(V1, &boat("argo", "v1", json!({"metres": 1}))).await;
    let mut stalled = boats.server.open("GET", &format!("{V2}?watch=true"), &[], "").await.into_body();
    // One poll starts the conversion of the initial state, the next never comes.
    let polled = std::future::poll_fn(|context| {
        let polled = http_body::Body::poll_frame(std::pin::Pin::new(&mut stalled), context);
        std::task::Poll::Ready(polled.is_ready())
    });
    assert!(!polled.await, "the call takes longer than a poll");
    assert_eq!(boats.server.get(&format!("{V2}/argo")).await.json()["spec"], json!({"length": "1 m"}));
    assert_eq!(boats.take_reviews().len(), 1, "both wait for one call");
    drop(stalled);
}

/// As in Kubernetes, which applies the defaults of the stored version before it converts.
#[tokio::test]
async fn a_read_in_another_version_adds_no_defaults_of_that_version() {
    let boats = |registry: Arc<dyn Registry>| vec![boats(registry, Conversion::None)];
    let server = Server::start_serving(HubOptions::default(), &boats).await;
    server.create(V1, &boat("argo", "v1", json!({"metres": 1, "flag": "red"}))).await;
    let read = server.get(&format!("{V2}/argo")).await.json();
    assert_eq!(read["spec"], json!({"flag": "red"}));
    // The stored version has no length.
    let created = server.create(V2, &boat("nike", "v2", json!({"length": "3 m", "flag": "red"}))).await;
    assert_eq!(created["spec"], json!({"flag": "red"}));
}

#[tokio::test]
async fn an_apply_in_another_version_finds_the_owner_of_a_renamed_field() {
    let Boats { server, reviews, .. } = &Boats::start().await;
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = if version == "v1" { V1 } else { V2 };
        let path = format!("{path}/argo?fieldManager={manager}");
        let kind = [("content-type", "application/apply-patch+yaml")];
        server.send("PATCH", &path, &kind, boat("argo", version, spec).to_string()).await
    };
    let created = apply("v1", "yard", json!({"metres": 3})).await.json();
    assert_eq!(created["spec"], json!({"metres": 3}), "{created}");

    let refused = apply("v2", "pilot", json!({"length": "4 m"})).await;
    assert_eq!(refused.code, 409);
    let cause = &refused.json()["details"]["causes"][0];
    assert_eq!(cause["message"], "conflict with \"yard\"");
    // As in Kubernetes, the field has its name in the version of its owner.
    assert_eq!(cause["field"], ".spec.metres");

    let same = apply("v2", "pilot", json!({"length": "3 m"})).await.json();
    assert_eq!(same["spec"]["length"], "3 m", "the same value in another version is no conflict: {same}");

    // An update takes a renamed field from both owners.
    let mut changed = server.get(&format!("{V2}/argo")).await.json();
    changed["spec"]["length"] = "5 m".into();
    let updated = server.put(&format!("{V2}/argo?fieldManager=editor"), &changed).await.json();
    let owners: Vec<_> = updated["metadata"]["managedFields"].as_array().unwrap().iter().collect();
    let owns_length = |manager: &str| {
        let own = owners.iter().find(|own| own["manager"] == manager);
        own.is_some_and(|own| {
            let spec = &own["fieldsV1"]["f:spec"];
            spec["f:length"].is_object() || spec["f:metres"].is_object()
        })
    };
    assert!(owns_length("editor") && !owns_length("yard") && !owns_length("pilot"), "{updated:#}");
    assert!(!reviews.lock().unwrap().is_empty());
}
