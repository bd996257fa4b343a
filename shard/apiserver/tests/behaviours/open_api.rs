//! `/openapi/v3`.

use serde_json::json;

use crate::client::Server;

#[tokio::test(start_paused = true)]
async fn the_index_links_to_immutable_documents() {
    let server = Server::start().await;
    let index = server.get_as("/openapi/v3?timeout=32s", "application/json, */*").await;
    assert_eq!((index.code.as_u16(), index.header("content-type")), (200, "application/json"));
    assert_eq!(index.header("cache-control"), "no-cache, private");
    for path in [
        "api",
        "apis",
        "apis/rbac.authorization.k8s.io",
        "version",
        "api/v1",
        "apis/example.com/v1",
        "apis/example.com/v1beta1",
        "apis/rbac.authorization.k8s.io/v1",
    ] {
        let url = index.json()["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
        let hash = url.strip_prefix(&format!("/openapi/v3/{path}?hash=")).unwrap();
        let document = server.get_as(&format!("{url}&timeout=32s"), "application/json").await;
        assert_eq!((document.code.as_u16(), document.header("etag")), (200, &*format!("\"{hash}\"")));
        assert_eq!(document.header("cache-control"), "private, immutable, max-age=31536000");
        assert!(document.header("expires").ends_with(" GMT"));
        let document = document.json();
        assert_eq!(document["openapi"], "3.0.0");

        // Without a hash the current document is returned, and clients must revalidate it.
        let present = server.get(&format!("/openapi/v3/{path}")).await;
        assert_eq!((present.json(), present.header("cache-control")), (document, "no-cache, private"));
        // An old hash redirects to the current one, by a relative location.
        let old = server.get(&format!("/openapi/v3/{path}?hash=ABC")).await;
        assert_eq!((old.code.as_u16(), old.header("location")), (301, &*format!("?hash={hash}")));
    }
}

#[tokio::test(start_paused = true)]
async fn documents_contain_what_kubectl_reads() {
    let server = Server::start().await;
    let core = server.get("/openapi/v3/api/v1").await.json();
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"), "{patch}");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );

    let custom = server.get("/openapi/v3/apis/example.com/v1").await.json();
    let widget = &custom["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
    );
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["type"], "integer");
    let paths = custom["paths"].as_object().unwrap();
    assert!(paths.contains_key("/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status"));
    assert!(paths.contains_key("/apis/example.com/v1/gadgets/{name}"));
}

#[tokio::test(start_paused = true)]
async fn a_matching_etag_gets_304() {
    let server = Server::start().await;
    for path in ["/openapi/v3", "/openapi/v3/apis/example.com/v1"] {
        let etag = server.get(path).await.header("etag").to_owned();
        for (tags, code) in [
            (etag.clone(), 304),
            (format!("W/{etag}"), 304),
            (format!("\"x\", {etag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let response = server.send("GET", path, &[("if-none-match", &tags)], "").await;
            assert_eq!(response.code, code, "{path} {tags}");
            assert_eq!(response.header("etag"), etag);
            assert_eq!(response.bytes.is_empty(), code == 304);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_documents_and_unsupported_formats() {
    let server = Server::start().await;
    for path in [
        "/openapi/v1",
        "/openapi/v2/x",
        "/openapi/v3/apis/none/v1",
        "/openapi/v3/apis/example.com",
        "//openapi/v3",
        "/openapi/v3/apis/example.com/v1/x",
    ] {
        let response = server.get(path).await;
        assert_eq!((response.code.as_u16(), response.text()), (404, "404 page not found\n"), "{path}");
    }
    for path in ["/openapi/v3", "/openapi/v3/api/v1"] {
        let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
        assert_eq!(server.get_as(path, protobuf).await.failure().0, 406, "{path}");
        let either = format!("{protobuf}, application/json");
        assert_eq!(server.get_as(path, &either).await.header("content-type"), "application/json");
    }
    assert_eq!(server.get("//clusters/unsynced/openapi/v3").await.failure().0, 503, "never an empty index");
}

#[tokio::test(start_paused = true)]
async fn older_clients_get_the_built_in_kinds_in_version_2() {
    let server = Server::start().await;
    let json = server.get("/openapi/v2").await;
    assert_eq!((json.code.as_u16(), json.header("content-type")), (200, "application/json"));
    let document = json.json();
    assert_eq!(document["swagger"], "2.0");
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"].is_object());
    assert_eq!(
        document["paths"].get("/apis/example.com/v1/gadgets"),
        None,
        "custom resources are in version 3 only"
    );
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    for accept in
        [protobuf, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf,application/json;q=0.5"]
    {
        let encoded = server.get_as("/openapi/v2", accept).await;
        assert_eq!((encoded.code.as_u16(), encoded.header("content-type")), (200, protobuf));
        assert_eq!(&encoded.bytes[..5], b"\n\x032.0");
        assert_ne!(encoded.header("etag"), json.header("etag"));
    }
    let etag = json.header("etag");
    assert_eq!(server.send("GET", "/openapi/v2", &[("if-none-match", etag)], "").await.code, 304);
    assert_eq!(server.get_as("/openapi/v2", "text/html").await.failure().0, 406);
}
