//! Updates: their conditions, and what counts as a change.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, GADGETS, Server, WIDGETS, version_of};

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
    assert_eq!(server.store().revision().0, version_of(&created), "nothing was written");
    let changed = server.patch(&path, "merge", &json!({"spec": {"color": "red"}})).await.json();
    assert_eq!(watch.brief().await, format!("MODIFIED w {}", version_of(&changed)));
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
