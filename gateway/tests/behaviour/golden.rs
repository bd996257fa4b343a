//! Replays the recorded requests to a kcp-front-proxy (`tests/data/kcp`) against a gateway. The gateway's own responses
//! must equal the recorded ones; a request that the front proxy forwarded must reach a shard. Differences are listed with
//! their reasons. A listed difference that does not occur fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fairlead_tests::recordings::{Exchange, Recordings, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::mapping::Mapped;
use crate::pki::Leaf;
use crate::world::{World, eventually};

/// Deliberate differences: method and target of the request, and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "GET /e2e/clusters/root/x",
        "an unreachable backend is a 503 Status, after which clients retry; kcp sends 502 without a Status",
    ),
    ("GET /readyz?verbose", "the gateway has more checks than kcp's one"),
    ("GET /readyz?exclude=informer-sync&verbose", "the gateway has more checks than kcp's one"),
    ("GET /readyz/informer-sync", "all plain-text responses have X-Content-Type-Options"),
    ("GET /livez/ping", "all plain-text responses have X-Content-Type-Options"),
    ("GET /metrics", "the content type has no `escaping` parameter, because no name needs escaping"),
];

/// The compared parts of a response.
#[derive(Debug, Default, Eq, PartialEq)]
struct Compared {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

const COMPARED_HEADERS: [&str; 4] = ["content-type", "x-content-type-options", "location", "retry-after"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_equal_the_recorded_ones_of_kcp_front_proxy() {
    let exchanges = Recordings::of_the_repository().transcript("h-front-proxy").unwrap();
    let mapped = Mapped::new(|_| {
        vec![
            json!({"path": "/clusters/", "backend": "https://ignored.invalid"}),
            json!({"path": "/e2e/clusters/{cluster}/", "backend": "https://127.0.0.1:1"}),
        ]
    })
    .await;
    let world = &mapped.world;
    world.create_workspace("root", "team-a", "alpha", "teama00000000001");
    world.create_workspace("root", "org-1", "root", "org1000000000001");
    world.create_workspace("org1000000000001", "sub-1", "alpha", "sub1000000000001");
    let user = world.user();
    eventually("the workspace is served", async || {
        world.get(Some(&user), "/clusters/root:org-1:sub-1/x").await.status == 200
    })
    .await;
    // The index is complete once a watch is open; only then other missing workspaces are missing for good.
    eventually("the workspace is refused", async || {
        world.get(Some(&user), "/clusters/root:nope/x").await.status == 403
    })
    .await;

    let (mut equal, mut forwarded) = (0, 0);
    let mut expected: BTreeMap<&str, usize> = DIFFERENCES.iter().map(|(subject, _)| (*subject, 0)).collect();
    let mut faults = String::new();
    for exchange in &exchanges {
        let response = repeat(exchange, world).await;
        let (number, subject) = (exchange.seq, exchange.subject());
        let Some(recorded) = &exchange.response else {
            let reached =
                response.status == 200 && response.body.contains("\"shard\"") || exchange.method == "HEAD";
            forwarded += usize::from(reached);
            if !reached {
                let _ = writeln!(faults, "{number} {subject}: {response:?} reached no shard");
            }
            continue;
        };
        let recorded = compared(recorded);
        if response == recorded {
            equal += 1;
        } else if let Some(count) = expected.get_mut(subject.as_str()) {
            *count += 1;
        } else {
            let identity = &exchange.identity;
            let _ = writeln!(
                faults,
                "{number} {subject} ({identity}):\n  kcp  {recorded:?}\n  ours {response:?}"
            );
        }
    }
    let different: usize = expected.values().sum();
    println!("{equal} equal, {forwarded} forwarded, {different} deliberately different");
    let unused: Vec<_> = expected.iter().filter(|(_, count)| **count == 0).collect();
    assert!(faults.is_empty(), "{faults}");
    assert!(unused.is_empty(), "listed as different, but equal: {unused:?}");
    assert_eq!((equal, forwarded, different), (297, 122, 26), "the numbers of recorded requests");
}

fn compared(recorded: &Response) -> Compared {
    Compared {
        status: recorded.status,
        headers: recorded.headers.iter().cloned().collect(),
        body: String::from_utf8(recorded.body.to_bytes()).unwrap(),
    }
}

/// Sends the recorded request to the gateway.
async fn repeat(exchange: &Exchange, world: &World) -> Compared {
    let certificate: Option<Leaf> = match exchange.identity.as_str() {
        "kcp-admin client certificate" => Some(world.operator()),
        other if other.starts_with("self-signed") => {
            Some(world.serving_ca.client("evil", &["system:masters"]))
        }
        _ => None,
    };
    let mut stream = world.connect(certificate.as_ref(), b"http/1.1").await;
    let Exchange { method, url, headers, body, .. } = exchange;
    let mut head = format!("{method} {url} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let body = body.to_bytes();
    if !body.is_empty() {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", &body].concat()).await.unwrap();
    let mut response = Vec::new();
    // Without a close_notify the end of the stream is an error; the bytes before it are valid.
    let _ = stream.read_to_end(&mut response).await;
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Compared {
        status: status.unwrap_or_default(),
        headers: headers.filter(|(name, _)| COMPARED_HEADERS.contains(&name.as_str())).collect(),
        body: body.to_owned(),
    }
}
