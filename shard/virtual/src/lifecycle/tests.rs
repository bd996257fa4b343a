#![allow(clippy::unwrap_used, reason = "tests")]

use fairlead_names::{initializer_label, terminator_label};
use serde_json::{Value, json};

use crate::testing::{LOGICAL_CLUSTERS, MASTER, TestShard, events, is_watch};

const INITIALIZING: &str = "/services/initializingworkspaces/root:t/clusters";
const TERMINATING: &str = "/services/terminatingworkspaces/root:t/clusters";

/// A shard where `alice` may initialize and terminate workspaces of the type `root:t`. The logical cluster `waiting` waits for both,
/// and `other` for others.
async fn shard() -> TestShard {
    let shard = TestShard::start();
    shard
        .shard
        .grants
        .lock()
        .extend([["alice", "root", "initialize", "t"], ["alice", "root", "terminate", "t"]]);
    shard.shard.types.lock().insert("root:t".to_owned(), json!({}));
    add(&shard, "waiting", "root:t").await;
    add(&shard, "other", "root:u").await;
    shard
}

async fn add(shard: &TestShard, cluster: &str, controller: &str) {
    let phase = ("tenancy.kcp.io/phase".to_owned(), "Initializing".to_owned());
    let labels = [phase, initializer_label(controller), terminator_label(controller)];
    let status = json!({"phase": "Initializing", "initializers": [controller, "root:x"],
                        "terminators": [controller, "root:x"]});
    shard.logical_cluster(cluster, &labels, &status).await;
}

/// Marks a LogicalCluster for deletion; its finalizer keeps it.
async fn mark(shard: &TestShard, cluster: &str) {
    let path = format!("/clusters/{cluster}{LOGICAL_CLUSTERS}/cluster");
    assert_eq!(shard.send(MASTER, "DELETE", &path, "").await.code, 200);
}

async fn patch(shard: &TestShard, path: &str, patch: Value) -> (u16, String) {
    shard.send("alice", "PATCH", path, &patch.to_string()).await.outcome()
}

fn clusters(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().filter_map(|item| item["metadata"]["annotations"]["kcp.io/cluster"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn discovery_has_the_view_and_nothing_else() {
    let shard = shard().await;
    for base in [INITIALIZING, TERMINATING] {
        let get = async |path: &str| shard.get("alice", &format!("{base}/*{path}")).await;
        assert_eq!(get("/api").await.json()["versions"], json!(["v1"]));
        assert_eq!(get("/api/v1").await.code, 404);
        let groups = get("/apis").await.json();
        assert_eq!(groups["kind"], "APIGroupList");
        assert_eq!(groups["groups"].as_array().map(|groups| groups.len()), Some(1));
        assert_eq!(
            get("/apis/core.kcp.io/v1alpha1").await.json()["resources"],
            json!([
                {"name": "logicalclusters", "singularName": "logicalcluster", "namespaced": false,
                 "kind": "LogicalCluster", "verbs": ["get", "list", "watch"], "categories": ["kcp"],
                 "storageVersionHash": "l84hS/aun10="},
                {"name": "logicalclusters/status", "singularName": "", "namespaced": false,
                 "kind": "LogicalCluster", "verbs": null},
            ])
        );
        assert_eq!(get("/openapi/v3").await.code, 200);
        assert_eq!(get("/version").await.code, 200);
        assert_eq!(get("/api/v1/configmaps").await.code, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_aggregated_discovery_get_the_other_form() {
    let shard = shard().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let path = format!("{INITIALIZING}/*/apis");
    let response = shard.open("alice", "GET", &path, &[("accept", accept)], "").await;
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[tokio::test(start_paused = true)]
async fn a_terminator_sees_the_view_in_one_cluster_and_an_initializer_the_content() {
    let shard = shard().await;
    mark(&shard, "waiting").await;
    let verbs = |list: &Value, name: &str| {
        let all = list["resources"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).map(|one| one["verbs"].clone())
    };
    let path = "/waiting/apis/core.kcp.io/v1alpha1";
    let view = shard.get("alice", &format!("{TERMINATING}{path}")).await.json();
    assert_eq!(verbs(&view, "logicalclusters"), Some(json!(["get"])));
    assert_eq!(verbs(&view, "logicalclusters/status"), Some(json!(["get", "patch", "update"])));
    let content = shard.get("alice", &format!("{INITIALIZING}{path}")).await.json();
    assert_eq!(verbs(&content, "logicalclusters").unwrap().as_array().unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn lists_have_what_waits_for_the_controller() {
    let shard = shard().await;
    let list = async |base: &str, query: &str| {
        shard.get("alice", &format!("{base}/*{LOGICAL_CLUSTERS}{query}")).await.json()
    };
    assert_eq!(clusters(&list(INITIALIZING, "").await), ["waiting"]);
    assert_eq!(clusters(&list(INITIALIZING, "?labelSelector=tenancy.kcp.io/phase%3DReady").await), [""; 0]);
    assert_eq!(clusters(&list(TERMINATING, "").await), [""; 0], "it is not being deleted");
    mark(&shard, "waiting").await;
    mark(&shard, "other").await;
    assert_eq!(clusters(&list(TERMINATING, "").await), ["waiting"]);
    // A client that wants only metadata sees no more.
    let path = format!("{INITIALIZING}/*{LOGICAL_CLUSTERS}");
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let response = shard.open("alice", "GET", &path, &[("accept", accept)], "").await;
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(clusters(&serde_json::from_slice(&bytes).unwrap()), ["waiting"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_objects_that_come_and_go() {
    let shard = shard().await;
    let path = |base: &str| format!("{base}/*{LOGICAL_CLUSTERS}?watch=true");
    let mut initializing = shard.open("alice", "GET", &path(INITIALIZING), &[], "").await;
    let mut terminating = shard.open("alice", "GET", &path(TERMINATING), &[], "").await;
    assert!(is_watch(&initializing) && is_watch(&terminating));
    let event = |kind: &str, cluster: &str, deleting: bool| (kind.to_owned(), cluster.to_owned(), deleting);
    assert_eq!(events(&mut initializing), [event("ADDED", "waiting", false)]);
    assert_eq!(events(&mut terminating), []);
    add(&shard, "later", "root:t").await;
    shard.settle().await;
    let added = [event("ADDED", "later", false), event("MODIFIED", "later", false)];
    assert_eq!(events(&mut initializing), added);
    // The label of the initializer is removed.
    let labels = json!({"metadata": {"labels": {(initializer_label("root:t").0): null}}}).to_string();
    let object = format!("/clusters/later{LOGICAL_CLUSTERS}/cluster");
    shard.send(MASTER, "PATCH", &object, &labels).await;
    shard.settle().await;
    assert_eq!(events(&mut initializing), [event("DELETED", "later", false)]);
    assert_eq!(events(&mut terminating), []);
    mark(&shard, "later").await;
    shard.settle().await;
    assert_eq!(events(&mut terminating), [event("ADDED", "later", true)]);
    shard.send(MASTER, "PATCH", &format!("{object}/status"), r#"{"status":{"phase":"Terminating"}}"#).await;
    let labels = json!({"metadata": {"labels": {(terminator_label("root:t").0): null}}}).to_string();
    shard.send(MASTER, "PATCH", &object, &labels).await;
    shard.settle().await;
    let gone = [event("MODIFIED", "later", true), event("DELETED", "later", true)];
    assert_eq!(events(&mut terminating), gone);
}

#[tokio::test(start_paused = true)]
async fn a_watch_gets_bookmarks() {
    let shard = shard().await;
    let path = format!("{TERMINATING}/*{LOGICAL_CLUSTERS}?watch=true&allowWatchBookmarks=true");
    let mut watch = shard.open("alice", "GET", &path, &[], "").await;
    assert_eq!(events(&mut watch), [("BOOKMARK".to_owned(), String::new(), false)]);
}

#[tokio::test(start_paused = true)]
async fn only_the_own_entry_of_the_status_is_removed() {
    let shard = shard().await;
    mark(&shard, "waiting").await;
    for (base, field, role) in
        [(INITIALIZING, "initializers", "initializer"), (TERMINATING, "terminators", "terminator")]
    {
        let object = format!("{base}/waiting{LOGICAL_CLUSTERS}/cluster");
        let status = format!("{object}/status");
        assert_eq!(shard.get("alice", &object).await.code, 200);
        let refused = patch(&shard, &object, json!({"metadata": {"labels": {"a": "b"}}})).await;
        let unsupported = "patch is not supported on resources of kind \"logicalclusters.core.kcp.io\"";
        assert_eq!(refused, (405, unsupported.to_owned()));
        let refused = patch(&shard, &status, json!({"status": {(field): ["root:t"]}})).await;
        let only = format!("only removing the \"root:t\" {role} is supported");
        assert!(refused.0 == 422 && refused.1.ends_with(&only), "{refused:?}");
        let refused = patch(&shard, &status, json!({"status": {"phase": "Ready"}})).await;
        assert!(
            refused.0 == 422 && refused.1.contains("status.phase: Invalid value: \"Ready\""),
            "{refused:?}"
        );
        let condition = json!({"status": {"conditions": [{"type": "Mine", "status": "True"}]}});
        assert_eq!(patch(&shard, &status, condition).await.0, 200);
        assert_eq!(patch(&shard, &status, json!({"status": {(field): ["root:x"]}})).await.0, 200);
        let stored = shard.get(MASTER, &format!("/clusters/waiting{LOGICAL_CLUSTERS}/cluster")).await.json();
        assert_eq!(stored["status"][field], json!(["root:x"]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_patch_is_restricted_too() {
    let shard = shard().await;
    let status = format!("{INITIALIZING}/waiting{LOGICAL_CLUSTERS}/cluster/status?fieldManager=m&force=true");
    let apply = async |object: Value| {
        let headers = [("content-type", "application/apply-patch+yaml")];
        let mut request = http::Request::builder().method("PATCH").uri(&status).header("x-user", "alice");
        request = request.header(headers[0].0, headers[0].1);
        let body = fairlead_process::RequestBody::buffered(object.to_string().into());
        shard.handle(request.body(body).unwrap()).await.status().as_u16()
    };
    let own = json!({"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
                     "metadata": {"name": "cluster"}});
    let with = |status: Value| {
        let mut object = own.clone();
        object["status"] = status;
        object
    };
    assert_eq!(apply(with(json!({"initializers": ["root:t"]}))).await, 422);
    assert_eq!(apply(with(json!({"phase": "Ready"}))).await, 422);
    assert_eq!(apply(with(json!({"initializers": ["root:x"]}))).await, 200);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_wait_is_not_found() {
    let shard = shard().await;
    for (base, cluster) in [
        (INITIALIZING, "other"),
        (INITIALIZING, "absent"),
        // It is not being deleted.
        (TERMINATING, "waiting"),
        (TERMINATING, "other"),
    ] {
        let object = format!("{base}/{cluster}{LOGICAL_CLUSTERS}/cluster");
        let missing = (404, "logicalclusters.core.kcp.io \"cluster\" not found".to_owned());
        assert_eq!(shard.get("alice", &object).await.outcome(), missing, "{base} {cluster}");
        let status = format!("{object}/status");
        assert_eq!(patch(&shard, &status, json!({"status": {}})).await, missing, "{base} {cluster}");
        let content = shard.get("alice", &format!("{base}/{cluster}/api/v1/namespaces")).await.outcome();
        let role = if base == INITIALIZING { "initializer" } else { "terminator" };
        let refused = (403, format!("{role} \"root:t\" cannot access this workspace"));
        let expected = if cluster == "absent" { missing } else { refused };
        assert_eq!(content, expected, "{base} {cluster}");
    }
    let list = shard.get("alice", &format!("{INITIALIZING}/waiting{LOGICAL_CLUSTERS}")).await.outcome();
    let unsupported = "list is not supported on resources of kind \"logicalclusters.core.kcp.io\"";
    assert_eq!(list, (405, unsupported.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn users_without_the_verb_are_refused() {
    let shard = shard().await;
    for path in [format!("/*{LOGICAL_CLUSTERS}"), format!("/waiting{LOGICAL_CLUSTERS}/cluster")] {
        for base in [INITIALIZING, TERMINATING] {
            let refused = shard.get("bob", &format!("{base}{path}")).await.outcome();
            assert!(refused.0 == 403 && refused.1.contains("User \"bob\" cannot"), "{refused:?}");
        }
    }
    let content = shard.get("bob", &format!("{INITIALIZING}/waiting/api/v1/namespaces/n/configmaps")).await;
    let reason = "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the \
                  namespace \"n\": access denied";
    assert_eq!(content.outcome(), (403, reason.to_owned()));
    // Another initializer, a path, and a malformed name.
    for name in ["root:u", "root:org:t", "whatever", "a%22:t"] {
        let path = format!("/services/initializingworkspaces/{name}/clusters/*{LOGICAL_CLUSTERS}");
        assert_eq!(shard.get("alice", &path).await.code, 403, "{name}");
        let list = shard.get(MASTER, &path).await;
        assert_eq!(list.code, 200, "{name}");
    }
    assert_eq!(shard.get("", &format!("{INITIALIZING}/*{LOGICAL_CLUSTERS}")).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn without_permissions_of_the_type_content_is_that_of_the_creator() {
    let shard = shard().await;
    let namespaces = format!("{INITIALIZING}/waiting/api/v1/namespaces");
    assert_eq!(shard.get("alice", &namespaces).await.code, 200);
    let created = shard.send("alice", "POST", &namespaces, r#"{"metadata":{"name":"made"}}"#).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert_eq!(shard.get(MASTER, "/clusters/waiting/api/v1/namespaces/made").await.code, 200);
    assert_eq!(shard.get("alice", "/clusters/waiting/api/v1/namespaces/made").await.code, 403);
    // The type is gone: its permissions may be fewer than those of the creator.
    shard.shard.types.lock().clear();
    let refused = shard.get("alice", &namespaces).await.outcome();
    assert!(
        refused.0 == 503 && refused.1.contains("refusing to fall back to owner impersonation"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn permissions_of_the_type_limit_the_content() {
    let shard = shard().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let spec = json!({"initializerPermissions": rules, "terminatorPermissions": rules});
    shard.shard.types.lock().insert("root:t".to_owned(), spec);
    mark(&shard, "waiting").await;
    for (base, role) in [(INITIALIZING, "initializer"), (TERMINATING, "terminator")] {
        let content = async |path: &str| shard.get("alice", &format!("{base}/waiting{path}")).await.outcome();
        assert_eq!(content("/api/v1/namespaces/n/configmaps").await.0, 200);
        for (path, denied) in [
            ("/api/v1/namespaces/n/secrets/s", "get on core/secrets (s) in namespace n"),
            ("/api/v1/secrets", "list on core/secrets"),
            ("/apis/apps/v1/deployments?watch=1", "watch on apps/deployments"),
            ("/api/v1/namespaces/n/configmaps/c/status", "get on core/configmaps/status (c) in namespace n"),
        ] {
            let message = format!("{role} \"root:t\" denied by {role}Permissions: no rule allows {denied}");
            assert_eq!(content(path).await, (403, message), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn paths_of_no_virtual_workspace_are_those_of_the_shard() {
    let shard = shard().await;
    for path in [
        "/services",
        "/services/nothing/x/clusters/*/api",
        "/services/initializingworkspaces",
        "/services/initializingworkspaces/root:t",
        "/services/initializingworkspaces/root:t/clusters/root:org/api",
        "/services/initializingworkspaces/root:t/api",
    ] {
        assert_eq!(shard.get(MASTER, path).await.outcome(), (404, "404 page not found".to_owned()), "{path}");
        assert_eq!(shard.get("alice", path).await.code, 403, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_get_503_while_the_shard_starts() {
    let shard = shard().await;
    *shard.shard.is_ready.lock() = false;
    let refused = shard.get("alice", &format!("{INITIALIZING}/*/api")).await.outcome();
    assert_eq!(refused, (503, "the shard is starting".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn only_masters_impersonate_in_a_view() {
    let shard = shard().await;
    let path = format!("{INITIALIZING}/*{LOGICAL_CLUSTERS}");
    for (client, user, code) in [("alice", "creator", 403), (MASTER, "alice", 200), (MASTER, "bob", 403)] {
        let response = shard.open(client, "GET", &path, &[("impersonate-user", user)], "").await;
        assert_eq!(response.status().as_u16(), code, "{client} {user}");
    }
}
