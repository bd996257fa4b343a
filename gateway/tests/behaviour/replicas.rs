//! Shards with several replicas: addresses from the settings, and reads that follow writes.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::timeout;

use crate::shard::Shard;
use crate::world::{Choices, Http2, ORG, World, logical_cluster, request};

const API: &str = "/clusters/root:replicated/api";
/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// A workspace on a shard with two replicas, whose host is known to the settings only.
struct Replicated {
    replicas: [Shard; 2],
    client: Http2,
    status: Http2,
    _world: World,
}

impl Replicated {
    async fn start(revision: Option<u64>) -> Self {
        let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let replicas =
            [world.unregistered_shard("replicated").await, world.unregistered_shard("replicated").await];
        let addresses = replicas.iter().map(|replica| replica.address.to_string()).collect();
        world.config.upstream.hosts.insert("localhost:6443".to_owned(), addresses);
        world.register("replicated", "https://localhost:6443");
        let id = "replicated000001";
        for replica in &replicas {
            replica.state.put("logicalclusters", id, logical_cluster(id, Some("replicated")));
            replica.state.replica.lock().revision = revision;
        }
        world.put_workspace("root", "replicated", json!({"cluster": id}), "Ready");
        world.start().await;
        let client = world.http2(Some(&world.user())).await;
        let status = world.http2(Some(&world.operator())).await;
        let this = Self { replicas, client, status, _world: world };
        for index in 0..2 {
            this.until_used(index).await;
        }
        this
    }

    /// Sends requests, which must succeed, until a replica has served one.
    async fn until_used(&self, index: usize) {
        let served = || self.replicas[index].state.replica.lock().required.len();
        let before = served();
        let used = async {
            while served() == before {
                let response = self.client.send(request(Method::POST, API, &[], "")).await;
                assert_eq!(response.status, 200);
                let is_ours = |name: &&http::HeaderName| name.as_str().starts_with("x-fairlead-re");
                assert_eq!(response.headers.keys().find(is_ours), None, "clients do not see it");
            }
        };
        timeout(LIMIT, used).await.expect("the replica gets no request");
    }

    /// The revision that the last request to a replica required.
    fn required(&self, index: usize) -> String {
        self.replicas[index].state.replica.lock().required.last().unwrap().clone()
    }

    fn set_revision(&self, index: usize, revision: u64) {
        self.replicas[index].state.replica.lock().revision = Some(revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_told_the_highest_revision_of_all_responses() {
    let replicated = Replicated::start(Some(5)).await;
    replicated.until_used(0).await;
    assert_eq!(replicated.required(0), "5");
    replicated.set_revision(0, 9);
    replicated.until_used(0).await;
    for index in [1, 0, 1] {
        replicated.until_used(index).await;
        assert_eq!(replicated.required(index), "9", "the other one is at 5");
    }
    let forged = request(Method::GET, API, &[("x-fairlead-revision", "99")], "");
    assert_eq!(replicated.client.send(forged).await.status, 200);
    let all = replicated.replicas.iter().flat_map(|one| one.state.replica.lock().required.clone());
    let all: Vec<_> = all.collect();
    assert!(all.iter().all(|required| ["0", "5", "9"].contains(&required.as_str())), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_a_replica_refuses_as_behind_goes_to_another_one() {
    let replicated = Replicated::start(Some(5)).await;
    replicated.set_revision(1, 9);
    replicated.until_used(1).await;
    replicated.replicas[0].state.replica.lock().is_behind = true;
    // Each of these requests succeeds, also those that replica 0 gets first.
    let ejected = async {
        loop {
            replicated.until_used(1).await;
            let status = replicated.status.get("/services/fairlead/v1/status").await.json();
            let shards = status["shards"].as_array().unwrap();
            let shard = shards.iter().find(|shard| shard["name"] == "replicated").unwrap();
            if shard["ejected"][0]["reason"] == "behind" {
                assert_eq!(shard["ejected"][0]["address"], replicated.replicas[0].address.to_string());
                return;
            }
        }
    };
    timeout(LIMIT, ejected).await.expect("the replica is never ejected");
    assert_eq!(replicated.required(0), "9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_kcp_and_shards_with_one_address_are_not_affected() {
    let replicated = Replicated::start(None).await;
    for index in [0, 1] {
        replicated.until_used(index).await;
        assert_eq!(replicated.required(index), "0");
    }
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let path = format!("/clusters/{ORG}/api");
    let forged = request(Method::GET, &path, &[("x-fairlead-revision", "99")], "");
    assert_eq!(client.send(forged).await.status, 200);
    assert_eq!(world.alpha.state.replica.lock().required, [""]);
}
