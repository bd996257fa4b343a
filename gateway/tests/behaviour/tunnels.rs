//! Upgrades: the shard receives the identity as with any request, and the client's handshake headers are rewritten.

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, timeout};

use crate::world::{World, request};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

/// A client's `Connection` header is necessary for the upgrade, so it is rewritten instead of removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_carries_the_identity_that_the_gateway_sets() {
    let world = World::new().await;
    let old = world.old_workspace().await;
    let alice = world.user();
    for (path, shard) in [("/clusters/root:org/upgrade", &world.alpha), ("/clusters/root:old/upgrade", &old)]
    {
        for protocol in ["websocket", "SPDY/3.1"] {
            for connection in [
                "Upgrade",
                "keep-alive, Upgrade, X-Remote-User, X-Remote-Group, X-Mine",
                "Upgrade, Host, X-Remote-Extra-Authentication.kubernetes.io%2fcredential-id",
            ] {
                shard.state.identities.lock().clear();
                let text = format!(
                    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\nUpgrade: {protocol}\r\n\
                     Keep-Alive: timeout=5\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n\
                     X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX_Remote_User: root\r\nX-Mine: 1\r\n\r\n"
                );
                let mut stream = world.connect(Some(&alice), b"http/1.1").await;
                stream.write_all(text.as_bytes()).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let byte = timeout(LIMIT, stream.read_u8()).await.expect("no answer").unwrap();
                    head.push(byte);
                }
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                assert!(head.starts_with("http/1.1 101 "), "{connection}: {head}");
                let arrived = head.lines().find_map(|line| line.strip_prefix("x-arrived: ")).unwrap();
                for gone in ["keep-alive", "proxy-authorization", "proxy-connection", "x_remote_user"] {
                    assert!(!arrived.split(' ').any(|name| name == gone), "{connection}: {arrived}");
                }
                let is_nominated = connection.contains("X-Mine");
                assert_eq!(arrived.split(' ').any(|name| name == "x-mine"), !is_nominated, "{connection}");
                let said = shard.state.identities.lock().keys().next().unwrap().clone();
                let (extras, said): (Vec<_>, Vec<_>) =
                    said.into_iter().partition(|line| line.contains("credential-id"));
                let expected =
                    ["x-remote-group: system:authenticated", "x-remote-group: team", "x-remote-user: alice"];
                assert_eq!((extras.len(), &said[..]), (1, &expected.map(str::to_owned)[..]), "{connection}");
                let mut back = [0; 5];
                stream.write_all(b"hello").await.unwrap();
                timeout(LIMIT, stream.read_exact(&mut back)).await.expect("no echo").unwrap();
                assert_eq!(&back, b"HELLO");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_tunnels_over_http2() {
    let world = World::new().await;
    let (client, connection) =
        h2::client::handshake(world.connect(Some(&world.user()), b"h2").await).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    // WebSocket over HTTP/2 (RFC 8441) is not offered, so clients do not try it; a plain CONNECT is refused.
    let ask = request(Method::GET, "/livez", &[], "").map(|_| ());
    let (answer, _) = client.send_request(ask, true).unwrap();
    assert_eq!(timeout(LIMIT, answer).await.unwrap().unwrap().status(), 200);
    assert!(!client.is_extended_connect_protocol_enabled());
    let connect = http::Request::builder().method(Method::CONNECT).uri("localhost:443").body(()).unwrap();
    let (answer, _) = client.send_request(connect, true).unwrap();
    assert_eq!(timeout(LIMIT, answer).await.unwrap().unwrap().status(), 405);
    let ask = request(Method::GET, "/clusters/root:org/api", &[], "").map(|_| ());
    let (answer, _) = client.send_request(ask, true).unwrap();
    assert_eq!(timeout(LIMIT, answer).await.unwrap().unwrap().status(), 200, "the connection goes on");
}

/// `kubectl exec -i` and `port-forward` close their sending direction when a pipe ends, and then read the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_data_after_the_end_of_the_request_arrives() {
    let world = World::new().await;
    let old = world.old_workspace().await;
    for path in ["/clusters/root:org/farewell", "/clusters/root:old/farewell"] {
        let mut stream = world.connect(Some(&world.user()), b"http/1.1").await;
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("no end").unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nHELLOfarewell"), "{answer}");
    }
    drop(old);
}
