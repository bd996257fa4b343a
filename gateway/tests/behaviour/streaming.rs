//! Watches, upgrades and large bodies: data is forwarded as it arrives, and no client delays another.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::world::{Choices, World, eventually, request, until};

const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

async fn next_chunk(response: &mut Response<Incoming>) -> Option<Bytes> {
    loop {
        let frame = timeout(LIMIT, response.body_mut().frame()).await.expect("nothing came")?;
        let chunk = frame.unwrap().into_data().unwrap();
        if !chunk.is_empty() {
            return Some(chunk);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_watch_come_through_one_by_one() {
    let world = World::new().await;
    let user = world.user();
    let http2 = world.http2(Some(&user)).await;
    let mut http1 = world.http1(Some(&user)).await;
    let get = || request(Method::GET, WATCH, &[("host", "localhost")], "");
    let mut over_http2 = http2.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let mut over_http1 = http1.send_request(get()).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 2).await;
    for number in 0..20 {
        let event = Bytes::from(format!("{{\"type\":\"ADDED\",\"number\":{number}}}\n"));
        world.alpha.state.events.send(event.clone()).unwrap();
        // The shard sends the next event only after this one has arrived, so nothing is buffered.
        assert_eq!(next_chunk(&mut over_http2).await.unwrap(), event);
        assert_eq!(next_chunk(&mut over_http1).await.unwrap(), event);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_client_ends_its_watch_at_the_shard() {
    let world = World::new().await;
    let user = world.user();
    // An idle stream, one of several on its connection.
    let http2 = world.http2(Some(&user)).await;
    let stays = http2.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let leaves = http2.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 2).await;
    drop(leaves);
    until(&world.alpha.state.streams, |open| *open == 1).await;
    drop((stays, http2));
    until(&world.alpha.state.streams, |open| *open == 0).await;
    // An HTTP/1.1 connection.
    let mut http1 = world.http1(Some(&user)).await;
    let leaves = http1.send_request(request(Method::GET, WATCH, &[("host", "localhost")], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    drop((leaves, http1));
    until(&world.alpha.state.streams, |open| *open == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_shard_dies_ends_cleanly() {
    let world = World::new().await;
    let user = world.user();
    let http2 = world.http2(Some(&user)).await;
    let mut http1 = world.http1(Some(&user)).await;
    let mut over_http2 = http2.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let mut over_http1 =
        http1.send_request(request(Method::GET, WATCH, &[("host", "localhost")], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 2).await;
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    for response in [&mut over_http2, &mut over_http1] {
        assert_eq!(next_chunk(response).await.unwrap(), "{}\n");
    }
    world.alpha.state.cut_connections();
    for response in [&mut over_http2, &mut over_http1] {
        assert_eq!(next_chunk(response).await, None);
    }
    // Within an event the end must be visible as an error.
    let again = async {
        loop {
            let watch = http2.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
            // 502 while the pool has a connection whose end is not detected yet.
            if watch.status() == 200 {
                return watch;
            }
        }
    };
    let mut broken = timeout(LIMIT, again).await.expect("no watch is opened any more");
    until(&world.alpha.state.streams, |open| *open == 1).await;
    world.alpha.state.events.send(Bytes::from_static(b"{\"type\":")).unwrap();
    assert_eq!(next_chunk(&mut broken).await.unwrap(), "{\"type\":");
    world.alpha.state.cut_connections();
    assert!(timeout(LIMIT, broken.body_mut().frame()).await.unwrap().unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incomplete_response_stays_incomplete_for_the_client() {
    let world = World::new().await;
    let http2 = world.http2(Some(&world.user())).await;
    let mut response = http2.open(request(Method::GET, "/clusters/root:org/broken", &[], "")).await.unwrap();
    assert_eq!((response.status().as_u16(), next_chunk(&mut response).await.unwrap()), (200, "abc".into()));
    world.alpha.state.release.send_replace(true);
    assert!(timeout(LIMIT, response.into_body().collect()).await.unwrap().is_err());
    assert_eq!(http2.get("/clusters/root:org/api").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_stop_reading_do_not_stall_others_on_the_same_connection_to_the_shard() {
    let world = World::new().await;
    let user = world.user();
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let client = world.http2(Some(&user)).await;
        let response = client.open(request(Method::GET, "/clusters/root:org/big", &[], "")).await.unwrap();
        stalled.push((client, response));
    }
    let other = world.http2(Some(&user)).await;
    for _ in 0..50 {
        let answer = timeout(LIMIT, other.get("/clusters/root:org/api")).await.expect("stalled");
        assert_eq!(answer.status, 200);
    }
    // The responses are complete once the clients read again.
    let (_client, response) = stalled.pop().unwrap();
    let body = timeout(LIMIT, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
    assert_eq!(body.len(), 64 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_and_spdy_tunnels_pass_in_both_directions() {
    let world = World::new().await;
    let user = world.user();
    for protocol in ["websocket", "SPDY/3.1"] {
        let mut client = world.http1(Some(&user)).await;
        let headers = [("host", "localhost"), ("connection", "Upgrade"), ("upgrade", protocol)];
        let response = client
            .send_request(request(Method::GET, "/clusters/root:org/upgrade", &headers, ""))
            .await
            .unwrap();
        assert_eq!(response.status(), 101, "{protocol}");
        assert_eq!(response.headers()["upgrade"], protocol);
        let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let data = vec![b'a'; 100_000];
        for _ in 0..5 {
            let mut back = vec![0; data.len()];
            let (mut reader, mut writer) = tokio::io::split(&mut tunnel);
            let (written, read) = tokio::join!(writer.write_all(&data), reader.read_exact(&mut back));
            written.unwrap();
            read.unwrap();
            assert!(back.iter().all(|byte| *byte == b'A'), "{protocol}");
        }
    }
    // The connections of tunnels do not affect ordinary requests.
    assert_eq!(world.get(Some(&user), "/clusters/root:org/api").await.json()["version"], "HTTP/2.0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_does_not_open_a_connection_per_request() {
    let world = World::new().await;
    let before = world.alpha.state.connections.load(std::sync::atomic::Ordering::SeqCst);
    let client = world.http2(Some(&world.user())).await;
    let requests = (0..200).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.get("/clusters/root:org/api").await.status })
    });
    for answer in requests.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), 200);
    }
    let after = world.alpha.state.connections.load(std::sync::atomic::Ordering::SeqCst);
    // One, and a second one if the shard's SETTINGS have not arrived yet.
    assert!((1..=2).contains(&(after - before)), "{} connections", after - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_watches_than_streams_open_another_connection() {
    let world = World::new().await;
    let user = world.user();
    let before = world.alpha.state.connections.load(std::sync::atomic::Ordering::SeqCst);
    let mut watches = Vec::new();
    for _ in 0..3 {
        let client = world.http2(Some(&user)).await;
        for _ in 0..150 {
            watches.push(client.open(request(Method::GET, WATCH, &[], "")).await.unwrap());
        }
    }
    until(&world.alpha.state.streams, |open| *open == 450).await;
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    for watch in &mut watches {
        assert_eq!(next_chunk(watch).await.unwrap(), "{}\n");
    }
    let connections = world.alpha.state.connections.load(std::sync::atomic::Ordering::SeqCst) - before;
    assert!((3..=5).contains(&connections), "{connections} connections for 450 watches");
    drop(watches);
    until(&world.alpha.state.streams, |open| *open == 0).await;
}

/// Small frames would count against the connection to the shard, which clients share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_data_during_a_watch_is_not_forwarded() {
    let world = World::new().await;
    let user = world.user();
    let other = world.http2(Some(&user)).await;
    let mut watch = other.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    let (mut client, connection) =
        h2::client::handshake(world.connect(Some(&user), b"h2").await).await.unwrap();
    let driver = tokio::spawn(connection);
    let chatty = request(Method::GET, WATCH, &[], "").map(|_| ());
    let (response, mut body) = client.send_request(chatty, false).unwrap();
    let response = timeout(LIMIT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    // A few more would close the client's own connection.
    for _ in 0..8_000 {
        body.reserve_capacity(1);
        let room = std::future::poll_fn(|context| body.poll_capacity(context));
        timeout(LIMIT, room).await.expect("the gateway does not read the data").unwrap().unwrap();
        body.send_data(Bytes::from_static(b"x"), false).unwrap();
    }
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    assert_eq!(next_chunk(&mut watch).await.unwrap(), "{}\n", "a watch on the same connection to the shard");
    drop((body, response));
    until(&world.alpha.state.streams, |open| *open == 1).await;
    driver.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_requests_are_closed() {
    let world = World::with(Choices {
        config: Some(|config| {
            config.upstream.ping_interval = fairlead_config::Timespan::from_millis(100);
            config.upstream.idle_timeout = fairlead_config::Timespan::from_millis(200);
        }),
        ..Choices::default()
    })
    .await;
    let client = world.http2(Some(&world.user())).await;
    let open = || world.alpha.state.open_connections();
    let before = open();
    let mut watches = Vec::new();
    for _ in 0..150 {
        watches.push(client.open(request(Method::GET, WATCH, &[], "")).await.unwrap());
    }
    assert!(open() > before);
    watches.clear();
    eventually("idle connections are closed", async || open() <= before).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_before_the_end_of_the_body_arrives() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let body = "x".repeat(3 << 20);
    for _ in 0..10 {
        let post = request(Method::POST, "/clusters/root:org/early", &[], &body);
        let answer = timeout(LIMIT, client.send(post)).await.expect("stalled");
        assert_eq!(answer.status, 413);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_trailers_arrive_without_identity_fields() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    let response = client.open(request(Method::GET, "/clusters/root:org/trailers", &[], "")).await.unwrap();
    let collected = timeout(LIMIT, response.into_body().collect()).await.unwrap().unwrap();
    let trailers = collected.trailers().cloned().unwrap();
    assert_eq!(collected.to_bytes(), "abc");
    assert_eq!(
        (trailers.len(), &trailers["checksum"]),
        (1, &http::HeaderValue::from_static("900150983cd24fb0"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_without_http2_is_supported() {
    let world = World::new().await;
    let old = world.old_workspace().await;
    let client = world.http2(Some(&world.user())).await;
    let posted = client.send(request(Method::POST, "/clusters/root:old/api", &[], "body")).await.json();
    assert_eq!((&posted["version"], &posted["body"]), (&json!("HTTP/1.1"), &json!("body")));
    let mut http1 = world.http1(Some(&world.user())).await;
    let accepted = || old.state.connections.load(std::sync::atomic::Ordering::SeqCst);
    let before = accepted();
    for _ in 0..3 {
        let put = request(Method::PUT, "/clusters/root:old/api", &[("host", "localhost")], "body");
        http1.ready().await.unwrap();
        let put = crate::world::Answer::of(http1.send_request(put).await.unwrap()).await.json();
        assert_eq!((&put["version"], &put["body"]), (&json!("HTTP/1.1"), &json!("body")));
    }
    // Requests one after the other use one connection.
    assert!(accepted() <= before + 1, "{} connections", accepted() - before);
    let mut watch = client
        .open(request(Method::GET, "/clusters/root:old/api/v1/stream?watch=true", &[], ""))
        .await
        .unwrap();
    until(&old.state.streams, |open| *open == 1).await;
    old.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    assert_eq!(next_chunk(&mut watch).await.unwrap(), "{}\n");
}
