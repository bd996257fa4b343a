//! Create and update.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, GADGETS, Server, WIDGETS, version_of};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

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
async fn a_dry_run_does_everything_but_store() {
    let server = Server::start().await;
    let existing = server.config_map("there", json!({})).await;
    let before = server.store().revision();
    let created =
        server.create(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "dry"}})).await;
    assert_eq!(created["metadata"].get("resourceVersion"), None, "{created}");
    assert!(created["metadata"]["uid"].is_string());
    let again =
        server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "there"}})).await;
    assert_eq!(again.code, 409);
    let path = format!("{CONFIG_MAPS}/there?dryRun=All");
    let updated = server.put(&path, &json!({"metadata": {"name": "there"}, "data": {"a": "b"}})).await.json();
    assert_eq!(updated["data"], json!({"a": "b"}));
    assert_eq!(updated["metadata"]["resourceVersion"], existing["metadata"]["resourceVersion"]);
    assert_eq!(
        server.patch(&path, "merge", &json!({"data": {"c": "d"}})).await.json()["data"],
        json!({"c": "d"})
    );
    assert_eq!(server.delete(&path).await.json()["status"], "Success");
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/there")).await.json(), existing);
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/dry")).await.code, 404);
    assert_eq!(server.store().revision(), before);
}

#[tokio::test(start_paused = true)]
async fn errors_about_options_name_their_kind() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    let one = format!("{CONFIG_MAPS}/a");
    let long = "x".repeat(129);
    let table = [
        (
            "POST",
            CONFIG_MAPS,
            "dryRun=Some",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
        ),
        (
            "POST",
            CONFIG_MAPS,
            "fieldValidation=Bad",
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Bad\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        (
            "PUT",
            &*one,
            &*format!("fieldManager={long}"),
            "UpdateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "PATCH",
            &*one,
            "dryRun=x",
            "PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
        ),
        (
            "DELETE",
            &*one,
            "propagationPolicy=Orphan&orphanDependents=true",
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        ),
        (
            "DELETE",
            &*one,
            "propagationPolicy=Never",
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Never\": supported values: \"Background\", \"Foreground\", \"Orphan\"",
        ),
    ];
    for (method, path, query, message) in table {
        let body = if method == "DELETE" { "" } else { "{\"metadata\":{\"name\":\"a\"}}" };
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response =
            server.send(method, &format!("{path}?{query}"), &[("content-type", content)], body).await;
        assert_eq!(response.failure(), (422, "Invalid".to_owned(), message.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_and_duplicate_fields_are_refused_warned_of_or_ignored() {
    let server = Server::start().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fv","name":"fv"},"bogus":1,"data":{"a":"b"}}"#;
    let findings =
        ["299 - \"duplicate field \\\"metadata.name\\\"\"", "299 - \"unknown field \\\"bogus\\\"\""];
    for (validation, code, warnings) in [
        ("", 201, &findings[..]),
        ("&fieldValidation=Warn", 201, &findings[..]),
        ("&fieldValidation=Ignore", 201, &[]),
        ("&fieldValidation=Strict", 400, &[]),
    ] {
        let response =
            server.send("POST", &format!("{CONFIG_MAPS}?dryRun=All{validation}"), JSON, body).await;
        assert_eq!((response.code.as_u16(), &*response.warnings()), (code, warnings), "{validation}");
        if code == 201 {
            assert_eq!(response.json().get("bogus"), None);
        } else {
            let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
                           duplicate field \"metadata.name\", unknown field \"bogus\"";
            assert_eq!(response.failure().2, message);
        }
    }
    let custom = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","odd":1},
        "spec":{"bogus":{"é":1}}}"#;
    let response = server.send("POST", &format!("{WIDGETS}?fieldValidation=Strict"), JSON, custom).await;
    assert_eq!(
        response.failure().2,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
         \"spec.bogus\", unknown field \"metadata.odd\""
    );
    // Also in patches.
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let patch = json!({"spec": {"bogus": 1, "color": "red"}});
    let strict = server.patch(&format!("{WIDGETS}/w?fieldValidation=Strict"), "merge", &patch).await;
    assert_eq!(strict.failure().0, 422);
    let warned = server.patch(&format!("{WIDGETS}/w"), "merge", &patch).await;
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"spec.bogus\\\"\""]);
    assert_eq!(warned.json()["spec"], json!({"color": "red", "size": 1}));
}

#[tokio::test(start_paused = true)]
async fn updates_are_checked_against_the_current_object() {
    let server = Server::start().await;
    let old = server.config_map("a", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let (map, widget) = (format!("{CONFIG_MAPS}/a"), format!("{WIDGETS}/w"));
    let modified = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                    changes to the latest version and try again";
    let table: Vec<(&str, Value, u16, &str)> = vec![
        (&map, json!({"metadata": {"name": "a", "resourceVersion": "1"}}), 409, modified),
        (
            &map,
            json!({"metadata": {"name": "b"}}),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            &map,
            json!({"metadata": {"labels": {"a": "b"}}}),
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            &map,
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            &map,
            json!({"metadata": {"name": "a", "uid": "other"}}),
            409,
            "Precondition failed: UID in precondition: other, UID in object meta: ",
        ),
        (
            &widget,
            json!({"metadata": {"name": "w"}, "spec": {}}),
            422,
            "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        ),
    ];
    for (path, body, code, message) in table {
        let failure = server.put(path, &body).await.failure();
        assert_eq!(failure.0, code, "{body}: {failure:?}");
        assert!(failure.2.contains(message), "{body}: {}", failure.2);
    }
    let absent = server.put(&format!("{CONFIG_MAPS}/none"), &json!({"metadata": {"name": "none"}})).await;
    assert_eq!(absent.failure(), (404, "NotFound".into(), "configmaps \"none\" not found".into()));

    // Without a version, built-in kinds are overwritten.
    let new = server
        .put(&map, &json!({"data": {"k": "v"}, "metadata": {"name": "a", "creationTimestamp": "2001-01-01T00:00:00Z"}}))
        .await;
    let new = new.json();
    assert_eq!(new["data"], json!({"k": "v"}));
    for kept in ["uid", "creationTimestamp", "name", "namespace"] {
        assert_eq!(new["metadata"][kept], old["metadata"][kept], "{kept}");
    }
    assert!(version_of(&new) > version_of(&old));
    // With the current version, every kind is.
    let mut widget_now = server.get(&widget).await.json();
    widget_now["spec"]["color"] = "blue".into();
    assert_eq!(server.put(&widget, &widget_now).await.json()["spec"]["color"], "blue");
}

#[tokio::test(start_paused = true)]
async fn metadata_is_as_strict_in_an_update_as_in_a_create() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    for path in [format!("{CONFIG_MAPS}/a"), format!("{WIDGETS}/w")] {
        let before = server.get(&path).await.json();
        for (field, value) in [
            ("labels", json!({"a b": "x"})),
            ("labels", json!({"a": "!!"})),
            ("annotations", json!({"a b": "x"})),
            ("finalizers", json!(["bad one"])),
            ("ownerReferences", json!([{"name": "x"}])),
        ] {
            let change = json!({"metadata": {field: value}});
            let failure = server.patch(&path, "merge", &change).await.failure();
            assert_eq!(failure.0, 422, "{path}: {change}: {failure:?}");
            assert!(failure.2.contains(&format!("metadata.{field}")), "{path}: {change}: {failure:?}");
            let mut whole = before.clone();
            whole["metadata"][field] = change["metadata"][field].clone();
            assert_eq!(server.put(&path, &whole).await.failure().0, 422, "{path}: {change}");
        }
        assert_eq!(server.get(&path).await.json(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_is_no_event() {
    let server = Server::start().await;
    let created = server
        .create(WIDGETS, &json!({"metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {"tags": ["x"]}}))
        .await;
    let path = format!("{WIDGETS}/w");
    let mut watch =
        server.watch(&format!("{WIDGETS}?watch=true&resourceVersion={}", version_of(&created))).await;
    assert_eq!(server.put(&path, &created).await.json(), created);
    assert_eq!(server.patch(&path, "merge", &json!({})).await.json(), created);
    assert_eq!(server.patch(&path, "json", &json!([])).await.json(), created);
    let changed = server.patch(&path, "merge", &json!({"spec": {"color": "red"}})).await.json();
    assert_eq!(watch.brief().await, format!("MODIFIED w {}", version_of(&changed)));
    assert_eq!(version_of(&changed), version_of(&created) + 1, "nothing was written in between");
}

#[tokio::test(start_paused = true)]
async fn status_and_the_rest_are_written_separately() {
    let server = Server::start().await;
    let created = server
        .create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}, "status": {"phase": "Mine"}}))
        .await;
    assert_eq!((created.get("status"), &created["metadata"]["generation"]), (None, &json!(1)));
    let (main, status) = (format!("{WIDGETS}/w"), format!("{WIDGETS}/w/status"));

    let both =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"color": "red"}, "status": {"phase": "Ready"}});
    let after = server.patch(&status, "merge", &both).await.json();
    assert_eq!(after["status"], json!({"phase": "Ready"}));
    assert_eq!((after["spec"].get("color"), &after["metadata"]["generation"]), (None, &json!(1)));
    assert_eq!(after["metadata"].get("labels"), None);

    let other =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"color": "red"}, "status": {"phase": "Lost"}});
    let after = server.patch(&main, "merge", &other).await.json();
    assert_eq!((&after["status"]["phase"], &after["spec"]["color"]), (&json!("Ready"), &json!("red")));
    assert_eq!(after["metadata"]["generation"], 2);

    let labelled = server.patch(&main, "merge", &json!({"metadata": {"labels": {"a": "c"}}})).await.json();
    assert_eq!(labelled["metadata"]["generation"], 2, "metadata is not counted");
    let mut full = labelled.clone();
    full["status"] = json!({"phase": "Done"});
    assert_eq!(server.put(&status, &full).await.json()["status"]["phase"], "Done");
    assert_eq!(server.put(&status, &full).await.code, 409, "status writes check the version, too");
    let wrong = server.patch(&status, "merge", &json!({"status": {"phase": 1}})).await.failure();
    assert_eq!((wrong.0, &*wrong.1), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn without_a_status_subresource_the_generation_counts_everything_but_metadata() {
    let server = Server::start().await;
    let created = server.create(GADGETS, &json!({"metadata": {"name": "g"}, "status": {"on": false}})).await;
    assert_eq!((&created["status"], &created["metadata"]["generation"]), (&json!({"on": false}), &json!(1)));
    let path = format!("{GADGETS}/g");
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"status": {"on": true}}), 2),
        (json!({"anything": 1.0}), 3),
        (json!({"metadata": {"generation": 17}}), 3),
    ] {
        let after = server.patch(&path, "merge", &patch).await.json();
        assert_eq!(after["metadata"]["generation"], generation, "{patch}");
    }
    assert_eq!(server.get(&format!("{path}/status")).await.failure().0, 404);
}

#[tokio::test(start_paused = true)]
async fn integers_and_floats_stay_distinct() {
    let server = Server::start().await;
    let numbers =
        json!({"int": 1, "float": 1.5, "whole": 7.0, "big": 9_007_199_254_740_993_i64, "negative": -5});
    server.create(GADGETS, &json!({"metadata": {"name": "g"}, "numbers": numbers})).await;
    let text = server.get(&format!("{GADGETS}/g")).await;
    for part in ["\"int\":1,", "\"float\":1.5,", "\"whole\":7", "\"big\":9007199254740993,"] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
}

#[tokio::test(start_paused = true)]
async fn versions_are_converted_and_defaulted_both_ways() {
    let server = Server::start().await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let created = server.post(&beta, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    assert_eq!(created.warnings(), ["299 - \"example.com/v1beta1 Widget is deprecated\""]);
    let created = created.json();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]["size"]),
        (&json!("example.com/v1beta1"), &json!(2))
    );
    let stored = server.get(&format!("{WIDGETS}/w")).await.json();
    assert_eq!((&stored["apiVersion"], &stored["spec"]["size"]), (&json!("example.com/v1"), &json!(2)));
    assert_eq!(version_of(&stored), version_of(&created));
    let mut watch = server.watch(&format!("{beta}?watch=true")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], "example.com/v1beta1");
    let list = server.get(&beta).await.json();
    assert_eq!(
        (&list["apiVersion"], &list["items"][0]["apiVersion"]),
        (&json!("example.com/v1beta1"), &json!("example.com/v1beta1"))
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_updates_lose_nothing() {
    let server = std::sync::Arc::new(Server::start().await);
    server.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..20).map(|number| {
        let (server, path) = (server.clone(), path.clone());
        tokio::spawn(async move {
            server.patch(&path, "merge", &json!({"data": {format!("k{number}"): "v"}})).await.code
        })
    });
    for patch in patches.collect::<Vec<_>>() {
        assert_eq!(patch.await.unwrap(), 200);
    }
    assert_eq!(server.get(&path).await.json()["data"].as_object().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_created_by_an_update() {
    let server = Server::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let created = server.put(path, &lease).await;
    assert_eq!(created.code, 201);
    assert_eq!(server.put(path, &lease).await.code, 422, "and updated only with its version");
    assert_eq!(server.put(path, &created.json()).await.code, 200);
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

#[tokio::test]
async fn a_body_needs_the_type_of_its_url_unless_its_kind_is_built_in() {
    let server = Server::start().await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let unrecognized = |reason: &str, summary: &str| {
        format!("the object provided is unrecognized (must be of type Widget): {reason} ({summary})")
    };
    let missing =
        |body: &str, summary: &str| unrecognized(&format!("Object 'Kind' is missing in '{body}'"), summary);
    let no_text = |given: &str, at: &str| {
        format!("couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go {at}")
    };
    let structure = r#"value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let mismatch = |given: &str| {
        format!(
            "the API version in the data ({given}) does not match the expected API version (example.com/v1)"
        )
    };
    let no_kind = r#"{"apiVersion":"example.com/v1","metadata":{"name":"w"}}"#;
    let null_kind = r#"{"apiVersion":"example.com/v1","kind":null,"metadata":{"name":"w"}}"#;
    let begin = r#"{"apiVersion":"example.com/v1" ..."#;
    // As recorded with kcp.
    let table: Vec<(&str, u16, String)> = vec![
        (no_kind, 400, missing(no_kind, begin)),
        (null_kind, 400, missing(null_kind, begin)),
        (
            r#"{"metadata":{"name":"w"}}"#,
            400,
            missing(r#"{"metadata":{"name":"w"}}"#, r#"{"metadata":{"name":"w"}}"#),
        ),
        ("null", 400, missing("null", "6e756c6c")),
        (
            "",
            400,
            unrecognized(
                "couldn't get version/kind; json parse error: unexpected end of JSON input",
                "<empty>",
            ),
        ),
        ("[1]", 400, unrecognized(&no_text("array", structure), "5b315d")),
        (
            r#"{"apiVersion":"example.com/v1","kind":3}"#,
            400,
            unrecognized(&no_text("number", "struct field .kind of type string"), begin),
        ),
        (
            r#"{"apiVersion":"a/b/c","kind":"Widget"}"#,
            400,
            unrecognized("unexpected GroupVersion string: a/b/c", r#"{"apiVersion":"a/b/c","kind":" ..."#),
        ),
        (r#"{"kind":"Widget","metadata":{"name":"w"}}"#, 400, mismatch("")),
        (r#"{"apiVersion":"example.com/v2","kind":"Widget"}"#, 400, mismatch("example.com/v2")),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Wodget","metadata":{"name":"w"}}"#,
            422,
            r#"Wodget.example.com "w" is invalid: kind: Invalid value: "Wodget": must be Widget"#.to_owned(),
        ),
    ];
    let path = format!("{WIDGETS}/w");
    for (body, code, message) in &table {
        for (method, path) in [("POST", WIDGETS), ("PUT", &path)] {
            let headers = [("content-type", "application/json")];
            let failure = server.send(method, path, &headers, (*body).to_owned()).await.failure();
            assert_eq!((failure.0, &*failure.2), (*code, &**message), "{method} {body}");
        }
    }
    let yaml = [("content-type", "application/yaml")];
    let failure = server.send("POST", WIDGETS, &yaml, "metadata:\n  name: y\n").await.failure();
    let body = "metadata:\n  name: y\n";
    assert_eq!(failure.2, missing(body, "6d657461646174613a0a20206e616d653a20790a"));

    let merge = [("content-type", "application/merge-patch+json")];
    for (patch, message) in [
        (r#"{"kind":null}"#, r#" "" is invalid: patch: Invalid value: "#),
        (
            r#"{"kind":"Wodget"}"#,
            r#"Wodget.example.com "w" is invalid: kind: Invalid value: "Wodget": must be Widget"#,
        ),
        (
            r#"{"apiVersion":"example.com/v2"}"#,
            r#"Widget.example.com "w" is invalid: apiVersion: Invalid value: "example.com/v2": must be example.com/v1"#,
        ),
    ] {
        let failure = server.send("PATCH", &path, &merge, patch).await.failure();
        assert!(failure.0 == 422 && failure.2.starts_with(message), "{patch}: {failure:?}");
    }

    let headers = [("content-type", "application/json")];
    let created = server.send("POST", CONFIG_MAPS, &headers, r#"{"metadata":{"name":"c"}}"#).await.json();
    assert_eq!((&created["apiVersion"], &created["kind"]), (&json!("v1"), &json!("ConfigMap")));
}
