//! The recordings of a real kcp-front-proxy, asked again: what it answered itself must come out the same, what it
//! forwarded must reach a shard. Differences are listed with their reasons, and a listed one that does not occur is a
//! fault, too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::mapping::Mapped;
use crate::pki::Leaf;
use crate::world::{World, eventually};

/// What differs on purpose: method and target of the requests, or their beginning with `*` at the end, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "GET /e2e/clusters/root/x",
        "a backend that cannot be reached is a 503 Status, after which clients try again",
    ),
    ("GET /readyz?verbose", "there are more checks than kcp's one"),
    ("GET /readyz?exclude=informer-sync&verbose", "there are more checks than kcp's one"),
    ("GET /readyz/informer-sync", "X-Content-Type-Options is on all plain answers"),
    ("GET /livez/ping", "X-Content-Type-Options is on all plain answers"),
    ("GET /metrics", "the text format's name has no word on escaping"),
];

/// One recorded exchange.
struct Exchange {
    sequence: u64,
    identity: String,
    method: String,
    target: String,
    head: String,
    body: String,
    answer: Told,
    forwarded: bool,
}

/// What counts of an answer.
#[derive(Debug, Default, Eq, PartialEq)]
struct Told {
    status: u16,
    fields: BTreeMap<String, String>,
    body: String,
}

const COMPARED: [&str; 4] = ["content-type", "x-content-type-options", "location", "retry-after"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_of_the_front_proxy_come_out_the_same() {
    let file = "../../shared/golden/transcripts/h-front-proxy.jsonl";
    let Ok(text) = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)) else {
        return eprintln!("skipped: there are no recordings here");
    };
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
    // Anything else that is missing is missing for good once a watch is open.
    eventually("the workspace is refused", async || {
        world.get(Some(&user), "/clusters/root:nope/x").await.status == 403
    })
    .await;

    let (mut equal, mut forwarded) = (0, 0);
    let mut expected: BTreeMap<&str, usize> = DIFFERENCES.iter().map(|(what, _)| (*what, 0)).collect();
    let mut faults = String::new();
    for exchange in text.lines().filter_map(Exchange::parse) {
        let told = exchange.repeat(world).await;
        let what = format!("{} {}", exchange.method, exchange.target);
        if exchange.forwarded {
            let reached = told.status == 200 && told.body.contains("\"shard\"") || exchange.method == "HEAD";
            forwarded += usize::from(reached);
            if !reached {
                let _ = writeln!(faults, "{} {what}: {told:?} reached no shard", exchange.sequence);
            }
        } else if told == exchange.answer {
            equal += 1;
        } else if let Some(count) = expected.get_mut(what.as_str()) {
            *count += 1;
        } else {
            let (number, then) = (exchange.sequence, &exchange.answer);
            let _ = writeln!(
                faults,
                "{number} {what} ({}):\n  then {then:?}\n  now  {told:?}",
                exchange.identity
            );
        }
    }
    println!(
        "{equal} equal, {forwarded} forwarded, {} different on purpose",
        expected.values().sum::<usize>()
    );
    let idle: Vec<_> = expected.iter().filter(|(_, count)| **count == 0).collect();
    assert!(faults.is_empty(), "{faults}");
    assert!(idle.is_empty(), "listed as different, but equal: {idle:?}");
    assert!(equal > 250 && forwarded > 100, "{equal} equal, {forwarded} forwarded");
}

impl Exchange {
    fn parse(line: &str) -> Option<Self> {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["kind"] != "http" || record["upstream"] != "front-proxy" {
            return None;
        }
        let (request, response) = (&record["request"], &record["response"]);
        let fields = |value: &Value| -> Vec<(String, String)> {
            let pairs = value["headers"].as_array().unwrap().iter();
            pairs.map(|pair| (text(&pair[0]).to_ascii_lowercase(), text(&pair[1]))).collect()
        };
        let mut head = String::new();
        for (name, value) in fields(request) {
            if !matches!(name.as_str(), "host" | "content-length" | "connection") {
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        let answered = fields(response);
        let method = text(&request["method"]);
        Some(Self {
            sequence: record["seq"].as_u64().unwrap(),
            identity: text(&record["identity"]),
            target: text(&request["url"]),
            head,
            body: text(&request["body"]),
            forwarded: answered.iter().any(|(name, _)| name == "audit-id"),
            answer: Told {
                status: u16::try_from(response["status"].as_u64().unwrap()).unwrap(),
                fields: answered.into_iter().filter(|(name, _)| COMPARED.contains(&name.as_str())).collect(),
                body: if method == "HEAD" { String::new() } else { text(&response["body"]) },
            },
            method,
        })
    }

    async fn repeat(&self, world: &World) -> Told {
        let certificate: Option<Leaf> = match self.identity.as_str() {
            "kcp-admin client certificate" => Some(world.operator()),
            other if other.starts_with("self-signed") => {
                Some(world.serving_ca.client("evil", &["system:masters"]))
            }
            _ => None,
        };
        let mut stream = world.connect(certificate.as_ref(), b"http/1.1").await;
        let Self { method, target, head, body, .. } = self;
        let length = match body.len() {
            0 => String::new(),
            length => format!("content-length: {length}\r\n"),
        };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}{length}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Without a close_notify the end is an error; what counts is what came before.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Told {
            status: status.unwrap_or_default(),
            fields: fields.filter(|(name, _)| COMPARED.contains(&name.as_str())).collect(),
            body: body.to_owned(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
