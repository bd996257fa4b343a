//! Delete and deletecollection.

use serde_json::json;

use crate::client::{CONFIG_MAPS, Server, WIDGETS, version_of};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test(start_paused = true)]
async fn a_delete_removes_the_object_and_returns_its_uid() {
    let server = Server::start().await;
    let created = server.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let response = server.send("DELETE", &path, JSON, r#"{"propagationPolicy":"Background"}"#).await;
    assert_eq!(response.code, 200);
    assert_eq!(
        response.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}})
    );
    assert_eq!(server.get(&path).await.code, 404);
    assert_eq!(
        server.delete(&path).await.failure(),
        (404, "NotFound".into(), "configmaps \"a\" not found".into())
    );
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_removed() {
    let server = Server::start().await;
    let path = format!("{WIDGETS}/w");
    let body =
        json!({"metadata": {"name": "w", "finalizers": ["example.com/f", "example.com/g"]}, "spec": {}});
    let created = server.create(WIDGETS, &body).await;
    let mut watch =
        server.watch(&format!("{WIDGETS}?watch=true&resourceVersion={}", version_of(&created))).await;

    let marked = server.delete(&path).await.json();
    let metadata = &marked["metadata"];
    assert!(metadata["deletionTimestamp"].is_string());
    assert_eq!((&metadata["deletionGracePeriodSeconds"], &metadata["generation"]), (&json!(0), &json!(2)));
    assert_eq!(server.delete(&path).await.json(), marked, "a second delete changes nothing");

    let again = server.post(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    assert_eq!(again.failure().2, "object is being deleted: widgets.example.com \"w\" already exists");
    let more = json!({"metadata": {"finalizers": ["example.com/f", "example.com/h"]}});
    let refused = server.patch(&path, "merge", &more).await.failure();
    assert_eq!(refused.0, 422);
    assert!(refused.2.contains("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/h\"}"), "{}", refused.2);
    let revived = json!({"metadata": {"deletionTimestamp": null}});
    assert_eq!(server.patch(&path, "merge", &revived).await.json(), marked, "there is no way back");

    let fewer =
        server.patch(&path, "merge", &json!({"metadata": {"finalizers": ["example.com/g"]}})).await.json();
    assert!(version_of(&fewer) > version_of(&marked));
    let last = server.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!((last.code.as_u16(), version_of(&last.json())), (200, version_of(&fewer)));
    assert_eq!(last.json()["metadata"].get("finalizers"), None);
    assert_eq!(server.get(&path).await.code, 404);

    for event in [
        format!("MODIFIED w {}", version_of(&marked)),
        format!("MODIFIED w {}", version_of(&fewer)),
        format!("DELETED w {}", server.store().revision()),
    ] {
        assert_eq!(watch.brief().await, event);
    }
}

#[tokio::test(start_paused = true)]
async fn preconditions_must_hold() {
    let server = Server::start().await;
    let created = server.config_map("a", json!({})).await;
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let version = version_of(&created);
    let path = format!("{CONFIG_MAPS}/a");
    for (preconditions, message) in [
        (
            json!({"uid": "other"}),
            format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ),
        (
            json!({"uid": uid, "resourceVersion": "1"}),
            format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ),
        ),
    ] {
        let body =
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}).to_string();
        let response = server.send("DELETE", &path, JSON, body).await;
        assert_eq!(response.failure(), (409, "Conflict".into(), message));
    }
    let body = json!({"preconditions": {"uid": uid, "resourceVersion": version.to_string()}}).to_string();
    assert_eq!(server.send("DELETE", &path, JSON, body).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn malformed_delete_options_are_rejected() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    for (body, code) in [
        ("{", 400),
        ("[]", 400),
        (r#"{"preconditions":7}"#, 400),
        (r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"other"}}"#, 400),
        (r#"{"kind":"Foo","apiVersion":"v9"}"#, 400),
        (r#"{"kind":"DeleteOptions","apiVersion":"foo/v1"}"#, 400),
        (r#"{"kind":"DeleteOptions","apiVersion":"v2"}"#, 400),
    ] {
        assert_eq!(
            server.send("DELETE", &format!("{CONFIG_MAPS}/a"), JSON, body).await.failure().0,
            code,
            "{body}"
        );
    }
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/a")).await.code, 200);
    for version in ["v1", "meta.k8s.io/v1", "apps/v1"] {
        let body = json!({"kind": "DeleteOptions", "apiVersion": version, "dryRun": ["All"]}).to_string();
        assert_eq!(
            server.send("DELETE", &format!("{CONFIG_MAPS}/a"), JSON, body).await.code,
            200,
            "{version}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn delete_collection_deletes_the_selected_objects() {
    let server = Server::start().await;
    for (name, team) in [("a", "x"), ("b", "y"), ("c", "x")] {
        server.config_map(name, json!({"team": team})).await;
    }
    let finalized = json!({"metadata": {"name": "held", "labels": {"team": "x"}, "finalizers": ["e.io/f"]}});
    server.create(CONFIG_MAPS, &finalized).await;
    let response = server.delete(&format!("{CONFIG_MAPS}?labelSelector=team%3Dx")).await;
    assert_eq!(
        (response.json()["kind"].as_str(), response.names()),
        (Some("ConfigMapList"), vec!["a".into(), "c".into(), "held".into()])
    );
    assert_eq!(server.get(CONFIG_MAPS).await.names(), ["b", "held"]);
    assert!(
        server.get(&format!("{CONFIG_MAPS}/held")).await.json()["metadata"]["deletionTimestamp"].is_string()
    );
    assert_eq!(
        server.delete(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dnone")).await.names(),
        Vec::<String>::new()
    );
    assert_eq!(server.delete(&format!("{CONFIG_MAPS}?dryRun=All")).await.code, 200);
    assert_eq!(server.get(CONFIG_MAPS).await.names(), ["b", "held"]);
    server.delete(CONFIG_MAPS).await;
    assert_eq!(server.get(CONFIG_MAPS).await.names(), ["held"]);
}

#[tokio::test(start_paused = true)]
async fn delete_collection_deletes_hundreds_of_objects() {
    let server = Server::start().await;
    for number in 0..300 {
        server.config_map(&format!("n{number}"), json!({})).await;
    }
    assert_eq!(server.delete(CONFIG_MAPS).await.names().len(), 300);
    assert_eq!(server.get(CONFIG_MAPS).await.names().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_propagation_policy_sets_the_finalizer_of_the_garbage_collector() {
    let server = Server::start().await;
    for (policy, expected) in [("Foreground", Some("foregroundDeletion")), ("Orphan", Some("orphan"))] {
        server.config_map("a", json!({})).await;
        let path = format!("{CONFIG_MAPS}/a");
        let body = json!({"propagationPolicy": policy}).to_string();
        let deleted = server.send("DELETE", &path, JSON, body).await.json();
        assert_eq!(deleted["metadata"]["finalizers"], json!([expected]), "{policy}");
        assert!(deleted["metadata"]["deletionTimestamp"].is_string());
        // Without a policy the finalizer stays; another policy replaces it.
        assert_eq!(server.delete(&path).await.json()["metadata"]["finalizers"], json!([expected]));
        let body = json!({"propagationPolicy": "Background"}).to_string();
        assert_eq!(server.send("DELETE", &path, JSON, body).await.code, 200);
        assert_eq!(server.get(&path).await.code, 404, "{policy}");
    }
}
