//! Server-side apply, and the owners of fields.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, METADATA, Server, TABLE, TestResponse, WIDGETS, version_of};

/// Applies a configuration. `query` has the manager and other options.
async fn apply(server: &Server, path: &str, query: &str, configuration: &Value) -> TestResponse {
    let headers = [("content-type", "application/apply-patch+yaml"), ("user-agent", "test/1")];
    server.send("PATCH", &format!("{path}?{query}"), &headers, configuration.to_string()).await
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// Manager, operation, subresource and fields of each entry, by manager: the order of the entries depends on their times.
fn owners(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entry = |entry: &Value| {
        assert_eq!(entry["fieldsType"], "FieldsV1");
        assert!(entry["time"].is_string(), "{entry}");
        json!([entry["manager"], entry["operation"], entry["subresource"], entry["fieldsV1"]])
    };
    let mut entries: Vec<Value> = entries.iter().map(entry).collect();
    entries.sort_by_key(ToString::to_string);
    entries.into()
}

#[tokio::test(start_paused = true)]
async fn a_configuration_creates_changes_and_removes_fields() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let created = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "1", "b": "2"}))).await;
    assert_eq!(created.code, 201, "{created:?}");
    let created = created.json();
    assert_eq!(owners(&created), json!([["m", "Apply", null, {"f:data": {"f:a": {}, "f:b": {}}}]]));
    assert_eq!(server.get(&path).await.json(), created);

    // The same configuration again writes nothing.
    let revision = server.store().revision();
    let same = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "1", "b": "2"}))).await;
    assert_eq!((same.code.as_u16(), same.json()), (200, created));
    assert_eq!(server.store().revision(), revision);

    // Another manager owns a value as well; each one may drop it.
    let shared =
        apply(&server, &path, "fieldManager=n", &config_map(json!({"b": "2", "c": "3"}))).await.json();
    assert_eq!(shared["data"], json!({"a": "1", "b": "2", "c": "3"}));
    let dropped = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "1"}))).await.json();
    assert_eq!(dropped["data"], json!({"a": "1", "b": "2", "c": "3"}));
    let removed = apply(&server, &path, "fieldManager=n", &config_map(json!({"c": "3"}))).await.json();
    assert_eq!(removed["data"], json!({"a": "1", "c": "3"}));
}

#[tokio::test(start_paused = true)]
async fn fields_of_other_managers_are_conflicts_unless_forced() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    server
        .send(
            "POST",
            &format!("{CONFIG_MAPS}?fieldManager=creator"),
            &[("content-type", "application/json")],
            config_map(json!({"a": "1", "b": "2"})).to_string(),
        )
        .await;
    let change = config_map(json!({"a": "9", "b": "8"}));
    let refused = apply(&server, &path, "fieldManager=m", &change).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"creator\" using v1:\n- .data.a\n- .data.b";
    assert_eq!(refused.failure(), (409, "Conflict".to_owned(), message.to_owned()));
    assert_eq!(
        refused.json()["details"],
        json!({"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"creator\" using v1", "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"creator\" using v1", "field": ".data.b"}]})
    );
    let one = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "9"}))).await;
    assert_eq!(one.failure().2, "Apply failed with 1 conflict: conflict with \"creator\" using v1: .data.a");
    let forced = apply(&server, &path, "fieldManager=m&force=true", &change).await.json();
    assert_eq!(
        owners(&forced),
        json!([["creator", "Update", null, {"f:data": {}}],
            ["m", "Apply", null, {"f:data": {"f:a": {}, "f:b": {}}}]])
    );
}

#[tokio::test(start_paused = true)]
async fn every_write_tracks_its_manager() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let agent = [("content-type", "application/json"), ("user-agent", "kubectl/v1.33 (linux)")];
    let created =
        server.send("POST", CONFIG_MAPS, &agent, config_map(json!({"a": "1", "b": "2"})).to_string()).await;
    let all = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
    assert_eq!(owners(&created.json()), json!([["kubectl", "Update", null, all]]));

    // A client that changes what it has read sends managedFields back.
    let mut changed = created.json();
    changed["data"]["a"] = "9".into();
    let put = format!("{path}?fieldManager=editor");
    let updated = server.send("PUT", &put, &agent, changed.to_string()).await.json();
    let expected = json!([["editor", "Update", null, {"f:data": {"f:a": {}}}],
        ["kubectl", "Update", null, {"f:data": {".": {}, "f:b": {}}}]]);
    assert_eq!(owners(&updated), expected);

    // A PUT of equal content writes nothing, with or without managedFields.
    let revision = server.store().revision();
    for managed in [true, false] {
        let mut same = updated.clone();
        if !managed {
            same["metadata"].as_object_mut().unwrap().remove("managedFields");
            same["metadata"]["annotations"].as_object_mut().unwrap().remove("kcp.io/cluster");
        }
        assert_eq!(server.send("PUT", &put, &agent, same.to_string()).await.json(), updated);
        assert_eq!(server.store().revision(), revision);
    }

    let patch = json!({"metadata": {"labels": {"l": "1"}, "finalizers": ["e.io/f"]}, "data": {"b": null}});
    let patched = server.patch(&path, "merge", &patch).await.json();
    let metadata = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"e.io/f\"": {}},
        "f:labels": {".": {}, "f:l": {}}}});
    let unknown = json!(["unknown", "Update", null, metadata]);
    assert_eq!(
        owners(&patched),
        json!([["editor", "Update", null, {"f:data": {"f:a": {}}}],
            ["kubectl", "Update", null, {"f:data": {}}], unknown])
    );

    // Deletion keeps the owners, and an empty list or entry resets them.
    let deleted = server.delete(&path).await.json();
    assert_eq!(owners(&deleted), owners(&patched));
    for reset in [json!([]), json!([{}])] {
        let patch = json!({"metadata": {"managedFields": reset}});
        let response = server.patch(&path, "merge", &patch).await.json();
        assert_eq!(response["metadata"].get("managedFields"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn status_is_owned_through_its_subresource_alone() {
    let server = Server::start().await;
    let path = format!("{WIDGETS}/w");
    let widget = |spec: Value, status: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
            "status": status})
    };
    let query = "fieldManager=m";
    let created = apply(&server, &path, query, &widget(json!({"color": "red"}), json!({"phase": "x"}))).await;
    assert_eq!(created.code, 201, "{created:?}");
    let created = created.json();
    assert_eq!(created.get("status"), None);
    assert_eq!(created["spec"], json!({"color": "red", "size": 1}), "defaults apply");
    let spec = json!(["m", "Apply", null, {"f:spec": {"f:color": {}}}]);
    assert_eq!(owners(&created), json!([spec]), "nobody owns defaults");

    let other = widget(json!({"color": "blue"}), json!({"phase": "x"}));
    let status = apply(&server, &format!("{path}/status"), query, &other).await.json();
    assert_eq!((&status["spec"]["color"], &status["status"]["phase"]), (&json!("red"), &json!("x")));
    assert_eq!(owners(&status), json!([["m", "Apply", "status", {"f:status": {"f:phase": {}}}], spec]));
    let absent =
        apply(&server, &format!("{WIDGETS}/none/status"), query, &widget(json!({}), json!({}))).await;
    assert_eq!(absent.failure().0, 404);
}

#[tokio::test(start_paused = true)]
async fn refused_configurations_state_the_reason() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let named = |rest: Value| {
        let mut object = config_map(json!({}));
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object.to_string()
    };
    for (path, query, body, code, message) in [
        (
            &*path,
            "",
            "{}".to_owned(),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (&path, "fieldManager=m", "{}".to_owned(), 400, "invalid object type: /, Kind="),
        (&path, "fieldManager=m", "{".to_owned(), 400, "error decoding YAML: "),
        (
            &path,
            "fieldManager=m",
            named(json!({"kind": "Secret"})),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"metadata": {"name": "a", "managedFields": []}})),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"more": 1})),
            400,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .more: field not declared in schema",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"data": {"a": 1}})),
            400,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got \
             &value.valueUnstructured{Value:1}",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"metadata": {"name": "b"}})),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"metadata": {"name": "a", "resourceVersion": "1"}})),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; ",
        ),
        (
            &path,
            "fieldManager=m",
            named(json!({"metadata": {"name": "a", "uid": "x"}})),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: x",
        ),
        (
            "/api/v1/namespaces/default/configmaps/new",
            "fieldManager=m",
            named(json!({"metadata": {}})),
            400,
            "the name of the object (new based on URL) was undeterminable: name must be provided",
        ),
        (
            &path,
            "fieldManager=m&fieldValidation=Strict",
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\
            \"metadata\":{\"name\":\"a\"},\"data\":{\"x\":\"1\",\"x\":\"2\"}}"
                .to_owned(),
            400,
            "error strict decoding YAML: ",
        ),
        (
            &path,
            "fieldManager=a%09b",
            named(json!({})),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\tb\": should only contain \
             printable characters (at position 1)",
        ),
    ] {
        let revision = server.store().revision();
        let headers = [("content-type", "application/apply-patch+yaml")];
        let response = server.send("PATCH", &format!("{path}?{query}"), &headers, body.clone()).await;
        let failure = response.failure();
        assert_eq!(failure.0, code, "{body}: {failure:?}");
        assert!(failure.2.starts_with(message), "{body}: {failure:?}");
        assert_eq!(server.store().revision(), revision);
    }
    let forced = server
        .send(
            "PATCH",
            &format!("{path}?force=true"),
            &[("content-type", "application/merge-patch+json")],
            "{}",
        )
        .await;
    assert_eq!(
        forced.failure().2,
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test(start_paused = true)]
async fn a_create_by_apply_needs_the_permission_to_create() {
    let server = Server::start().await;
    // The test host allows this user everything on objects named `a`, in any verb.
    let headers = [("content-type", "application/apply-patch+yaml"), ("x-user", "patch-only:a")];
    let path = format!("{CONFIG_MAPS}/a?fieldManager=m");
    let refused = server.send("PATCH", &path, &headers, config_map(json!({})).to_string()).await;
    let failure = refused.failure();
    assert_eq!(failure.0, 403, "{failure:?}");
    assert!(failure.2.contains("cannot create resource \"configmaps\""), "{failure:?}");
    server.config_map("a", json!({})).await;
    let allowed = server.send("PATCH", &path, &headers, config_map(json!({})).to_string()).await;
    assert_eq!(allowed.code, 200, "{allowed:?}");
}

#[tokio::test(start_paused = true)]
async fn dry_runs_write_nothing() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let query = "fieldManager=m&dryRun=All";
    let revision = server.store().revision();
    let created = apply(&server, &path, query, &config_map(json!({"a": "1"}))).await;
    assert_eq!((created.code.as_u16(), &created.json()["data"]), (201, &json!({"a": "1"})));
    assert_eq!(server.store().revision(), revision);
    let first = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "1"}))).await.json();
    let changed = apply(&server, &path, query, &config_map(json!({"a": "2"}))).await.json();
    assert_eq!((&changed["data"], version_of(&changed)), (&json!({"a": "2"}), version_of(&first)));
    assert_eq!(server.get(&path).await.json(), first);
}

#[tokio::test(start_paused = true)]
async fn all_forms_of_a_response_have_managed_fields() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let created = apply(&server, &path, "fieldManager=m", &config_map(json!({"a": "1"}))).await.json();
    let managed = &created["metadata"]["managedFields"];
    assert!(managed.is_array());
    assert_eq!(&server.get(CONFIG_MAPS).await.json()["items"][0]["metadata"]["managedFields"], managed);
    assert_eq!(&server.get_as(&path, METADATA).await.json()["metadata"]["managedFields"], managed);
    let table = server.get_as(CONFIG_MAPS, TABLE).await.json();
    assert_eq!(&table["rows"][0]["object"]["metadata"]["managedFields"], managed);
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(&watch.next().await.unwrap()["object"]["metadata"]["managedFields"], managed);
    server.delete(&path).await;
    let deleted = watch.next().await.unwrap();
    assert_eq!(
        (&deleted["type"], &deleted["object"]["metadata"]["managedFields"]),
        (&json!("DELETED"), managed)
    );
    // Another version than the stored one is converted.
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    let widget = apply(&server, &format!("{WIDGETS}/w"), "fieldManager=m", &widget).await.json();
    let old = server.get("/apis/example.com/v1beta1/namespaces/default/widgets/w").await.json();
    assert_eq!(old["metadata"]["managedFields"], widget["metadata"]["managedFields"]);
}

#[tokio::test(start_paused = true)]
async fn kubectl_takes_over_the_fields_of_client_side_apply() {
    let server = Server::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let last =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}});
    let mut object = config_map(json!({"a": "1", "b": "2"}));
    object["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let create = format!("{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply");
    server.create(&create, &object).await;
    let refused =
        apply(&server, &path, "fieldManager=kubectl", &config_map(json!({"a": "9", "b": "9"}))).await;
    assert_eq!(
        refused.failure().2,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
    let taken = apply(&server, &path, "fieldManager=kubectl", &config_map(json!({"a": "9"}))).await.json();
    assert_eq!(taken["data"], json!({"a": "9", "b": "2"}));
    let annotation = &taken["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let expected = config_map(json!({"a": "9"}));
    assert_eq!(serde_json::from_str::<Value>(annotation.as_str().unwrap()).unwrap(), expected);
    let other = apply(&server, &path, "fieldManager=other", &config_map(json!({"a": "8"}))).await;
    assert_eq!(other.failure().0, 409);
}
