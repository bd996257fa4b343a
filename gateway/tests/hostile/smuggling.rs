//! Messages that two readers could take for different things: one request for one reader, two for another.

use http::Method;

use crate::frames::{DATA, END_STREAM, End, block, frame, headers};
use crate::generate::framing::NEVER;
use crate::target::Target;
use crate::wire::NoAnswer;
use crate::world::request;

const HIDDEN: &str =
    "GET /clusters/root:org/must-not-arrive HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\n\r\n";

/// Sends the messages with a valid certificate, each on a connection of its own: no part of them may reach a shard, and a response
/// must be 400.
async fn are_refused(messages: &[String]) {
    let mut target = Target::start().await;
    let alice = target.world.user();
    for message in messages {
        let mut connection = target.http1(Some(&alice)).await;
        match connection.ask(message).await {
            Ok(answer) => {
                assert_eq!(answer.code, 400, "{message:?}: {answer:?}");
                let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"BadRequest".into()));
                connection.finish().await;
                let more = connection.answer(false).await;
                assert!(matches!(more, Err(NoAnswer::End)), "{message:?}: {more:?}");
            }
            Err(NoAnswer::End) => {}
            Err(other) => panic!("{message:?}: {other:?}"),
        }
    }
    // Looks for the path of these messages.
    assert_eq!(target.forget().requests, 0, "something has arrived");
    assert!(target.gateway.child.try_wait().unwrap().is_none());
}

fn post(lines: &str, body: &str) -> String {
    format!("POST {NEVER} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n{body}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cl_te_and_te_cl() {
    let chunks = format!("0\r\n\r\n{HIDDEN}");
    are_refused(&[
        post("Content-Length: 5\r\nTransfer-Encoding: chunked", &chunks),
        post("Transfer-Encoding: chunked\r\nContent-Length: 200", &chunks),
        post("Content-Length: 0\r\nTransfer-Encoding: Chunked", &chunks),
        post("content-LENGTH: 5\r\nX: y\r\ntransfer-encoding: chunked", &chunks),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn te_te() {
    let chunks = format!("0\r\n\r\n{HIDDEN}");
    let encodings = [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding:\u{b}chunked",
        "Transfer-Encoding: \u{0}chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;a=b",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: chunked\rX: y",
    ];
    let messages: Vec<String> = encodings.iter().map(|lines| post(lines, &chunks)).collect();
    are_refused(&messages).await;
}

/// CVE-2021-40346 and CVE-2023-40225 were lengths that a proxy and a server read differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradicting_and_odd_lengths_cve_2021_40346_and_2023_40225() {
    let mut messages: Vec<String> = [
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 18446744073709551621",
        "Content-Length: 99999999999999999999999999999999999",
        "Content-Length: ",
        "Content-Length:",
        "Content-Length: \u{ff15}",
        "Content-Length : 5",
    ]
    .iter()
    .map(|lines| post(lines, HIDDEN))
    .collect();
    // A name so long that its length overflows.
    messages.push(post(&format!("Content-Length{}: 5\r\nContent-Length: 6, 7", "0".repeat(270)), HIDDEN));
    are_refused(&messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_with_chunks_cve_2026_2835() {
    are_refused(&[
        format!("POST {NEVER} HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"),
        format!("POST {NEVER} HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n\r\n{HIDDEN}"),
        format!(
            "POST {NEVER} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_request_lines_and_header_names() {
    let head = |text: &str| text.replace("NEVER", NEVER);
    are_refused(
        &[
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nX-Remote-User : root\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nX: a\r\n X-Remote-User: root\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nX: a\u{0}b\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nn\u{e4}me: x\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: localhost\r\nna me: x\r\n\r\n",
            "GET NEVER HTTP/1.1\r\n Host: localhost\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET NEVER HTTP/1.1\r\nHost: user@a\r\n\r\n",
            "GET NEVER HTTP/1.1\r\n\r\n",
            "GET NEVER HTTP/2.0\r\nHost: a\r\n\r\n",
            "GET NEVER HTTP/1.1 x\r\nHost: a\r\n\r\n",
            "GET NEVER  HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET NEVER x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET NEVER HTTP/1.1\nHost: a\n\n",
            "G\u{e4}T NEVER HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
        .map(head),
    )
    .await;
}

/// The unread rest of a body is not the next request (CVE-2025-4366).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_requests_that_are_not_forwarded_cve_2025_4366() {
    let target = Target::start().await;
    for (method, path) in [
        ("POST", "/clusters/root:nope/api"),
        ("POST", "/readyz"),
        ("GET", "/readyz"),
        ("POST", "/clusters/root//api"),
        ("POST", "/clusters/root/%00"),
        ("GET", "/clusters/root:org/api"),
        ("POST", "/clusters/root:org/early"),
    ] {
        for lines in [format!("Content-Length: {}", HIDDEN.len()), "Transfer-Encoding: chunked".to_owned()] {
            let body = if lines.starts_with('T') {
                format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len())
            } else {
                HIDDEN.to_owned()
            };
            let mut connection = target.http1(None).await;
            let message = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n{body}");
            connection.ask(&message).await.unwrap_or_else(|end| panic!("{message:?}: {end:?}"));
            connection.finish().await;
            let more = connection.answer(false).await;
            assert!(matches!(more, Err(NoAnswer::End)), "{message:?}: {more:?}");
        }
    }
    target.forget();
}

/// A request in the shadow of another one is a request like any other: judged, stripped and stamped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipelined_request_is_authenticated_by_itself() {
    let target = Target::start().await;
    let mut connection = target.http1(Some(&target.world.user())).await;
    let first = "GET /clusters/root:org/api HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let second = "GET /clusters/root:org/x HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\nConnection: close\r\n\r\n";
    connection.ask(&format!("{first}{second}")).await.unwrap();
    let _ = connection.answer(false).await;
    for said in target.forget().identities.keys() {
        assert!(said.contains(&"x-remote-user: alice".to_owned()), "{said:?}");
    }
}

/// A value in HTTP/2 must not become lines for a shard that speaks HTTP/1.1 (CVE-2026-42926).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downgrades_from_http2_cve_2026_42926() {
    let target = Target::start().await;
    let path = &b"/clusters/root:old/api"[..];
    let cases: [(&[u8], &[u8], &[u8]); 12] = [
        (b"x", b"a\r\nX-Remote-User: root", b""),
        (b"x", b"a\nX-Remote-User: root", b""),
        (b"x", b"a\0b", b""),
        (b"x\r\nx-remote-user", b"root", b""),
        (b"x: y\r\nx-remote-user", b"root", b""),
        (b"x-remote-user ", b"root", b""),
        (b"transfer-encoding", b"chunked", b"0\r\n\r\nGET /hidden"),
        (b"content-length", b"3", b"abcGET /hidden"),
        (b"content-length", b"30", b"abc"),
        (b"connection", b"x-remote-user", b""),
        (b"host", b"evil.example", b""),
        (b"X-Remote-User", b"root", b""),
    ];
    let pseudo_cases: [[&[u8]; 4]; 5] = [
        [b"POST / HTTP/1.1\r\nX-Remote-User: root\r\nX: y", b"https", b"localhost", path],
        [b"POST", b"https", b"localhost", b"/clusters/root:old/api HTTP/1.1\r\nX-Remote-User: root\r\nX: y"],
        [b"POST", b"https", b"localhost\r\nX-Remote-User: root", path],
        [b"POST", b"https", b"localhost", b"http://evil.example/clusters/root:old/api"],
        [b"POST", b"https", b"", path],
    ];
    let mut heads = Vec::new();
    for (name, value, body) in cases {
        let fields = [
            (&b":method"[..], &b"POST"[..]),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", path),
        ];
        heads.push((block(fields.into_iter().chain([(name, value)])), body));
    }
    for [method, scheme, authority, path] in pseudo_cases {
        let fields =
            [(&b":method"[..], method), (b":scheme", scheme), (b":authority", authority), (b":path", path)];
        heads.push((block(fields), &b""[..]));
    }
    for (head, body) in heads {
        let mut connection = target.http2(None).await;
        let stream = connection.open();
        let bytes = [headers(stream, 0, &head), frame(DATA, END_STREAM, stream, body)].concat();
        connection.write(&bytes).await;
        let ends = connection.settle(&[stream]).await.unwrap();
        let refused = matches!(ends[0], End::Reset(_) | End::Gone | End::Answered(400));
        assert!(refused, "{:?} to {}", ends[0], head.escape_ascii());
    }
    let arrived = target.forget();
    assert!(arrived.identities.keys().all(Vec::is_empty), "{:?}", arrived.identities);
    assert_eq!(
        target.honest().await.send(request(Method::GET, "/clusters/root:old/api", &[], "")).await.status,
        200
    );
}
