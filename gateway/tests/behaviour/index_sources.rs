//! Sources of the index: the root shard, a snapshot when it is down, peers in its place, or selected shards.

use fairlead_config::Timespan;

use crate::world::{Choices, Http2, ORG, SecondGateway, World, eventually, logical_cluster, until_status};

/// A gateway that has left a snapshot, and is gone.
async fn left_behind(world: &World, snapshot: &std::path::Path) {
    let first = world.start_second_gateway(|config| config.index.snapshot = Some(snapshot.into()));
    first.gateway.ready().await;
    first.end().await;
    assert!(snapshot.exists());
}

async fn with_snapshot(world: &World, snapshot: &std::path::Path) -> (SecondGateway, Http2) {
    let another = world.start_second_gateway(|config| config.index.snapshot = Some(snapshot.into()));
    let client = world.client_of(&another).await;
    (another, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_root_shard_a_new_gateway_knows_nothing() {
    let world = World::new().await;
    world.root.kill().await;
    let another = world.start_second_gateway(|_| {});
    let client = world.client_of(&another).await;
    for path in ["/clusters/root/api", "/clusters/root:org/api", &format!("/clusters/{ORG}/api")] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    assert_eq!(client.get("/readyz").await.status, 500);
    assert!(client.get("/readyz/informer-sync").await.text.contains("the list of shards"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_root_shard_a_gateway_routes_by_its_snapshot() {
    let world = World::new().await;
    let snapshot = world.directory.path().join("index");
    left_behind(&world, &snapshot).await;
    world.root.kill().await;
    let (another, client) = with_snapshot(&world, &snapshot).await;
    another.gateway.ready().await;
    assert_eq!(client.get("/readyz").await.status, 200);
    for path in ["/clusters/root:org/api", &format!("/clusters/{ORG}/api")] {
        let answer = client.get(path).await;
        assert_eq!((answer.status, answer.json()["shard"].as_str()), (200, Some("alpha")), "{path}");
    }
    // An unknown workspace may have been created since, so it is never 403.
    for path in ["/clusters/root:nope/api", "/clusters/nope/api"] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    // The reachable shards are followed nevertheless, workspaces included.
    let id = "late000000000001";
    world.alpha.state.put("logicalclusters", id, logical_cluster(id, Some("late")));
    let workspace = serde_json::json!({
        "metadata": {"name": "late", "annotations": {"kcp.io/cluster": ORG}},
        "spec": {"cluster": id}, "status": {"phase": "Ready"},
    });
    world.alpha.state.put("workspaces", &format!("{ORG}/late"), workspace);
    until_status(&client, "/clusters/root:org:late/api", 200).await;
    // The root shard is back: everything is known for certain again.
    let tls = world.serving_ca.server().server_config(&[&world.client_ca, &world.front_proxy_ca]);
    let back = crate::shard::Shard::start_at("root", tls, world.root.address).await;
    for (name, shard) in [("root", &back), ("alpha", &world.alpha)] {
        let object = serde_json::json!({"metadata": {"name": name}, "spec": {"baseURL": shard.url()}});
        back.state.put("shards", name, object);
    }
    back.state.put("logicalclusters", "root", logical_cluster("root", None));
    until_status(&client, "/clusters/root:nope/api", 403).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 403, "root has no such workspace any more");
}

/// Only where an operator wants it: all replicas would be unready together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_news_of_a_shard_is_unready_if_configured() {
    let world = World::with(Choices {
        config: Some(|config| config.index.max_age = Some(Timespan::from_millis(200))),
        ..Choices::default()
    })
    .await;
    let client = world.http2(Some(&world.user())).await;
    assert_eq!(client.get("/readyz").await.status, 200);
    world.alpha.kill().await;
    until_status(&client, "/readyz", 500).await;
    let said = client.get("/readyz?verbose").await.text;
    assert!(said.contains("[-]index-age failed"), "{said}");
    assert_eq!(client.get("/clusters/root/api").await.status, 200, "it serves all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_damaged_or_of_other_shards_is_not_used() {
    let world = World::new().await;
    let snapshot = world.directory.path().join("index");
    left_behind(&world, &snapshot).await;
    let good = std::fs::read(&snapshot).unwrap();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    world.root.state.held.send_replace(true);
    for content in [&damaged[..], b"", b"something else"] {
        std::fs::write(&snapshot, content).unwrap();
        let (another, client) = with_snapshot(&world, &snapshot).await;
        assert_eq!(client.get("/clusters/root:org/api").await.status, 503);
        another.end().await;
    }
    std::fs::write(&snapshot, &good).unwrap();
    let other = world.start_second_gateway(|config| {
        config.index.snapshot = Some(snapshot.as_path().into());
        config.index.shards = vec!["alpha".to_owned()];
    });
    let client = world.client_of(&other).await;
    assert_eq!(client.get(&format!("/clusters/{ORG}/api")).await.status, 503);
    world.root.state.held.send_replace(false);
    let (another, client) = with_snapshot(&world, &snapshot).await;
    another.gateway.ready().await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_corrected_by_the_shards() {
    let world = World::new().await;
    world.create_workspace("root", "short", "root", "short00000000001");
    let snapshot = world.directory.path().join("index");
    left_behind(&world, &snapshot).await;
    // While no gateway runs, one workspace goes and another one moves.
    world.root.state.delete("workspaces", "root/short");
    world.root.state.delete("logicalclusters", "short00000000001");
    world.alpha.state.delete("logicalclusters", ORG);
    world.root.state.put("logicalclusters", ORG, logical_cluster(ORG, Some("org")));
    let (_another, client) = with_snapshot(&world, &snapshot).await;
    until_status(&client, "/clusters/root:short/api", 403).await;
    until_status(&client, "/clusters/short00000000001/api", 403).await;
    eventually("the root shard serves the workspace", async || {
        client.get("/clusters/root:org/api").await.json()["shard"] == "root"
    })
    .await;
    // The shard was not indexed for a while, but a watch from before may still be resumed.
    let resumed = client.get("/clusters/root:org/api/v1/pods?watch=true&resourceVersion=7").await;
    assert_eq!(resumed.status, 410);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_list_shards_and_replace_each_other() {
    let world = World::new().await;
    // Every shard offers the same view.
    for (name, shard) in [("root", &world.root), ("alpha", &world.alpha)] {
        let object = serde_json::json!({
            "metadata": {"name": name, "annotations": {"kcp.io/cluster": "system:shard"}},
            "spec": {"baseURL": shard.url()},
        });
        world.alpha.state.put("shards", name, object.clone());
        world.root.state.put("shards", name, object);
    }
    let first = world.kubeconfig_of(&world.alpha);
    let another =
        world.start_second_gateway(|config| config.index.shard_peer_kubeconfigs = vec![first.into()]);
    another.gateway.ready().await;
    let client = world.client_of(&another).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    // The peer in use dies; another one, found in its responses, replaces it.
    world.alpha.kill().await;
    let beta = world.unregistered_shard("beta").await;
    let id = "beta000000000001";
    beta.state.put("logicalclusters", id, logical_cluster(id, Some("b")));
    world.register("beta", &beta.url());
    until_status(&client, &format!("/clusters/{id}/api"), 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_of_selected_shards_indexes_no_others() {
    let world = World::new().await;
    for choose in [
        (|config: &mut fairlead_config::GatewayConfig| config.index.shards = vec!["alpha".to_owned()])
            as fn(&mut fairlead_config::GatewayConfig),
        |config| config.index.shard_selector = "name in (alpha, beta)".parse().unwrap(),
    ] {
        let another = world.start_second_gateway(choose);
        another.gateway.ready().await;
        let client = world.client_of(&another).await;
        assert_eq!(client.get(&format!("/clusters/{ORG}/api")).await.json()["shard"], "alpha");
        for path in ["/clusters/root/api", "/clusters/root:org/api"] {
            assert_eq!(client.get(path).await.status, 403, "{path}");
        }
        another.end().await;
    }
}
