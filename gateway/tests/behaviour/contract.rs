//! Forwarding of requests, for each line of the contract with clients and shards.

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::shard::GZIP;
use crate::world::{Answer, ORG, World, eventually, request};

/// A shard's response to HEAD has a Content-Length and no body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_request_is_answered_over_both_protocols() {
    let world = World::new().await;
    let user = world.user();
    let client = world.http2(Some(&user)).await;
    let mut http1 = world.http1(Some(&user)).await;
    for path in ["/clusters/root:org/api", "/clusters/root:nope/api", "/readyz"] {
        let length = client.get(path).await.headers["content-length"].clone();
        for _ in 0..50 {
            let answer = client.send(request(Method::HEAD, path, &[], "")).await;
            assert_eq!(
                (answer.text.as_str(), answer.headers["content-length"].len()),
                ("", length.len()),
                "{path}"
            );
        }
        http1.ready().await.unwrap();
        let head = request(Method::HEAD, path, &[("host", "localhost")], "");
        let answer = Answer::of(http1.send_request(head).await.unwrap()).await;
        assert_eq!(
            (answer.text.as_str(), answer.headers["content-length"].len()),
            ("", length.len()),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_methods_and_headers_of_kcp_are_forwarded_unchanged() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let untouched = [
        ("x-kcp-internal-deep-subjectaccessreview", "true"),
        ("x-kcp-api-v1-discovery-passthrough", "1"),
        ("x-kcp-virtual-resource-hops", "2"),
        ("x-kubernetes-sharded-request", "1"),
        ("impersonate-user", "bob"),
        ("impersonate-group", "team"),
        ("impersonate-extra-authentication.kcp.io%2fscopes", "cluster:a"),
        ("accept", "application/vnd.kubernetes.protobuf, application/cbor;q=0.9, */*;q=0.1"),
        ("content-type", "application/apply-patch+yaml"),
        ("via", "1.1 edge"),
        ("forwarded", "for=192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("audit-id", "mine"),
    ];
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer =
            client.send(request(method.clone(), "/clusters/root:org/api?a=%2f&b=c;d", &untouched, "")).await;
        let echo = answer.json();
        assert_eq!(
            (echo["method"].as_str(), echo["path"].as_str()),
            (Some(method.as_str()), Some("/clusters/0rg0000000000001/api?a=%2f&b=c;d"))
        );
        for (name, value) in untouched {
            assert_eq!(answer.echoed(&format!("{name}:")), [format!("{name}: {value}")], "{method}");
        }
        for added in ["user-agent", "accept-encoding", "x-forwarded-host", "x-real-ip"] {
            assert_eq!(answer.echoed(added), [""; 0], "{method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hop_by_hop_headers_are_not_forwarded() {
    let world = World::new().await;
    let _old = world.old_workspace().await;
    let user = world.user();
    for path in ["/clusters/root:org/api", "/clusters/root:old/api"] {
        let mut client = world.http1(Some(&user)).await;
        let fields = [
            ("host", "kcp.example:6443"),
            ("connection", "keep-alive, x-mine, X-Forwarded-For"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eDp5"),
            ("te", "trailers"),
            ("x-mine", "1"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-stays", "1"),
        ];
        let mut asked = request(Method::GET, path, &fields, "");
        *asked.uri_mut() = path.parse().unwrap();
        let answer = Answer::of(client.send_request(asked).await.unwrap()).await;
        for gone in ["keep-alive", "proxy-", "x-mine"] {
            assert_eq!(answer.echoed(gone), [""; 0], "{path}");
        }
        assert_eq!(answer.echoed("x-stays"), ["x-stays: 1"]);
        assert_eq!(answer.echoed("te:"), ["te: trailers"], "{path}");
        // The client can remove its own headers by naming them in Connection, but not those that the gateway adds.
        assert_eq!(answer.echoed("x-forwarded-for"), ["x-forwarded-for: 127.0.0.1"]);
        let echo = answer.json();
        let host = echo["authority"]
            .as_str()
            .map(str::to_owned)
            .or_else(|| answer.echoed("host").first().map(|line| line["host: ".len()..].to_owned()));
        assert_eq!(host.as_deref(), Some("kcp.example:6443"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_of_a_shard_are_relayed_unchanged() {
    let world = World::new().await;
    let _old = world.old_workspace().await;
    let client = world.http2(Some(&world.user())).await;
    let mut http1 = world.http1(Some(&world.user())).await;
    for workspace in ["root:org", "root:old"] {
        for code in [401, 403, 404, 409, 410, 422, 429, 500, 501, 503] {
            let path = format!("/clusters/{workspace}/code-{code}");
            http1.ready().await.unwrap();
            let over_http1 =
                http1.send_request(request(Method::GET, &path, &[("host", "localhost")], "")).await;
            for answer in [client.get(&path).await, Answer::of(over_http1.unwrap()).await] {
                assert_eq!((answer.status, answer.text.as_str()), (code, "as the shard says it"), "{path}");
                assert_eq!(answer.headers["retry-after"], "7");
                assert_eq!(answer.headers["x-kubernetes-pf-flowschema-uid"], "u");
                for added in ["audit-id", "cache-control", "x-content-type-options", "www-authenticate"] {
                    assert!(!answer.headers.contains_key(added), "{path}: {added}");
                }
            }
        }
        for accept in [None, Some("gzip")] {
            let fields: Vec<_> = accept.map(|coding| ("accept-encoding", coding)).into_iter().collect();
            let gzip = request(Method::GET, &format!("/clusters/{workspace}/gzip"), &fields, "");
            let response = client.open(gzip).await.unwrap();
            assert_eq!(response.headers()["content-encoding"], "gzip");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, GZIP);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_all_content_types_pass_byte_for_byte() {
    let world = World::new().await;
    let _old = world.old_workspace().await;
    let client = world.http2(Some(&world.user())).await;
    let mut http1 = world.http1(Some(&world.user())).await;
    let bytes = |start: &[u8]| -> Bytes { start.iter().copied().chain(0..=255).collect() };
    for (kind, coding, body) in [
        ("application/vnd.kubernetes.protobuf", None, bytes(b"k8s\0")),
        ("application/vnd.kubernetes.protobuf;stream=watch", None, bytes(&[0, 0, 0, 7])),
        ("application/cbor", None, bytes(&[0xd9, 0xd9, 0xf7])),
        ("application/apply-patch+cbor", None, bytes(&[0xbf])),
        ("application/json", Some("gzip"), Bytes::from_static(GZIP)),
        ("application/octet-stream", None, Bytes::new()),
    ] {
        for workspace in ["root:org", "root:old"] {
            let mirrored = || {
                let path = format!("/clusters/{workspace}/mirror");
                let fields = [("content-type", Some(kind)), ("content-encoding", coding)];
                let given = |(name, value): (_, Option<_>)| value.map(|value| (name, value));
                let fields: Vec<_> = fields.into_iter().filter_map(given).collect();
                request(Method::POST, &path, &fields, "").map(|_| Full::new(body.clone()))
            };
            let over_http2 = client.open(mirrored()).await.unwrap();
            let mut over_http1 = mirrored();
            over_http1.headers_mut().insert("host", "localhost".parse().unwrap());
            http1.ready().await.unwrap();
            let over_http1 = http1.send_request(over_http1).await.unwrap();
            for response in [over_http2, over_http1] {
                let field = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
                assert_eq!((field("content-type"), field("content-encoding")), (Some(kind), coding));
                let mirrored = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(mirrored, body, "{kind} at {workspace}");
            }
        }
    }
}

/// Tests each phase of a workspace, for requests by its path, by its ID and to a workspace below it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phases_of_a_workspace() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let phases = [
        ("Scheduling", 403, 403),
        ("Initializing", 200, 200),
        ("Ready", 200, 200),
        ("Terminating", 200, 200),
        ("Deleting", 200, 200),
        ("Inactive", 200, 200),
        ("Unavailable", 503, 503),
    ];
    for (number, (phase, by_path, below)) in phases.into_iter().enumerate() {
        let (name, id, child) =
            (format!("w{number}"), format!("phase{number:011}"), format!("child{number:011}"));
        world.create_workspace("root", &name, "root", &id);
        world.create_workspace(&id, "child", "root", &child);
        // The workspace is recreated, so that the index has not seen it in another phase, as while a workspace is scheduled.
        world.root.state.delete("workspaces", &format!("root/{name}"));
        world.put_workspace("root", &name, json!({"cluster": id}), phase);
        world.create_workspace("root", &format!("marker{number}"), "root", &format!("marker{number:010}"));
        assert_eq!(client.get(&format!("/clusters/root:marker{number}/api")).await.status, 200);
        assert_eq!(client.get(&format!("/clusters/root:{name}/api")).await.status, by_path, "{phase}");
        assert_eq!(client.get(&format!("/clusters/root:{name}:child/api")).await.status, below, "{phase}");
        // The phase applies to the path only; requests by ID are not affected.
        assert_eq!(client.get(&format!("/clusters/{id}/api")).await.status, 200, "{phase}");
        assert_eq!(client.get(&format!("/clusters/{id}:child/api")).await.status, 200, "{phase}");
    }
}

/// Effects of events of workspaces, logical clusters and shards on the routing of paths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_change_where_requests_go() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let mut markers = 0;
    let mut settled = async || {
        for (shard, id) in [("root", "ra"), ("alpha", "al")] {
            markers += 1;
            let (name, id) = (format!("marker{markers}"), format!("{id}{markers:014}"));
            world.create_workspace("root", &name, shard, &id);
            eventually("the workspace is served", async || {
                client.get(&format!("/clusters/root:{name}/api")).await.status == 200
            })
            .await;
        }
    };
    let where_to = async |path: &str| {
        let answer = client.get(&format!("/clusters/{path}/api")).await;
        match answer.status {
            200 => {
                let echo = answer.json();
                let cluster = echo["path"].as_str().unwrap().split('/').nth(2).unwrap().to_owned();
                format!("{} {cluster}", echo["shard"].as_str().unwrap())
            }
            code => code.to_string(),
        }
    };
    let (one, two) = ("0ne0000000000001", "tw00000000000002");
    world.create_workspace("root", "w", "root", one);
    settled().await;
    assert_eq!(where_to("root:w").await, format!("root {one}"));
    // Another logical cluster under the same name.
    world.alpha.state.put(
        "logicalclusters",
        two,
        json!({"metadata": {"annotations": {"kcp.io/cluster": two}}}),
    );
    world.put_workspace("root", "w", json!({"cluster": two}), "Ready");
    settled().await;
    assert_eq!(where_to("root:w").await, format!("alpha {two}"));
    assert_eq!(where_to(one).await, format!("root {one}"));
    // Unavailable, and back.
    world.put_workspace("root", "w", json!({"cluster": two}), "Unavailable");
    settled().await;
    assert_eq!(where_to("root:w").await, "503");
    world.put_workspace("root", "w", json!({"cluster": two}), "Ready");
    settled().await;
    assert_eq!(where_to("root:w").await, format!("alpha {two}"));
    // The phase Scheduling changes nothing.
    world.put_workspace("root", "w", json!({}), "Scheduling");
    settled().await;
    assert_eq!(where_to("root:w").await, format!("alpha {two}"));
    // A logical cluster without its workspace, a workspace without its logical cluster.
    world.alpha.state.delete("logicalclusters", two);
    settled().await;
    assert_eq!((where_to("root:w").await, where_to(two).await), ("403".into(), "403".into()));
    world.root.state.delete("workspaces", "root/w");
    world.root.state.delete("logicalclusters", one);
    settled().await;
    assert_eq!((where_to("root:w").await, where_to(one).await), ("403".into(), "403".into()));
    // Fields of a Shard other than its base URL do not affect routing.
    world.root.state.put("shards", "alpha", json!({
        "metadata": {"name": "alpha", "labels": {"region": "moon"}, "annotations": {"experimental.core.kcp.io/unschedulable": "true"}},
        "spec": {"baseURL": world.alpha.url(), "externalURL": "https://elsewhere", "virtualWorkspaceURL": "https://elsewhere"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }));
    settled().await;
    assert_eq!(where_to("root:org").await, format!("alpha {ORG}"));
}
