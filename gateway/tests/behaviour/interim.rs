//! Answers before the answer: 103 with hints, from servers of both protocols to clients of both.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::mapping::{Mapped, clusters};
use crate::world::{Answer, World, request};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);
const HINTS: [&str; 2] = ["</first>", "</second>"];

/// A server of one protocol, as far as `serve` goes; returns its URL.
pub fn server<F>(
    tls: &Arc<rustls::ServerConfig>,
    alpn: &[u8],
    serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tls = rustls::ServerConfig::clone(tls);
    tls.alpn_protocols = vec![alpn.to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    url
}

async fn hint_over_http2(stream: TlsStream<TcpStream>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        for hint in HINTS {
            let early = Response::builder().status(103).header("link", hint).body(()).unwrap();
            respond.send_informational(early).unwrap();
        }
        let answer = Response::builder().header("content-length", 4).body(()).unwrap();
        let mut body = respond.send_response(answer, false).unwrap();
        body.send_data(Bytes::from_static(b"done"), true).unwrap();
    }
}

async fn hint_over_http1(mut stream: TlsStream<TcpStream>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    let hints = HINTS
        .map(|hint| format!("HTTP/1.1 103 Early Hints\r\nLink: {hint}\r\nConnection: hop\r\nHop: x\r\n\r\n"));
    let answer = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone", hints.concat());
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// Responds to the first request with a switch to another protocol.
async fn switch(mut stream: TlsStream<TcpStream>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    stream.write_all(answer.as_bytes()).await.unwrap();
    // Until the gateway gives it up.
    let _ = stream.read_u8().await;
}

/// The hints, and the answer.
async fn over_http2(world: &World, path: &str) -> (Vec<String>, String) {
    let stream = world.connect(Some(&world.user()), b"h2").await;
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("https://localhost{path}")).body(()).unwrap();
    let (mut answered, _) = client.send_request(request, true).unwrap();
    let mut hints = Vec::new();
    while let Some(early) = poll_fn(|context| answered.poll_informational(context)).await {
        let early = early.unwrap();
        assert_eq!((early.status().as_u16(), early.headers().get("hop")), (103, None));
        hints.push(early.headers()["link"].to_str().unwrap().to_owned());
        if hints.len() == HINTS.len() {
            break;
        }
    }
    let answer = answered.await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().data().await.unwrap().unwrap();
    (hints, String::from_utf8(body.to_vec()).unwrap())
}

async fn over_http1(world: &World, version: &str, path: &str) -> (Vec<String>, String) {
    let mut stream = world.connect(Some(&world.user()), b"http/1.1").await;
    let request = format!("GET {path} {version}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let mut heads: Vec<&str> = text.split("\r\n\r\n").collect();
    let body = heads.pop().unwrap().to_owned();
    assert!(heads.pop().unwrap().starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let hint = |head: &str| {
        assert!(head.starts_with("HTTP/1.1 103 ") && !head.to_ascii_lowercase().contains("hop"), "{text}");
        head.to_ascii_lowercase().split_once("\r\nlink: ").unwrap().1.to_owned()
    };
    (heads.into_iter().map(hint).collect(), body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_responses_reach_http2_and_http_1_1_clients() {
    let mapped = Mapped::new(|backend| {
        let tls = backend.state.tls();
        vec![
            clusters(),
            json!({"path": "/h2/", "backend": server(&tls, b"h2", hint_over_http2)}),
            json!({"path": "/h1/", "backend": server(&tls, b"http/1.1", hint_over_http1)}),
        ]
    })
    .await;
    let world = &mapped.world;
    let all = (HINTS.map(str::to_owned).to_vec(), "done".to_owned());
    for path in ["/h2/x", "/h1/x"] {
        let answers = async {
            assert_eq!(over_http2(world, path).await, all, "HTTP/2: {path}");
            assert_eq!(over_http1(world, "HTTP/1.1", path).await, all, "HTTP/1.1: {path}");
            let (hints, body) = over_http1(world, "HTTP/1.0", path).await;
            assert_eq!((hints.len(), body.as_str()), (0, "done"), "HTTP/1.0: {path}");
        };
        timeout(LIMIT, answers).await.expect("no answer, or not all hints");
    }
}

/// Bytes after a 101 belong to another protocol: neither the client's connection nor the next request may get them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unrequested_protocol_switch_of_a_server_is_502() {
    let mapped = Mapped::new(|backend| {
        let switching = server(&backend.state.tls(), b"http/1.1", switch);
        vec![clusters(), json!({"path": "/switching/", "backend": switching})]
    })
    .await;
    let world = &mapped.world;
    let answers = async {
        let user = world.user();
        let over_http2 = world.http2(Some(&user)).await.get("/switching/x").await;
        let mut http1 = world.http1(Some(&user)).await;
        let get = request(Method::GET, "/switching/x", &[("host", "localhost")], "");
        let over_http1 = Answer::of(http1.send_request(get).await.unwrap()).await;
        for answer in [over_http2, over_http1] {
            assert_eq!((answer.status, answer.json()["code"].as_u64()), (502, Some(502)), "{}", answer.text);
        }
    };
    timeout(LIMIT, answers).await.expect("no answer");
}
