//! Peers that are slow, silent, eager or large.

use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{Answer, Choices, World, request};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_slow_peers_are_disconnected() {
    let choice: fn(&mut fairlead_config::GatewayConfig) = |config| {
        config.limits.tls_handshake_timeout = "200ms".parse().unwrap();
        config.limits.header_read_timeout = "200ms".parse().unwrap();
        config.limits.idle_timeout = "300ms".parse().unwrap();
    };
    let world = World::with(Choices { config: Some(choice), ..Choices::default() }).await;
    let mut buffer = Vec::new();
    // No handshake.
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    timeout(LIMIT, silent.read_to_end(&mut buffer)).await.expect("kept").unwrap();
    for alpn in [&b"h2"[..], b"http/1.1"] {
        // No request, half a request, and nothing after one.
        let mut silent = world.connect(None, alpn).await;
        let _ = timeout(LIMIT, silent.read_to_end(&mut buffer)).await.expect("kept");
    }
    let mut slow = world.connect(None, b"http/1.1").await;
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
    let _ = timeout(LIMIT, slow.read_to_end(&mut buffer)).await.expect("kept");
    let mut idle = world.connect(None, b"http/1.1").await;
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let _ = timeout(LIMIT, idle.read_to_end(&mut buffer)).await.expect("kept");
    assert!(String::from_utf8_lossy(&buffer).ends_with("ok"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_arrive_whole_over_both_protocols() {
    let world = World::new().await;
    let user = world.user();
    let body = "0123456789abcdef".repeat(3 << 16);
    let headers = [("host", "localhost")];
    let over_http2 =
        world.http2(Some(&user)).await.send(request(Method::PUT, "/clusters/root:org/x", &[], &body)).await;
    let mut http1 = world.http1(Some(&user)).await;
    let over_http1 =
        http1.send_request(request(Method::PUT, "/clusters/root:org/x", &headers, &body)).await.unwrap();
    let over_http1 = crate::world::Answer::of(over_http1).await;
    for answer in [over_http2, over_http1] {
        assert!(answer.json()["body"] == body.as_str(), "{}", answer.status);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_100_continue_gets_a_100_or_a_refusal_at_once() {
    let world = World::new().await;
    for (path, expected) in
        [("/clusters/root:org/x", "HTTP/1.1 100"), ("/clusters/root:nope/x", "HTTP/1.1 403")]
    {
        let mut stream = world.connect(None, b"http/1.1").await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        timeout(LIMIT, stream.read_exact(&mut first)).await.expect("nothing came").unwrap();
        assert_eq!(String::from_utf8_lossy(&first), expected);
        if expected.ends_with("100") {
            stream.write_all(b"abc").await.unwrap();
            let mut rest = Vec::new();
            let _ = timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("it did not end");
            let rest = String::from_utf8_lossy(&rest);
            assert!(rest.contains("HTTP/1.1 200") && rest.contains("\"body\":\"abc\""), "{rest}");
            assert!(!rest.contains("100-continue"), "{rest}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_body_of_a_read_is_not_forwarded() {
    let world = World::new().await;
    let user = world.user();
    let path = "/clusters/root:org/api";
    let over_2 = world.http2(Some(&user)).await;
    assert_eq!(over_2.send(request(Method::GET, path, &[], "abc")).await.json()["body"], "");
    assert_eq!(over_2.send(request(Method::DELETE, path, &[], "abc")).await.json()["body"], "abc");
    let mut over_1 = world.http1(Some(&user)).await;
    for (method, body) in [(Method::GET, ""), (Method::DELETE, "abc")] {
        over_1.ready().await.unwrap();
        let sent = over_1.send_request(request(method, path, &[("host", "localhost")], "abc")).await.unwrap();
        assert_eq!(Answer::of(sent).await.json()["body"], body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_need_exactly_one_valid_host() {
    let world = World::new().await;
    for (head, expected) in [
        ("GET /clusters/root/api HTTP/1.0\r\n", "200"),
        ("GET /clusters/root/api HTTP/1.0\r\nHost: a\r\n", "200"),
        ("GET /clusters/root/api HTTP/1.1\r\nHost: [::1]:6443\r\nConnection: close\r\n", "200"),
        ("GET /clusters/root/api HTTP/1.1\r\n", "400"),
        ("GET /clusters/root/api HTTP/1.1\r\nHost:\r\n", "400"),
        ("GET /clusters/root/api HTTP/1.1\r\nHost: [::1\r\n", "400"),
        ("GET /clusters/root/api HTTP/1.1\r\nHost: foo\"bar\r\n", "400"),
    ] {
        let mut stream = world.connect(Some(&world.user()), b"http/1.1").await;
        stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        let mut line = [0; 12];
        timeout(LIMIT, stream.read_exact(&mut line)).await.expect("no answer").unwrap();
        assert_eq!(&line[9..], expected.as_bytes(), "{head:?}");
    }
}
