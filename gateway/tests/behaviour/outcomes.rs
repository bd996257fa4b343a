//! Outcomes of requests: the route or the local response of each case.

use http::Method;
use serde_json::json;

use crate::world::{Choices, ORG, World, eventually, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routing_of_requests() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    for (path, shard, forwarded) in [
        ("/clusters/root", "root", "/clusters/root"),
        ("/clusters/root/", "root", "/clusters/root"),
        ("/clusters/root/api/v1?limit=1&x=a;b", "root", "/clusters/root/api/v1?limit=1&x=a;b"),
        ("/clusters/root:org/api", "alpha", "/clusters/0rg0000000000001/api"),
        ("/clusters/0rg0000000000001/api/v1/", "alpha", "/clusters/0rg0000000000001/api/v1/"),
        ("/clusters/root%3Aorg/a%20b%2Fc%3Ad", "alpha", "/clusters/0rg0000000000001/a%20b/c:d"),
        ("/clusters/root/clusters/root/api", "root", "/clusters/root/clusters/root/api"),
        // A virtual workspace is served by the shard of the logical cluster after `clusters`, else of the one after its name.
        ("/services/x/clusters/root:org/a%2fb", "alpha", "/services/x/clusters/root:org/a%2fb"),
        ("/services/x/root/e/clusters/root:org/api", "alpha", "/services/x/root/e/clusters/root:org/api"),
        ("/services/x/root/e/clusters/*/api", "root", "/services/x/root/e/clusters/*/api"),
        ("/services/x/root:org/apis/g/clusters/y", "alpha", "/services/x/root:org/apis/g/clusters/y"),
    ] {
        let echo = client.get(path).await.json();
        assert_eq!((echo["shard"].as_str(), echo["path"].as_str()), (Some(shard), Some(forwarded)), "{path}");
        assert_eq!(echo["authority"], "localhost", "{path}");
    }
}

/// A stream whose request body is not read is reset, and the client could receive the reset before the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_response_arrives_although_the_request_has_a_body() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    for bytes in [2, 1 << 10, 100 << 10, 1 << 20] {
        let body = "x".repeat(bytes);
        for _ in 0..10 {
            let answer = client.send(request(Method::POST, "/clusters/root:nope/api", &[], &body)).await;
            assert_eq!(answer.status, 403, "{bytes} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_responses_of_the_gateway() {
    let world = World::new().await;
    world.put_workspace("root", "away", json!({"cluster": ORG}), "Unavailable");
    world.put_workspace("root", "early", json!({}), "Scheduling");
    world.put_workspace(
        "root",
        "mount",
        json!({"mount": {"ref": {}}, "URL": "https://x/clusters/y"}),
        "Ready",
    );
    // Once a change of a shard is visible, the earlier changes of that shard are visible, too.
    world.create_workspace("root", "marker", "root", "marker0000000001");
    let user = world.user();
    for certificate in [Some(&user), None] {
        let client = world.http2(certificate).await;
        let with_token = [("authorization", "Bearer x")];
        let marker = client.send(request(Method::GET, "/clusters/root:marker/api", &with_token, "")).await;
        assert_eq!(marker.status, 200);
        for (path, code, reason) in [
            ("/clusters/root:nope/api", 403, "Forbidden"),
            ("/clusters/root:early/api", 403, "Forbidden"),
            ("/clusters/*/api", 403, "Forbidden"),
            ("/clusters/system:admin/api", 403, "Forbidden"),
            ("/clusters/Root/api", 403, "Forbidden"),
            ("/clusters/root%2Fapi", 403, "Forbidden"),
            ("/clusters/%2e%2e/api", 403, "Forbidden"),
            ("/services/x/clusters/nope/api", 403, "Forbidden"),
            ("/clusters/root:away/api", 503, "ServiceUnavailable"),
            ("/clusters/root:mount/api", 503, "ServiceUnavailable"),
            ("/clusters/root/%00", 400, "BadRequest"),
            ("/clusters/root/%zz", 400, "BadRequest"),
        ] {
            let answer = client.get(path).await;
            let status = answer.json();
            assert_eq!((answer.status, status["reason"].as_str()), (code, Some(reason)), "{path}");
            assert_eq!(
                (status["kind"].as_str(), status["code"].as_u64()),
                (Some("Status"), Some(code.into()))
            );
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
            assert_eq!(answer.headers.contains_key("retry-after"), code == 503, "{path}");
            assert_eq!(answer.headers["audit-id"].len(), 36, "{path}");
        }
        for path in [
            "/",
            "/foo",
            "/healthz",
            "/version",
            "/api",
            "/openapi/v3",
            "/clusters",
            "/clusters/",
            "/readyz/foo",
        ] {
            let answer = client.get(path).await;
            assert_eq!((answer.status, answer.text.as_str()), (404, "404 page not found\n"), "{path}");
        }
        for (path, location) in [
            ("/clusters//root/api?a=b", "/clusters/root/api?a=b"),
            ("/clusters/root/../root/api", "/clusters/root/api"),
            ("/clusters/root/%2e%2e/root/version", "/clusters/root/version"),
        ] {
            let answer = client.get(path).await;
            assert_eq!(
                (answer.status, answer.headers["location"].to_str().unwrap()),
                (307, location),
                "{path}"
            );
        }
    }
    let answer = world.get(None, "/clusters/root:nope/api").await;
    assert_eq!(
        answer.json()["message"],
        "forbidden: User \"\" cannot get path \"/clusters/root:nope/api\": workspace access not permitted"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_metrics_and_status_by_identity() {
    let world = World::new().await;
    for (path, text) in
        [("/livez", "ok"), ("/livez/ping", "ok"), ("/readyz", "ok"), ("/readyz/informer-sync", "ok")]
    {
        let answer = world.get(None, path).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, text), "{path}");
    }
    let reader = world.client_ca.client("metrics-reader", &[]);
    for path in ["/metrics", "/services/fairlead/v1/status"] {
        for (certificate, expected) in [(None, 401), (Some(world.user()), 403), (Some(world.operator()), 200)]
        {
            assert_eq!(world.get(certificate.as_ref(), path).await.status, expected, "{path}");
        }
    }
    // The access rules of the root shard allow this user to read metrics.
    let metrics = world.get(Some(&reader), "/metrics").await;
    assert_eq!(metrics.status, 200);
    for line in [
        "kcp_indexed_logicalclusters{shard=\"root\"} 1\n",
        "fairlead_gateway_index_synced 1\n",
        "proxy_request_duration_seconds_count{code=\"200\",method=\"get\"}",
        "fairlead_gateway_local_responses_total{code=\"401\",reason=\"unauthorized\"} 2\n",
    ] {
        assert!(metrics.text.contains(line), "{line}");
    }
    let status = world.get(Some(&world.operator()), "/services/fairlead/v1/status").await.json();
    assert_eq!(status["synced"], true);
    assert_eq!(status["listeners"][0]["name"], "internal");
    assert_eq!(status["shards"][0]["name"], "alpha");
    assert_eq!(status["shards"][0]["workspaces"], 1);
    assert_eq!(status["shards"][0]["url"], world.alpha.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_first_sync_no_workspace_is_403() {
    let world = World::with(Choices { unsynced: true, ..Choices::default() }).await;
    let user = world.user();
    for path in ["/clusters/root/api", "/clusters/root:nope/api", "/services/x/root/api"] {
        let answer = world.get(Some(&user), path).await;
        assert_eq!((answer.status, answer.headers["retry-after"].to_str().unwrap()), (503, "1"), "{path}");
    }
    assert_eq!(world.get(None, "/readyz").await.status, 500);
    assert_eq!(world.get(None, "/livez").await.status, 200);
    // The shards are registered with URLs at which they can be reached.
    for shard in [&world.root, &world.alpha] {
        let name = shard.state.name.as_str();
        let object = json!({"metadata": {"name": name}, "spec": {"baseURL": shard.url()}});
        world.root.state.put("shards", name, object);
    }
    world.gateway.as_ref().unwrap().ready().await;
    assert_eq!(world.get(None, "/readyz").await.status, 200);
    assert_eq!(world.get(Some(&user), "/clusters/root:org/api").await.json()["shard"], "alpha");
    assert_eq!(world.get(Some(&user), "/clusters/root:nope/api").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_header_is_431_and_the_connection_stays_open() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let long = "x".repeat(33 << 10);
    let many: Vec<(String, String)> =
        (0..130).map(|number| (format!("x-{number}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for headers in [&[("x-long", long.as_str())][..], &many] {
        let answer = client.send(request(Method::GET, "/clusters/root/api", headers, "")).await;
        assert_eq!((answer.status, answer.json()["kind"].as_str()), (431, Some("Status")));
    }
    // The request target counts towards the limit, too.
    let path = format!("/clusters/root/api?labelSelector={}", &long[..13 << 10]);
    assert_eq!(client.get(&path).await.status, 200);
    let answer = client.send(request(Method::GET, &path, &[("x-long", &long[..20 << 10])], "")).await;
    // The Status shows that the response is the gateway's and not the shard's.
    assert_eq!((answer.status, answer.text.contains("Status")), (431, true));
    assert_eq!(client.get("/clusters/root/api").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_request_placements() {
    let world = World::new().await;
    let path = "/services/fairlead/v1/shard-picks";
    let body = |uid: &str, selector: &str| {
        format!(r#"{{"workspaceUID":"{uid}","parentCluster":"root","selector":{selector}}}"#)
    };
    let shard = world.client_ca.client("system:fairlead:shard:alpha", &["system:fairlead:shard"]);
    let client = world.http2(Some(&shard)).await;
    let place = async |body: String| client.send(request(Method::POST, path, &[], &body)).await;
    // A shard whose watches are not open yet may be excluded.
    let all_are_watched = async || {
        let status = world.get(Some(&world.operator()), "/services/fairlead/v1/status").await.json();
        status["shards"].as_array().unwrap().iter().all(|shard| shard["watching"] == true)
    };
    eventually("all shards are watched", async || all_are_watched().await).await;
    // alpha has one workspace already.
    let placed = place(body("1", "{}")).await.json();
    assert_eq!((placed["shard"].as_str(), placed["policy"].as_str()), (Some("root"), Some("power-of-two")));
    assert_eq!(placed["reason"], "0 workspaces and 0 reserved, emptier than alpha; 2 of 2 fit");
    assert_eq!(place(body("1", "{}")).await.json()["shard"], "root");
    assert_eq!(place(body("3", r#"{"matchLabels":{"name":"alpha"}}"#)).await.json()["shard"], "alpha");
    let none = place(body("4", r#"{"matchLabels":{"name":"unknown"}}"#)).await;
    assert_eq!((none.status, none.json()["reason"].as_str()), (422, Some("NoShardFits")));
    assert_eq!(place("{".to_owned()).await.status, 400);
    assert_eq!(place("x".repeat(70_000)).await.status, 413);

    let placement = body("5", "{}");
    for (certificate, expected) in [(None, 401), (Some(world.user()), 403), (Some(world.operator()), 403)] {
        let client = world.http2(certificate.as_ref()).await;
        assert_eq!(client.send(request(Method::POST, path, &[], &placement)).await.status, expected);
    }
    assert_eq!(client.get(path).await.status, 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_down_is_503_for_its_workspaces_only() {
    let mut world = World::new().await;
    let user = world.user();
    let client = world.http2(Some(&user)).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    let unused =
        crate::shard::Shard::start("unused", world.serving_ca.server().server_config(&[&world.client_ca]))
            .await;
    std::mem::replace(&mut world.alpha, unused).stop().await;
    for method in [Method::GET, Method::POST] {
        let answer = client.send(request(method, "/clusters/root:org/api", &[], "body")).await;
        assert_eq!((answer.status, answer.headers["retry-after"].to_str().unwrap()), (503, "1"));
        assert_eq!(answer.json()["reason"], "ServiceUnavailable");
    }
    assert_eq!(client.get("/clusters/root/api").await.status, 200);
}
