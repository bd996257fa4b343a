//! Shards that come, go, hang and lose their history; logical clusters that are on two of them.

use std::sync::atomic::Ordering;

use http::Method;
use serde_json::json;
use tokio::net::TcpListener;

use crate::world::{Choices, ORG, World, eventually, logical_cluster, request, until_status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_workspaces_are_created_and_deleted_at_once() {
    const COUNT: usize = 10_000;
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let id = |number: usize| format!("many{number:012}");
    let shard = |number: usize| if number.is_multiple_of(2) { "root" } else { "alpha" };
    for number in 0..COUNT {
        world.create_workspace("root", &format!("many-{number}"), shard(number), &id(number));
    }
    for last in [COUNT - 1, COUNT - 2] {
        until_status(&client, &format!("/clusters/root:many-{last}/api"), 200).await;
    }
    for number in (0..COUNT).step_by(97) {
        let answer = client.get(&format!("/clusters/root:many-{number}/api")).await;
        assert_eq!((answer.status, answer.json()["shard"].as_str()), (200, Some(shard(number))), "{number}");
    }
    for number in 0..COUNT {
        world.root.state.delete("workspaces", &format!("root/many-{number}"));
        world.shard(shard(number)).state.delete("logicalclusters", &id(number));
    }
    until_status(&client, &format!("/clusters/root:many-{}/api", COUNT - 1), 403).await;
    until_status(&client, &format!("/clusters/{}/api", id(COUNT - 1)), 403).await;
    until_status(&client, &format!("/clusters/{}/api", id(COUNT - 2)), 403).await;
    for number in (0..COUNT).step_by(997) {
        assert_eq!(client.get(&format!("/clusters/root:many-{number}/api")).await.status, 403, "{number}");
        assert_eq!(client.get(&format!("/clusters/{}/api", id(number))).await.status, 403, "{number}");
    }
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_without_its_history_is_relisted_without_any_403() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let lists = || world.root.state.lists.load(Ordering::SeqCst);
    let before = lists();
    // While no watch is open, a workspace is created, one is deleted, and the shard compacts these events.
    world.create_workspace("root", "gone", "root", "gone000000000001");
    assert_eq!(client.get("/clusters/root:gone/api").await.status, 200);
    world.root.state.held.send_replace(true);
    world.root.state.cut_connections();
    world.create_workspace("root", "new", "root", "new0000000000001");
    world.root.state.delete("workspaces", "root/gone");
    world.root.state.compact();
    for path in ["/clusters/root:new/api", "/clusters/root:nope/api"] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    world.root.state.held.send_replace(false);
    until_status(&client, "/clusters/root:new/api", 200).await;
    until_status(&client, "/clusters/root:gone/api", 403).await;
    assert!(lists() > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_shard_serves_its_workspaces() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let beta = world.unregistered_shard("beta").await;
    let id = "beta000000000001";
    beta.state.put("logicalclusters", id, logical_cluster(id, Some("b")));
    world.put_workspace("root", "b", json!({"cluster": id}), "Ready");
    world.register("beta", &beta.url());
    until_status(&client, "/clusters/root:b/api", 200).await;
    assert_eq!(client.get(&format!("/clusters/{id}/api")).await.json()["shard"], "beta");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_down_affects_its_own_workspaces_only() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    world.create_workspace("root", "here", "root", "here000000000001");
    assert_eq!(client.get("/clusters/root:here/api").await.status, 200);
    world.alpha.kill().await;
    for (path, expected) in [
        ("/clusters/root:here/api", &[200][..]),
        ("/clusters/root:nope/api", &[403]),
        // The shard is known but down.
        ("/clusters/root:org/api", &[502, 503]),
        // The workspace may have been created on the unreachable shard.
        ("/clusters/root:org:nope/api", &[503]),
    ] {
        let status = client.get(path).await.status;
        assert!(expected.contains(&status), "{path}: {status}");
    }
    let tls = world.serving_ca.server().server_config(&[&world.client_ca, &world.front_proxy_ca]);
    let back = crate::shard::Shard::start_at("alpha", tls, world.alpha.address).await;
    back.state.put("logicalclusters", ORG, logical_cluster(ORG, Some("org")));
    until_status(&client, "/clusters/root:org/api", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_never_responds_delays_no_other_shard() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.register("silent", &format!("https://{}", silent.local_addr().unwrap()));
    // The shard is followed as soon as it accepts the connection.
    let (_open, _) = silent.accept().await.unwrap();
    for (path, expected) in [
        ("/clusters/root/api", 200),
        ("/clusters/root:org/api", 200),
        ("/clusters/root:nope/api", 403),
        // A valid id: the silent shard may have the logical cluster.
        ("/clusters/2hzqkbz7v4xk1d0q/api", 503),
        ("/readyz", 200),
    ] {
        assert_eq!(client.get(path).await.status, expected, "{path}");
    }
    world.root.state.delete("shards", "silent");
    until_status(&client, "/clusters/2hzqkbz7v4xk1d0q/api", 403).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_a_slow_shard_was_read_a_new_gateway_is_unready_and_never_returns_403() {
    let world = World::with(Choices::default()).await;
    world.alpha.state.held.send_replace(true);
    let another = world.start_second_gateway(|_| {});
    let client = world.client_of(&another).await;
    until_status(&client, "/clusters/root/api", 200).await;
    for path in ["/clusters/root:org/api", &format!("/clusters/{ORG}/api"), "/clusters/nope/api"] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    assert_eq!(client.get("/readyz").await.status, 500);
    let why = client.get("/readyz/informer-sync").await;
    assert!(why.text.contains("not read yet: alpha"), "{}", why.text);
    world.alpha.state.held.send_replace(false);
    another.gateway.ready().await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    assert_eq!(client.get("/clusters/nope/api").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logical_cluster_on_two_shards_moves_once_and_its_watches_restart() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let api = format!("/clusters/{ORG}/api");
    let resumed = "/clusters/root:org/api/v1/configmaps?watch=true&resourceVersion=7";
    assert_eq!(client.get(resumed).await.status, 200);
    // The copy that is being filled does not take over, whatever happens to it.
    let marked = json!({
        "metadata": {"annotations": {"kcp.io/cluster": ORG, "internal.kcp.io/migrating": "true"}},
    });
    world.alpha.state.put("logicalclusters", ORG, marked.clone());
    world.root.state.put("logicalclusters", ORG, marked);
    world.create_workspace("root", "marker", "root", "marker0000000001");
    assert_eq!(client.get("/clusters/root:marker/api").await.status, 200);
    assert_eq!(client.get(&api).await.json()["shard"], "alpha");
    assert_eq!(client.get(resumed).await.status, 200);
    // The removal at the origin is the move.
    world.alpha.state.delete("logicalclusters", ORG);
    eventually("the root shard serves the workspace", async || {
        client.get(&api).await.json()["shard"] == "root"
    })
    .await;
    world.root.state.put("logicalclusters", ORG, logical_cluster(ORG, Some("org")));
    let answer = client.get(resumed).await;
    assert_eq!(answer.status, 410);
    let status = answer.json();
    assert_eq!(
        (&status["kind"], &status["reason"], &status["code"]),
        (&json!("Status"), &json!("Expired"), &json!(410))
    );
    for (method, path, expected) in [
        (Method::GET, "/clusters/root:org/api/v1/configmaps?watch=true", 200),
        (Method::GET, "/clusters/root:org/api/v1/configmaps?limit=500", 200),
        (Method::GET, "/clusters/root:org/api/v1/configmaps?limit=500&continue=abc", 410),
        (Method::POST, "/clusters/root:org/api/v1/configmaps", 200),
        (Method::GET, "/clusters/root:marker/api/v1/configmaps?watch=true&resourceVersion=7", 200),
    ] {
        let answer = client.send(request(method, path, &[], "")).await;
        assert_eq!(answer.status, expected, "{path}");
    }
}
