//! Media types of request bodies and of responses.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, METADATA, Server, TABLE, WIDGETS};

#[tokio::test(start_paused = true)]
async fn supported_request_bodies() {
    let server = Server::start().await;
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"}}"#;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NAME\n";
    for (number, (content_type, body, code)) in [
        (Some("application/json"), json, 201),
        (Some("application/json; charset=utf-8"), json, 201),
        (None, json, 201),
        (Some("application/yaml"), yaml, 201),
        (Some("application/yaml"), "a: [", 400),
        (Some("application/vnd.kubernetes.protobuf"), "k8s\0\u{1}", 400),
        (Some("application/vnd.kubernetes.protobuf"), json, 400),
        (Some("text/plain"), json, 415),
        (Some("application/cbor"), json, 415),
    ]
    .into_iter()
    .enumerate()
    {
        let headers: Vec<(&str, &str)> = content_type.iter().map(|text| ("content-type", *text)).collect();
        let response =
            server.send("POST", CONFIG_MAPS, &headers, body.replace("NAME", &format!("n{number}"))).await;
        assert_eq!(response.code, code, "{content_type:?} {body}: {}", response.text());
        if code == 415 {
            assert_eq!(
                response.failure().2,
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            );
        }
    }
    let widget = server
        .send("POST", WIDGETS, &[("content-type", "application/vnd.kubernetes.protobuf")], "k8s\0")
        .await;
    assert_eq!(widget.failure().0, 415, "custom resources have no protobuf form");
}

#[tokio::test(start_paused = true)]
async fn bodies_have_a_limit() {
    let server = Server::start().await;
    let large = json!({"metadata": {"name": "a"}, "data": {"x": "y".repeat(3 * 1024 * 1024)}}).to_string();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let path = if method == "POST" { CONFIG_MAPS.to_owned() } else { format!("{CONFIG_MAPS}/a") };
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response = server.send(method, &path, &[("content-type", content)], large.clone()).await;
        assert_eq!(
            response.failure(),
            (413, "RequestEntityTooLarge".into(), "Request entity too large: limit is 3145728".into()),
            "{method}"
        );
    }
    let deep = "[".repeat(20_000);
    assert_eq!(server.send("POST", CONFIG_MAPS, &[], deep).await.failure().0, 400);
}

#[tokio::test(start_paused = true)]
async fn response_formats() {
    let server = Server::start().await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {"color": "red"}})).await;
    let one = format!("{WIDGETS}/w");
    let kind = |value: Value| value["kind"].as_str().unwrap().to_owned();
    for (accept, of_one, of_list) in [
        ("", "Widget", "WidgetList"),
        ("*/*", "Widget", "WidgetList"),
        ("application/vnd.kubernetes.protobuf,application/json", "Widget", "WidgetList"),
        ("application/xml, application/json;q=0.5", "Widget", "WidgetList"),
        (TABLE, "Table", "Table"),
        (METADATA, "PartialObjectMetadata", "PartialObjectMetadataList"),
        ("application/json;as=Nope;g=x;v=v1,application/json", "Widget", "WidgetList"),
    ] {
        let (object, list) = (server.get_as(&one, accept).await, server.get_as(WIDGETS, accept).await);
        assert_eq!(
            (kind(object.json()), kind(list.json())),
            (of_one.to_owned(), of_list.to_owned()),
            "{accept}"
        );
        assert_eq!(object.header("content-type"), "application/json");
    }
    for accept in [
        "application/cbor",
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Nope;v=v1;g=meta.k8s.io",
    ] {
        for path in [&*one, WIDGETS] {
            assert_eq!(server.get_as(path, accept).await.failure().0, 406, "{accept}");
        }
    }
    let watch = format!("{WIDGETS}?watch=true&timeoutSeconds=1");
    assert_eq!(server.get_as(&watch, "application/yaml").await.code, 406, "a stream of YAML");
    drop(server.watch_as(&watch, "application/yaml, application/json;q=0.5").await);
    let yaml = server.get_as(&one, "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(
        yaml.text().starts_with("apiVersion: example.com/v1\nkind: Widget\nmetadata:\n"),
        "{}",
        yaml.text()
    );
}

#[tokio::test(start_paused = true)]
async fn tables() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.create(WIDGETS, &json!({"metadata": {"name": name}, "spec": {"color": "red"}})).await;
    }
    let table = server.get_as(&format!("{WIDGETS}?limit=1"), TABLE).await.json();
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert!(table["metadata"]["continue"].is_string() && table["metadata"]["remainingItemCount"] == 1);
    assert_eq!(
        table["columnDefinitions"][1],
        json!({"name": "Color", "type": "string", "format": "", "description": "", "priority": 0})
    );
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]));
    let object = &table["rows"][0]["object"];
    assert_eq!(
        (&object["kind"], &object["metadata"]["name"], object.get("spec")),
        (&json!("PartialObjectMetadata"), &json!("a"), None)
    );
    for (included, kind) in
        [("None", Value::Null), ("Metadata", json!("PartialObjectMetadata")), ("Object", json!("Widget"))]
    {
        let table = server.get_as(&format!("{WIDGETS}/a?includeObject={included}"), TABLE).await.json();
        assert_eq!(table["rows"][0]["object"]["kind"], kind, "{included}");
    }
    let bad = server.get_as(&format!("{WIDGETS}?includeObject=Bad"), TABLE).await.failure();
    assert_eq!(bad, (400, "BadRequest".into(), "Unable to convert to Table as requested: includeObject: Invalid value: \"Bad\": must be 'Metadata', 'Object', 'None', or empty".into()));
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    assert_eq!(server.get_as(WIDGETS, beta).await.json()["apiVersion"], "meta.k8s.io/v1beta1");
    let missing = server.get_as(&format!("{WIDGETS}/none"), TABLE).await;
    assert_eq!(missing.failure().1, "NotFound");
    let built_in = server.get_as("/api/v1/namespaces/default", TABLE).await.json();
    assert_eq!(built_in["rows"][0]["cells"].as_array().unwrap()[..2], [json!("default"), json!("Active")]);
}

#[tokio::test(start_paused = true)]
async fn browsers_and_pretty_requests_get_indented_responses() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let indented = |text: &str| text.starts_with("{\n  \"");
    for (query, agent, pretty) in [
        ("", "curl/8.1", true),
        ("?pretty=false", "curl/8.1", false),
        ("?pretty=true", "kubectl", true),
        ("", "kubectl", false),
        ("", "Mozilla/5.0", true),
    ] {
        let response = server.send("GET", &format!("{path}{query}"), &[("user-agent", agent)], "").await;
        assert_eq!(indented(response.text()), pretty, "{query} {agent}");
        assert!(response.text().ends_with('\n'));
        let missing = server.send("GET", &format!("{path}x{query}"), &[("user-agent", agent)], "").await;
        assert_eq!((indented(missing.text()), missing.failure().0), (pretty, 404), "{query} {agent}");
    }
}

#[tokio::test(start_paused = true)]
async fn large_responses_are_compressed_if_the_client_accepts_gzip() {
    let server = Server::start().await;
    let gzip: &[(&str, &str)] = &[("accept-encoding", "deflate, gzip;q=1.0")];
    for number in 0..3 {
        let body = json!({"metadata": {"name": format!("n{number}")}, "data": {"x": "y".repeat(700_000)}});
        server.create(CONFIG_MAPS, &body).await;
    }
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/n0")] {
        let plain = server.get(&path).await;
        let packed = server.send("GET", &path, gzip, "").await;
        assert_eq!((packed.header("content-encoding"), plain.header("content-encoding")), ("gzip", ""));
        assert!(packed.headers.get_all("vary").iter().any(|value| value == "Accept-Encoding"));
        let mut unpacked = Vec::new();
        GzDecoder::new(&*packed.bytes).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain.bytes);
    }
    let small = server.send("GET", "/api/v1/namespaces/default", gzip, "").await;
    assert_eq!(small.header("content-encoding"), "");
    let refused = server.send("GET", CONFIG_MAPS, &[("accept-encoding", "gzip;q=0")], "").await;
    assert_eq!(refused.header("content-encoding"), "");
}

#[tokio::test(start_paused = true)]
async fn every_response_has_an_audit_id_and_is_not_cached() {
    let server = Server::start().await;
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/none", "/foo", "/apis", "/version"] {
        let own = server.get(path).await;
        assert_eq!(
            (own.header("audit-id").len(), own.header("cache-control")),
            (36, "no-cache, private"),
            "{path}"
        );
        let given = server.send("GET", path, &[("audit-id", "mine")], "").await;
        assert_eq!(given.header("audit-id"), "mine");
        let long = server.send("GET", path, &[("audit-id", &"x".repeat(65))], "").await;
        assert_eq!(long.header("audit-id").len(), 36);
    }
}
