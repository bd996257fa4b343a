//! HTTP/1 clients, byte by byte: malformed requests, pipelining, and older clients.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::world::{World, request};

/// Timeout that turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// Sends `text` and returns everything that the gateway sends until it closes the connection.
async fn conversation(world: &World, text: &[u8]) -> String {
    let mut stream = world.connect(Some(&world.user()), b"http/1.1").await;
    stream.write_all(text).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(read.is_ok(), "the connection stays open: {}: {answer}", text.escape_ascii());
    answer
}

/// The status code and the body of the last response.
fn last(answer: &str) -> (u16, &str) {
    let is_code = |rest: &str| rest.starts_with(|digit: char| digit.is_ascii_digit());
    let heads = answer.match_indices("HTTP/1.1 ").filter(|(at, name)| is_code(&answer[at + name.len()..]));
    let head = heads.last().unwrap_or_else(|| panic!("no answer: {answer:?}")).0;
    let code = answer[head + 9..head + 12].parse().unwrap();
    (code, answer[head..].split_once("\r\n\r\n").unwrap().1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_request_gets_an_error_and_the_bytes_after_it_are_not_read() {
    let world = World::new().await;
    let get = "GET /clusters/root/api HTTP/1.1\r\n";
    let post = "POST /clusters/root/api HTTP/1.1\r\nHost: a\r\n";
    let smuggled = "GET /clusters/root/smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let many = "a: b\r\n".repeat(600);
    let long = format!("a: {}\r\n", "b".repeat(80 << 10));
    for (message, code) in [
        ("no request\r\n\r\n".to_owned(), 400),
        ("GET /\r\n\r\n".to_owned(), 400),
        ("G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400),
        ("GET /clusters/root/\x01 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET /clusters/root/\x7f HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), 400),
        (format!("{get}Host: a\r\nX-Remote-User : root\r\n\r\n{smuggled}"), 400),
        (format!("{get}Host: a\r\nA: b\r\n folded\r\n\r\n{smuggled}"), 400),
        (format!("{get}Host: a\r\nA: b\0c\r\n\r\n{smuggled}"), 400),
        (format!("{get}Host: a\r\nA: b\x02c\r\n\r\n{smuggled}"), 400),
        (format!("{post}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc{smuggled}"), 400),
        (format!("{post}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc{smuggled}"), 400),
        (format!("{post}Content-Length: 3, 3\r\n\r\nabc{smuggled}"), 400),
        (format!("{post}Content-Length: -3\r\n\r\n{smuggled}"), 400),
        (format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"), 400),
        (format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"), 400),
        (format!("{post}Transfer-Encoding: identity\r\n\r\n{smuggled}"), 400),
        (
            format!(
                "{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
            400,
        ),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{smuggled}"), 400),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabcde\r\n{smuggled}"), 400),
        (format!("{get}\r\n{smuggled}"), 400),
        (format!("{get}Host:\r\n\r\n{smuggled}"), 400),
        (format!("{get}Host: a\r\nHost: b\r\n\r\n{smuggled}"), 400),
        (format!("{get}Host: u@a\r\n\r\n{smuggled}"), 400),
        (format!("GET http://a/api HTTP/1.1\r\nHost: b\r\n\r\n{smuggled}"), 400),
        (format!("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n{smuggled}"), 405),
        (format!("{get}{many}\r\n"), 431),
        (format!("{get}{long}\r\n"), 431),
    ] {
        let answer = conversation(&world, message.as_bytes()).await;
        let message = &message[..message.len().min(200)];
        let answers = answer.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count();
        assert_eq!(answers, 1, "{message:?}: {answer}");
        let (got, body) = last(&answer);
        let status: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{message:?}: {answer}"));
        assert_eq!((got, status["kind"].as_str()), (code, Some("Status")), "{message:?}");
        let head = answer.to_ascii_lowercase();
        for field in ["audit-id: ", "connection: close\r\n", "content-type: application/json\r\n", "date: "] {
            assert!(head.contains(field), "{message:?}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_well_framed_requests_do_not_close_the_connection() {
    let world = World::new().await;
    let good = "GET /clusters/root:org/api HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (first, code) in [
        ("GET /clusters/root:org/%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /clusters/root:nope/api HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("POST /clusters/root:nope/api HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 403),
        ("POST /clusters/root:org/early HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413),
        ("HEAD /clusters/root:nope/api HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("GET http://a/clusters/root:org/api HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("\r\n\r\nGET /clusters/root:org/api HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    ] {
        let answer = conversation(&world, format!("{first}{good}").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{first:?}: {answer}");
        let (code, echo) = last(&answer);
        assert_eq!(code, 200, "{first:?}: {answer}");
        assert!(echo.contains("\"shard\":\"alpha\""), "{first:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::new().await;
    let mut text = String::new();
    for number in 0..20 {
        text += &match number % 3 {
            0 => format!("GET /clusters/root:org/{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
            1 => format!(
                "POST /clusters/root:org/{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
            ),
            _ => format!(
                "PUT /clusters/root:org/{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
            ),
        };
    }
    text += "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = conversation(&world, text.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 21, "{answer}");
    let mut rest = answer.as_str();
    for number in 0..20 {
        let path = format!("/clusters/0rg0000000000001/{number}\"");
        let at = rest.find(&path).unwrap_or_else(|| panic!("{number} is missing or late: {rest}"));
        rest = &rest[at..];
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_clients_get_no_chunked_responses() {
    let world = World::new().await;
    let answer = conversation(&world, b"GET /clusters/root:org/trailers HTTP/1.0\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("transfer-encoding"), "{answer}");
    let twice = "GET /clusters/root:org/kib HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
                 GET /livez HTTP/1.0\r\n\r\n";
    let answer = conversation(&world, twice.as_bytes()).await;
    assert!(answer.contains("connection: keep-alive\r\n"), "{answer}");
    assert_eq!(last(&answer), (200, "ok"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_targets_with_unescaped_characters_are_accepted() {
    let world = World::new().await;
    for (target, arrived) in [
        ("/clusters/root:org/x?a=>b", "/clusters/0rg0000000000001/x?a=%3Eb"),
        ("/clusters/root:org/x?a=\"<`{|}^", "/clusters/0rg0000000000001/x?a=%22%3C%60{|}^"),
        ("/clusters/root:org/x?a=b;c&d='e'", "/clusters/0rg0000000000001/x?a=b;c&d='e'"),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = conversation(&world, text.as_bytes()).await;
        let echo: Value = serde_json::from_str(last(&answer).1).unwrap();
        let path = echo["path"].as_str().unwrap();
        let plain = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        assert_eq!(plain(path), plain(arrived), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_are_forwarded_without_identity_headers() {
    let world = World::new().await;
    let text = "POST /clusters/root:org/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                3\r\nabc\r\n0\r\nChecksum: 9\r\nX-Remote-User: root\r\nContent-Length: 5\r\nImpersonate_User: root\r\n\
                X-Forwarded-For: 10.0.0.1\r\nX_Real_IP: 10.0.0.1\r\nClient-Cert: :MIIB:\r\n\r\n";
    let answer = conversation(&world, text.as_bytes()).await;
    let echo: Value = serde_json::from_str(last(&answer).1).unwrap();
    assert_eq!((&echo["body"], &echo["trailers"]), (&"abc".into(), &serde_json::json!(["checksum: 9"])));

    let (mut client, connection) =
        h2::client::handshake(world.connect(Some(&world.user()), b"h2").await).await.unwrap();
    tokio::spawn(connection);
    let post = request(Method::POST, "/clusters/root:org/x", &[], "").map(|_| ());
    let (answer, mut body) = client.send_request(post, false).unwrap();
    body.send_data("abc".into(), false).unwrap();
    let fields = [
        ("checksum", "9"),
        ("x-remote-user", "root"),
        ("impersonate_user", "root"),
        ("impersonate-group", "root"),
        ("x-forwarded-for", "10.0.0.1"),
        ("true-client-ip", "10.0.0.1"),
    ];
    let name = |name: &str| http::HeaderName::try_from(name).unwrap();
    body.send_trailers(fields.iter().map(|(key, value)| (name(key), value.parse().unwrap())).collect())
        .unwrap();
    let mut answer = timeout(LIMIT, answer).await.unwrap().unwrap().into_body();
    let mut echo = Vec::new();
    while let Some(chunk) = timeout(LIMIT, answer.data()).await.unwrap() {
        echo.extend_from_slice(&chunk.unwrap());
    }
    let echo: Value = serde_json::from_slice(&echo).unwrap();
    assert_eq!((&echo["body"], &echo["trailers"]), (&"abc".into(), &serde_json::json!(["checksum: 9"])));

    let mut http1 = world.http1(Some(&world.user())).await;
    let get =
        request(Method::GET, "/clusters/root:org/trailers", &[("host", "localhost"), ("te", "trailers")], "");
    let collected = http1.send_request(get).await.unwrap().into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap();
    assert_eq!((trailers.len(), collected.to_bytes().as_ref()), (1, &b"abc"[..]));
}

/// CVE-2018-1002105 of Kubernetes, CVE-2026-2833 of pingora.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_passes_to_a_shard_that_has_not_switched_protocols() {
    let world = World::new().await;
    let text = "GET /clusters/root:org/api HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
                GET /clusters/root:org/second HTTP/1.1\r\nHost: a\r\nX-Remote-User: root\r\nConnection: close\r\n\r\n";
    let answer = conversation(&world, text.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    let echo: Value = serde_json::from_str(last(&answer).1).unwrap();
    assert_eq!(echo["path"], "/clusters/0rg0000000000001/second");
    let user = |line: &&Value| line.as_str().unwrap().starts_with("x-remote-user");
    let users: Vec<_> = echo["headers"].as_array().unwrap().iter().filter(user).collect();
    assert_eq!(users, ["x-remote-user: alice"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_requests_name_one_authority() {
    let world = World::new().await;
    let client = world.http2(Some(&world.user())).await;
    for (headers, code) in [
        (&[][..], 200),
        (&[("host", "localhost")], 200),
        (&[("host", "elsewhere")], 400),
        (&[("host", "u@localhost")], 400),
    ] {
        let answer = client.send(request(Method::GET, "/clusters/root:org/api", headers, "")).await;
        assert_eq!(answer.status, code, "{headers:?}");
        if code == 400 {
            assert_eq!(answer.json()["kind"], "Status");
            assert_eq!(answer.headers["audit-id"].len(), 36);
        }
    }
}
