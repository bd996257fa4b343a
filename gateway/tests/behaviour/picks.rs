//! Placement of workspaces on shards, requested over real sockets.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::world::{Choices, Http2, World, eventually, request};

const PLACEMENTS: &str = "/services/fairlead/v1/shard-picks";
const STATUS: &str = "/services/fairlead/v1/status";
const CORDON: &str = "experimental.core.kcp.io/unschedulable";
const DRAIN: &str = "fairlead.dev/drain";
const WEIGHT: &str = "fairlead.dev/weight";
const CAPACITY: &str = "fairlead.dev/capacity";

/// A shard that requests placements, and an operator that reads the gateway's status and metrics.
struct PlacementClient<'w> {
    world: &'w World,
    shard: Http2,
    operator: Http2,
}

impl<'w> PlacementClient<'w> {
    /// Returns when neither shard is excluded.
    async fn new(world: &'w World) -> Self {
        let client = Self::connect(world).await;
        client.until("root", "excluded", &Value::Null).await;
        client.until("alpha", "excluded", &Value::Null).await;
        client
    }

    /// Connects only: shards may still be excluded.
    async fn connect(world: &'w World) -> Self {
        let shard = world.client_ca.client("system:fairlead:shard:alpha", &["system:fairlead:shard"]);
        let shard = world.http2(Some(&shard)).await;
        Self { world, shard, operator: world.http2(Some(&world.operator())).await }
    }

    /// Requests a placement. Returns the shard, or the status code, reason and message of the refusal.
    async fn place(&self, uid: &str, selector: Value) -> String {
        let content = json!({"workspaceUID": uid, "parentCluster": "root", "selector": selector}).to_string();
        let answer = self.shard.send(request(Method::POST, PLACEMENTS, &[], &content)).await;
        let body = answer.json();
        assert_eq!(answer.headers.contains_key("retry-after"), answer.status == 503, "{answer:?}");
        match body["shard"].as_str() {
            Some(shard) => shard.to_owned(),
            None => format!("{} {}: {}", answer.status, body["reason"], body["message"]).replace('"', ""),
        }
    }

    /// The number of these workspaces that each shard gets.
    async fn count(&self, uids: std::ops::Range<u32>) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for uid in uids {
            *counts.entry(self.place(&uid.to_string(), json!({})).await).or_default() += 1;
        }
        counts
    }

    /// Waits until a field of a shard in the status has this value.
    async fn until(&self, shard: &str, field: &str, value: &Value) {
        eventually(&format!("{field} of {shard} is {value}"), async || {
            let status = self.operator.get(STATUS).await.json();
            let shards = status["shards"].as_array().unwrap();
            shards.iter().any(|one| one["name"] == shard && one[field] == *value)
        })
        .await;
    }

    /// Replaces the annotations of a shard and waits until a field in the status has this value.
    async fn annotate(&self, shard: &str, annotations: Value, field: &str, value: Value) {
        let url = self.world.shard(shard).url();
        let metadata = json!({"name": shard, "labels": {"name": shard}, "annotations": annotations});
        self.world.root.state.put("shards", shard, json!({"metadata": metadata, "spec": {"baseURL": url}}));
        self.until(shard, field, &value).await;
    }

    async fn metrics(&self) -> String {
        self.operator.get("/metrics").await.text
    }
}

/// A selector of one shard.
fn only(shard: &str) -> Value {
    json!({"matchLabels": {"name": shard}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoned_draining_and_full_shards_get_no_new_workspaces() {
    let world = World::new().await;
    let client = PlacementClient::new(&world).await;
    let any = json!({});
    for (number, (annotation, value, word)) in [
        (CORDON, "", "cordoned"),
        (DRAIN, "true", "draining"),
        (CAPACITY, "1", "full"),
        (CAPACITY, "lots", "full"),
    ]
    .into_iter()
    .enumerate()
    {
        // alpha has one workspace.
        client.annotate("alpha", json!({annotation: value}), "excluded", json!(word)).await;
        let uid = |case: &str| format!("{word}-{number}-{case}");
        for case in ["1", "2", "3"] {
            assert_eq!(client.place(&uid(case), any.clone()).await, "root", "{word}");
        }
        let refusal = format!("422 NoShardFits: of 2 shards 1 not selected, 1 {word}");
        assert_eq!(client.place(&uid("4"), only("alpha")).await, refusal);
        let line = format!("fairlead_gateway_shard_excluded{{reason=\"{word}\",shard=\"alpha\"}} 1\n");
        assert!(client.metrics().await.contains(&line), "{line}");
        client.annotate("alpha", json!({}), "excluded", Value::Null).await;
        assert_eq!(client.place(&uid("4"), only("alpha")).await, "alpha", "{word}");
        assert!(!client.metrics().await.contains(&line), "{line}");
    }
    assert_eq!(
        client.place("1", only("unknown")).await,
        "422 NoShardFits: of 2 shards 2 not selected",
        "a selector"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_shard_is_not_selected_and_requests_for_it_alone_get_503() {
    let world = World::new().await;
    let client = PlacementClient::new(&world).await;
    world.alpha.kill().await;
    client.until("alpha", "excluded", &json!("out_of_reach")).await;
    for uid in ["1", "2", "3"] {
        assert_eq!(client.place(uid, json!({})).await, "root");
    }
    let unreachable = "503 NoShardNow: of 2 shards 1 not selected, 1 out of reach";
    assert_eq!(client.place("4", only("alpha")).await, unreachable);
    world.alpha.restart().await;
    client.until("alpha", "excluded", &Value::Null).await;
    assert_eq!(client.place("4", only("alpha")).await, "alpha");
    let metrics = client.metrics().await;
    let line = "fairlead_gateway_shard_picks_total{outcome=\"not_now\",policy=\"power-of-two\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_is_not_reserved_twice() {
    let world = World::new().await;
    let client = PlacementClient::new(&world).await;
    client.annotate("alpha", json!({CAPACITY: "3"}), "capacity", json!(3)).await;
    // alpha has one workspace already, and capacity for two more.
    let (alpha, uids) = (only("alpha"), ["1", "2"]);
    for uid in uids {
        assert_eq!(client.place(uid, alpha.clone()).await, "alpha");
    }
    let filling = "503 NoShardNow: of 2 shards 1 not selected, 1 about to be full";
    assert_eq!(client.place("3", alpha.clone()).await, filling);
    // A repeated request reserves no more capacity.
    assert_eq!(client.place("1", alpha.clone()).await, "alpha");
    for uid in uids {
        let id = format!("00000000000000{uid}0");
        let object = json!({
            "metadata": {"name": "cluster", "annotations": {"kcp.io/cluster": id}},
            "spec": {"owner": {"uid": uid}},
        });
        world.alpha.state.put("logicalclusters", &id, object);
    }
    client.until("alpha", "excluded", &json!("full")).await;
    assert_eq!(client.place("3", alpha.clone()).await, "422 NoShardFits: of 2 shards 1 not selected, 1 full");
    assert_eq!(client.place("1", alpha).await, "alpha", "a workspace that has a reservation keeps it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_and_policy_follow_the_shards_and_the_configuration() {
    let set_policy = |config: &mut fairlead_config::GatewayConfig| {
        config.placement = serde_json::from_value(json!({"policy": "least-workspaces"})).unwrap();
    };
    let mut world = World::with(Choices { config: Some(set_policy), ..Choices::default() }).await;
    let client = PlacementClient::new(&world).await;
    let counts = |root: u32, alpha: u32| {
        BTreeMap::from([("root", root), ("alpha", alpha)].map(|(name, count)| (name.to_owned(), count)))
    };
    // alpha has one workspace already.
    assert_eq!(client.count(0..5).await, counts(3, 2));
    client.annotate("root", json!({WEIGHT: "3"}), "weight", json!(3)).await;
    assert_eq!(client.count(10..20).await, counts(10 - 1, 1), "until there are 12 and 4");
    // An invalid weight has no effect: the shard has the default weight, 1.
    client.annotate("root", json!({WEIGHT: "heavy"}), "weight", json!(1)).await;
    assert_eq!(client.count(20..28).await, BTreeMap::from([("alpha".to_owned(), 8)]));
    drop(client);

    let mut changed = world.config.clone();
    changed.placement =
        serde_json::from_value(json!({"policy": "random", "shards": [{"name": "alpha", "capacity": 0}]}))
            .unwrap();
    world.gateway.as_mut().unwrap().reconfigure(changed).unwrap();
    let client = PlacementClient::connect(&world).await;
    client.until("alpha", "excluded", &json!("full")).await;
    assert_eq!(client.count(30..34).await, BTreeMap::from([("root".to_owned(), 4)]));
    // The annotation of the shard takes precedence over the configuration.
    client.annotate("alpha", json!({CAPACITY: "1000"}), "capacity", json!(1000)).await;
    assert_eq!(client.count(40..140).await.len(), 2, "both shards get workspaces");
    let line = "fairlead_gateway_shard_picks_total{outcome=\"picked\",policy=\"random\"} 104\n";
    assert!(client.metrics().await.contains(line));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_equally_full_shards_the_less_busy_one_is_selected() {
    let world = World::new().await;
    // 400 and 401 workspaces count as equally full.
    for (shard, count) in [("root", 400), ("alpha", 400)] {
        for number in 0..count {
            let id = format!("{:016}", number + count * usize::from(shard == "root"));
            let object = json!({"metadata": {"name": "cluster", "annotations": {"kcp.io/cluster": id}}});
            world.shard(shard).state.put("logicalclusters", &id, object);
        }
    }
    let client = PlacementClient::new(&world).await;
    client.until("root", "workspaces", &json!(400)).await;
    client.until("alpha", "workspaces", &json!(401)).await;
    let user = world.http2(Some(&world.user())).await;
    // The load of shards is read once a second at most.
    let busy = |metrics: &str| {
        let line =
            metrics.lines().find(|line| line.starts_with("fairlead_gateway_shard_busy{shard=\"root\"}"));
        line.unwrap().split(' ').next_back().unwrap().parse::<f64>().unwrap()
    };
    eventually("the shard counts as busy", async || {
        user.get("/clusters/root/api").await;
        busy(&client.metrics().await) > 0.0
    })
    .await;
    assert_eq!(client.place("1", json!({})).await, "alpha");
    assert_eq!(client.place("2", json!({})).await, "alpha");
}
