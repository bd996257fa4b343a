//! Known faults of Kubernetes' proxies and of kcp's.

use std::sync::atomic::Ordering;

use http::Method;
use tokio::io::AsyncWriteExt;

use crate::target::Target;
use crate::wire::NoAnswer;
use crate::world::request;

/// A connection stayed open to the server behind, with the proxy's own rights, after a handshake that had failed
/// (CVE-2018-1002105; CVE-2026-2833 was the same in pingora: bytes passed before the 101).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_passes_unless_the_shard_switches_cve_2018_1002105_and_2026_2833() {
    let target = Target::start().await;
    let alice = target.world.user();
    for path in ["/clusters/root:org/api", "/clusters/root:nope/api", "/clusters/root:org/early"] {
        let connections = target.world.alpha.state.connections.load(Ordering::SeqCst);
        let mut attacker = target.http1(Some(&alice)).await;
        let upgrade = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
             GET /clusters/root/must-not-arrive HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\n\r\n"
        );
        let refused = attacker.ask(&upgrade).await.unwrap();
        assert_ne!(refused.code, 101);
        let _ = attacker
            .socket
            .write_all(b"GET /clusters/root/must-not-arrive HTTP/1.1\r\nX-Remote-User: root\r\n\r\n")
            .await;
        attacker.finish().await;
        while let Ok(answer) = attacker.answer(false).await {
            assert_ne!(answer.code, 101);
        }
        let opened = target.world.alpha.state.connections.load(Ordering::SeqCst) - connections;
        assert!(opened <= 1, "{opened} connections");
        for said in target.world.alpha.state.identities.lock().keys() {
            assert!(said.contains(&"x-remote-user: alice".to_owned()), "{said:?}");
        }
        target.world.alpha.state.identities.lock().clear();
        target.world.root.state.identities.lock().clear();
    }
}

/// A client that switches to HTTP/2 inside an upgraded connection could claim any identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_to_http_reaches_no_shard_h2c_smuggling() {
    let target = Target::start().await;
    for offers in [
        "Upgrade: h2c",
        "Upgrade: H2C",
        "Upgrade: h2",
        "Upgrade: HTTP/2.0",
        "Upgrade: TLS/1.3",
        "Upgrade: websocket, h2c",
        "Upgrade: h2c, websocket",
        "Upgrade: websocket\r\nUpgrade: h2c",
        "Upgrade: h2c/1",
    ] {
        let mut attacker = target.http1(None).await;
        let message = format!(
            "GET /clusters/root:org/api HTTP/1.1\r\nHost: localhost\r\n{offers}\r\nHTTP2-Settings: AAMAAABk\r\n\
             Connection: Upgrade, HTTP2-Settings\r\n\r\n"
        );
        let answer = attacker.ask(&message).await.unwrap();
        let echo = String::from_utf8_lossy(&answer.body).to_ascii_lowercase();
        assert!(!echo.contains("upgrade") && !echo.contains("http2-settings"), "{offers:?}: {echo}");
        assert!(answer.code == 400 || echo.contains("http/2.0"), "{offers:?}: {echo}");
    }
}

/// A proxy that follows redirects takes its own credentials to wherever a shard says (CVE-2020-8559, CVE-2022-3172).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_of_a_shard_are_not_followed_cve_2020_8559_and_2022_3172() {
    let target = Target::start().await;
    let honest = target.honest().await;
    for (method, path) in
        [(Method::GET, "/clusters/root:org/redirect"), (Method::POST, "/clusters/root:old/redirect")]
    {
        let answer = honest.send(request(method, path, &[], "")).await;
        assert_eq!(
            (answer.status, &answer.headers["location"]),
            (307, &"https://localhost:1/elsewhere".parse().unwrap())
        );
    }
    let mut upgrade = target.http1(Some(&target.world.user())).await;
    let message = "GET /clusters/root:org/redirect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(upgrade.ask(message).await.unwrap().code, 307);
}

/// No path, host or authority of a client says where a request goes (CVE-2022-3294, CVE-2020-8562).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shard_is_never_the_clients_choice_cve_2022_3294() {
    let target = Target::start().await;
    let root = target.world.root.address;
    for target_line in [
        format!("http://{root}/clusters/root:org/api"),
        format!("https://{root}/clusters/root:org/api"),
        format!("https://alice@{root}/clusters/root:org/api"),
        format!("/clusters/root:org/@{root}/api"),
        format!("//{root}/clusters/root:org/api"),
        "/clusters/root:org/..%2f..%2fclusters/root/api".to_owned(),
        "/clusters/root:org/%2e%2e/%2e%2e/clusters/root/api".to_owned(),
        "/clusters/root:org/clusters/root/api".to_owned(),
        "/clusters/root:org%2f..%2froot/api".to_owned(),
        "/clusters/root:org;/../root/api".to_owned(),
    ] {
        for host in ["localhost".to_owned(), root.to_string()] {
            let mut client = target.http1(None).await;
            let message = format!("GET {target_line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let answer = client.ask(&message).await.unwrap();
            let body = String::from_utf8_lossy(&answer.body);
            match answer.code {
                200 => assert!(
                    body.contains("\"shard\":\"alpha\"") && body.contains("/clusters/0rg0000000000001/"),
                    "{message:?}: {body}"
                ),
                code => assert!(matches!(code, 307 | 400 | 403 | 404), "{message:?}: {code}"),
            }
        }
    }
}

/// Labels that clients choose fill the memory (CVE-2020-8552).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_cannot_make_metrics_grow_cve_2020_8552() {
    let target = Target::start().await;
    let honest = target.honest().await;
    let metrics = async || {
        let operator = target.world.operator();
        let stream =
            crate::world::connect(target.address, &target.world.serving_ca, Some(&operator), b"h2").await;
        let text = crate::world::Http2::over(stream.unwrap()).await.get("/metrics").await.text;
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    let ask = async |number: usize| {
        let method = Method::from_bytes(format!("METHOD{number}").as_bytes()).unwrap();
        let path = format!("/clusters/root:w{number}/api/x{number}");
        honest.send(request(method.clone(), &path, &[], "")).await;
        honest.send(request(method, &format!("/clusters/root:org/{number}?x={number}"), &[], "")).await;
        honest.send(request(Method::GET, &format!("/{number}"), &[], "")).await;
    };
    ask(0).await;
    metrics().await;
    let before = metrics().await;
    for number in 1..100 {
        ask(number).await;
    }
    let after = metrics().await;
    // A code that was not seen before has its own histogram; hundreds of methods and paths have not.
    assert!(after < before + 100, "{before} lines of metrics, then {after}");
}

/// A scanner must not fill the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_handshakes_and_garbage_are_not_logged_as_warnings() {
    let target = Target::start().await;
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\xff\xff", &[0xff; 100], b"SSH-2.0-x\r\n", b""]
    {
        for _ in 0..20 {
            let mut stream = tokio::net::TcpStream::connect(target.address).await.unwrap();
            let _ = stream.write_all(garbage).await;
        }
    }
    for protocol in [&b"h2"[..], b"http/1.1"] {
        for garbage in [&b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..], b"\0\0\0", &[0xff; 100], b"GET\r\n\r\n"] {
            let stream =
                crate::world::connect(target.address, &target.world.serving_ca, None, protocol).await;
            let mut connection = crate::wire::RawHttp1::over(stream.unwrap());
            let _ = connection.socket.write_all(garbage).await;
            connection.finish().await;
            while !matches!(
                connection.answer(false).await,
                Err(NoAnswer::End | NoAnswer::Malformed(_) | NoAnswer::BrokenOff(_))
            ) {}
        }
    }
    target.at_rest().await;
    let news: Vec<_> = target
        .log
        .lock()
        .iter()
        .filter(|line| line.contains("ERROR") || line.contains("WARN"))
        .cloned()
        .collect();
    assert!(news.is_empty(), "{news:#?}");
}
