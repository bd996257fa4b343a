//! Shards that join, leave, change their URL, fail and recover (front-proxy.md 2.6) while requests and watches are open.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::shard::Shard;
use crate::world::{Answer, Http2, ORG, World, eventually, logical_cluster, request, until};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

/// A watch, a read and a write that are open at alpha when its registration or that of the root shard changes.
struct OpenRequests {
    watch: Response<Incoming>,
    read: JoinHandle<Answer>,
    write: JoinHandle<Answer>,
}

impl OpenRequests {
    async fn at_alpha(world: &World, client: &Http2) -> Self {
        let send = |method: Method| {
            let client = client.clone();
            tokio::spawn(
                async move { client.send(request(method, "/clusters/root:org/wait", &[], "x")).await },
            )
        };
        let (read, write) = (send(Method::GET), send(Method::POST));
        let watch = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
        let watch = client.open(watch).await.unwrap();
        until(&world.alpha.state.waiting, |waiting| *waiting == 2).await;
        until(&world.alpha.state.streams, |open| *open == 1).await;
        Self { watch, read, write }
    }

    /// The watch gets an event from alpha, and the read and the write get their responses from it.
    async fn assert_completed(mut self, alpha: &Shard) {
        alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
        let event = timeout(LIMIT, self.watch.body_mut().frame()).await.expect("no event").unwrap().unwrap();
        assert_eq!(event.into_data().unwrap(), "{}\n");
        alpha.state.release.send_replace(true);
        for task in [self.read, self.write] {
            let answer = timeout(LIMIT, task).await.expect("no response").unwrap();
            assert_eq!((answer.status, &answer.json()["released"]), (200, &json!(true)));
        }
        assert_eq!((*alpha.state.waiting.borrow(), *alpha.state.streams.borrow()), (0, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_shard_completes_its_open_requests() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let open_requests = OpenRequests::at_alpha(&world, &client).await;
    world.root.state.delete("shards", "alpha");
    eventually("the workspace is refused", async || client.get("/clusters/root:org/api").await.status == 403)
        .await;
    assert_eq!(client.get(&format!("/clusters/{ORG}/api")).await.status, 403);
    open_requests.assert_completed(&world.alpha).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_requests_complete_at_the_old_url_of_a_shard() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let open_requests = OpenRequests::at_alpha(&world, &client).await;
    let moved = world.unregistered_shard("alpha-moved").await;
    moved.state.put("logicalclusters", ORG, logical_cluster(ORG, Some("org")));
    world.register("alpha", &moved.url());
    eventually("requests are forwarded to the new URL", async || {
        let answer = client.get("/clusters/root:org/api").await;
        assert_eq!(answer.status, 200, "no request fails meanwhile");
        answer.json()["shard"] == "alpha-moved"
    })
    .await;
    open_requests.assert_completed(&world.alpha).await;
    // The index follows the shard at its new URL.
    let id = "after00000000001";
    moved.state.put("logicalclusters", id, logical_cluster(id, Some("after")));
    eventually("the workspace is served", async || {
        client.get(&format!("/clusters/{id}/api")).await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_root_shard_known_workspaces_are_served() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    // The decision of the first SubjectAccessReview is cached and used while the root shard is down.
    let reader = world.client_ca.client("metrics-reader", &[]);
    assert_eq!(world.get(Some(&reader), "/metrics").await.status, 200);
    let open_requests = OpenRequests::at_alpha(&world, &client).await;
    world.root.kill().await;
    for (path, expected) in [
        ("/clusters/root:org/api", 200),
        ("/clusters/0rg0000000000001/api", 200),
        // The workspace is in the index, but its shard is down.
        ("/clusters/root/api", 503),
        // The workspace may have been created since the root shard went down.
        ("/clusters/root:new/api", 503),
        ("/clusters/nope000000000001/api", 503),
        ("/clusters/Nope/api", 403),
        ("/readyz", 200),
        ("/livez", 200),
    ] {
        assert_eq!(client.get(path).await.status, expected, "{path}");
    }
    // The root shard authorizes readers of metrics; operators need no authorization.
    let unauthorized = world.client_ca.client("unauthorized", &[]);
    for (certificate, expected) in [(&world.operator(), 200), (&reader, 200), (&unauthorized, 500)] {
        let answer = world.get(Some(certificate), "/metrics").await;
        assert_eq!(answer.status, expected, "{}", answer.text);
    }
    open_requests.assert_completed(&world.alpha).await;
    // The index follows the other shards: new workspaces there are served.
    let id = "late000000000001";
    world.alpha.state.put("logicalclusters", id, logical_cluster(id, Some("late")));
    eventually("the workspace is served", async || {
        client.get(&format!("/clusters/{id}/api")).await.status == 200
    })
    .await;
    // A root shard at the old address: it is listed, and authorizes readers of metrics again.
    let tls = world.serving_ca.server().server_config(&[&world.client_ca, &world.front_proxy_ca]);
    let back = Shard::start_at("root", tls, world.root.address).await;
    for (name, shard) in [("root", &back), ("alpha", &world.alpha)] {
        back.state.put("shards", name, json!({"metadata": {"name": name}, "spec": {"baseURL": shard.url()}}));
    }
    back.state.put("logicalclusters", "root", logical_cluster("root", None));
    eventually("root is served", async || client.get("/clusters/root/api").await.status == 200).await;
    eventually("the new workspace is refused", async || {
        client.get("/clusters/root:new/api").await.status == 403
    })
    .await;
    eventually("the unauthorized reader is refused", async || {
        world.get(Some(&unauthorized), "/metrics").await.status == 403
    })
    .await;
}
