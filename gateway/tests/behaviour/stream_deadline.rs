//! The end of watches and tunnels: expired credentials, and the drain of the process.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::world::{World, request, until};

const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";
const HOST: [(&str, &str); 1] = [("host", "localhost")];
/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

/// The rest of the body; an error if the response is incomplete.
async fn rest(response: Response<Incoming>) -> hyper::Result<Bytes> {
    let body = timeout(LIMIT, response.into_body().collect()).await.expect("it did not end");
    body.map(http_body_util::Collected::to_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_cleanly_when_the_certificate_that_opened_them_expires() {
    let world = World::new().await;
    let short = world.client_ca.client_until("alice", SystemTime::now() + Duration::from_secs(4));
    let long = world.user();
    let over_http2 =
        world.http2(Some(&short)).await.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let mut http1 = world.http1(Some(&short)).await;
    let over_http1 = http1.send_request(request(Method::GET, WATCH, &HOST, "")).await.unwrap();
    let other = world.http2(Some(&long)).await;
    let mut goes_on = other.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 3).await;
    world.alpha.state.events.send(Bytes::from_static(b"{}\n")).unwrap();
    assert_eq!(rest(over_http2).await.unwrap(), "{}\n");
    assert_eq!(rest(over_http1).await.unwrap(), "{}\n");
    until(&world.alpha.state.streams, |open| *open == 1).await;
    assert_eq!(goes_on.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "{}\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_credential_expires_before_the_response_ends_after_its_headers() {
    let world = World::new().await;
    let short = world.client_ca.client_until("alice", SystemTime::now() + Duration::from_secs(4));
    let client = world.http2(Some(&short)).await;
    let open = client.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let late = request(Method::GET, "/clusters/root:org/api/v1/late?watch=true", &[], "");
    let late = tokio::spawn(async move { client.open(late).await.unwrap() });
    until(&world.alpha.state.waiting, |waiting| *waiting == 1).await;
    // The second watch ends in the same way.
    assert_eq!(rest(open).await.unwrap(), "");
    world.alpha.state.release.send_replace(true);
    let late = timeout(LIMIT, late).await.unwrap().unwrap();
    assert_eq!(late.status(), 200);
    assert_eq!(rest(late).await.unwrap(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_completes_requests_and_ends_watches_between_events() {
    let world = World::new().await;
    let user = world.user();
    let client = world.http2(Some(&user)).await;
    assert_eq!(client.get("/clusters/root:org/api").await.status, 200);
    let watch = client.open(request(Method::GET, WATCH, &[], "")).await.unwrap();
    let mut http1 = world.http1(Some(&user)).await;
    let http1_watch = http1.send_request(request(Method::GET, WATCH, &HOST, "")).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.get("/clusters/root:org/wait").await.status }
    });
    let mut tunnel = world.http1(Some(&user)).await;
    let headers = [("host", "localhost"), ("connection", "Upgrade"), ("upgrade", "websocket")];
    let tunnel =
        tunnel.send_request(request(Method::GET, "/clusters/root:org/upgrade", &headers, "")).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(tunnel).await.unwrap());
    let _idle = world.http2(Some(&user)).await;
    until(&world.alpha.state.streams, |open| *open == 2).await;
    until(&world.alpha.state.waiting, |waiting| *waiting == 1).await;

    world.environment.shutdown.begin();
    let supervised = tokio::spawn({
        let tasks = world.environment.tasks.clone();
        async move { tasks.supervise().await }
    });
    assert_eq!(rest(watch).await.unwrap(), "");
    assert_eq!(rest(http1_watch).await.unwrap(), "");
    let mut end = Vec::new();
    // With or without a TLS close_notify.
    let _ = timeout(LIMIT, tunnel.read_to_end(&mut end)).await.expect("the tunnel did not end");
    // Requests in flight are completed.
    world.alpha.state.release.send_replace(true);
    assert_eq!(timeout(LIMIT, waiting).await.unwrap().unwrap(), 200);
    // The process ends with its last connection, before the end of the drain window.
    timeout(LIMIT, supervised).await.expect("it did not end").unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err());
}
