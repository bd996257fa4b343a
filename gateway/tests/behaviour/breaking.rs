//! Clients and shards that break off, hang, drip or go away in the middle: whose fault it is, and who pays for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fairlead_config::{GatewayConfig, Timespan};
use http::Method;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::relay::Relay;
use crate::world::{Choices, World, eventually, request, until};

const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";
const WAIT: &str = "/clusters/root:org/wait";
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

async fn world(choice: fn(&mut GatewayConfig)) -> World {
    World::with(Choices { config: Some(choice), ..Choices::default() }).await
}

/// Blamed on the shard, a client's fault would cost everybody a connection, or be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_is_the_clients_fault_and_nobody_elses() {
    let world = World::new().await;
    let user = world.user();
    let other = world.http2(Some(&user)).await;
    let mut watch = other.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let state = &world.alpha.state;
    let closed = || state.connections.load(Ordering::SeqCst) - state.open_connections();
    let before = closed();
    // Each of them reaches the shard before it breaks off.
    let arrived = async |before: usize| {
        let arrived = async || state.requests.load(Ordering::SeqCst) != before;
        eventually("it reaches the shard", arrived).await;
    };
    for round in 0..5 {
        let (mut client, driver) =
            h2::client::handshake(world.connect(Some(&user), b"h2").await).await.unwrap();
        let driver = tokio::spawn(driver);
        let before = state.requests.load(Ordering::SeqCst);
        let post = request(Method::POST, "/clusters/root:org/echo", &[("content-length", "100")], "");
        let (answer, mut body) = client.send_request(post.map(|_| ()), false).unwrap();
        body.send_data("half".into(), false).unwrap();
        arrived(before).await;
        body.send_reset(h2::Reason::CANCEL);
        assert!(answer.await.is_err());
        until(&state.broken, |broken| *broken == 3 * round + 1).await;
        driver.abort();

        let before = state.requests.load(Ordering::SeqCst);
        let mut leaves = world.connect(Some(&user), b"http/1.1").await;
        let head = "POST /clusters/root:org/echo HTTP/1.1\r\nHost: localhost\r\n";
        leaves.write_all(format!("{head}Content-Length: 100\r\n\r\nhalf").as_bytes()).await.unwrap();
        arrived(before).await;
        drop(leaves);
        until(&state.broken, |broken| *broken == 3 * round + 2).await;

        let before = state.requests.load(Ordering::SeqCst);
        let mut errs = world.connect(Some(&user), b"http/1.1").await;
        let text = format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        errs.write_all(text.as_bytes()).await.unwrap();
        arrived(before).await;
        errs.write_all(b"no number\r\n").await.unwrap();
        let mut told = Vec::new();
        let _ = timeout(LIMIT, errs.read_to_end(&mut told)).await.expect("kept open");
        assert!(told.starts_with(b"HTTP/1.1 400 "), "{}", told.escape_ascii());
        until(&state.broken, |broken| *broken == 3 * round + 3).await;
    }
    state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    let event = timeout(LIMIT, watch.body_mut().frame()).await.expect("no event").unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "{}\n");
    assert_eq!(closed(), before, "a connection to the shard was blamed");
    let metrics = world.environment.metrics.text().unwrap();
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(!metrics.contains("fairlead_gateway_local_responses_total{code=\"50"), "{metrics}");
}

/// The stock limit is one per read, and every byte is a read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_drip_are_not_waited_for() {
    let world = world(|config| {
        config.limits.header_read_timeout = Timespan::from_millis(300);
        config.limits.idle_timeout = Timespan::from_secs(300);
    })
    .await;
    for before in ["", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut slow = world.connect(None, b"http/1.1").await;
        slow.write_all(before.as_bytes()).await.unwrap();
        slow.write_all(b"GET /livez HTTP/1.1\r\nX-Slow: ").await.unwrap();
        let dripping = async {
            let mut buffer = [0; 512];
            loop {
                // Closed in either direction.
                match timeout(Duration::from_millis(10), slow.read(&mut buffer)).await {
                    Ok(Ok(0) | Err(_)) => return,
                    Ok(Ok(_)) => {}
                    Err(_) if slow.write_all(b"x").await.is_err() => return,
                    Err(_) => {}
                }
            }
        };
        timeout(LIMIT, dripping).await.expect("it is waited for without end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_the_gateway_itself_reads_has_a_deadline() {
    let world = world(|config| config.slow_clients.request_body_timeout = Timespan::from_millis(300)).await;
    let mut slow = world.connect(Some(&world.operator()), b"http/1.1").await;
    let head =
        "POST /services/fairlead/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    timeout(LIMIT, slow.read_to_end(&mut response)).await.expect("it is waited for without end").unwrap();
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_shard_is_given_up_by_requests_and_not_by_watches() {
    let world = world(|config| config.upstream.response_timeout = Timespan::from_millis(300)).await;
    let client = world.http2(Some(&world.user())).await;
    let ask = |method: Method, path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.send(request(method, path, &[], "")).await })
    };
    let watches = [
        ask(Method::GET, "/clusters/root:org/api/v1/wait?watch=true"),
        ask(Method::GET, "/clusters/root:org/apis/apps/v1/namespaces/a/wait?watch=true"),
        ask(Method::GET, "/services/some/clusters/root:org/api/v1/wait?watch=true"),
    ];
    until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    for (method, path) in [
        (Method::GET, WAIT),
        (Method::POST, WAIT),
        // To what is no collection `watch` says nothing.
        (Method::GET, "/clusters/root:org/openapi/wait?watch=1"),
        (Method::GET, "/clusters/root:org/api/v1/namespaces/a/configmaps/wait?watch=1"),
        (Method::GET, "/services/some/clusters/root:org/wait?watch=1"),
    ] {
        let answer = timeout(LIMIT, ask(method.clone(), path)).await.expect("waited for").unwrap();
        assert_eq!((answer.status, answer.json()["kind"].as_str()), (504, Some("Status")), "{method} {path}");
        // The shard learns that nobody waits any more, and is not asked again.
        until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    }
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    world.alpha.state.release.send_replace(true);
    for watch in watches {
        assert_eq!(timeout(LIMIT, watch).await.unwrap().unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_says_goaway_costs_nothing_that_is_open() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.send(request(Method::POST, WAIT, &[], "x")).await.status }
    });
    let mut watch = client.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.waiting, |waiting| *waiting == 1).await;
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let connections = || world.alpha.state.connections.load(Ordering::SeqCst);
    let before = connections();
    const ROUNDS: usize = 10;
    for _ in 0..ROUNDS {
        let asked: Vec<_> = (0..20)
            .map(|number| {
                let client = client.clone();
                let method = if number % 2 == 0 { Method::GET } else { Method::POST };
                let asked = request(method.clone(), "/clusters/root:org/api", &[], "x");
                tokio::spawn(async move { (method, client.send(asked).await) })
            })
            .collect();
        world.alpha.state.send_goaway();
        for answer in asked {
            let (method, answer) = answer.await.unwrap();
            // Of a write that the shard has not looked at, the body is gone; the client has it and is told to try again.
            let is_refused = method == Method::POST && answer.status == 503;
            assert!(answer.status == 200 || is_refused, "{method}: {answer:?}");
            assert_eq!(answer.headers.contains_key("retry-after"), is_refused);
        }
    }
    eventually("requests take another connection", async || {
        assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
        connections() != before
    })
    .await;
    // Streams on the first connection stay open.
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    let event = timeout(LIMIT, watch.body_mut().frame()).await.expect("no event").unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "{}\n");
    world.alpha.state.release.send_replace(true);
    assert_eq!(timeout(LIMIT, waiting).await.unwrap().unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_found_by_pings_and_replaced() {
    let world = world(|config| config.upstream.ping_interval = Timespan::from_millis(100)).await;
    let relay = Relay::to(world.alpha.address).await;
    world.register("alpha", &relay.url());
    let client = world.http2(Some(&world.user())).await;
    let operator = world.http2(Some(&world.operator())).await;
    eventually("the status has the address of the relay", async || {
        operator.get("/services/fairlead/v1/status").await.text.contains(&relay.address.to_string())
    })
    .await;
    let ask = |method: Method| {
        let client = client.clone();
        tokio::spawn(async move { client.send(request(method, WAIT, &[], "x")).await })
    };
    let (read, write) = (ask(Method::GET), ask(Method::POST));
    let watch = client.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.waiting, |waiting| *waiting == 2).await;
    relay.fall_silent();
    // A write may have arrived; a watch ends between two events, and its client comes again.
    let answer = timeout(LIMIT, write).await.expect("waited for").unwrap();
    assert_eq!((answer.status, answer.json()["kind"].as_str()), (504, Some("Status")));
    let rest = timeout(LIMIT, watch.into_body().collect()).await.expect("it goes on").unwrap();
    assert_eq!(rest.to_bytes(), "");
    // A read is repeated on a connection that works. The shard has not heard of the end of the others.
    until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    world.alpha.state.release.send_replace(true);
    let answer = timeout(LIMIT, read).await.expect("waited for").unwrap();
    assert_eq!((answer.status, &answer.json()["released"]), (200, &serde_json::json!(true)));
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}
