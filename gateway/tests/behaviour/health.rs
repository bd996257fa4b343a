//! Failing addresses and shards: which are excluded, for how long, and when none is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fairlead_client::NameResolver;
use fairlead_config::{GatewayConfig, Timespan};
use futures_util::FutureExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::shard::Shard;
use crate::world::{Choices, Http2, World, eventually, logical_cluster, request, until_status};

const STATUS: &str = "/services/fairlead/v1/status";
const API: &str = "/clusters/root:several/api";
const ORG: &str = "/clusters/root:org/api";
/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// Short intervals, so that tests need not wait.
fn quick(config: &mut GatewayConfig) {
    config.upstream.health.failures = 3;
    config.upstream.health.ejection_time = Timespan::from_millis(50);
    config.upstream.health.max_ejection_time = Timespan::from_secs(60);
    config.upstream.health.probe_interval = Timespan::from_millis(20);
}

/// A workspace on a shard with two addresses.
struct Several {
    world: World,
    addresses: [Shard; 2],
    client: Http2,
    status: Http2,
}

impl Several {
    async fn start() -> Self {
        let mut world =
            World::with(Choices { stopped: true, config: Some(quick), ..Choices::default() }).await;
        let addresses =
            [world.unregistered_shard("several").await, world.unregistered_shard("several").await];
        let found = addresses.each_ref().map(|address| address.address);
        world.environment.names = NameResolver::from_fn(move |_, _| async move { Ok(found.into()) }.boxed());
        world.register("several", "https://localhost:6443");
        let id = "several000000001";
        for address in &addresses {
            address.state.put("logicalclusters", id, logical_cluster(id, Some("several")));
        }
        world.put_workspace("root", "several", json!({"cluster": id}), "Ready");
        world.start().await;
        let client = world.http2(Some(&world.user())).await;
        let status = world.http2(Some(&world.operator())).await;
        let this = Self { world, addresses, client, status };
        this.until_used(0).await;
        this.until_used(1).await;
        this
    }

    fn asked(&self, address: usize) -> usize {
        self.addresses[address].state.requests.load(Ordering::SeqCst)
    }

    fn set_failing(&self, address: usize, failing: bool) {
        self.addresses[address].state.failing.store(failing, Ordering::SeqCst);
    }

    /// Sends a write, which is never retried, and returns its status code.
    async fn write(&self) -> u16 {
        self.client.send(request(Method::POST, API, &[], "")).await.status
    }

    async fn until_used(&self, address: usize) {
        let before = self.asked(address);
        let used = async {
            while self.asked(address) == before {
                self.client.get(API).await;
            }
        };
        timeout(LIMIT, used).await.expect("the address gets no request");
    }

    /// Waits until the status shows `count` ejected addresses.
    async fn until_ejected(&self, count: usize) -> Value {
        let ejected = async {
            loop {
                let shard = shard_in(&self.status, "several").await;
                if shard["ejected"].as_array().unwrap().len() == count {
                    return shard;
                }
            }
        };
        timeout(LIMIT, ejected).await.expect("the status never shows the expected state")
    }
}

/// A shard in the gateway's status.
async fn shard_in(status: &Http2, name: &str) -> Value {
    let shards = status.get(STATUS).await.json()["shards"].clone();
    shards.as_array().unwrap().iter().find(|shard| shard["name"] == name).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_address_is_ejected_until_it_recovers_and_each_time_for_longer() {
    let several = Several::start().await;
    for round in 1..=3 {
        several.set_failing(0, true);
        let mut failed = 0;
        let ejected = async {
            while shard_in(&several.status, "several").await["ejected"] == json!([]) {
                failed += usize::from(several.write().await == 502);
            }
        };
        timeout(LIMIT, ejected).await.expect("the address is never ejected");
        assert_eq!(failed, 3, "as many failures as eject an address");
        let shard = several.until_ejected(1).await;
        let ejected = &shard["ejected"][0];
        assert_eq!(ejected["address"], several.addresses[0].address.to_string());
        let said = json!([
            ejected["reason"],
            ejected["failures"],
            ejected["excluded"],
            shard["healthy"],
            shard["addresses"]
        ]);
        assert_eq!(said, json!(["brokeOff", round, true, true, 2]));
        let before = several.asked(0);
        for _ in 0..50 {
            assert_eq!(several.write().await, 200);
        }
        assert_eq!(several.asked(0), before, "an excluded address gets requests");
        let metrics = several.status.get("/metrics").await.text;
        for (state, count) in [("known", 2), ("ejected", 1), ("excluded", 1)] {
            let line =
                format!("fairlead_gateway_shard_addresses{{shard=\"several\",state=\"{state}\"}} {count}\n");
            assert!(metrics.contains(&line), "{line}");
        }
        assert!(
            metrics.contains(&format!("fairlead_gateway_ejections_total{{shard=\"several\"}} {round}\n"))
        );

        several.set_failing(0, false);
        several.until_ejected(0).await;
        several.until_used(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_address_is_ejected_and_used_again_after_it_recovers() {
    let several = Several::start().await;
    several.addresses[0].kill().await;
    // Writes fail until the broken connection is replaced.
    eventually("a write is answered", async || several.write().await == 200).await;
    several.until_ejected(1).await;
    for _ in 0..50 {
        assert_eq!(several.write().await, 200);
    }
    several.addresses[0].restart().await;
    several.until_ejected(0).await;
    several.until_used(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_addresses_fail_none_is_excluded_and_a_response_restores_an_address() {
    let several = Several::start().await;
    several.set_failing(0, true);
    several.set_failing(1, true);
    let ejected = async {
        while shard_in(&several.status, "several").await["ejected"].as_array().unwrap().len() < 2 {
            assert_eq!(several.write().await, 502);
        }
    };
    timeout(LIMIT, ejected).await.expect("the addresses are never ejected");
    let shard = several.until_ejected(2).await;
    assert_eq!((&shard["healthy"], &shard["ejected"][0]["excluded"]), (&json!(false), &json!(false)));
    for address in [0, 1] {
        several.until_used(address).await;
    }
    for address in [0, 1] {
        several.set_failing(address, false);
    }
    several.until_used(0).await;
    several.until_used(1).await;
    assert_eq!(several.until_ejected(0).await["healthy"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_unhealthy_shard_is_forgotten_and_a_new_one_of_its_name_is_healthy() {
    let several = Several::start().await;
    several.set_failing(0, true);
    several.set_failing(1, true);
    eventually("the shard is unhealthy", async || {
        several.write().await;
        shard_in(&several.status, "several").await["healthy"] == false
    })
    .await;
    let is_shown = async || {
        let metrics = several.status.get("/metrics").await.text;
        ["fairlead_gateway_shard_addresses", "fairlead_gateway_shard_healthy"]
            .map(|name| metrics.contains(&format!("{name}{{shard=\"several\"")))
    };
    assert_eq!(is_shown().await, [true, true]);
    several.world.root.state.delete("shards", "several");
    eventually("the metrics of the shard are removed", async || is_shown().await == [false, false]).await;

    several.set_failing(0, false);
    several.set_failing(1, false);
    several.world.register("several", "https://localhost:6443");
    until_status(&several.client, API, 200).await;
    let shard = shard_in(&several.status, "several").await;
    assert_eq!((&shard["healthy"], &shard["ejected"]), (&json!(true), &json!([])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_shard_gets_requests_but_no_new_workspaces() {
    let world = World::with(Choices { config: Some(quick), ..Choices::default() }).await;
    let client = world.http2(Some(&world.user())).await;
    let status = world.http2(Some(&world.operator())).await;
    let shard = world.client_ca.client("system:fairlead:shard:alpha", &["system:fairlead:shard"]);
    let picks = world.http2(Some(&shard)).await;
    let pick = async |uid: String| {
        let question = json!({"workspaceUID": uid, "parentCluster": "root", "selector": {}}).to_string();
        let path = "/services/fairlead/v1/shard-picks";
        picks.send(request(Method::POST, path, &[], &question)).await.json()["shard"].clone()
    };
    let write = async || client.send(request(Method::POST, ORG, &[], "")).await.status;
    let until_healthy = async |healthy: bool| {
        let known = async { while shard_in(&status, "alpha").await["healthy"] != healthy {} };
        timeout(LIMIT, known).await.expect("the status never shows the expected state");
    };
    assert_eq!((write().await, client.get("/clusters/root/api").await.status), (200, 200));
    world.alpha.state.failing.store(true, Ordering::SeqCst);
    for _ in 0..10 {
        assert_eq!(write().await, 502, "there is no other address");
    }
    until_healthy(false).await;
    for number in 0..20 {
        assert_eq!(pick(format!("failing-{number}")).await, "root");
    }
    let metrics = status.get("/metrics").await.text;
    assert!(metrics.contains("fairlead_gateway_shard_healthy{shard=\"alpha\"} 0\n"), "{metrics}");
    assert!(metrics.contains("fairlead_gateway_shard_healthy{shard=\"root\"} 1\n"), "{metrics}");
    world.alpha.state.failing.store(false, Ordering::SeqCst);
    assert_eq!(write().await, 200);
    until_healthy(true).await;
    let both = async {
        for number in 0.. {
            if pick(format!("back-{number}")).await == "alpha" {
                return;
            }
        }
    };
    timeout(LIMIT, both).await.expect("the recovered shard gets no workspaces");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_withholds_its_body_does_not_eject_a_shard() {
    let once = |config: &mut GatewayConfig| {
        config.upstream.health.failures = 1;
        config.upstream.response_timeout = Timespan::from_millis(100);
    };
    let world = World::with(Choices { config: Some(once), ..Choices::default() }).await;
    let status = world.http2(Some(&world.operator())).await;
    let ask = async |path: &str, body: &str| {
        let mut client = world.connect(Some(&world.user()), b"http/1.1").await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{body}");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        client.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"HTTP/1.1 504", "{path}");
    };
    let both = async { tokio::join!(ask("/clusters/root:org/wait", "x"), ask("/clusters/root/wait", "xy")) };
    timeout(LIMIT, both).await.expect("no response");
    assert_eq!(
        shard_in(&status, "root").await["ejected"][0]["reason"],
        "silent",
        "the shard received the whole request"
    );
    assert_eq!(shard_in(&status, "alpha").await["ejected"], json!([]), "the shard waited for the body");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_most_shards_fail_new_workspaces_go_to_all_of_them() {
    let world = World::with(Choices { config: Some(quick), ..Choices::default() }).await;
    let others = [world.unregistered_shard("beta").await, world.unregistered_shard("gamma").await];
    for shard in &others {
        let (name, id) = (shard.state.name.as_str(), format!("{}00000000001", shard.state.name));
        shard.state.put("logicalclusters", &id, logical_cluster(&id, Some(name)));
        world.register(name, &shard.url());
        world.put_workspace("root", name, json!({"cluster": id}), "Ready");
    }
    let client = world.http2(Some(&world.user())).await;
    let status = world.http2(Some(&world.operator())).await;
    let asker = world.client_ca.client("system:fairlead:shard:alpha", &["system:fairlead:shard"]);
    let picks = world.http2(Some(&asker)).await;
    let pick = async |number: usize| {
        let uid = format!("uid-{number}");
        let question = json!({"workspaceUID": uid, "parentCluster": "root", "selector": {}}).to_string();
        let path = "/services/fairlead/v1/shard-picks";
        picks.send(request(Method::POST, path, &[], &question)).await.json()["shard"].clone()
    };
    for path in [ORG, "/clusters/root/api", "/clusters/root:beta/api", "/clusters/root:gamma/api"] {
        let known = async { while client.get(path).await.status != 200 {} };
        timeout(LIMIT, known).await.expect("a workspace is not served");
    }
    let fail = async |shard: &Shard, path: &str| {
        shard.state.failing.store(true, Ordering::SeqCst);
        let failing = async {
            while shard_in(&status, &shard.state.name).await["healthy"] == true {
                client.send(request(Method::POST, path, &[], "")).await;
            }
        };
        timeout(LIMIT, failing).await.expect("the status never shows the expected state");
    };
    fail(&world.alpha, ORG).await;
    fail(&others[0], "/clusters/root:beta/api").await;
    for number in 0..50 {
        let picked = pick(number).await;
        assert!(picked == "root" || picked == "gamma", "{picked}");
    }
    fail(&others[1], "/clusters/root:gamma/api").await;
    let all = async {
        for number in 1_000.. {
            if ["alpha", "beta"].contains(&pick(number).await.as_str().unwrap_or_default()) {
                return;
            }
        }
    };
    timeout(LIMIT, all).await.expect("no workspace goes to an unhealthy shard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_ejection_settings_apply_from_the_next_failure_on() {
    let mut several = Several::start().await;
    let mut config = several.world.config.clone();
    config.upstream.health.failures = 0;
    several.world.gateway.as_mut().unwrap().reconfigure(config.clone()).unwrap();
    several.set_failing(0, true);
    let mut failed = 0;
    for _ in 0..100 {
        failed += usize::from(several.write().await == 502);
    }
    assert!(failed > 20, "{failed}: both addresses get requests");
    several.until_ejected(0).await;
    config.upstream.health.failures = 2;
    several.world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    failed = 0;
    for _ in 0..100 {
        failed += usize::from(several.write().await == 502);
    }
    assert!(failed <= 2, "{failed}");
    several.until_ejected(1).await;
}
