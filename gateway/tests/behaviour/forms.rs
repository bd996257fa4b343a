//! The format of the gateway's own responses: `Accept`, `User-Agent` and `?pretty` select it as in Kubernetes.

use http::Method;
use serde_json::json;

use crate::world::{Answer, World, eventually, request};

const JSON: (&str, &str) = ("application/json", "{\"kind\":\"Status\",\"apiVersion\":\"v1\",");
const INDENTED: (&str, &str) = ("application/json", "{\n  \"kind\": \"Status\",\n");
const YAML: (&str, &str) = ("application/yaml", "apiVersion: v1\n");
const PROTOBUF: (&str, &str) = ("application/vnd.kubernetes.protobuf", "k8s\0");

type Headers = &'static [(&'static str, &'static str)];

#[rustfmt::skip]
const FORMS: [(Headers, &str, (&str, &str)); 18] = [
    (&[], "", JSON),
    (&[("accept", "application/json")], "", JSON),
    (&[("accept", "*/*")], "", JSON),
    (&[("accept", "application/json, */*")], "", JSON),
    (&[("accept", "application/yaml")], "", YAML),
    (&[("accept", "application/vnd.kubernetes.protobuf")], "", PROTOBUF),
    (&[("accept", "application/vnd.kubernetes.protobuf,application/json")], "", PROTOBUF),
    (&[("accept", "application/vnd.kubernetes.protobuf;q=0.5,application/json")], "", JSON),
    (&[("accept", "application/yaml;q=0.1, application/json;q=0.2")], "", JSON),
    // kubectl get, and kubectl get --watch.
    (&[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")], "", JSON),
    (&[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml")], "", YAML),
    // No supported media type.
    (&[("accept", "text/html")], "", INDENTED),
    (&[("accept", "application/cbor")], "", INDENTED),
    (&[("user-agent", "curl/8.9.1"), ("accept", "*/*")], "", INDENTED),
    (&[("user-agent", "Mozilla/5.0 (X11)")], "", INDENTED),
    (&[("user-agent", "kubectl/v1.33.0"), ("accept", "application/json")], "", JSON),
    (&[], "pretty=true", INDENTED),
    (&[("user-agent", "curl/8.9.1")], "a=b&pretty=false", JSON),
];

/// Checks the status code, the media type, and the beginning and the code of the body.
fn check(answer: &Answer, code: u16, (media, begins): (&str, &str), what: &str) {
    assert_eq!(answer.status, code, "{what}: {answer:?}");
    assert_eq!(answer.headers["content-type"], media, "{what}");
    assert!(answer.text.starts_with(begins), "{what}: {:?}", answer.text);
    if media == "application/json" {
        assert_eq!(answer.json()["code"], code, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_has_the_requested_format() {
    let world = World::new().await;
    world.put_workspace("root", "away", json!({"cluster": "away000000000001"}), "Unavailable");
    world.create_workspace("root", "marker", "root", "marker0000000001");
    let nowhere = world.unregistered_shard("down").await;
    let id = "down000000000001";
    nowhere.state.put("logicalclusters", id, json!({"metadata": {"annotations": {"kcp.io/cluster": id}}}));
    world.register("down", &nowhere.url());
    let client = world.http2(Some(&world.user())).await;
    for path in ["/clusters/root:marker/api", "/clusters/down000000000001/api"] {
        eventually("the workspace is served", async || client.get(path).await.status == 200).await;
    }
    nowhere.stop().await;
    let stranger = world.http2(Some(&world.serving_ca.client("stranger", &[]))).await;
    for (client, path, code) in [
        (&client, "/clusters/root:nope/api", 403),
        (&client, "/clusters/root:away/api", 503),
        (&client, "/clusters/root/%zz", 400),
        (&client, "/metrics", 403),
        // This failure occurs only when the request is forwarded.
        (&client, "/clusters/down000000000001/api", 503),
        (&stranger, "/clusters/root:org/api", 401),
    ] {
        for (headers, query, expected) in FORMS {
            let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
            let answer = client.send(request(Method::GET, &target, headers, "")).await;
            check(&answer, code, expected, &format!("{target} {headers:?}"));
        }
    }
    // Bodies that are not a Status keep their format.
    for (path, text) in [("/e2e", "404 page not found\n"), ("/livez", "ok")] {
        let answer = client.send(request(Method::GET, path, &[("accept", "application/yaml")], "")).await;
        assert_eq!(answer.text, text);
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    }
}
