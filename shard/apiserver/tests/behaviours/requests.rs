//! Paths, methods and authorization.

use serde_json::json;

use crate::client::{CONFIG_MAPS, GADGETS, Server, WIDGETS};

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods() {
    let server = Server::start().await;
    server.config_map("cm1", json!({})).await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w1"}, "spec": {}})).await;
    let token = json!({"metadata": {"name": "x"}, "spec": {"audiences": []}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let failure = server.post(path, &token).await.failure();
    let refused = (501, "creating serviceaccounts/token is not supported yet");
    assert_eq!((failure.0, &*failure.2), refused, "a store makes no tokens, nor objects of them");
    let unknown_resource = "the server could not find the requested resource";
    let unknown_method = "the server does not allow this method on the requested resource";
    let table = [
        ("GET", "/api/v1/foos", 404, unknown_resource),
        ("GET", "/api/v2/x", 404, unknown_resource),
        ("GET", "/api/v1/namespaces/default/configmaps/cm1/status", 404, unknown_resource),
        ("GET", "/apis/example.com/v1/foos", 404, unknown_resource),
        ("GET", "/api/v1/configmaps/cm1", 404, unknown_resource),
        ("GET", "/apis/example.com/v1/namespaces/default/gadgets", 404, unknown_resource),
        ("POST", "/api/v1/namespaces/default/configmaps/cm1", 405, unknown_method),
        ("POST", "/api/v1/configmaps", 405, unknown_method),
        ("DELETE", "/api/v1/configmaps", 405, unknown_method),
        ("DELETE", "/api/v1/namespaces", 405, unknown_method),
        ("PUT", CONFIG_MAPS, 405, unknown_method),
        ("PATCH", CONFIG_MAPS, 405, unknown_method),
        ("HEAD", "/api/v1/namespaces/default/configmaps/cm1", 405, unknown_method),
        ("OPTIONS", CONFIG_MAPS, 405, unknown_method),
        ("POST", "/apis", 405, unknown_method),
        (
            "POST",
            "/apis/example.com/v1/namespaces/default/widgets/w1/status",
            405,
            "create is not supported on resources of kind \"widgets.example.com\"",
        ),
        ("PUT", GADGETS, 405, "update is not supported on resources of kind \"gadgets.example.com\""),
        ("GET", "/api/v1/../x", 400, "the request path is malformed"),
        ("GET", "/api//v1", 400, "the request path is malformed"),
    ];
    for (method, path, code, message) in table {
        let failure = server.send(method, path, &[], "{}").await.failure();
        assert_eq!((failure.0, &*failure.2), (code, message), "{method} {path}");
    }
    for path in [
        "/apis/none.example/v1/foos",
        "/apis/example.com/v7/widgets",
        "/apis/none.example",
        "/foo",
        "/api/v1/a/b/c/d/e",
        "/openapi",
    ] {
        let response = server.get(path).await;
        assert_eq!((response.code.as_u16(), response.text()), (404, "404 page not found\n"), "{path}");
        assert_eq!(response.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(server.get("//api/v1/configmaps").await.failure().0, 400, "no logical cluster");
    assert_eq!(server.get("/version").await.json()["major"], "1");
    let paths = server.get("/").await.json()["paths"].clone();
    assert!(paths.as_array().unwrap().contains(&json!("/apis/rbac.authorization.k8s.io/v1")), "{paths}");
    assert_eq!(server.get("/metrics").await.text(), "figures 1\n", "the host goes first");
}

#[tokio::test(start_paused = true)]
async fn the_wildcard_can_be_read_only() {
    let server = Server::start().await;
    server.config_map("here", json!({})).await;
    server.create("//clusters/d/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    server.create(&format!("//clusters/d{CONFIG_MAPS}"), &json!({"metadata": {"name": "there"}})).await;
    let list = server.get("//clusters/*/api/v1/configmaps").await;
    assert_eq!(list.names(), ["here", "there"]);
    assert_eq!(list.json()["items"][1]["metadata"]["annotations"]["kcp.io/cluster"], "d");
    assert_eq!(server.get("/api/v1/configmaps").await.names(), ["here"]);
    assert_eq!(server.get(&format!("//clusters/*{CONFIG_MAPS}")).await.names(), ["here", "there"]);
    for (method, path) in [("GET", "/configmaps/here"), ("DELETE", "/configmaps"), ("POST", "/configmaps")] {
        let path = format!("//clusters/*/api/v1/namespaces/default{path}");
        let failure = server.send(method, &path, &[], "{}").await.failure();
        assert_eq!(failure.0, 405);
        assert!(failure.2.ends_with(" in the `*` logical cluster"), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn authorization_precedes_other_checks() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.config_map("b", json!({})).await;
    let a_and = |query: &str| format!("{CONFIG_MAPS}/a?{query}");
    let all_and = |query: &str| format!("{CONFIG_MAPS}?{query}");
    let only_a = "fieldSelector=metadata.name%3Da";
    let table = [
        ("nobody", "GET", CONFIG_MAPS.to_owned(), 403),
        ("nobody", "GET", "/apis".to_owned(), 403),
        ("nobody", "GET", "/api/v1/foos".to_owned(), 403),
        ("impostor", "GET", CONFIG_MAPS.to_owned(), 401),
        ("only:a", "GET", a_and(""), 200),
        ("only:a", "GET", CONFIG_MAPS.to_owned(), 403),
        ("only:a", "GET", all_and(only_a), 200),
        ("only:a", "DELETE", all_and(&format!("{only_a}&dryRun=All")), 200),
        ("only:a", "GET", format!("{CONFIG_MAPS}/b"), 403),
        // A selector is ignored for requests whose path names an object, or that create one.
        ("only:a", "GET", format!("{CONFIG_MAPS}/b?{only_a}"), 403),
        ("only:a", "GET", a_and("fieldSelector=metadata.name%3Db"), 200),
        ("only:a", "POST", all_and(only_a), 403),
        ("only:a", "PUT", a_and("fieldSelector=metadata.name%3Db&dryRun=All"), 200),
        // Roles of a namespace reach the namespace itself, but not the list of all.
        ("in:default", "GET", "/api/v1/namespaces/default".to_owned(), 200),
        ("in:default", "GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault".to_owned(), 403),
    ];
    for (user, method, path, code) in table {
        let body = if method == "DELETE" { "" } else { r#"{"metadata":{"name":"a"}}"# };
        let response =
            server.send(method, &path, &[("x-user", user), ("content-type", "application/json")], body).await;
        assert_eq!(response.code, code, "{user} {method} {path}: {response:?}");
    }
    let nobody = [("x-user", "nobody")];
    let listed = server.send("GET", CONFIG_MAPS, &nobody, "").await;
    assert_eq!(
        listed.failure().2,
        "configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\": access denied"
    );
    let gadget = server.send("GET", &format!("{GADGETS}/g"), &nobody, "").await;
    assert_eq!(
        gadget.failure().2,
        "gadgets.example.com \"g\" is forbidden: User \"nobody\" cannot get resource \"gadgets\" in API group \"example.com\" at the cluster scope: access denied"
    );
    let path = server.send("GET", "/apis", &nobody, "").await;
    assert_eq!(path.failure().2, "forbidden: User \"nobody\" cannot get path \"/apis\": access denied");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_name_shows_no_other() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    server.config_map("b", json!({})).await;
    // The name in the path applies, regardless of the selector.
    let path = format!("{CONFIG_MAPS}/a?watch=true&fieldSelector=metadata.name%3Db&timeoutSeconds=1");
    assert_eq!(server.watch(&path).await.brief().await, "end");
    let mut watch = server.watch(&format!("{CONFIG_MAPS}/a?watch=true&timeoutSeconds=1")).await;
    assert!(watch.brief().await.starts_with("ADDED a "));
    assert_eq!(watch.brief().await, "end");
}
