//! Which shard a workspace gets, asked over real sockets.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::world::{Choices, Http2, World, eventually, request};

const PICKS: &str = "/services/fairlead/v1/shard-picks";
const STATUS: &str = "/services/fairlead/v1/status";
const CORDON: &str = "experimental.core.kcp.io/unschedulable";
const DRAIN: &str = "fairlead.dev/drain";
const WEIGHT: &str = "fairlead.dev/weight";
const CAPACITY: &str = "fairlead.dev/capacity";

/// Somebody who asks for picks, and one who looks at the gateway's status.
struct Asker<'w> {
    world: &'w World,
    picks: Http2,
    status: Http2,
}

impl<'w> Asker<'w> {
    /// Returns when the gateway hears both shards.
    async fn of(world: &'w World) -> Self {
        let asker = Self::at_once(world).await;
        asker.until("root", "excluded", &Value::Null).await;
        asker.until("alpha", "excluded", &Value::Null).await;
        asker
    }

    async fn at_once(world: &'w World) -> Self {
        let shard = world.client_ca.client("system:fairlead:shard:alpha", &["system:fairlead:shard"]);
        let picks = world.http2(Some(&shard)).await;
        Self { world, picks, status: world.http2(Some(&world.operator())).await }
    }

    /// The shard, or the reason, with its code, why there is none.
    async fn pick(&self, uid: &str, selector: Value) -> String {
        let question =
            json!({"workspaceUID": uid, "parentCluster": "root", "selector": selector}).to_string();
        let answer = self.picks.send(request(Method::POST, PICKS, &[], &question)).await;
        let body = answer.json();
        assert_eq!(answer.headers.contains_key("retry-after"), answer.status == 503, "{answer:?}");
        match body["shard"].as_str() {
            Some(shard) => shard.to_owned(),
            None => format!("{} {}: {}", answer.status, body["reason"], body["message"]).replace('"', ""),
        }
    }

    /// How many of these get which shard.
    async fn count(&self, uids: std::ops::Range<u32>) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for uid in uids {
            *counts.entry(self.pick(&uid.to_string(), json!({})).await).or_default() += 1;
        }
        counts
    }

    /// Until the status says this of a shard.
    async fn until(&self, shard: &str, field: &str, value: &Value) {
        eventually(&format!("{field} of {shard} is {value}"), async || {
            let status = self.status.get(STATUS).await.json();
            let shards = status["shards"].as_array().unwrap();
            shards.iter().any(|one| one["name"] == shard && one[field] == *value)
        })
        .await;
    }

    /// The administrator writes these annotations to a shard, and the gateway learns of it.
    async fn annotate(&self, shard: &str, annotations: Value, field: &str, value: Value) {
        let url = self.world.shard(shard).url();
        let metadata = json!({"name": shard, "labels": {"name": shard}, "annotations": annotations});
        self.world.root.state.put("shards", shard, json!({"metadata": metadata, "spec": {"baseURL": url}}));
        self.until(shard, field, &value).await;
    }

    async fn metrics(&self) -> String {
        self.status.get("/metrics").await.text
    }
}

fn only(shard: &str) -> Value {
    json!({"matchLabels": {"name": shard}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoned_draining_and_full_shards_get_no_new_workspaces() {
    let world = World::new().await;
    let asker = Asker::of(&world).await;
    let all = json!({});
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
        asker.annotate("alpha", json!({annotation: value}), "excluded", json!(word)).await;
        let uid = |case: &str| format!("{word}-{number}-{case}");
        for case in ["1", "2", "3"] {
            assert_eq!(asker.pick(&uid(case), all.clone()).await, "root", "{word}");
        }
        let nothing = format!("422 NoShardFits: of 2 shards 1 not selected, 1 {word}");
        assert_eq!(asker.pick(&uid("4"), only("alpha")).await, nothing);
        let line = format!("fairlead_gateway_shard_excluded{{reason=\"{word}\",shard=\"alpha\"}} 1\n");
        assert!(asker.metrics().await.contains(&line), "{line}");
        asker.annotate("alpha", json!({}), "excluded", Value::Null).await;
        assert_eq!(asker.pick(&uid("4"), only("alpha")).await, "alpha", "{word}");
        assert!(!asker.metrics().await.contains(&line), "{line}");
    }
    assert_eq!(
        asker.pick("nobody", only("nobody")).await,
        "422 NoShardFits: of 2 shards 2 not selected",
        "a selector"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_shard_is_not_selected_and_requests_for_it_alone_get_503() {
    let world = World::new().await;
    let asker = Asker::of(&world).await;
    world.alpha.kill().await;
    asker.until("alpha", "excluded", &json!("out_of_reach")).await;
    for uid in ["1", "2", "3"] {
        assert_eq!(asker.pick(uid, json!({})).await, "root");
    }
    let later = "503 NoShardNow: of 2 shards 1 not selected, 1 out of reach";
    assert_eq!(asker.pick("4", only("alpha")).await, later);
    world.alpha.revive().await;
    asker.until("alpha", "excluded", &Value::Null).await;
    assert_eq!(asker.pick("4", only("alpha")).await, "alpha");
    let metrics = asker.metrics().await;
    let line = "fairlead_gateway_shard_picks_total{outcome=\"not_now\",policy=\"power-of-two\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_is_not_reserved_twice() {
    let world = World::new().await;
    let asker = Asker::of(&world).await;
    asker.annotate("alpha", json!({CAPACITY: "3"}), "capacity", json!(3)).await;
    // One workspace is there, and there is room for two.
    let (alpha, picks) = (only("alpha"), ["1", "2"]);
    for uid in picks {
        assert_eq!(asker.pick(uid, alpha.clone()).await, "alpha");
    }
    let filling = "503 NoShardNow: of 2 shards 1 not selected, 1 about to be full";
    assert_eq!(asker.pick("3", alpha.clone()).await, filling);
    // Asking again takes no more room.
    assert_eq!(asker.pick("1", alpha.clone()).await, "alpha");
    for uid in picks {
        let id = format!("00000000000000{uid}0");
        let object = json!({
            "metadata": {"name": "cluster", "annotations": {"kcp.io/cluster": id}},
            "spec": {"owner": {"uid": uid}},
        });
        world.alpha.state.put("logicalclusters", &id, object);
    }
    asker.until("alpha", "excluded", &json!("full")).await;
    assert_eq!(asker.pick("3", alpha.clone()).await, "422 NoShardFits: of 2 shards 1 not selected, 1 full");
    assert_eq!(asker.pick("1", alpha).await, "alpha", "the same answer for the same workspace");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_and_policy_follow_the_shards_and_the_configuration() {
    let choice = |config: &mut fairlead_config::GatewayConfig| {
        config.placement = serde_json::from_value(json!({"policy": "least-workspaces"})).unwrap();
    };
    let mut world = World::with(Choices { config: Some(choice), ..Choices::default() }).await;
    let asker = Asker::of(&world).await;
    let counts = |root: u32, alpha: u32| {
        BTreeMap::from([("root", root), ("alpha", alpha)].map(|(name, count)| (name.to_owned(), count)))
    };
    // alpha has one already.
    assert_eq!(asker.count(0..5).await, counts(3, 2));
    asker.annotate("root", json!({WEIGHT: "3"}), "weight", json!(3)).await;
    assert_eq!(asker.count(10..20).await, counts(10 - 1, 1), "until there are 12 and 4");
    // A weight that is none is as if it were not there.
    asker.annotate("root", json!({WEIGHT: "heavy"}), "weight", json!(1)).await;
    assert_eq!(asker.count(20..28).await, BTreeMap::from([("alpha".to_owned(), 8)]));
    drop(asker);

    let mut changed = world.config.clone();
    changed.placement =
        serde_json::from_value(json!({"policy": "random", "shards": [{"name": "alpha", "capacity": 0}]}))
            .unwrap();
    world.gateway.as_mut().unwrap().reconfigure(changed).unwrap();
    let asker = Asker::at_once(&world).await;
    asker.until("alpha", "excluded", &json!("full")).await;
    assert_eq!(asker.count(30..34).await, BTreeMap::from([("root".to_owned(), 4)]));
    // What the shard itself says comes first.
    asker.annotate("alpha", json!({CAPACITY: "1000"}), "capacity", json!(1000)).await;
    assert_eq!(asker.count(40..140).await.len(), 2, "by lot, both get some");
    let line = "fairlead_gateway_shard_picks_total{outcome=\"picked\",policy=\"random\"} 104\n";
    assert!(asker.metrics().await.contains(line));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_equally_full_shards_the_less_busy_one_is_selected() {
    let world = World::new().await;
    // 400 here and 401 there are as full as each other.
    for (shard, count) in [("root", 400), ("alpha", 400)] {
        for number in 0..count {
            let id = format!("{:016}", number + count * usize::from(shard == "root"));
            let object = json!({"metadata": {"name": "cluster", "annotations": {"kcp.io/cluster": id}}});
            world.shard(shard).state.put("logicalclusters", &id, object);
        }
    }
    let asker = Asker::of(&world).await;
    asker.until("root", "workspaces", &json!(400)).await;
    asker.until("alpha", "workspaces", &json!(401)).await;
    let client = world.http2(Some(&world.user())).await;
    // Metrics and picks look at shards once a second at most.
    let busy = |metrics: &str| {
        let line =
            metrics.lines().find(|line| line.starts_with("fairlead_gateway_shard_busy{shard=\"root\"}"));
        line.unwrap().split(' ').next_back().unwrap().parse::<f64>().unwrap()
    };
    eventually("the shard counts as busy", async || {
        client.get("/clusters/root/api").await;
        busy(&asker.metrics().await) > 0.0
    })
    .await;
    assert_eq!(asker.pick("1", json!({})).await, "alpha");
    assert_eq!(asker.pick("2", json!({})).await, "alpha");
}
