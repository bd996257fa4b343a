//! Limits: quotas of a listener by subject, and the concurrency limit of a shard with its queue.

use std::time::Duration;

use fairlead_config::{
    ByteSize, ConcurrencyConfig, ConcurrencyPolicy, GatewayConfig, ListenerQuotasConfig, QuotaConfig,
    Timespan, TokenPolicy,
};
use futures_util::future::join_all;
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::world::{
    Answer, Choices, Http2, SecondGateway, World, connect, eventually, request, until, until_status,
};

const ORG: &str = "/clusters/root:org";
const OTHER: &str = "/clusters/root:other";
const OTHER_ID: &str = "0ther00000000001";

/// The metric of alpha's concurrency limit.
const LIMIT_OF_ALPHA: &str = "fairlead_gateway_shard_concurrency{object=\"limit\",shard=\"alpha\"}";

/// A gateway that gives shards as much as they answer without getting slower, and a user there.
async fn following_the_shard() -> (World, SecondGateway, Http2) {
    let (world, gateway) = limited(|config| {
        config.upstream.concurrency.min_limit = 4;
        config.upstream.concurrency.policy = ConcurrencyPolicy::Adaptive;
    })
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    (world, gateway, bob)
}

/// A world with a second workspace on the same shard, and a gateway of its own.
async fn limited(change: impl FnOnce(&mut GatewayConfig)) -> (World, SecondGateway) {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    world.create_workspace("root", "other", "alpha", OTHER_ID);
    let gateway = world.start_second_gateway(change);
    gateway.gateway.ready().await;
    (world, gateway)
}

fn quotas(change: impl FnOnce(&mut ListenerQuotasConfig)) -> impl FnOnce(&mut GatewayConfig) {
    |config| change(&mut config.listeners[0].quotas)
}

async fn user(world: &World, gateway: &SecondGateway, name: &str, groups: &[&str]) -> Http2 {
    let leaf = world.client_ca.client(name, groups);
    Http2::over(connect(gateway.address, &world.serving_ca, Some(&leaf), b"h2").await.unwrap()).await
}

/// Asks in the background.
fn ask(client: &Http2, path: &str) -> JoinHandle<Answer> {
    let (client, path) = (client.clone(), path.to_owned());
    tokio::spawn(async move { client.get(&path).await })
}

/// An open watch.
async fn watch(client: &Http2, workspace: &str) -> Result<impl Sized, u16> {
    let path = format!("{workspace}/api/v1/stream?watch=true");
    let open = client.open(request(Method::GET, &path, &[], "")).await.unwrap();
    if open.status() == 200 { Ok(open) } else { Err(open.status().as_u16()) }
}

/// Asserts a 429 `Status`, which clients understand.
fn assert_limited(answer: &Answer, says: &str) {
    assert_eq!(answer.status, 429, "{}", answer.text);
    let status = answer.json();
    assert_eq!(
        (status["kind"].as_str(), status["reason"].as_str()),
        (Some("Status"), Some("TooManyRequests"))
    );
    assert!(status["message"].as_str().unwrap().contains(says), "{}", answer.text);
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds >= 1);
    assert_eq!(status["details"]["retryAfterSeconds"], seconds);
}

async fn metric(world: &World, gateway: &SecondGateway, series: &str) -> Option<f64> {
    let operator = world.operator();
    let stream = connect(gateway.address, &world.serving_ca, Some(&operator), b"h2").await.unwrap();
    let text = Http2::over(stream).await.get("/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_are_limited_by_user_and_by_workspace() {
    let (world, gateway) = limited(quotas(|quotas| {
        quotas.per_identity.concurrent = Some(2);
        quotas.per_workspace.concurrent = Some(3);
        quotas.exempt_groups = vec!["operators".to_owned()];
    }))
    .await;
    let bob = user(&world, &gateway, "bob", &["team"]).await;
    let eve = user(&world, &gateway, "eve", &["team"]).await;
    let operator = user(&world, &gateway, "root", &["operators"]).await;
    let waiting = &world.alpha.state.waiting;
    let open = [ask(&bob, &format!("{ORG}/wait")), ask(&bob, &format!("{OTHER}/wait"))];
    until(waiting, |count| *count == 2).await;

    assert_limited(&bob.get(&format!("{ORG}/api")).await, "you may have no more");
    let again = user(&world, &gateway, "bob", &[]).await;
    assert_limited(&again.get(&format!("{ORG}/api")).await, "you");
    assert_eq!(eve.get(&format!("{ORG}/api")).await.status, 200, "others have theirs");
    assert!(watch(&bob, ORG).await.is_ok(), "watches are counted apart");
    assert_eq!(bob.get("/readyz").await.status, 200);

    let others = [ask(&eve, &format!("{ORG}/wait")), ask(&eve, &format!("{ORG}/wait"))];
    until(waiting, |count| *count == 4).await;
    let third = user(&world, &gateway, "third", &["team"]).await;
    assert_limited(&third.get(&format!("{ORG}/api")).await, "workspace together");
    let by_id = third.get(&format!("/clusters/{}/api", crate::world::ORG)).await;
    assert_limited(&by_id, "workspace together");
    assert_eq!(third.get(&format!("{OTHER}/api")).await.status, 200);
    assert_eq!(operator.get(&format!("{ORG}/api")).await.status, 200);
    assert_eq!(
        metric(
            &world,
            &gateway,
            "fairlead_gateway_limited_total{limit=\"concurrent\",listener=\"internal\",scope=\"identity\"}"
        )
        .await,
        Some(2.0)
    );

    world.alpha.state.release.send_replace(true);
    for done in open.into_iter().chain(others) {
        assert_eq!(done.await.unwrap().status, 200);
    }
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200, "what has ended does not count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_client_releases_its_quota() {
    let (world, gateway) = limited(quotas(|quotas| quotas.per_identity.concurrent = Some(1))).await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let waiting = &world.alpha.state.waiting;
    let open = ask(&bob, &format!("{ORG}/wait"));
    until(waiting, |count| *count == 1).await;
    assert_limited(&bob.get(&format!("{ORG}/api")).await, "you");
    open.abort();
    until(waiting, |count| *count == 0).await;
    eventually("bob has room again", async || bob.get(&format!("{ORG}/api")).await.status != 429).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_apply_per_user_and_to_all_together() {
    let (world, gateway) = limited(quotas(|quotas| {
        quotas.per_identity =
            QuotaConfig { burst: Some(5), requests_per_second: Some(1), ..QuotaConfig::default() };
        quotas.all = QuotaConfig { burst: Some(40), requests_per_second: Some(1), ..QuotaConfig::default() };
    }))
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let path = format!("{ORG}/api");
    let answers = join_all((0..20).map(|_| bob.get(&path))).await;
    let (good, limited): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    // A slow machine may take seconds.
    assert!((5..20).contains(&good.len()), "{}", good.len());
    assert_limited(limited[0], "you");
    let eve = user(&world, &gateway, "eve", &[]).await;
    assert_eq!(eve.get(&path).await.status, 200);

    // Requests without a workspace count for all clients together, before any other work.
    let nobody = connect(gateway.address, &world.serving_ca, None, b"h2").await.unwrap();
    let nobody = Http2::over(nobody).await;
    let answers = join_all((0..60).map(|_| nobody.get("/clusters/root:nope/api"))).await;
    let limited: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(limited.len() > 30, "{}", limited.len());
    assert_limited(limited[0], "all users of this address together");
    assert_eq!(nobody.get("/livez").await.status, 200, "probes are free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_upgrades_and_bytes_have_limits_of_their_own() {
    let (world, mut gateway) = limited(quotas(|quotas| {
        quotas.per_workspace.watches = Some(2);
        quotas.per_identity.upgrades = Some(1);
    }))
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let mut open = vec![watch(&bob, ORG).await, watch(&bob, ORG).await];
    assert_eq!(watch(&bob, ORG).await.err(), Some(429));
    assert!(watch(&bob, OTHER).await.is_ok());
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200);

    // Streams opened before a change of the limits count against the new ones.
    let mut config = world.config.clone();
    config.listeners[0].quotas.per_workspace.watches = Some(3);
    gateway.gateway.reconfigure(config.clone()).unwrap();
    open.push(watch(&bob, ORG).await);
    assert!(open[2].is_ok());
    assert_eq!(watch(&bob, ORG).await.err(), Some(429));
    drop(open);
    eventually("bob may watch again", async || watch(&bob, ORG).await.is_ok()).await;

    config.listeners[0].quotas.per_identity.bytes_per_second = Some(ByteSize::kib(1));
    gateway.gateway.reconfigure(config).unwrap();
    let path = format!("{ORG}/big");
    let body = bob.open(request(Method::GET, &path, &[], "")).await.unwrap();
    assert_eq!(Answer::of(body).await.text.len(), 64 << 20, "what is under way goes on");
    assert_limited(&bob.get(&format!("{ORG}/api")).await, "too many bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_through_requests_are_limited_by_address() {
    let (world, gateway) = limited(|config| {
        let listener = &mut config.listeners[0];
        listener.tokens = TokenPolicy::PassThrough;
        listener.quotas.per_identity.concurrent = Some(1);
    })
    .await;
    let nobody = connect(gateway.address, &world.serving_ca, None, b"h2").await.unwrap();
    let nobody = Http2::over(nobody).await;
    let with_token = |token: &str, path: &str| {
        let bearer = format!("Bearer {token}");
        let (nobody, request) =
            (nobody.clone(), request(Method::GET, path, &[("authorization", bearer.as_str())], ""));
        tokio::spawn(async move { nobody.send(request).await })
    };
    let open = with_token("one", &format!("{ORG}/wait"));
    until(&world.alpha.state.waiting, |count| *count == 1).await;
    // Another token makes no other subject.
    assert_limited(&with_token("two", &format!("{ORG}/api")).await.unwrap(), "you");
    let bob = user(&world, &gateway, "bob", &[]).await;
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200);
    world.alpha.state.release.send_replace(true);
    assert_eq!(open.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_limited_before_authentication() {
    let (world, gateway) = limited(quotas(|quotas| quotas.per_address.connections = Some(2))).await;
    let bob = world.client_ca.client("bob", &[]);
    let connect = || connect(gateway.address, &world.serving_ca, Some(&bob), b"h2");
    let open = (connect().await.unwrap(), connect().await.unwrap());
    assert!(connect().await.is_err(), "a third one");
    drop(open);
    let mut again = None;
    eventually("it may connect again", async || {
        again = connect().await.ok();
        again.is_some()
    })
    .await;
    let again = Http2::over(again.unwrap()).await;
    assert_eq!(again.get(&format!("{ORG}/api")).await.status, 200);

    let (world, gateway) = limited(|config| {
        config.listeners[0].tokens = TokenPolicy::Refuse;
        config.listeners[0].quotas.per_address.failures_per_second = Some(1);
    })
    .await;
    let nobody =
        Http2::over(crate::world::connect(gateway.address, &world.serving_ca, None, b"h2").await.unwrap())
            .await;
    let guess = async || {
        let guess = [("authorization", "Bearer guessed")];
        nobody.send(request(Method::GET, &format!("{ORG}/api"), &guess, "")).await
    };
    let mut failed = 0;
    let limited = loop {
        let answer = guess().await;
        if answer.status != 401 {
            break answer;
        }
        failed += 1;
    };
    assert!((10..30).contains(&failed), "{failed}");
    assert_limited(&limited, "at your address");
    let series = "fairlead_gateway_limited_total{limit=\"failures\",listener=\"internal\",scope=\"address\"}";
    assert!(metric(&world, &gateway, series).await >= Some(1.0));
    let bob = user(&world, &gateway, "bob", &[]).await;
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200, "who shows no token is not a failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_counts_until_it_ends() {
    let (world, gateway) = limited(quotas(|quotas| quotas.per_identity.upgrades = Some(1))).await;
    let leaf = world.client_ca.client("bob", &[]);
    let open = async || {
        let mut stream = connect(gateway.address, &world.serving_ca, Some(&leaf), b"http/1.1").await.unwrap();
        let head = format!(
            "GET {ORG}/upgrade HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut code = [0; 12];
        stream.read_exact(&mut code).await.unwrap();
        (stream, String::from_utf8_lossy(&code[9..]).into_owned())
    };
    let (first, code) = open().await;
    assert_eq!(code, "101");
    assert_eq!(open().await.1, "429");
    drop(first);
    eventually("there is room again", async || open().await.1 != "429").await;
}

/// A shard gets one request at a time.
fn one_at_a_time(config: &mut GatewayConfig) {
    config.upstream.concurrency = ConcurrencyConfig {
        policy: ConcurrencyPolicy::Fixed,
        max_limit: 1,
        min_limit: 1,
        max_queued: 40,
        queue_timeout: Timespan::from_secs(60),
        // The test holds requests for long.
        max_counted_time: Timespan::from_secs(600),
    };
}

async fn until_waiting(world: &World, gateway: &SecondGateway, count: f64) {
    let series = "fairlead_gateway_shard_concurrency{object=\"waiting\",shard=\"alpha\"}";
    let waiting = async { while metric(world, gateway, series).await != Some(count) {} };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("so many wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_queueing_serves_leases_first_and_lists_last() {
    let (world, gateway) = limited(one_at_a_time).await;
    let (bob, eve) = (user(&world, &gateway, "bob", &[]).await, user(&world, &gateway, "eve", &[]).await);
    let busy = ask(&bob, &format!("{ORG}/wait"));
    until(&world.alpha.state.waiting, |count| *count == 1).await;
    let mut asked = Vec::new();
    for number in 0..20 {
        asked.push(ask(&bob, &format!("{ORG}/api/v1/namespaces/a/configmaps/turn-busy-{number}")));
    }
    until_waiting(&world, &gateway, 20.0).await;
    let late = [
        (&bob, ORG, "/api/v1/turn-list"),
        (&eve, OTHER, "/api/v1/namespaces/a/configmaps/turn-quiet"),
        (&bob, ORG, "/apis/coordination.k8s.io/v1/namespaces/a/leases/turn-lease"),
    ];
    for (number, (client, workspace, path)) in late.into_iter().enumerate() {
        asked.push(ask(client, &format!("{workspace}{path}")));
        until_waiting(&world, &gateway, 21.0 + number as f64).await;
    }
    // Watches that are open need no turn, and those to be opened do.
    world.alpha.state.release.send_replace(true);
    for asked in asked {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    assert_eq!(busy.await.unwrap().status, 200);
    let turns = world.alpha.state.turns.lock().clone();
    let place = |name: &str| turns.iter().position(|turn| turn == name).unwrap();
    assert_eq!(turns.len(), 23);
    assert!(place("lease") < 2, "{turns:?}");
    assert!(
        place("quiet") < 4,
        "the workspace that has asked once is not behind twenty of another: {turns:?}"
    );
    // Each flow gets one in five admissions, so that none starves.
    assert!((1..8).contains(&place("list")), "{turns:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_shard_refuses_the_flow_with_the_most_requests() {
    let (world, gateway) = limited(one_at_a_time).await;
    let (bob, eve) = (user(&world, &gateway, "bob", &[]).await, user(&world, &gateway, "eve", &[]).await);
    let busy = ask(&bob, &format!("{ORG}/wait"));
    until(&world.alpha.state.waiting, |count| *count == 1).await;
    let asked: Vec<_> = (0..40).map(|_| ask(&bob, &format!("{ORG}/turn-busy"))).collect();
    until_waiting(&world, &gateway, 40.0).await;
    assert_limited(&bob.get(&format!("{ORG}/turn-busy")).await, "the shard is overloaded");
    let quiet = ask(&eve, &format!("{OTHER}/turn-quiet"));
    // A request of the other workspace has lost its place to it.
    let (first, _, others) = futures_util::future::select_all(asked).await;
    assert_limited(&first.unwrap(), "too many requests of this workspace");
    assert_eq!(bob.get("/readyz").await.status, 200);
    let root = bob.get("/clusters/root/api").await;
    assert_eq!(root.status, 200, "another shard has time");

    world.alpha.state.release.send_replace(true);
    assert_eq!(quiet.await.unwrap().status, 200);
    for asked in others {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    assert_eq!(busy.await.unwrap().status, 200);

    let (world, gateway) = limited(|config| {
        one_at_a_time(config);
        config.upstream.concurrency.queue_timeout = Timespan::from_millis(1);
    })
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let busy = ask(&bob, &format!("{ORG}/wait"));
    until(&world.alpha.state.waiting, |count| *count == 1).await;
    assert_limited(&bob.get(&format!("{ORG}/api")).await, "has waited for too long");
    world.alpha.state.release.send_replace(true);
    assert_eq!(busy.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_requests_use_no_permit_of_others() {
    let (world, gateway) = limited(|config| {
        config.upstream.concurrency.policy = ConcurrencyPolicy::Fixed;
        config.upstream.concurrency.max_limit = 32;
        config.upstream.concurrency.max_counted_time = Timespan::from_millis(500);
    })
    .await;
    let (bob, eve) = (user(&world, &gateway, "bob", &[]).await, user(&world, &gateway, "eve", &[]).await);
    let hanging: Vec<_> = (0..40).map(|_| ask(&bob, &format!("{ORG}/wait"))).collect();
    until(&world.alpha.state.waiting, |count| *count >= 24).await;
    assert_eq!(eve.get(&format!("{OTHER}/api")).await.status, 200, "there is room for other workspaces");
    // Watches count for a second each; then the others are admitted, and do not hang because of them.
    until(&world.alpha.state.waiting, |count| *count == 40).await;
    eventually("bob is served", async || bob.get(&format!("{ORG}/api")).await.status == 200).await;
    world.alpha.state.release.send_replace(true);
    for hanging in hanging {
        assert_eq!(hanging.await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_limit_all_requests_run_at_once() {
    let (world, gateway) = limited(|config| {
        one_at_a_time(config);
        config.upstream.concurrency.policy = ConcurrencyPolicy::None;
    })
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let open: Vec<_> = (0..100).map(|_| ask(&bob, &format!("{ORG}/wait"))).collect();
    until(&world.alpha.state.waiting, |count| *count == 100).await;
    world.alpha.state.release.send_replace(true);
    for open in open {
        assert_eq!(open.await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_needs_admission_to_start_and_none_to_stay_open() {
    let (world, gateway) = limited(one_at_a_time).await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let open = watch(&bob, ORG).await;
    assert!(open.is_ok());
    assert!(watch(&bob, ORG).await.is_ok(), "an open watch takes nobody's turn");
    let busy = ask(&bob, &format!("{ORG}/wait"));
    until(&world.alpha.state.waiting, |count| *count == 1).await;
    let client = bob.clone();
    let next = tokio::spawn(async move { watch(&client, OTHER).await.is_ok() });
    until_waiting(&world, &gateway, 1.0).await;
    world.alpha.state.release.send_replace(true);
    assert!(next.await.unwrap());
    assert_eq!(busy.await.unwrap().status, 200);
}

/// The status code of a request for an upgrade.
async fn ask_upgrade(world: &World, gateway: &SecondGateway, name: &str, path: &str) -> JoinHandle<u16> {
    let leaf = world.client_ca.client(name, &[]);
    let mut stream = connect(gateway.address, &world.serving_ca, Some(&leaf), b"http/1.1").await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        let code = code(&mut stream).await.parse().unwrap();
        if code == 101 {
            // Open until the client closes it.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        code
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_requests_are_subject_to_fair_queueing() {
    let (world, gateway) = limited(|config| {
        one_at_a_time(config);
        config.upstream.concurrency.max_counted_time = Timespan::from_secs(3_600);
    })
    .await;
    let waiting = &world.alpha.state.waiting;
    let first = ask_upgrade(&world, &gateway, "bob", &format!("{ORG}/api/v1/configmaps/wait")).await;
    until(waiting, |count| *count == 1).await;
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(ask_upgrade(&world, &gateway, "bob", &format!("{ORG}/api/v1/configmaps/wait")).await);
    }
    until_waiting(&world, &gateway, 5.0).await;
    assert_eq!(world.alpha.state.most_waiting.load(std::sync::atomic::Ordering::SeqCst), 1);
    world.alpha.state.release.send_replace(true);
    for asked in others.into_iter().chain([first]) {
        assert_eq!(asked.await.unwrap(), 200);
    }
    assert_eq!(world.alpha.state.most_waiting.load(std::sync::atomic::Ordering::SeqCst), 1);
    // A tunnel uses no permit.
    let tunnels = [
        ask_upgrade(&world, &gateway, "bob", &format!("{ORG}/upgrade")).await,
        ask_upgrade(&world, &gateway, "bob", &format!("{ORG}/upgrade")).await,
    ];
    let bob = user(&world, &gateway, "bob", &[]).await;
    let open = "fairlead_gateway_requests_open{class=\"upgrade\"}";
    let two = async || metric(&world, &gateway, open).await == Some(2.0);
    eventually("two are open", two).await;
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200);
    assert!(!tunnels.iter().any(JoinHandle::is_finished));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_requests_are_subject_to_quotas() {
    let (world, gateway) = limited(quotas(|quotas| quotas.per_identity.concurrent = Some(2))).await;
    let wait = format!("{ORG}/api/v1/configmaps/wait");
    let open = [
        ask_upgrade(&world, &gateway, "bob", &wait).await,
        ask_upgrade(&world, &gateway, "bob", &wait).await,
    ];
    until(&world.alpha.state.waiting, |count| *count == 2).await;
    assert_eq!(ask_upgrade(&world, &gateway, "bob", &wait).await.await.unwrap(), 429);
    let bob = user(&world, &gateway, "bob", &[]).await;
    assert_limited(&bob.get(&format!("{ORG}/api")).await, "you may have no more");
    let eve = user(&world, &gateway, "eve", &[]).await;
    assert_eq!(eve.get(&format!("{ORG}/api")).await.status, 200);
    world.alpha.state.release.send_replace(true);
    for asked in open {
        assert_eq!(asked.await.unwrap(), 200);
    }
    // Requests that have become tunnels do not count any more.
    let mut tunnels = Vec::new();
    for count in 1..=4 {
        tunnels.push(ask_upgrade(&world, &gateway, "bob", &format!("{ORG}/upgrade")).await);
        let open = "fairlead_gateway_requests_open{class=\"upgrade\"}";
        let all = async || metric(&world, &gateway, open).await == Some(f64::from(count));
        eventually("all are open", all).await;
        until_status(&bob, &format!("{ORG}/api"), 200).await;
    }
    assert!(!tunnels.iter().any(JoinHandle::is_finished));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_circuit_of_an_unreachable_shard_opens_until_it_is_back() {
    let (world, mut gateway) = limited(|config| {
        config.upstream.circuit_breaker.failures = 2;
        config.upstream.circuit_breaker.open_duration = Timespan::from_secs(3_600);
    })
    .await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let path = format!("{ORG}/api");
    let series = "fairlead_gateway_shard_circuit_open{shard=\"alpha\"}";
    assert_eq!(bob.get(&path).await.status, 200);
    assert_eq!(metric(&world, &gateway, series).await, Some(0.0));
    world.alpha.kill().await;
    eventually("the shard is left alone", async || {
        let answer = bob.get(&path).await;
        assert!(matches!(answer.status, 502 | 503), "{}", answer.text);
        metric(&world, &gateway, series).await == Some(1.0)
    })
    .await;
    world.alpha.restart().await;
    let answer = bob.get(&path).await;
    assert_eq!(
        (answer.status, answer.json()["reason"].as_str()),
        (503, Some("ServiceUnavailable")),
        "nobody tries"
    );
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(bob.get("/clusters/root/api").await.status, 200);
    let mut config = world.config.clone();
    config.upstream.circuit_breaker.failures = 0;
    gateway.gateway.reconfigure(config).unwrap();
    assert_eq!(bob.get(&path).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_shard_is_used_at_once() {
    let (world, gateway) = limited(|config| config.upstream.circuit_breaker.failures = 1).await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let path = format!("{ORG}/api");
    world.alpha.kill().await;
    eventually("the shard is left alone", async || bob.get(&path).await.status == 503).await;
    world.alpha.restart().await;
    eventually("the shard is found", async || bob.get(&path).await.status == 200).await;
    let series = "fairlead_gateway_shard_circuit_open{shard=\"alpha\"}";
    assert_eq!(metric(&world, &gateway, series).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_slows_under_load_gets_fewer_concurrent_requests() {
    let (world, gateway, bob) = following_the_shard().await;
    let path = format!("{ORG}/slow");
    for _ in 0..200 {
        assert_eq!(bob.get(&path).await.status, 200);
    }
    let before = metric(&world, &gateway, LIMIT_OF_ALPHA).await.unwrap();
    let clients = join_all((0..4).map(|_| user(&world, &gateway, "bob", &[]))).await;
    let load: Vec<_> = (0..400)
        .map(|number| {
            let (client, path) = (clients[number % 4].clone(), path.clone());
            tokio::spawn(async move {
                loop {
                    assert_eq!(client.get(&path).await.status, 200);
                }
            })
        })
        .collect();
    eventually("the estimate sinks", async || {
        metric(&world, &gateway, LIMIT_OF_ALPHA).await.unwrap() <= before / 4.0
    })
    .await;
    // A failed assertion has ended its task.
    assert!(!load.iter().any(JoinHandle::is_finished));
    load.iter().for_each(JoinHandle::abort);
}

/// Status codes that tenants can cause at will are no sign of overload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_overloaded_shard_gets_a_lower_concurrency_limit() {
    let (world, gateway, bob) = following_the_shard().await;
    assert_eq!(bob.get(&format!("{ORG}/api")).await.status, 200);
    let before = metric(&world, &gateway, LIMIT_OF_ALPHA).await.unwrap();
    for name in ["evict", "code-504", "code-429"] {
        for _ in 0..1000 {
            bob.get(&format!("{ORG}/{name}")).await;
        }
        assert!(metric(&world, &gateway, LIMIT_OF_ALPHA).await.unwrap() >= before, "{name}");
    }
    eventually("it turned requests away", async || {
        assert_eq!(bob.get(&format!("{ORG}/crowded")).await.status, 429);
        metric(&world, &gateway, LIMIT_OF_ALPHA).await.unwrap() < before
    })
    .await;
}

/// A request over HTTP/1.1 whose body is sent in parts, each when the one before is on its way.
async fn send_in_parts(
    world: &World,
    gateway: &SecondGateway,
    path: &str,
    length: usize,
    parts: &[&[u8]],
) -> TlsStream<TcpStream> {
    let leaf = world.client_ca.client("bob", &[]);
    let mut stream = connect(gateway.address, &world.serving_ca, Some(&leaf), b"http/1.1").await.unwrap();
    let head = format!("POST {ORG}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    // The time for the body begins with the head: what is there already goes along with it.
    let (first, rest) = parts.split_first().map_or((&b""[..], parts), |(first, rest)| (first, rest));
    stream.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
    for part in rest {
        stream.write_all(part).await.unwrap();
        stream.flush().await.unwrap();
    }
    stream
}

async fn code(stream: &mut TlsStream<TcpStream>) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8_lossy(&line[9..]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_request_body_times_out_and_a_slow_one_does_not() {
    let (world, gateway) =
        limited(|config| config.slow_clients.request_body_timeout = Timespan::from_millis(200)).await;
    let mut stream = send_in_parts(&world, &gateway, "/api", 10, &[b"abc"]).await;
    assert_eq!(code(&mut stream).await, "408");
    until(&world.alpha.state.broken, |count| *count == 1).await;
    assert_eq!(metric(&world, &gateway, "fairlead_gateway_slow_bodies_total").await, Some(1.0));

    // Each KiB earns two seconds more than its share of the time that there is.
    let part = [b'x'; 1024];
    let mut stream = send_in_parts(&world, &gateway, "/mirror", 4 * 1024, &[&part]).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        stream.write_all(&part).await.unwrap();
        stream.flush().await.unwrap();
    }
    assert_eq!(code(&mut stream).await, "200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_response_is_aborted() {
    let (world, gateway) =
        limited(|config| config.slow_clients.response_stall_timeout = Timespan::from_millis(200)).await;
    let bob = user(&world, &gateway, "bob", &[]).await;
    let path = format!("{ORG}/big");
    let untaken = bob.open(request(Method::GET, &path, &[], "")).await.unwrap();
    let leaf = world.client_ca.client("bob", &[]);
    let mut stream = connect(gateway.address, &world.serving_ca, Some(&leaf), b"http/1.1").await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    eventually("two answers were left untaken", async || {
        metric(&world, &gateway, "fairlead_gateway_slow_reader_aborts_total").await == Some(2.0)
    })
    .await;
    assert!(Answer::read(untaken).await.is_err());
    let mut taken = Vec::new();
    let _ = stream.read_to_end(&mut taken).await;
    assert!(taken.len() < 64 << 20);
    // A client that reads gets all of it, on the same connection.
    let body = bob.open(request(Method::GET, &path, &[], "")).await.unwrap();
    assert_eq!(Answer::of(body).await.text.len(), 64 << 20);
}
