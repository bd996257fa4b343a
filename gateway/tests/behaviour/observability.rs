//! Metrics of requests: stages by listener, upstream time by shard and class, the busiest workspaces.

use http::Method;

use crate::world::{Answer, World, eventually, request};

/// The metrics once they have all of these lines: a request is recorded when it has ended, and the client may receive the end of
/// the response before that.
pub async fn metrics_with(world: &World, lines: &[&str]) -> String {
    let client = world.http2(Some(&world.operator())).await;
    let mut text = String::new();
    eventually("the metrics have these lines", async || {
        text = client.get("/metrics").await.text;
        lines.iter().all(|line| text.contains(line))
    })
    .await;
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_are_measured_by_listener_and_upstream_time_by_shard_and_class() {
    let world = World::new().await;
    let user = world.user();
    let path = "/clusters/root:org/api";
    assert_eq!(world.get(Some(&user), path).await.status, 200);
    let mut http1 = world.http1(Some(&user)).await;
    let post = request(Method::POST, path, &[("host", "localhost")], "a body");
    assert_eq!(Answer::of(http1.send_request(post).await.unwrap()).await.status, 200);
    assert_eq!(world.get(Some(&user), "/clusters/root:nope/api").await.status, 403);

    let text = metrics_with(
        &world,
        &[
            // The request for the unknown workspace has a route stage, but no connection to a shard.
            "fairlead_gateway_stage_duration_seconds_count{listener=\"internal\",stage=\"route\"} 3\n",
            "fairlead_gateway_stage_duration_seconds_count{listener=\"internal\",stage=\"upstream_connect\"} 2\n",
            "fairlead_gateway_first_byte_duration_seconds_count{class=\"read\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_first_byte_duration_seconds_count{class=\"write\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_request_duration_seconds_count{class=\"read\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_request_duration_seconds_count{class=\"write\",listener=\"internal\",shard=\"alpha\"} 1\n",
        ],
    )
    .await;
    for stage in ["accept", "tls", "auth"] {
        let name = "fairlead_gateway_stage_duration_seconds_count";
        let line = format!("{name}{{listener=\"internal\",stage=\"{stage}\"}} ");
        let count = text.lines().find_map(|found| found.strip_prefix(&line)).unwrap();
        assert!(count.parse::<u64>().unwrap() >= 2, "{stage}: {count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_busiest_workspaces_of_many_are_reported() {
    let world = World::new().await;
    let id = |number: usize| format!("busy{number:012}");
    for number in 0..30 {
        world.create_workspace("root", &format!("w{number}"), "alpha", &id(number));
    }
    let client = world.http2(Some(&world.user())).await;
    for number in 0..30 {
        eventually("the workspace is served", async || {
            client.get(&format!("/clusters/{}/api", id(number))).await.status == 200
        })
        .await;
    }
    for _ in 0..200 {
        assert_eq!(client.get("/clusters/root:w7/api").await.status, 200);
    }
    let watches: Vec<_> = [3, 3, 3, 5]
        .into_iter()
        .map(|number| format!("/clusters/root:w{number}/api/v1/stream?watch=true"))
        .collect();
    let mut open = Vec::new();
    for watch in &watches {
        open.push(client.open(request(Method::GET, watch, &[], "")).await.unwrap());
    }
    let watches_of_w3 = format!("fairlead_gateway_top_workspace_watches{{cluster=\"{}\"}} 3\n", id(3));
    let text = metrics_with(&world, &[&watches_of_w3]).await;
    let rates = "fairlead_gateway_top_workspace_requests_per_second{";
    let reported: Vec<&str> = text.lines().filter(|line| line.starts_with(rates)).collect();
    assert_eq!(reported.len(), 10, "{reported:?}");

    let operator = world.http2(Some(&world.operator())).await;
    let path = "/services/fairlead/v1/top";
    let report = operator.get(path).await.json();
    assert_eq!(report["requests"][0]["cluster"], id(7), "{report}");
    assert_eq!(report["requests"][0]["path"], "root:w7");
    assert!(report["requests"][0]["perSecond"].as_f64().unwrap() >= 200.0 / 50.0 / 2.0, "{report}");
    assert_eq!(report["requests"].as_array().unwrap().len(), 30, "{report}");
    assert_eq!(report["bytes"][0]["cluster"], id(7));
    assert_eq!(report["errors"].as_array().unwrap().len(), 0);
    assert_eq!(report["watches"][0]["cluster"], id(3));
    assert_eq!(report["watches"][0]["open"], 3);
    drop(open);
    eventually("no watch is reported any more", async || {
        operator.get(path).await.json()["watches"].as_array().unwrap().is_empty()
    })
    .await;

    // Reading the report takes the same rights as reading the metrics.
    let reader = world.client_ca.client("metrics-reader", &[]);
    assert_eq!(world.get(Some(&reader), path).await.status, 200);
    assert_eq!(world.get(Some(&world.user()), path).await.status, 403);
    assert_eq!(world.get(None, path).await.status, 401);
}
