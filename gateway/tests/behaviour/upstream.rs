//! Connections to shards that break, hang, are refused or become old.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fairlead_client::NameResolver;
use fairlead_config::{GatewayConfig, KcpBehaviour, Timespan};
use futures_util::FutureExt as _;
use http::Method;
use http_body_util::BodyExt;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::pki::client_config;
use crate::shard::Shard;
use crate::world::{Answer, Choices, World, logical_cluster, request, until};

const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";
const HOST: [(&str, &str); 1] = [("host", "localhost")];
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

async fn world(choice: fn(&mut GatewayConfig)) -> World {
    World::with(Choices { config: Some(choice), ..Choices::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_connection_breaks_is_retried_and_a_write_is_not() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let mut http1 = world.http1(Some(&world.user())).await;
    let send = |method: Method| {
        let client = client.clone();
        tokio::spawn(
            async move { client.send(request(method, "/clusters/root:org/wait", &[], "")).await.status },
        )
    };
    let (read, write) = (send(Method::GET), send(Method::POST));
    let over_http1 = tokio::spawn(async move {
        let get = request(Method::GET, "/clusters/root:org/wait", &HOST, "");
        Answer::of(http1.send_request(get).await.unwrap()).await.status
    });
    until(&world.alpha.state.waiting, |waiting| *waiting == 3).await;
    world.alpha.state.cut_connections();
    assert_eq!(timeout(LIMIT, write).await.unwrap().unwrap(), 502);
    until(&world.alpha.state.waiting, |waiting| *waiting == 2).await;
    world.alpha.state.release.send_replace(true);
    assert_eq!(timeout(LIMIT, read).await.unwrap().unwrap(), 200);
    assert_eq!(timeout(LIMIT, over_http1).await.unwrap().unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_to_a_breaking_shard_are_bounded() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let mut asked = 0;
    let answer = tokio::spawn({
        let client = client.clone();
        async move { client.get("/clusters/root:org/wait").await.status }
    });
    let breaking = async {
        loop {
            // The number of waiting requests would not tell a retry that arrives at once from the request before it.
            until(&world.alpha.state.arrived, |arrived| *arrived > asked).await;
            asked += 1;
            world.alpha.state.cut_connections();
        }
    };
    tokio::select! {
        () = breaking => {}
        answer = timeout(LIMIT, answer) => assert_eq!(answer.unwrap().unwrap(), 502),
    }
    assert_eq!(asked, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_kcp_compatibility_nothing_is_retried_and_an_unreachable_shard_is_an_empty_502() {
    let mut world =
        world(|config| config.kcp_compatibility = vec![KcpBehaviour::Retries, KcpBehaviour::Unreachable])
            .await;
    let client = world.http2(Some(&world.user())).await;
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.get("/clusters/root:org/wait").await }
    });
    until(&world.alpha.state.waiting, |waiting| *waiting == 1).await;
    world.alpha.state.cut_connections();
    let answer = timeout(LIMIT, read).await.unwrap().unwrap();
    assert_eq!((answer.status, answer.text.as_str()), (502, ""));
    let elsewhere = world.unregistered_shard("nobody").await;
    std::mem::replace(&mut world.alpha, elsewhere).stop().await;
    let answer = client.get("/clusters/root:org/api").await;
    assert_eq!((answer.status, answer.text.as_str()), (502, ""));
    assert!(!answer.headers.contains_key("content-type") && !answer.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_shard_delays_its_own_requests_briefly_and_others_not_at_all() {
    let world = world(|config| config.upstream.connect_timeout = Timespan::from_millis(300)).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = silent.accept().await {
            kept.push(accepted);
        }
    });
    let client = world.http2(Some(&world.user())).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    let alpha = json!({"metadata": {"name": "alpha", "labels": {}}, "spec": {"baseURL": url}});
    world.root.state.put("shards", "alpha", alpha);
    let silent = async { while client.get("/clusters/root:org/api").await.status != 503 {} };
    timeout(LIMIT, silent).await.expect("requests wait for the silent shard");
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/clusters/root:org/api").await })
        })
        .collect();
    for _ in 0..50 {
        assert_eq!(client.get("/clusters/root/api").await.status, 200);
    }
    for answer in waiting {
        let answer = timeout(LIMIT, answer).await.expect("waited for").unwrap();
        assert_eq!((answer.status, answer.headers["retry-after"].to_str().unwrap()), (503, "1"));
    }
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_addresses_of_a_shards_name_are_used() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let endpoints = [world.unregistered_shard("several").await, world.unregistered_shard("several").await];
    let addresses = endpoints.each_ref().map(|endpoint| endpoint.address);
    world.environment.names = NameResolver::from_fn(move |_, _| async move { Ok(addresses.into()) }.boxed());
    world.register("several", "https://localhost:6443");
    let id = "several000000001";
    for endpoint in &endpoints {
        endpoint.state.put("logicalclusters", id, logical_cluster(id, Some("several")));
    }
    world.put_workspace("root", "several", json!({"cluster": id}), "Ready");
    world.start().await;
    let client = world.http2(Some(&world.user())).await;
    // An accepted connection is not in use before its handshake is complete.
    let used = async {
        let is_used = |endpoint: &Shard| endpoint.state.requests.load(Ordering::SeqCst) > 0;
        while !endpoints.iter().all(is_used) {
            assert_eq!(client.get("/clusters/root:several/api").await.status, 200);
        }
    };
    timeout(LIMIT, used).await.expect("an endpoint is not used");
    let requests: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/clusters/root:several/wait").await.status })
        })
        .collect();
    for endpoint in &endpoints {
        let half = until(&endpoint.state.waiting, |waiting| *waiting >= 5);
        timeout(LIMIT, half).await.expect("the requests are not balanced");
    }
    for endpoint in &endpoints {
        endpoint.state.release.send_replace(true);
    }
    for status in requests {
        assert_eq!(status.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_connection_is_replaced_and_its_watches_continue() {
    let world = world(|config| {
        config.upstream.ping_interval = Timespan::from_millis(100);
        config.upstream.max_connection_age = Timespan::from_millis(100);
    })
    .await;
    let client = world.http2(Some(&world.user())).await;
    let mut watch = client.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let accepted = || world.alpha.state.connections.load(Ordering::SeqCst);
    let before = accepted();
    let replaced = async {
        while accepted() < before + 2 {
            assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
        }
    };
    timeout(LIMIT, replaced).await.expect("the connection is not replaced");
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    let frame = timeout(LIMIT, watch.body_mut().frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "{}\n");
}

/// The client's window is small, as those of attackers are, so that the buffered data is the gateway's and its kernel's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_of_a_response_is_buffered_for_a_client_that_does_not_read() {
    let world = World::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let stream = socket.connect(world.address).await.unwrap();
    let config = client_config(&world.serving_ca, Some(&world.user()), b"http/1.1");
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
    let question = "GET /clusters/root:org/big HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(question.as_bytes()).await.unwrap();
    let held = bytes_sent_until_blocked(&world).await;
    // Twice a window of 64 KiB, the socket's unsent data, and buffers of libraries.
    assert!(held < 1 << 20, "{held} bytes are under way");
}

/// Bytes of `/big` responses that the shard has sent when flow control stops it: two requests in a row find no growth.
async fn bytes_sent_until_blocked(world: &World) -> usize {
    let (sent, others) = (&world.alpha.state.big_sent, world.http2(Some(&world.user())).await);
    let stopped = async {
        let mut before = 0;
        while before == 0 || before != sent.load(Ordering::SeqCst) {
            before = sent.load(Ordering::SeqCst);
            for _ in 0..20 {
                assert_eq!(others.get("/clusters/root:org/api").await.status, 200);
            }
        }
    };
    timeout(LIMIT, stopped).await.expect("the shard never stops");
    sent.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_blocks_the_shard_and_not_the_gateways_memory() {
    let world = World::new().await;
    let user = world.user();
    let path = "/clusters/root:org/big";
    let http2 = world.http2(Some(&user)).await;
    let mut http1 = world.http1(Some(&user)).await;
    let over_http2 = http2.open(request(Method::GET, path, &[], "")).await.unwrap();
    let over_http1 = http1.send_request(request(Method::GET, path, &HOST, "")).await.unwrap();
    let held = bytes_sent_until_blocked(&world).await;
    // Both responses have 64 MiB; windows and socket buffers are in flight.
    assert!(held < 32 << 20, "{held} bytes are under way");
    for response in [over_http2, over_http1] {
        let body = timeout(LIMIT, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
        assert_eq!(body.len(), 64 << 20);
    }
}
