//! Events of shards to the index, one by one (front-proxy.md 2.3), and their effects on paths. The steps of a test follow one
//! another in one world; after each step the test waits until the gateway has processed its events.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::shard::Shard;
use crate::world::{Http2, ORG, World, eventually, logical_cluster};

/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);
const ONE: &str = "0ne0000000000001";
const TWO: &str = "tw00000000000002";

/// A step: its description, its events, and what references resolve to afterwards: `<shard> <id>`, or a status code.
type Step = (&'static str, fn(&World, &Shard), &'static [(&'static str, &'static str)]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_workspaces() {
    run(&[
        (
            "a workspace without a logical cluster resolves to nothing",
            |world, _| world.put_workspace("root", "w", json!({}), "Ready"),
            &[("root:w", "403")],
        ),
        (
            "a workspace is scheduled before its logical cluster exists",
            |world, _| world.put_workspace("root", "w", json!({"cluster": ONE}), "Initializing"),
            &[("root:w", "403"), (ONE, "403")],
        ),
        (
            "the logical cluster is created",
            |world, _| put(&world.root, ONE, &json!({})),
            &[("root:w", "root 0ne0000000000001"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "the phase Scheduling changes nothing",
            |world, _| world.put_workspace("root", "w", json!({}), "Scheduling"),
            &[("root:w", "root 0ne0000000000001")],
        ),
        (
            "a workspace becomes unavailable, and so do those below it",
            |world, _| {
                world.create_workspace(ONE, "child", "root", "ch1ld00000000001");
                world.put_workspace("root", "w", json!({"cluster": ONE}), "Unavailable");
            },
            &[("root:w", "503"), ("root:w:child", "503"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "any other phase makes them available again",
            |world, _| world.put_workspace("root", "w", json!({"cluster": ONE}), "Terminating"),
            &[("root:w", "root 0ne0000000000001"), ("root:w:child", "root ch1ld00000000001")],
        ),
        (
            "the workspace gets another logical cluster",
            |world, _| {
                put(&world.alpha, TWO, &json!({}));
                world.put_workspace("root", "w", json!({"cluster": TWO}), "Ready");
            },
            &[("root:w", "alpha tw00000000000002"), ("root:w:child", "403"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "the deletion of its former logical cluster does not affect the workspace",
            |world, _| world.root.state.delete("logicalclusters", ONE),
            &[("root:w", "alpha tw00000000000002"), (ONE, "403")],
        ),
        (
            "the workspace becomes a mount",
            |world, other| mount(world, "w", &format!("{}/clusters/there", other.url())),
            &[("root:w", "other there"), (TWO, "alpha tw00000000000002")],
        ),
        (
            "the mount leads elsewhere",
            |world, other| mount(world, "w", &format!("{}/clusters/elsewhere", other.url())),
            &[("root:w", "other elsewhere")],
        ),
        ("the mount has no URL", |world, _| mount(world, "w", ""), &[("root:w", "403")]),
        (
            "the workspace is no mount any more",
            |world, _| world.put_workspace("root", "w", json!({"cluster": TWO}), "Ready"),
            &[("root:w", "alpha tw00000000000002")],
        ),
        (
            "the workspace is deleted; its logical cluster is not",
            |world, _| world.root.state.delete("workspaces", "root/w"),
            &[("root:w", "403"), (TWO, "alpha tw00000000000002")],
        ),
        (
            "a mount is deleted",
            |world, other| {
                mount(world, "m", &format!("{}/clusters/there", other.url()));
                world.root.state.delete("workspaces", "root/m");
            },
            &[("root:m", "403")],
        ),
        (
            "a workspace is deleted before it is scheduled",
            |world, _| {
                world.put_workspace("root", "short", json!({}), "Scheduling");
                world.root.state.delete("workspaces", "root/short");
            },
            &[("root:short", "403"), ("root:org", "alpha 0rg0000000000001")],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_logical_clusters() {
    run(&[
        (
            "a child on another shard than its parent",
            |world, _| {
                world.alpha.state.put(
                    "workspaces",
                    "0rg0000000000001/c",
                    json!({
                        "metadata": {"name": "c", "annotations": {"kcp.io/cluster": ORG}},
                        "spec": {"cluster": ONE}, "status": {"phase": "Ready"},
                    }),
                );
                put(&world.root, ONE, &json!({}));
            },
            &[("root:org:c", "root 0ne0000000000001")],
        ),
        (
            "a second shard reports the logical cluster, which changes nothing",
            |world, _| put(&world.alpha, ONE, &json!({})),
            &[("root:org:c", "root 0ne0000000000001"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "the second shard reports it repeatedly",
            |world, _| (0..5).for_each(|round| put(&world.alpha, ONE, &json!({"round": round.to_string()}))),
            &[("root:org:c", "root 0ne0000000000001"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "the shard that is not its owner deletes it",
            |world, _| world.alpha.state.delete("logicalclusters", ONE),
            &[("root:org:c", "root 0ne0000000000001"), (ONE, "root 0ne0000000000001")],
        ),
        (
            "the owner deletes it while a second shard has it",
            |world, _| {
                put(&world.alpha, ONE, &json!({}));
                world.root.state.delete("logicalclusters", ONE);
            },
            &[("root:org:c", "alpha 0ne0000000000001"), (ONE, "alpha 0ne0000000000001")],
        ),
        (
            "its last owner deletes it: its workspace and the workspaces below it resolve to nothing",
            |world, _| {
                world.alpha.state.put(
                    "workspaces",
                    "0ne0000000000001/below",
                    json!({
                        "metadata": {"name": "below", "annotations": {"kcp.io/cluster": ONE}},
                        "spec": {"cluster": TWO}, "status": {"phase": "Ready"},
                    }),
                );
                put(&world.root, TWO, &json!({}));
                world.alpha.state.delete("logicalclusters", ONE);
            },
            &[
                ("root:org:c", "403"),
                (ONE, "403"),
                ("0ne0000000000001:below", "403"),
                (TWO, "root tw00000000000002"),
            ],
        ),
        (
            "it is created on another shard, and its workspace resolves to it again",
            |world, _| put(&world.root, ONE, &json!({})),
            &[("root:org:c", "root 0ne0000000000001"), (ONE, "root 0ne0000000000001")],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_shards() {
    run_with_shards(&[
        (
            "a shard is added",
            |world, other| {
                put(other, ONE, &json!({}));
                world.register("other", &other.url());
                world.put_workspace("root", "w", json!({"cluster": ONE}), "Ready");
            },
            &[("root:w", "other 0ne0000000000001"), (ONE, "other 0ne0000000000001")],
        ),
        (
            "conditions, labels, annotations and other URLs of a shard do not affect routing",
            |world, other| {
                let object = json!({
                    "metadata": {
                        "name": "other", "labels": {"region": "moon"},
                        "annotations": {"experimental.core.kcp.io/unschedulable": "true"},
                    },
                    "spec": {
                        "baseURL": other.url(), "externalURL": "https://elsewhere.invalid",
                        "virtualWorkspaceURL": "https://elsewhere.invalid",
                    },
                    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
                });
                world.root.state.put("shards", "other", object);
            },
            &[("root:w", "other 0ne0000000000001"), (ONE, "other 0ne0000000000001")],
        ),
        (
            "a slash at the end of its URL does not affect routing",
            |world, other| world.register("other", &format!("{}/", other.url())),
            &[("root:w", "other 0ne0000000000001")],
        ),
        (
            "a shard is deleted",
            |world, _| world.root.state.delete("shards", "other"),
            &[("root:w", "403"), (ONE, "403"), ("root:org", "alpha 0rg0000000000001")],
        ),
        (
            "it is added again",
            |world, other| world.register("other", &other.url()),
            &[("root:w", "other 0ne0000000000001"), (ONE, "other 0ne0000000000001")],
        ),
        (
            "it is deleted while the watch is disconnected, and the root shard has compacted the event",
            |world, _| {
                world.root.state.held.send_replace(true);
                world.root.state.cut_connections();
                world.root.state.delete("shards", "other");
                world.root.state.compact();
                world.root.state.held.send_replace(false);
            },
            &[("root:w", "403"), (ONE, "403"), ("root:org", "alpha 0rg0000000000001")],
        ),
    ])
    .await;
}

async fn run(steps: &[Step]) {
    let world = World::new().await;
    let other = world.unregistered_shard("other").await;
    let client = world.http2(Some(&world.user())).await;
    for (number, (what, happens, expected)) in steps.iter().enumerate() {
        happens(&world, &other);
        settle(&world, &client, number).await;
        for (reference, expected) in *expected {
            assert_eq!(where_to(&client, reference).await, *expected, "{what}: {reference}");
        }
    }
}

/// The same for events of Shards, which have a watch of their own. The gateway learns the objects of a new shard later than the
/// Shard, so results are polled.
async fn run_with_shards(steps: &[Step]) {
    let world = World::new().await;
    let other = world.unregistered_shard("other").await;
    let client = world.http2(Some(&world.user())).await;
    for (number, (what, happens, expected)) in steps.iter().enumerate() {
        happens(&world, &other);
        let (name, id) = (format!("marker-{number}"), format!("ma{number:014}"));
        let marker = world.unregistered_shard(&name).await;
        put(&marker, &id, &json!({}));
        world.register(&name, &marker.url());
        let path = format!("/clusters/{id}/api");
        eventually("the workspace is served", async || client.get(&path).await.status == 200).await;
        for (reference, expected) in *expected {
            let becomes = async { while where_to(&client, reference).await != *expected {} };
            let becomes = timeout(LIMIT, becomes).await;
            assert!(becomes.is_ok(), "{what}: {reference} is {}", where_to(&client, reference).await);
        }
    }
}

/// Waits until the gateway has processed all earlier events: creates a workspace on each shard and waits until it is served.
async fn settle(world: &World, client: &Http2, number: usize) {
    for (shard, id) in [("root", "ra"), ("alpha", "al")] {
        let (name, id) = (format!("marker-{shard}-{number}"), format!("{id}{number:014}"));
        world.create_workspace("root", &name, shard, &id);
        world.alpha.state.put(
            "workspaces",
            &format!("{ORG}/{name}"),
            json!({
                "metadata": {"name": name, "annotations": {"kcp.io/cluster": ORG}},
                "spec": {"cluster": id}, "status": {"phase": "Ready"},
            }),
        );
        for path in [format!("/clusters/root:{name}/api"), format!("/clusters/root:org:{name}/api")] {
            eventually("the workspace is served", async || client.get(&path).await.status == 200).await;
        }
    }
}

async fn where_to(client: &Http2, reference: &str) -> String {
    let answer = client.get(&format!("/clusters/{reference}/api")).await;
    if answer.status != 200 {
        return answer.status.to_string();
    }
    let echo = answer.json();
    let cluster = echo["path"].as_str().unwrap().split('/').nth(2).unwrap();
    format!("{} {cluster}", echo["shard"].as_str().unwrap())
}

fn put(shard: &Shard, id: &str, more: &Value) {
    let mut object = logical_cluster(id, Some("w"));
    object["status"] = more.clone();
    shard.state.put("logicalclusters", id, object);
}

fn mount(world: &World, name: &str, url: &str) {
    world.put_workspace("root", name, json!({"mount": {"ref": {}}, "URL": url}), "Ready");
}
