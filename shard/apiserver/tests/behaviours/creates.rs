//! Creates: the metadata that the server sets, and refusals.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, JSON, Server, WIDGETS};

#[tokio::test(start_paused = true)]
async fn a_create_fills_in_the_server_metadata() {
    let server = Server::start().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {
        "name": "a", "uid": "mine", "generation": 9, "creationTimestamp": null,
        "deletionTimestamp": "2020-01-01T00:00:00Z", "managedFields": [{}], "selfLink": "/x",
        "annotations": {"kcp.io/cluster": "elsewhere", "kept": "yes"}}});
    let created = server.create(CONFIG_MAPS, &body).await;
    let metadata = &created["metadata"];
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(created["data"], json!({"a": "b"}));
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!(metadata["annotations"], json!({"kcp.io/cluster": "c", "kept": "yes"}));
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    let created_at = metadata["creationTimestamp"].as_str().unwrap();
    assert!(created_at.len() == 20 && created_at.ends_with('Z'), "{created_at}");
    let managed =
        json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:annotations": {".": {}, "f:kept": {}}}});
    assert_eq!(metadata["managedFields"][0]["fieldsV1"], managed);
    for absent in ["deletionTimestamp", "selfLink", "generation"] {
        assert_eq!(metadata.get(absent), None, "{absent}");
    }
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")).await.json(), created);
}

#[tokio::test(start_paused = true)]
async fn empty_metadata_is_not_stored() {
    let server = Server::start().await;
    let empty =
        json!({"name": "w", "generateName": "", "labels": {}, "finalizers": [], "ownerReferences": []});
    let check = |response: Value| {
        for absent in ["generateName", "labels", "finalizers", "ownerReferences"] {
            assert_eq!(response["metadata"].get(absent), None, "{absent}");
        }
        let owned = response["metadata"]["managedFields"][0]["fieldsV1"].get("f:metadata");
        assert_eq!(owned, None);
        response
    };
    for path in [WIDGETS, CONFIG_MAPS] {
        check(server.create(path, &json!({"metadata": empty, "spec": {}, "data": {}})).await);
        let object = format!("{path}/w");
        let full = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["e.io/f"]}});
        assert_eq!(
            server.patch(&object, "merge", &full).await.json()["metadata"]["labels"],
            json!({"a": "b"})
        );
        check(
            server
                .patch(&object, "merge", &json!({"metadata": {"labels": {"a": null}, "finalizers": []}}))
                .await
                .json(),
        );
        let mut replaced = check(server.get(&object).await.json());
        replaced["metadata"]["ownerReferences"] = json!([]);
        check(server.put(&object, &replaced).await.json());
    }
    let namespace = json!({"metadata": {"name": "more", "finalizers": ["e.io/f"]}});
    let namespace = server.create("/api/v1/namespaces", &namespace).await;
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let mut finalized = namespace;
    finalized["spec"]["finalizers"] = json!([]);
    let finalized = server.put("/api/v1/namespaces/more/finalize", &finalized).await.json();
    assert_eq!(finalized["spec"], json!({}));
}

/// Kubernetes stores roles in a form that has no empty lists, and its JSON always has the field.
#[tokio::test(start_paused = true)]
async fn roles_without_rules_have_null() {
    let server = Server::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (name, role) in [
        ("empty", json!({"metadata": {"name": "empty"}, "rules": []})),
        ("null", json!({"metadata": {"name": "null"}, "rules": null})),
        ("absent", json!({"metadata": {"name": "absent"}})),
    ] {
        let created = server.create(roles, &role).await;
        assert_eq!(created.get("rules"), Some(&Value::Null), "{name}");
        assert_eq!(created["metadata"]["managedFields"][0]["fieldsV1"]["f:rules"], json!({}), "{name}");
        let path = format!("{roles}/{name}");
        assert_eq!(server.get(&path).await.json(), created);
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        assert_eq!(server.patch(&path, "merge", &json!({"rules": rules})).await.json()["rules"], rules);
        let emptied = server.patch(&path, "merge", &json!({"rules": []})).await.json();
        assert_eq!(emptied.get("rules"), Some(&Value::Null), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn whole_numbers_with_a_fraction_are_refused_for_integers_of_built_in_kinds_only() {
    let server = Server::start().await;
    let event = r#"{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"},"count":1.0}"#;
    let refused = server.send("POST", "/api/v1/namespaces/default/events", JSON, event).await;
    assert_eq!(
        (refused.code.as_u16(), refused.json()["message"].as_str().unwrap().to_owned()),
        (
            400,
            "Event in version \"v1\" cannot be handled as a Event: json: cannot unmarshal number 1.0 into Go struct \
             field Event.count of type int32"
                .to_owned()
        )
    );
    let widget =
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1.0}}"#;
    let created = server.send("POST", WIDGETS, JSON, widget).await;
    assert_eq!((created.code.as_u16(), created.json()["spec"]["size"].to_string()), (201, "1".to_owned()));
    let events = "/api/v1/namespaces/default/events";
    server
        .create(events, &json!({"metadata": {"name": "p"}, "involvedObject": {"namespace": "default"}}))
        .await;
    let merge = r#"{"count":1.0,"spec":{"size":2.0}}"#;
    let json_patch = r#"[{"op":"add","path":"/count","value":1.0}]"#;
    for (kind, patch, of_event, of_widget) in [
        ("merge-patch", merge, 422, Some(200)),
        ("json-patch", json_patch, 422, None),
        // The strategic merge converts numbers.
        ("strategic-merge-patch", r#"{"count":1.0}"#, 200, None),
    ] {
        let headers = [("content-type", &*format!("application/{kind}+json"))];
        let path = format!("{events}/p?fieldValidation=Ignore");
        assert_eq!(server.send("PATCH", &path, &headers, patch).await.code, of_event, "{kind}");
        if let Some(expected) = of_widget {
            let path = format!("{WIDGETS}/w?fieldValidation=Ignore");
            let patched = server.send("PATCH", &path, &headers, patch).await;
            assert_eq!(
                (patched.code.as_u16(), patched.json()["spec"]["size"].to_string()),
                (expected, "2".into())
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_creates_state_the_reason() {
    let server = Server::start().await;
    server.config_map("taken", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let table: Vec<(&str, &str, u16, &str, &str)> = vec![
        (
            CONFIG_MAPS,
            r#"{"metadata":{"name":"taken"}}"#,
            409,
            "AlreadyExists",
            "configmaps \"taken\" already exists",
        ),
        (
            CONFIG_MAPS,
            r#"{"metadata":{}}"#,
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            CONFIG_MAPS,
            r#"{"metadata":{"name":"x","namespace":"other"}}"#,
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            CONFIG_MAPS,
            r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#,
            400,
            "BadRequest",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            CONFIG_MAPS,
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}"#,
            400,
            "BadRequest",
            "Secret in version \"v1\" cannot be handled as a ConfigMap",
        ),
        (
            CONFIG_MAPS,
            r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}"#,
            400,
            "BadRequest",
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap",
        ),
        (
            CONFIG_MAPS,
            r#"{"metadata":{"name":"x"},"data":{"a":1}}"#,
            400,
            "BadRequest",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (CONFIG_MAPS, r#"{"metadata":"#, 400, "BadRequest", "unexpected end of JSON input"),
        (CONFIG_MAPS, r#"{"metadata":}"#, 400, "BadRequest", "line 1"),
        (CONFIG_MAPS, "", 400, "BadRequest", ""),
        (CONFIG_MAPS, "[]", 400, "BadRequest", ""),
        (CONFIG_MAPS, r#"{"metadata":[]}"#, 400, "BadRequest", ""),
        (CONFIG_MAPS, r#"{"metadata":{"name":7}}"#, 400, "BadRequest", ""),
        (
            "/api/v1/namespaces/missing/configmaps",
            r#"{"metadata":{"name":"x"}}"#,
            404,
            "NotFound",
            "namespaces \"missing\" not found",
        ),
        (
            "/api/v1/namespaces",
            r#"{"metadata":{"name":"a.b"}}"#,
            422,
            "Invalid",
            "Namespace \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": a lowercase RFC 1123 label must consist of",
        ),
        (
            WIDGETS,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{}}"#,
            409,
            "AlreadyExists",
            "widgets.example.com \"w\" already exists",
        ),
        (
            WIDGETS,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"color":"pink"}}"#,
            422,
            "Invalid",
            "Widget.example.com \"x\" is invalid: spec.color: Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
        ),
        (
            WIDGETS,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}"#,
            422,
            "Invalid",
            "Widget.example.com \"x\" is invalid: spec: Required value",
        ),
    ];
    for (path, body, code, reason, message) in table {
        let before = server.store().revision();
        let failure = server.send("POST", path, JSON, body.to_owned()).await.failure();
        assert_eq!((failure.0, &*failure.1), (code, reason), "{body}: {failure:?}");
        assert!(failure.2.contains(message), "{body}: {}", failure.2);
        assert_eq!(server.store().revision(), before, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_422_names_each_field() {
    let server = Server::start().await;
    let body = json!({"metadata": {"name": "Bad_Name", "labels": {"a b": "c d"}}});
    let status = server.post(CONFIG_MAPS, &body).await.json();
    let details = &status["details"];
    assert_eq!((&details["name"], &details["kind"]), (&json!("Bad_Name"), &json!("ConfigMap")));
    let fields: Vec<&str> =
        details["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields[0], "metadata.name");
    assert!(fields.contains(&"metadata.labels"), "{fields:?}");
    assert!(status["message"].as_str().unwrap().starts_with("ConfigMap \"Bad_Name\" is invalid: ["));
}

#[tokio::test(start_paused = true)]
async fn names_are_generated() {
    let server = Server::start().await;
    let long = "x".repeat(80);
    for (prefix, expected) in [("gen-", "gen-"), (&*long, &long[..58])] {
        let created = server.create(CONFIG_MAPS, &json!({"metadata": {"generateName": prefix}})).await;
        let name = created["metadata"]["name"].as_str().unwrap();
        let suffix = name.strip_prefix(expected).unwrap();
        assert!(
            suffix.len() == 5 && suffix.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)),
            "{name}"
        );
        assert_eq!(created["metadata"]["generateName"], prefix);
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_rejects_creates() {
    let server = Server::start().await;
    let namespace = server.delete("/api/v1/namespaces/default").await.json();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let status = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "late"}})).await;
    let (code, reason, message) = status.failure();
    assert_eq!((code, &*reason), (403, "Forbidden"));
    assert!(message.contains("because it is being terminated"), "{message}");
    assert_eq!(status.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    // The object is deleted with its last finalizer.
    let finalize = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}, "spec": {"finalizers": []}});
    assert_eq!(server.put("/api/v1/namespaces/default/finalize", &finalize).await.code, 200);
    assert_eq!(server.get("/api/v1/namespaces/default").await.code, 404);
}
