//! Behaviour of a server towards clients: protocols, limits, panics, drain.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::{Client, TestServer, get, reply, text};
use fairlead_config::{AllowedPeersConfig, ConnectionLimits, ConnectionQuotaConfig};
use fairlead_process::{AllowedPeers, BoundServer, ConnectionInfo, FatalError, Reloads, RequestBody};
use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(60);

fn info(request: &Request<RequestBody>) -> ConnectionInfo {
    request.extensions().get::<ConnectionInfo>().unwrap().clone()
}

#[tokio::test]
async fn both_protocols_are_served_on_one_port_with_connection_info() {
    let server = TestServer::start(async |request: Request<RequestBody>| {
        let info = info(&request);
        // The first request on a connection fills the cache, later ones find the value.
        let count = info.cached::<AtomicU64>().unwrap_or_else(|| {
            info.cache(Arc::new(AtomicU64::new(0)));
            info.cached().unwrap()
        });
        let count = count.fetch_add(1, Ordering::Relaxed);
        assert!(info.cached::<String>().is_none(), "a value of another type is not cached");
        reply(format!("{:?} {} {} {count}", request.version(), info.id(), info.peer_addr().ip()))
    });
    let mut ids = Vec::new();
    let mut clients = Client::both(&server).await;
    for (version, client) in ["HTTP/1.1", "HTTP/2.0"].into_iter().zip(&mut clients) {
        for count in ["0", "1"] {
            let response = text(client.send(get("/")).await.unwrap()).await;
            let words: Vec<_> = response.split(' ').collect();
            assert_eq!((words[0], words[2], words[3]), (version, "127.0.0.1", count));
            ids.push(words[1].to_owned());
        }
    }
    assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(server.metric("fairlead_connections_open{listener=\"test\"}"), Some(2.0));
}

#[tokio::test]
async fn only_peers_on_the_list_may_connect_and_the_list_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peers");
    std::fs::write(&file, "192.0.2.0/24\n").unwrap();
    let config = AllowedPeersConfig { allow: Some(file.clone().into()), ..AllowedPeersConfig::default() };
    let peers = |reloads: &Reloads| AllowedPeers::of(&config, "the test", reloads).unwrap();
    let server =
        TestServer::with_peers(ConnectionLimits::default(), "10s", peers, async |_: Request<RequestBody>| {
            reply("fine")
        });
    let refused = "fairlead_server_errors_total{listener=\"test\",reason=\"peer\"}";
    let client = server.pki.client(&[b"h2"]);
    assert!(server.connect(&client).await.is_err());
    assert_eq!(server.metric(refused), Some(1.0));
    std::fs::write(&file, "192.0.2.0/24\n127.0.0.1\n").unwrap();
    server.reloads.check_now();
    assert!(server.connect(&client).await.is_ok());
    // An invalid file changes nothing.
    std::fs::write(&file, "nobody\n").unwrap();
    server.reloads.check_now();
    assert!(server.connect(&client).await.is_ok());
    assert_eq!(server.metric(refused), Some(1.0));
    assert!(AllowedPeers::of(&config, "another", &server.reloads).is_err());
}

#[tokio::test]
async fn a_load_balancer_sends_the_client_address_before_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("balancers");
    std::fs::write(&file, "127.0.0.0/8\n").unwrap();
    let config = AllowedPeersConfig {
        allow: Some(file.clone().into()),
        proxy_protocol: true,
        ..AllowedPeersConfig::default()
    };
    let server = TestServer::with_peers(
        ConnectionLimits::default(),
        "10s",
        |reloads| AllowedPeers::of(&config, "the test", reloads).unwrap(),
        async |request: Request<RequestBody>| reply(info(&request).peer_addr().to_string()),
    );
    let tls = server.pki.client(&[b"h2"]);
    let version_2 = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(),
        &[203, 0, 113, 9, 192, 0, 2, 1, 0x12, 0x34, 1, 187],
    ];
    for header in [b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n".to_vec(), version_2.concat()] {
        let mut client = common::h2_over(server.connect_after(&header, &tls).await.unwrap()).await;
        assert_eq!(text(client.send_request(get("/")).await.unwrap()).await, "203.0.113.9:4660");
    }
    let failed = "fairlead_tls_handshakes_total{listener=\"test\",result=\"failed\"}";
    for not_said in [&b""[..], b"PROXY TCP4 203.0.113.9\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
        assert!(server.connect_after(not_said, &tls).await.is_err(), "{}", not_said.escape_ascii());
    }
    server.until(failed, 3.0).await;
    // Other peers cannot send a PROXY header.
    std::fs::write(&file, "192.0.2.0/24\n").unwrap();
    server.reloads.check_now();
    assert!(server.connect_after(b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n", &tls).await.is_err());
    assert_eq!(server.metric("fairlead_server_errors_total{listener=\"test\",reason=\"peer\"}"), Some(1.0));
}

#[tokio::test]
async fn connections_are_limited_per_address() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("balancers");
    std::fs::write(&file, "127.0.0.0/8\n").unwrap();
    let per_address = ConnectionQuotaConfig { connections: Some(2), ..ConnectionQuotaConfig::default() };
    let config = AllowedPeersConfig { allow: Some(file.into()), proxy_protocol: true, per_address };
    let server = TestServer::with_peers(
        ConnectionLimits::default(),
        "10s",
        |reloads| AllowedPeers::of(&config, "the test", reloads).unwrap(),
        async |_: Request<RequestBody>| reply("fine"),
    );
    let tls = server.pki.client(&[b"h2"]);
    let (server, tls) = (&server, &tls);
    let from = |address: &str| {
        let header = format!("PROXY TCP4 {address} 192.0.2.1 4660 443\r\n");
        async move { server.connect_after(header.as_bytes(), tls).await.map(common::h2_over) }
    };
    let (one, two) = (from("203.0.113.9").await.unwrap().await, from("203.0.113.9").await.unwrap().await);
    assert!(from("203.0.113.9").await.is_err());
    server.until("fairlead_server_errors_total{listener=\"test\",reason=\"address\"}", 1.0).await;
    let mut other = from("203.0.113.10").await.unwrap().await;
    assert_eq!(text(other.send_request(get("/")).await.unwrap()).await, "fine");
    drop(one);
    server.until("fairlead_connections_open{listener=\"test\"}", 2.0).await;
    let mut three = from("203.0.113.9").await.unwrap().await;
    assert_eq!(text(three.send_request(get("/")).await.unwrap()).await, "fine");
    drop(two);
}

#[tokio::test]
async fn the_response_to_head_has_a_length_and_no_body() {
    let server = TestServer::start(async |_: Request<RequestBody>| reply("fine"));
    for mut client in Client::both(&server).await {
        // Twice: the connection must still work.
        for _ in 0..2 {
            let mut request = get("/");
            *request.method_mut() = http::Method::HEAD;
            let response = client.send(request).await.unwrap();
            assert_eq!(response.headers()["content-length"], "4");
            assert_eq!(text(response).await, "");
        }
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, "fine");
    }
}

#[tokio::test]
async fn too_much_header_gets_431() {
    let server = TestServer::start(async |_: Request<RequestBody>| reply("fine"));
    let many = |count: usize| {
        let mut request = get("/");
        for index in 0..count - request.headers().len() {
            request.headers_mut().append("x", index.into());
        }
        request
    };
    let large = |bytes: usize| {
        let mut request = get("/");
        request.headers_mut().insert("x", "y".repeat(bytes).parse().unwrap());
        request
    };
    let long_path = get(&format!("/{}", "p".repeat(33 << 10)));
    let cases = [
        ("few fields", many(120), 200, true),
        ("many fields", many(140), 431, true),
        ("a large field", large(33 << 10), 431, true),
        ("a long path", long_path, 431, true),
        ("a very large field", large(80 << 10), 431, false),
    ];
    for (what, request, code, has_body) in cases {
        // Each on its own connection: HTTP/1.1 closes after header fields that hyper itself rejects.
        for mut client in Client::both(&server).await {
            let response = client.send(request.clone()).await.unwrap();
            assert_eq!(response.status(), code, "{what}");
            let body = text(response).await;
            if code == 431 && has_body {
                assert!(
                    body.contains("\"kind\":\"Status\"") && body.contains("\"code\":431"),
                    "{what}: {body}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_survives() {
    let server = TestServer::start(async |request: Request<RequestBody>| {
        assert_ne!(request.uri().path(), "/panic", "on purpose");
        reply("fine")
    });
    for mut client in Client::both(&server).await {
        let response = client.send(get("/panic")).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = text(response).await;
        assert!(body.contains("InternalError") && !body.contains("on purpose"), "{body}");
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, "fine");
    }
    assert_eq!(server.metric("fairlead_server_errors_total{listener=\"test\",reason=\"panic\"}"), Some(2.0));
}

type Frames = futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// A watch that sends one event at once and then none until the server drains.
fn watch(request: &Request<RequestBody>) -> Response<StreamBody<Frames>> {
    let info = info(request);
    let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"ADDED ")))]);
    let last = futures_util::stream::once(async move {
        info.drain().end_of_stream(info.id()).await;
        Ok(Frame::data(Bytes::from_static(b"END")))
    });
    Response::new(StreamBody::new(first.chain(last).boxed()))
}

#[tokio::test]
async fn draining_ends_watches_cleanly_and_returns_when_the_last_has_ended() {
    let server =
        TestServer::with(ConnectionLimits::default(), "2s", async |request: Request<RequestBody>| {
            watch(&request)
        });
    let mut idle = server.http1().await;
    idle.ready().await.unwrap();
    let mut bodies = Vec::new();
    for mut client in Client::both(&server).await {
        let mut body = client.send(get("/")).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "ADDED ", "the first event is sent at once");
        bodies.push((client, body));
    }
    server.shutdown.begin();
    let steps = tokio::spawn({
        let shutdown = server.shutdown.clone();
        async move { shutdown.run().await }
    });
    for (client, body) in bodies {
        assert_eq!(body.collect().await.unwrap().to_bytes(), "END");
        drop(client);
    }
    server.serving.await.unwrap();
    assert!(idle.ready().await.is_err(), "idle connections are closed");
    assert!(TcpStream::connect(server.addr).await.is_err(), "the listener is closed");
    steps.await.unwrap();
}

#[tokio::test]
async fn requests_that_do_not_end_in_the_window_are_aborted() {
    let (arrived, mut arrivals) = mpsc::channel(2);
    let server = TestServer::with(ConnectionLimits::default(), "1ms", move |_: Request<RequestBody>| {
        let arrived = arrived.clone();
        async move {
            arrived.send(()).await.unwrap();
            std::future::pending::<()>().await;
            reply("never")
        }
    });
    let requests: Vec<_> = Client::both(&server)
        .await
        .into_iter()
        .map(|mut client| tokio::spawn(async move { client.send(get("/")).await.map(|r| r.status()) }))
        .collect();
    for _ in &requests {
        timeout(LIMIT, arrivals.recv()).await.expect("a request does not arrive").unwrap();
    }
    server.drain().await;
    server.serving.await.unwrap();
    for request in requests {
        assert!(request.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let limits = ConnectionLimits { max_connections: 1, ..ConnectionLimits::default() };
    let server = Arc::new(TestServer::with(limits, "10s", async |_: Request<RequestBody>| reply("fine")));
    let mut first = server.http2().await;
    let second = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.http2().await }
    });
    for _ in 0..10 {
        first.send_request(get("/")).await.unwrap();
    }
    assert!(!second.is_finished());
    drop(first);
    second.await.unwrap().send_request(get("/")).await.unwrap();
}

#[tokio::test]
async fn silent_peers_are_disconnected() {
    let soon = "1ms".parse().unwrap();
    let limits = ConnectionLimits { header_read_timeout: soon, ..ConnectionLimits::default() };
    let server = TestServer::with(limits, "10s", async |_: Request<RequestBody>| reply("fine"));
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let mut silent = server.connect(&server.pki.client(&[protocol])).await.unwrap();
        // The connection may end with or without close_notify.
        let mut rest = Vec::new();
        let _ = silent.read_to_end(&mut rest).await;
    }

    let limits = ConnectionLimits { tls_handshake_timeout: soon, ..ConnectionLimits::default() };
    let server = TestServer::with(limits, "10s", async |_: Request<RequestBody>| reply("fine"));
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
    assert_eq!(
        server.metric("fairlead_tls_handshakes_total{listener=\"test\",result=\"timeout\"}"),
        Some(1.0)
    );
}

#[tokio::test]
async fn a_ping_flood_closes_its_connection_and_no_other() {
    let server = TestServer::start(async |_: Request<RequestBody>| reply("fine"));
    let mut honest = server.http2().await;
    let tls = server.pki.client(&[b"h2"]);
    let mut stream = server.connect(&tls).await.unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()).await.unwrap();
    let (mut responses, mut stream) = tokio::io::split(stream);
    // The acknowledgements are read, so that only the number of pings matters.
    let reading = tokio::spawn(async move { tokio::io::copy(&mut responses, &mut tokio::io::sink()).await });
    let pings = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(1_000);
    let ended = async { while stream.write_all(&pings).await.is_ok() {} };
    timeout(LIMIT, ended).await.expect("pings may go on for ever");
    let _ = timeout(LIMIT, reading).await.expect("the connection stays");
    let floods = "fairlead_server_errors_total{listener=\"test\",reason=\"frames\"}";
    server.until(floods, 1.0).await;
    for _ in 0..100 {
        assert_eq!(text(honest.send_request(get("/")).await.unwrap()).await, "fine");
    }
    assert_eq!(server.metric(floods), Some(1.0));
}

#[tokio::test]
async fn idle_connections_are_closed_but_not_busy_ones() {
    let limits = ConnectionLimits {
        idle_timeout: "10ms".parse().unwrap(),
        header_read_timeout: "1s".parse().unwrap(),
        ..ConnectionLimits::default()
    };
    let (arrived, mut arrivals) = mpsc::channel(2);
    let (finish, wait) = tokio::sync::watch::channel(());
    let server = TestServer::with(limits, "10s", move |request: Request<RequestBody>| {
        let (arrived, mut wait) = (arrived.clone(), wait.clone());
        async move {
            if request.uri().path() == "/wait" {
                arrived.send(()).await.unwrap();
                wait.changed().await.unwrap();
            }
            reply("fine")
        }
    });
    let busy = Client::both(&server).await.map(|mut client| {
        tokio::spawn(
            async move { client.send(get("/wait")).await.map(|response| response.status().as_u16()) },
        )
    });
    for _ in &busy {
        timeout(LIMIT, arrivals.recv()).await.expect("a request does not arrive").unwrap();
    }
    for mut idle in Client::both(&server).await {
        assert_eq!(text(idle.send(get("/")).await.unwrap()).await, "fine");
        let closed = async {
            while !idle.is_closed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, closed).await.expect("an idle connection stays");
    }
    finish.send(()).unwrap();
    for busy in busy {
        assert_eq!(busy.await.unwrap().unwrap(), 200);
    }
}

#[tokio::test]
async fn upgrades_pass() {
    let (upgraded, mut seen) = mpsc::channel(1);
    let server = TestServer::start(move |mut request: Request<RequestBody>| {
        let upgraded = upgraded.clone();
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut ping = [0; 4];
                stream.read_exact(&mut ping).await.unwrap();
                stream.write_all(b"pong").await.unwrap();
                upgraded.send(ping).await.unwrap();
            });
            let mut response = reply("");
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
            response.headers_mut().insert("upgrade", "test".parse().unwrap());
            response
        }
    });
    let mut client = server.http1().await;
    let mut request = get("/");
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "test".parse().unwrap());
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).await.unwrap();
    assert_eq!((&pong, &seen.recv().await.unwrap()), (b"pong", b"ping"));
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let server = TestServer::start(async |_: Request<RequestBody>| reply("fine"));
    let error = BoundServer::bind(server.addr).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {}", server.addr));
    assert_eq!(error.hint(), Some(format!("another process listens on port {}", server.addr.port())));
}
