//! Invalid and hostile input.

use fairlead_certs::Client as Role;
use http::Method;
use serde_json::json;

use crate::installation::Installation;
use crate::wire::{raw, send};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bodies_get_a_status_with_the_position() {
    let installation = Installation::start(1).await;
    let prefix = installation.workspace("root", "port", "root").await;
    let admin = installation.credentials(&Role::Admin);
    let good = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"good"},"data":{"a":"b"}}"#;
    let over = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}},"data":{{"a":"{}"}}}}"#,
        "x".repeat(3 << 20)
    );
    let (post, put, patch) = (Method::POST, Method::PUT, Method::PATCH);
    let maps = "/api/v1/namespaces/default/configmaps";
    let (strict, one) = (format!("{maps}?fieldValidation=Strict"), format!("{maps}/good"));
    let (json_type, yaml) = ("application/json", "application/yaml");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        (&post, maps, json_type, good, 201, ""),
        (&post, maps, yaml, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\n", 201, ""),
        (&post, maps, json_type, "{\"metadata\":", 400, "BadRequest"),
        (&post, maps, json_type, "", 400, "BadRequest"),
        (&post, maps, json_type, "[]", 400, "BadRequest"),
        (&post, maps, json_type, &deep, 400, "BadRequest"),
        (&post, maps, yaml, "a: [", 400, "BadRequest"),
        (&post, maps, "application/vnd.kubernetes.protobuf", "k8s\0\u{7f}garbage", 400, "BadRequest"),
        (&post, maps, "text/plain", good, 415, "UnsupportedMediaType"),
        (
            &post,
            maps,
            json_type,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#,
            400,
            "BadRequest",
        ),
        (
            &post,
            maps,
            json_type,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"Not A Name"}}"#,
            422,
            "Invalid",
        ),
        (&post, maps, json_type, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#, 422, "Invalid"),
        (
            &post,
            maps,
            json_type,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"y"}}"#,
            400,
            "BadRequest",
        ),
        (
            &post,
            maps,
            json_type,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":1}}"#,
            400,
            "BadRequest",
        ),
        (
            &post,
            &strict,
            json_type,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"date":{}}"#,
            400,
            "unknown field \\\"date\\\"",
        ),
        (
            &post,
            &strict,
            json_type,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y"}}"#,
            400,
            "duplicate field",
        ),
        (&post, maps, json_type, &over, 413, "RequestEntityTooLarge"),
        (&post, maps, json_type, good, 409, "AlreadyExists"),
        (&post, "/api/v1/namespaces/nowhere/configmaps", json_type, good, 404, "NotFound"),
        (&post, "/api/v1/namespaces/default/nothings", json_type, good, 404, ""),
        (&post, "/apis/nothing.example.com/v1/nothings", json_type, good, 404, ""),
        (&put, "/api/v1/namespaces/default/configmaps/other", json_type, good, 400, "BadRequest"),
        (&put, maps, json_type, good, 405, "MethodNotAllowed"),
        (&patch, &one, "application/merge-patch+json", "{", 400, "BadRequest"),
        (
            &patch,
            &one,
            "application/json-patch+json",
            r#"[{"op":"test","path":"/data/a","value":"c"}]"#,
            422,
            "Invalid",
        ),
        (&patch, &one, "application/json-patch+json", r#"{"op":"test"}"#, 400, "BadRequest"),
        (&patch, &one, "application/apply-patch+yaml", good, 422, "is required for apply patch"),
        (&patch, &one, "text/plain", "{}", 415, "UnsupportedMediaType"),
    ];
    for server in ["gateway", "root"] {
        let url = installation.server(server).url;
        for (method, path, content_type, body, code, sign) in &cases {
            // The object exists on the second server, because the first request created it.
            let again = server == "root" && *code == 201;
            let (code, sign) = if again { (409, "AlreadyExists") } else { (*code, *sign) };
            let path = format!("{prefix}{path}");
            let headers = [("content-type", *content_type)];
            let response = send(&url, &admin, (*method).clone(), &path, &headers, body.to_string()).await;
            let start = &body[..body.len().min(100)];
            assert_eq!(response.code, code, "{server}: {method} {path} {content_type} {start}: {response:?}");
            if code < 400 {
                continue;
            }
            // Paths that are not served may be rejected by a router that does not know Status.
            if !sign.is_empty() {
                let status = response.json();
                assert_eq!(
                    (&status["kind"], &status["code"]),
                    (&json!("Status"), &json!(code)),
                    "{response:?}"
                );
            }
            assert!(
                response.text.contains(sign),
                "{server}: {method} {path} {start}: no {sign:?} in {response:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_queries_get_a_status() {
    let installation = Installation::start(1).await;
    let admin = installation.credentials(&Role::Admin);
    let url = installation.server("gateway").url;
    for (query, code) in [
        ("labelSelector=a%3D%3D%3Db", 400),
        ("labelSelector=%28%28", 400),
        ("fieldSelector=spec.nothing%3D1", 400),
        ("resourceVersion=yesterday", 400),
        ("resourceVersion=-1", 400),
        ("limit=many", 400),
        ("continue=never-issued", 400),
        ("watch=1&resourceVersion=yesterday", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("resourceVersionMatch=Exact", 422),
    ] {
        let path = format!("/clusters/root/api/v1/configmaps?{query}");
        let response = send(&url, &admin, Method::GET, &path, &[], "").await;
        assert_eq!(response.code, code, "{query}: {response:?}");
        assert_eq!(response.json()["kind"], "Status", "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_paths_are_rejected() {
    let installation = Installation::start(1).await;
    let admin = installation.credentials(&Role::Admin);
    let gateway = installation.server("gateway").url;
    for (path, code) in [
        ("/clusters/nowhere/api", 403),
        ("/clusters/root:nowhere/api", 403),
        ("/clusters/root:nowhere:deeper/api", 403),
        ("/clusters/Root/api", 403),
        ("/clusters/root:/api", 403),
        ("/clusters/:root/api", 403),
        ("/clusters/root::x/api", 403),
        ("/clusters/*/api", 403),
        ("/clusters/system:admin/api", 403),
        ("/clusters/root%2Fapi", 403),
        ("/clusters/%2e%2e/api", 403),
        ("/clusters/root%00/api", 400),
        ("/clusters/root/%zz", 400),
        ("/clusters/root/../root/api", 307),
        ("/clusters/root/%2e%2e/%2e%2e/etc", 307),
        ("/clusters//root/api", 307),
        ("/api", 404),
        ("/nothing", 404),
        ("/clusters/root/nothing", 404),
        ("/clusters/root/api/v1/namespaces/..%2fdefault", 307),
        ("/clusters/root/api/v1/namespaces/default/configmaps/a%2fb", 404),
    ] {
        let response = send(&gateway, &admin, Method::GET, path, &[], "").await;
        assert_eq!(response.code, code, "over HTTP/2: {path}: {response:?}");
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let response = raw(&gateway, &admin, &text).await;
        assert_eq!(response.0, code, "over HTTP/1.1: {path}: {response:?}");
    }
    // A shard, addressed directly, rejects the same invalid clusters.
    let root = installation.server("root").url;
    for path in [
        "/clusters/nowhere/api/v1/secrets",
        "/clusters/Root/api/v1/secrets",
        "/clusters/%2e%2e/api/v1/secrets",
        "/clusters/root%2f..%2froot/api/v1/secrets",
    ] {
        let response = send(&root, &admin, Method::GET, path, &[], "").await;
        assert!((400..500).contains(&response.code), "{path}: {response:?}");
    }
    // Two lengths, or a length and chunks (request smuggling): must not be accepted.
    for smuggled in [
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ] {
        for url in [&gateway, &root] {
            let path = "/clusters/root/api/v1/namespaces";
            let text = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{smuggled}");
            let response = raw(url, &admin, &text).await;
            assert!((400..500).contains(&response.0), "{url}: {smuggled:?}: {response:?}");
        }
    }
}
