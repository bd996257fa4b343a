//! Writes that are based on a revision which another replica has told the client, and this one has not reached.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{CONFIG_MAPS, JSON, Server, TestResponse, version_of};

/// A write of the config map `a` that is based on a revision: method, content type and body.
type Write = (&'static str, &'static str, Value);

fn writes(base: u64) -> Vec<Write> {
    let base = base.to_string();
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": base}});
    let merge = json!({"metadata": {"resourceVersion": base}, "data": {"own": "yes"}});
    vec![
        ("PUT", "application/json", object.clone()),
        ("PATCH", "application/merge-patch+json", merge.clone()),
        ("PATCH", "application/strategic-merge-patch+json", merge),
        (
            "PATCH",
            "application/json-patch+json",
            json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": base},
                {"op": "add", "path": "/data", "value": {"own": "yes"}},
            ]),
        ),
        ("PATCH", "application/apply-patch+yaml", object),
        ("DELETE", "application/json", json!({"preconditions": {"resourceVersion": base}})),
    ]
}

async fn send(server: &Server, (method, content_type, body): &Write) -> TestResponse {
    let query = if content_type.contains("apply") { "?fieldManager=tester&force=true" } else { "" };
    let path = format!("{CONFIG_MAPS}/a{query}");
    server.send(method, &path, &[("content-type", content_type)], body.to_string()).await
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_the_revision_on_which_it_is_based() {
    for index in 0..writes(0).len() {
        for exists in [true, false] {
            let server = Arc::new(Server::start_replica().await);
            if exists {
                server.config_map("a", json!({})).await;
            }
            // The next commit is one of another replica, which has told it to the client before this one has it.
            let write = writes(server.store().revision().0 + 1).remove(index);
            let writing = tokio::spawn({
                let (server, write) = (server.clone(), write.clone());
                async move { send(&server, &write).await }
            });
            tokio::task::yield_now().await;
            let theirs = if exists {
                server
                    .patch(&format!("{CONFIG_MAPS}/a"), "merge", &json!({"data": {"their": "yes"}}))
                    .await
                    .json()
            } else {
                server.config_map("a", json!({})).await
            };
            assert_eq!(version_of(&theirs).to_string(), base_of(&write), "{write:?}");
            let response = writing.await.unwrap();
            assert_eq!(response.code, 200, "{write:?}, exists: {exists}: {response:?}");
        }
    }
}

fn base_of((_, _, body): &Write) -> String {
    let places = ["/metadata/resourceVersion", "/preconditions/resourceVersion", "/0/value"];
    places.iter().find_map(|place| body.pointer(place)).unwrap().as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_based_on_a_revision_which_never_comes_is_a_conflict() {
    // Only a replica waits, and not for ever.
    for (server, seconds) in [(Server::start_replica().await, 3), (Server::start_alone().await, 0)] {
        server.config_map("a", json!({})).await;
        for write in writes(99_999_999) {
            let began = Instant::now();
            let response = send(&server, &write).await;
            // The operation `test` of a JSON patch fails.
            let expected = if write.1.contains("json-patch") { 422 } else { 409 };
            assert_eq!(response.code, expected, "{write:?}: {response:?}");
            assert_eq!(began.elapsed().as_secs(), seconds, "{write:?}");
        }
        // A conflict with the past is told at once.
        let began = Instant::now();
        let past = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}});
        let response = server.send("PUT", &format!("{CONFIG_MAPS}/a"), JSON, past.to_string()).await;
        assert_eq!((response.code.as_u16(), began.elapsed().as_secs()), (409, 0), "{response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_page_of_a_list_waits_for_the_revision_of_the_first_one() {
    let first = Server::start_replica().await;
    let second = Server::start_replica().await;
    for server in [&first, &second] {
        server.config_map("a", json!({})).await;
        server.config_map("b", json!({})).await;
    }
    first.config_map("c", json!({})).await;
    let page = first.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let path = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let (rest, _) = tokio::join!(second.get(&path), second.config_map("c", json!({})));
    assert_eq!(rest.code, 200, "{rest:?}");
    let rest = rest.json();
    let names: Vec<_> =
        rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c"]);
}
