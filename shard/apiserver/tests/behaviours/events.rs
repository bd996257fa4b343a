//! Events in their two forms: the same objects in the core group and in events.k8s.io.

use serde_json::{Value, json};

use crate::client::{METADATA, Server, TABLE};

const CORE: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn old_event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "involvedObject": {"kind": "ConfigMap", "name": "cm", "namespace": "default"},
        "reason": "Old", "message": "of an old recorder", "type": "Normal", "source": {"component": "old"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1})
}

fn new_event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "regarding": {"kind": "Secret", "name": "s", "namespace": "default"},
        "reason": "New", "note": "of a new recorder", "type": "Warning", "action": "Do",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "new", "reportingInstance": "new-1"})
}

#[tokio::test(start_paused = true)]
async fn an_event_of_either_group_is_in_both() {
    let server = Server::start().await;
    let old = server.create(CORE, &old_event("old")).await;
    let new = server.create(EVENTS, &new_event("new")).await;
    assert_eq!((&new["kind"], &new["apiVersion"]), (&json!("Event"), &json!("events.k8s.io/v1")));
    assert_eq!(new["note"], "of a new recorder");
    let as_new = server.get(&format!("{EVENTS}/old")).await.json();
    assert_eq!(as_new["apiVersion"], "events.k8s.io/v1");
    assert_eq!(
        (&as_new["note"], &as_new["deprecatedCount"], &as_new["deprecatedSource"], as_new.get("message")),
        (&json!("of an old recorder"), &json!(1), &json!({"component": "old"}), None)
    );
    assert_eq!(as_new["metadata"]["uid"], old["metadata"]["uid"]);
    assert_eq!(as_new["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"]);
    let as_old = server.get(&format!("{CORE}/new")).await.json();
    assert_eq!(
        (&as_old["apiVersion"], &as_old["message"], &as_old["reportingComponent"]),
        (&json!("v1"), &json!("of a new recorder"), &json!("new"))
    );
    for (path, version) in [(CORE, "v1"), (EVENTS, "events.k8s.io/v1")] {
        let list = server.get(path).await.json();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!(version)));
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    }
    let duplicate = server.post(EVENTS, &new_event("new")).await;
    assert_eq!(duplicate.failure().1, "AlreadyExists");
    assert_eq!(server.delete(&format!("{EVENTS}/old")).await.code, 200);
    assert_eq!(server.get(&format!("{CORE}/old")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn each_form_is_validated_by_its_rules() {
    let server = Server::start().await;
    let mut strict = new_event("e");
    strict["reportingController"] = json!("");
    assert_eq!(
        server.post(EVENTS, &strict).await.failure().2,
        "Event \"e\" is invalid: [reportingController: Required value, reportingController: Invalid value: \
         \"\": name part must be non-empty, reportingController: Invalid value: \"\": name part must consist of \
         alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  \
         or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]"
    );
    server.create(EVENTS, &new_event("e")).await;
    // A recorder of the new form counts in a series, by a patch.
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    let counted = server.patch(&format!("{EVENTS}/e"), "strategic-merge", &series).await;
    assert_eq!(counted.code, 200, "{counted:?}");
    assert_eq!(counted.json()["series"]["count"], 2);
    let changed = server.patch(&format!("{EVENTS}/e"), "merge", &json!({"note": "other"})).await;
    assert_eq!(changed.failure().1, "Invalid");
    // A recorder of the old form counts in the event.
    server.create(CORE, &old_event("o")).await;
    let counted = server.patch(&format!("{CORE}/o"), "strategic-merge", &json!({"count": 2})).await;
    assert_eq!(counted.json()["count"], 2);
    // PUT creates, as event recorders expect.
    assert_eq!(server.put(&format!("{EVENTS}/put"), &new_event("put")).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn fields_of_either_form_select() {
    let server = Server::start().await;
    server.create(CORE, &old_event("old")).await;
    server.create(EVENTS, &new_event("new")).await;
    for (path, selector, names) in [
        (CORE, "involvedObject.kind=Secret", vec!["new"]),
        (CORE, "involvedObject.name=cm,involvedObject.namespace=default", vec!["old"]),
        (CORE, "reason=Old", vec!["old"]),
        (CORE, "reportingComponent=new", vec!["new"]),
        (CORE, "source=old", vec!["old"]),
        (CORE, "type!=Normal", vec!["new"]),
        (EVENTS, "regarding.kind=ConfigMap", vec!["old"]),
        (EVENTS, "regarding.name=s", vec!["new"]),
        (EVENTS, "reportingController=new,type=Warning", vec!["new"]),
        (EVENTS, "metadata.name=old", vec!["old"]),
    ] {
        assert_eq!(
            server.get(&format!("{path}?fieldSelector={selector}")).await.names(),
            names,
            "{selector}"
        );
    }
    for (path, selector) in
        [(CORE, "regarding.kind=x"), (EVENTS, "involvedObject.kind=x"), (EVENTS, "source=x")]
    {
        let field = selector.split('=').next().unwrap();
        let refused = server.get(&format!("{path}?fieldSelector={selector}")).await.failure();
        assert_eq!(refused, (400, "BadRequest".into(), format!("field label not supported: {field}")));
    }
}

#[tokio::test(start_paused = true)]
async fn watches_of_both_groups_see_all_events() {
    let server = Server::start().await;
    let mut core = server.watch(&format!("{CORE}?watch=true")).await;
    let mut events =
        server.watch(&format!("{EVENTS}?watch=true&fieldSelector=regarding.kind%3DSecret")).await;
    server.create(CORE, &old_event("old")).await;
    server.create(EVENTS, &new_event("new")).await;
    assert_eq!(core.next().await.unwrap()["object"]["message"], "of an old recorder");
    let event = core.next().await.unwrap();
    assert_eq!(
        (&event["object"]["apiVersion"], &event["object"]["message"]),
        (&json!("v1"), &json!("of a new recorder"))
    );
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["object"]["apiVersion"], &event["object"]["note"]),
        (&json!("events.k8s.io/v1"), &json!("of a new recorder"))
    );
    server.delete(&format!("{CORE}/new")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["note"]), (&json!("DELETED"), &json!("of a new recorder")));
}

#[tokio::test(start_paused = true)]
async fn tables_and_metadata_are_those_of_events() {
    let server = Server::start().await;
    server.create(EVENTS, &new_event("new")).await;
    let tables = [server.get_as(CORE, TABLE).await.json(), server.get_as(EVENTS, TABLE).await.json()];
    let cells = &tables[0]["rows"][0]["cells"];
    assert_eq!(json!(cells.as_array().unwrap()[1..4]), json!(["Warning", "New", "secret/s"]));
    assert_eq!(tables[1]["rows"][0]["cells"], *cells);
    assert_eq!(tables[1]["columnDefinitions"], tables[0]["columnDefinitions"]);
    let metadata = server.get_as(&format!("{EVENTS}/new"), METADATA).await.json();
    assert_eq!(
        (&metadata["kind"], &metadata["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("new"))
    );
}
