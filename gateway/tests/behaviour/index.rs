//! The index follows its shards: what is created is there at once, and a cut connection costs nothing.

use std::sync::atomic::Ordering;

use http::Method;
use serde_json::json;

use crate::world::{World, eventually, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_is_routable_as_soon_as_its_creator_sees_it_ready() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    for number in 0..300 {
        let (id, name) = (format!("new{number:013}"), format!("w{number}"));
        // A probe before it exists, as `kubectl ws create` sends one: it must not be remembered against it.
        if number % 50 == 0 {
            assert_eq!(client.get(&format!("/clusters/root:{name}/api")).await.status, 403);
        }
        let shard = if number % 2 == 0 { "root" } else { "alpha" };
        world.create_workspace("root", &name, shard, &id);
        let reference = if number % 3 == 0 { id.clone() } else { format!("root:{name}") };
        let answer = client.get(&format!("/clusters/{reference}/api")).await;
        assert_eq!(answer.status, 200, "{reference}");
        assert_eq!(answer.json()["shard"], shard);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_index_connection_causes_neither_a_relist_nor_a_403() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let lists = || [&world.root, &world.alpha].map(|shard| shard.state.lists.load(Ordering::SeqCst));
    let before = lists();
    for round in 0..5 {
        world.root.state.cut_connections();
        world.alpha.state.cut_connections();
        let (id, name) = (format!("cut{round:013}"), format!("cut{round}"));
        world.create_workspace("root", &name, "alpha", &id);
        for path in ["/clusters/root/api", "/clusters/root:org/api", &format!("/clusters/root:{name}/api")] {
            let answer = client.get(path).await;
            assert_ne!(answer.status, 403, "{path}");
        }
    }
    assert_eq!(lists(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_workspaces_and_those_of_removed_shards_are_not_routed() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    world.create_workspace("root", "short", "root", "short00000000001");
    assert_eq!(client.get("/clusters/root:short/api").await.status, 200);
    world.root.state.delete("workspaces", "root/short");
    world.root.state.delete("logicalclusters", "short00000000001");
    world.root.state.delete("shards", "alpha");
    world.create_workspace("root", "marker", "root", "marker0000000001");
    assert_eq!(client.get("/clusters/root:marker/api").await.status, 200);
    for path in ["/clusters/root:short/api", "/clusters/short00000000001/api"] {
        assert_eq!(client.get(path).await.status, 403, "{path}");
    }
    // The list of shards is another watch: wait for its effect.
    eventually("the workspace is gone", async || client.get("/clusters/root:org/api").await.status != 200)
        .await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_moves_to_another_url_keeps_its_workspaces() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let moved = world.unregistered_shard("alpha-moved").await;
    let logical_cluster = json!({"metadata": {"annotations": {"kcp.io/cluster": crate::world::ORG}}});
    moved.state.put("logicalclusters", crate::world::ORG, logical_cluster);
    world.root.state.put(
        "shards",
        "alpha",
        json!({"metadata": {"name": "alpha"}, "spec": {"baseURL": moved.url()}}),
    );
    eventually("the new address is asked", async || {
        let answer = client.send(request(Method::GET, "/clusters/root:org/api", &[], "")).await;
        assert_eq!(answer.status, 200);
        answer.json()["shard"] == "alpha-moved"
    })
    .await;
}
