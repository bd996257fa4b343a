//! Clients and shards that break off, stall, send slowly or close connections: which side is at fault, and what it costs others.

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
/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);

async fn world(choice: fn(&mut GatewayConfig)) -> World {
    World::with(Choices { config: Some(choice), ..Choices::default() }).await
}

/// If the shard were blamed for a client's fault, all clients would lose a connection, or the request would be retried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_body_that_breaks_off_costs_no_connection_to_the_shard() {
    let world = World::new().await;
    let user = world.user();
    let other = world.http2(Some(&user)).await;
    let mut watch = other.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let state = &world.alpha.state;
    let closed = || state.connections.load(Ordering::SeqCst) - state.open_connections();
    let before = closed();
    // Each request reaches the shard before its body breaks off.
    let arrived = async |before: usize| {
        let arrived = async || state.requests.load(Ordering::SeqCst) != before;
        eventually("the request reaches the shard", arrived).await;
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
        let mut response = Vec::new();
        let _ = timeout(LIMIT, errs.read_to_end(&mut response)).await.expect("the connection stays open");
        assert!(response.starts_with(b"HTTP/1.1 400 "), "{}", response.escape_ascii());
        until(&state.broken, |broken| *broken == 3 * round + 3).await;
    }
    state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    let event = timeout(LIMIT, watch.body_mut().frame()).await.expect("no event").unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "{}\n");
    assert_eq!(closed(), before, "a connection to the shard was closed");
    let metrics = world.environment.metrics.text().unwrap();
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(!metrics.contains("fairlead_gateway_local_responses_total{code=\"50"), "{metrics}");
}

/// The usual timeout applies to each read, and a slow client can send every byte separately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_heads_sent_byte_by_byte_time_out() {
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
                // Detects the end of the connection by reading and by writing.
                match timeout(Duration::from_millis(10), slow.read(&mut buffer)).await {
                    Ok(Ok(0) | Err(_)) => return,
                    Ok(Ok(_)) => {}
                    Err(_) if slow.write_all(b"x").await.is_err() => return,
                    Err(_) => {}
                }
            }
        };
        timeout(LIMIT, dripping).await.expect("the connection stays open");
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
    timeout(LIMIT, slow.read_to_end(&mut response)).await.expect("the connection stays open").unwrap();
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_response_timeout_applies_to_requests_and_not_to_watches() {
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
        // The `watch` parameter has a meaning only for collections.
        (Method::GET, "/clusters/root:org/openapi/wait?watch=1"),
        (Method::GET, "/clusters/root:org/api/v1/namespaces/a/configmaps/wait?watch=1"),
        (Method::GET, "/services/some/clusters/root:org/wait?watch=1"),
    ] {
        let answer = timeout(LIMIT, ask(method.clone(), path)).await.expect("no response").unwrap();
        assert_eq!((answer.status, answer.json()["kind"].as_str()), (504, Some("Status")), "{method} {path}");
        // The request to the shard is cancelled and not retried.
        until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    }
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    world.alpha.state.release.send_replace(true);
    for watch in watches {
        assert_eq!(timeout(LIMIT, watch).await.unwrap().unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goaway_of_a_shard_does_not_end_open_streams() {
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
            // The body of a write that the shard did not process is consumed; only the client can retry (503 with Retry-After).
            let is_refused = method == Method::POST && answer.status == 503;
            assert!(answer.status == 200 || is_refused, "{method}: {answer:?}");
            assert_eq!(answer.headers.contains_key("retry-after"), is_refused);
        }
    }
    eventually("requests use another connection", async || {
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
    // The write is not retried, because the shard may have received it. The watch ends between two events, so clients can resume.
    let answer = timeout(LIMIT, write).await.expect("no response").unwrap();
    assert_eq!((answer.status, answer.json()["kind"].as_str()), (504, Some("Status")));
    let rest = timeout(LIMIT, watch.into_body().collect()).await.expect("the watch stays open").unwrap();
    assert_eq!(rest.to_bytes(), "");
    // The read is retried on a working connection. The shard has not learnt that the other two requests ended.
    until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    world.alpha.state.release.send_replace(true);
    let answer = timeout(LIMIT, read).await.expect("no response").unwrap();
    assert_eq!((answer.status, &answer.json()["released"]), (200, &serde_json::json!(true)));
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}
