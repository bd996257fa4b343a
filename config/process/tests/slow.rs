//! Slow clients: request bodies that arrive slowly, and responses that are not read.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use common::{Client, TestServer, get, reply, text};
use fairlead_config::{ConnectionLimits, SlowClientsConfig, Timespan};
use fairlead_process::{RequestBody, Service};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast;
use tokio::time::timeout;

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);
/// Short time limits of slow clients.
const CLIENT_LIMIT: Duration = Duration::from_millis(200);
/// Larger than the socket buffers of both sides.
const BIG: usize = 64 << 20;
const SLOW_READER: &str = "fairlead_server_errors_total{listener=\"test\",reason=\"slow_reader\"}";
const SLOW_BODY: &str = "fairlead_server_errors_total{listener=\"test\",reason=\"slow_body\"}";

fn short_limits() -> SlowClientsConfig {
    let limit = Timespan::from_millis(200);
    SlowClientsConfig { request_body_timeout: limit, response_stall_timeout: limit }
}

/// Responds with the length of the body; does not handle slow bodies itself.
async fn measure(request: Request<RequestBody>) -> Response<Full<Bytes>> {
    match request.into_body().collect().await {
        Ok(body) => reply(body.to_bytes().len().to_string()),
        Err(_) => reply("the body ended early"),
    }
}

fn part(bytes: impl Into<Bytes>) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(bytes.into()))
}

type Parts = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A request whose endless body sends single bytes.
fn dripping_body() -> Request<Parts> {
    let bytes = stream::unfold((), async |()| {
        tokio::time::sleep(CLIENT_LIMIT / 10).await;
        Some((part("x"), ()))
    });
    let body = StreamBody::new(bytes.boxed());
    Request::post("https://localhost/").header("host", "localhost").body(body).unwrap()
}

#[tokio::test]
async fn a_slow_body_gets_408_and_other_requests_are_served() {
    let server = TestServer::with_slow_clients(short_limits(), measure);
    let stream = server.connect(&server.pki.client(&[b"h2"])).await.unwrap();
    let (mut over_http2, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let stream = server.connect(&server.pki.client(&[b"http/1.1"])).await.unwrap();
    let (mut over_http1, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let honest = async {
        let mut clients = Client::both(&server).await;
        while server.metric(SLOW_BODY) < Some(2.0) {
            for client in &mut clients {
                let mut request = get("/");
                *request.method_mut() = http::Method::POST;
                *request.body_mut() = Full::new(vec![b'x'; 1 << 20].into());
                assert_eq!(text(client.send(request).await.unwrap()).await, (1 << 20).to_string());
            }
        }
    };
    let all = async {
        tokio::join!(
            over_http1.send_request(dripping_body()),
            over_http2.send_request(dripping_body()),
            honest
        )
    };
    let (over_http1, response, ()) = timeout(LIMIT, all).await.expect("the server waits for the body");
    for response in [over_http1.unwrap(), response.unwrap()] {
        assert_eq!(response.status(), 408);
        let body = text(response).await;
        assert!(body.contains("\"kind\":\"Status\"") && body.contains("too slowly"), "{body}");
    }
    assert_eq!(server.metric(SLOW_BODY), Some(2.0));
    // The same connection still serves other requests.
    let mut request = dripping_body();
    *request.body_mut() = StreamBody::new(stream::empty().boxed());
    assert_eq!(text(over_http2.send_request(request).await.unwrap()).await, "0");
}

#[tokio::test]
async fn received_bytes_extend_the_deadline() {
    let server = TestServer::with_slow_clients(short_limits(), measure);
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let stream = server.connect(&server.pki.client(&[protocol])).await.unwrap();
        // Without the extension every part would miss the deadline.
        let parts = stream::unfold(0, async |count| {
            tokio::time::sleep(CLIENT_LIMIT * 3 / 4).await;
            (count < 4).then(|| (part(vec![b'x'; 1024]), count + 1))
        });
        let parts = stream::iter([part(vec![b'x'; 1024])]).chain(parts);
        let body = StreamBody::new(parts.boxed());
        let request = Request::post("https://localhost/").header("host", "localhost").body(body).unwrap();
        let response = if protocol == b"h2" {
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        assert_eq!(text(response.unwrap()).await, (5 * 1024).to_string());
    }
    assert_eq!(server.metric(SLOW_BODY), Some(0.0));
}

/// `/watch` sends one event, and later those of `events`; every other path has a large response.
fn big_or_watch(events: broadcast::Sender<Bytes>) -> impl Service {
    move |request: Request<RequestBody>| {
        let frames = if request.uri().path() == "/watch" {
            let later = stream::unfold(events.subscribe(), async |mut events| {
                let event = events.recv().await.ok()?;
                Some((part(event), events))
            });
            stream::iter([part("ADDED")]).chain(later).boxed()
        } else {
            stream::iter([part(vec![b'x'; BIG])]).boxed()
        };
        async move { Response::new(StreamBody::new(frames) as Parts) }
    }
}

#[tokio::test]
async fn an_unread_response_is_aborted_and_an_idle_watch_continues() {
    let (events, _) = broadcast::channel(8);
    let server = TestServer::with_slow_clients(short_limits(), big_or_watch(events.clone()));
    let mut watches = Vec::new();
    for mut client in Client::both(&server).await {
        let mut watch = client.send(get("/watch")).await.unwrap().into_body();
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "ADDED");
        watches.push((watch, client));
    }
    // One after the other, so that the watches are idle for longer than the read timeout.
    let mut over_http2 = server.http2().await;
    let unread = over_http2.send_request(get("/")).await.unwrap();
    server.until(SLOW_READER, 1.0).await;
    assert!(unread.into_body().collect().await.is_err());
    let taken = over_http2.send_request(get("/")).await.unwrap();
    assert_eq!(
        taken.into_body().collect().await.unwrap().to_bytes().len(),
        BIG,
        "the connection still works"
    );

    let mut over_http1 = server.connect(&server.pki.client(&[b"http/1.1"])).await.unwrap();
    over_http1.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    server.until(SLOW_READER, 2.0).await;
    let mut taken = Vec::new();
    let _ = over_http1.read_to_end(&mut taken).await;
    assert!(taken.len() < BIG, "{}", taken.len());

    for event in ["MODIFIED", "DELETED"] {
        events.send(Bytes::from_static(event.as_bytes())).unwrap();
        for (watch, _) in &mut watches {
            assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), event);
        }
    }
    assert_eq!(server.metric(SLOW_READER), Some(2.0));
}

#[tokio::test]
async fn a_response_whose_end_is_unread_is_released_with_its_idle_connection() {
    let limits = ConnectionLimits {
        header_read_timeout: Timespan::from_millis(50),
        idle_timeout: Timespan::from_millis(50),
        ..ConnectionLimits::default()
    };
    let server = TestServer::configured(
        "10s",
        |options, _| {
            (options.limits, options.slow_clients) = (limits, short_limits());
        },
        async |_: Request<RequestBody>| reply("x".repeat(1000)),
    );
    let stream = server.connect(&server.pki.client(&[b"h2"])).await.unwrap();
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    // The first byte is read, and hyper holds the rest.
    let response = sender.send_request(get("/")).await.unwrap();
    let _ended = timeout(LIMIT, connection).await.expect("the connection stays");
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(server.metric(SLOW_READER), Some(0.0));
}

/// Refuses all requests without reading their bodies.
async fn refuse(_request: Request<RequestBody>) -> Response<Full<Bytes>> {
    Response::builder().status(403).body(Full::default()).unwrap()
}

#[tokio::test]
async fn refused_uploads_end_no_http2_connection() {
    const UPLOADS: usize = 400;
    let server = TestServer::start(refuse);
    let sender = server.http2().await;
    let upload = || {
        let mut sender = sender.clone();
        async move {
            sender.ready().await.unwrap();
            let body = Full::new(Bytes::from(vec![b'x'; 200_000]));
            sender.send_request(get("/").map(|_| body)).await.unwrap().status()
        }
    };
    let uploads = stream::iter((0..UPLOADS).map(|_| upload())).buffer_unordered(60);
    let refused = timeout(LIMIT, uploads.filter(|status| core::future::ready(*status == 403)).count()).await;
    assert_eq!(refused, Ok(UPLOADS));
    assert!(!sender.is_closed());
}

#[tokio::test]
async fn a_refused_upload_over_http1_gets_its_response_and_the_connection_continues() {
    let server = TestServer::start(refuse);
    let mut connection = server.connect(&server.pki.client(&[b"http/1.1"])).await.unwrap();
    let upload = async {
        for _ in 0..10 {
            let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..100 {
                connection.write_all(&[b'x'; 10_000]).await.unwrap();
            }
            connection.flush().await.unwrap();
            let mut response = Vec::new();
            while !response.ends_with(b"\r\n\r\n") {
                response.push(connection.read_u8().await.unwrap());
            }
            let response = String::from_utf8(response).unwrap();
            assert!(response.starts_with("HTTP/1.1 403") && !response.contains("close"), "{response}");
        }
    };
    timeout(LIMIT, upload).await.expect("all uploads get responses");
}
