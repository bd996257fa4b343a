//! The patch types.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, Server, WIDGETS};

#[tokio::test(start_paused = true)]
async fn patches_of_each_kind() {
    let server = Server::start().await;
    let create = json!({"metadata": {"name": "a", "finalizers": ["e.io/a"]}, "data": {"a": "1", "b": "2"}});
    server.create(CONFIG_MAPS, &create).await;
    let path = format!("{CONFIG_MAPS}/a");
    let table: [(&str, Value, Value); 5] = [
        ("merge", json!({"data": {"a": null, "c": "3"}}), json!({"b": "2", "c": "3"})),
        ("strategic-merge", json!({"data": {"d": "4"}}), json!({"b": "2", "c": "3", "d": "4"})),
        ("json", json!([{"op": "remove", "path": "/data/b"}]), json!({"c": "3", "d": "4"})),
        (
            "json",
            json!([{"op": "test", "path": "/data/c", "value": "3"}, {"op": "add", "path": "/data/e", "value": "5"}]),
            json!({"c": "3", "d": "4", "e": "5"}),
        ),
        ("strategic-merge", json!({"data": {"$patch": "replace", "f": "6"}}), json!({"f": "6"})),
    ];
    for (kind, patch, data) in table {
        let response = server.patch(&path, kind, &patch).await;
        assert_eq!((response.code.as_u16(), &response.json()["data"]), (200, &data), "{kind} {patch}");
    }
    // Lists merge by the kind's own rules: finalizers are a set.
    let patch = json!({"metadata": {"finalizers": ["e.io/b"]}});
    let merged = server.patch(&path, "strategic-merge", &patch).await.json();
    assert_eq!(merged["metadata"]["finalizers"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn refused_patches_state_the_reason() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {"color": "red"}})).await;
    let (map, widget) = (format!("{CONFIG_MAPS}/a"), format!("{WIDGETS}/w"));
    let table = [
        (
            &*map,
            "application/json-patch+json",
            r#"[{"op":"test","path":"/data/c","value":"4"}]"#,
            422,
            "Invalid",
        ),
        (&map, "application/json-patch+json", r#"[{"op":"remove","path":"/data/zz"}]"#, 422, "Invalid"),
        (&map, "application/json-patch+json", r#"[{"op":"jump","path":"/data/zz"}]"#, 422, "Invalid"),
        (&map, "application/merge-patch+json", r#"{"data":{"a":1}}"#, 422, "Invalid"),
        (&map, "application/json-patch+json", r#"{"op":"x"}"#, 400, "BadRequest"),
        (&map, "application/merge-patch+json", "{bad", 400, "BadRequest"),
        (&map, "application/merge-patch+json", "[]", 400, "BadRequest"),
        (
            &map,
            "application/merge-patch+json",
            r#"{"metadata":{"resourceVersion":"1"},"data":{"q":"w"}}"#,
            409,
            "Conflict",
        ),
        (&map, "application/merge-patch+json", r#"{"metadata":{"name":"b"}}"#, 400, "BadRequest"),
        (&map, "application/merge-patch+json", r#"{"metadata":{"name":null}}"#, 400, "BadRequest"),
        (
            &map,
            "application/json-patch+json",
            r#"[{"op":"remove","path":"/metadata/name"}]"#,
            400,
            "BadRequest",
        ),
        (&map, "application/foo", "{}", 415, "UnsupportedMediaType"),
        (&map, "", "{}", 415, "UnsupportedMediaType"),
        (&map, "application/apply-patch+cbor", "{}", 415, "UnsupportedMediaType"),
        (&map, "application/apply-patch+yaml", "{}", 422, "Invalid"),
        (&widget, "application/strategic-merge-patch+json", "{}", 415, "UnsupportedMediaType"),
        (&widget, "application/merge-patch+json", r#"{"spec":{"color":"pink"}}"#, 422, "Invalid"),
        (&widget, "application/merge-patch+json", r#"{"kind":"Gadget"}"#, 422, "Invalid"),
        ("/api/v1/namespaces/default/configmaps/none", "application/merge-patch+json", "{}", 404, "NotFound"),
    ];
    for (path, content_type, body, code, reason) in table {
        let before = server.store().revision();
        let response = server.send("PATCH", path, &[("content-type", content_type)], body).await;
        let failure = response.failure();
        assert_eq!((failure.0, &*failure.1), (code, reason), "{content_type} {body}: {failure:?}");
        assert_eq!(server.store().revision(), before);
        if body == "{bad" || body == r#"{"op":"x"}"# {
            assert!(failure.2.starts_with("error decoding patch: "), "{failure:?}");
            assert_eq!(failure.2.matches("error decoding patch").count(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_patches_have_the_texts_of_kubernetes() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {"color": "red"}})).await;
    let (map, widget) = (format!("{CONFIG_MAPS}/a"), format!("{WIDGETS}/w"));
    let strict = format!("{map}?fieldValidation=Strict");
    let generic = "the server rejected our request due to an error in our request";
    let operations = vec![json!({"op": "test", "path": "/a", "value": 1}); 10_001];
    for (path, kind, patch, code, start, end) in [
        (&map, "json", json!([{"op": "test", "path": "/data/c", "value": "4"}]), 422, generic, ""),
        (&map, "json", json!([{"op": "remove", "path": "/data/zz"}]), 422, generic, ""),
        (
            &map,
            "json",
            json!({"op": "x"}),
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            "",
        ),
        (
            &map,
            "json",
            json!(operations),
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
            "",
        ),
        (
            &map,
            "merge",
            json!([]),
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            "",
        ),
        (
            &map,
            "merge",
            json!({"data": {"a": 1}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"{",
            "}\": json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            &strict,
            "merge",
            json!({"date": {}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"{",
            "}\": strict decoding error: unknown field \"date\"",
        ),
        (
            &widget,
            "merge",
            json!({"metadata": {"labels": 1}}),
            422,
            " \"\" is invalid: patch: Invalid value: \"{",
            "",
        ),
    ] {
        let response = server.patch(path, kind, &patch).await;
        let message = response.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(response.code.as_u16(), code, "{patch}: {message}");
        assert!(message.starts_with(start) && message.ends_with(end), "{message}");
        if code == 422 && start == generic {
            let details = &response.json()["details"];
            assert_eq!(details["causes"][0]["reason"], "UnexpectedServerResponse", "{details}");
        }
    }
}
