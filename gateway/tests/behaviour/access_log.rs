//! The access log: one line per request that is to be logged, without delaying requests when a disk is full or a reader is slow.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fairlead_config::{AccessLogConfig, GatewayConfig};
use http::Method;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::observability::metrics_with;
use crate::process::Gateway;
use crate::world::{Answer, Choices, Http2, ORG, SecondGateway, World, connect, eventually, request, until};

const PATH: &str = "/clusters/root:org/api";

/// Settings of an access log in the world's file `access.log`, with `more` added.
fn settings(world: &World, more: Value) -> AccessLogConfig {
    let mut settings = json!({"to": "file", "file": file(world)});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

fn file(world: &World) -> PathBuf {
    world.directory.path().join("access.log")
}

async fn logging(world: &World, more: Value) -> SecondGateway {
    let log = settings(world, more);
    let another = world.start_second_gateway(|config| config.access_log = log);
    another.gateway.ready().await;
    another
}

/// Waits until the file has `count` lines and returns them.
async fn lines(file: &Path, count: usize) -> Vec<Value> {
    let mut text = String::new();
    eventually(&format!("{} has {count} lines", file.display()), async || {
        text = fs::read_to_string(file).unwrap_or_default();
        // The last line may be incomplete.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text.lines().count() >= count
    })
    .await;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line of the request with this path.
fn about<'l>(lines: &'l [Value], path: &str) -> &'l Value {
    let mut found = lines.iter().filter(|line| line["path"] == path);
    let line = found.next().unwrap_or_else(|| panic!("no line for {path}: {lines:?}"));
    assert!(found.next().is_none(), "{path} twice: {lines:?}");
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_logged_in_one_line() {
    let world = World::new().await;
    let another = logging(&world, json!({})).await;
    let client = world.client_of(&another).await;
    // A shard's response over HTTP/2, and over HTTP/1.1 with a request body.
    let secrets = [("authorization", "Bearer s3cret"), ("impersonate-user", "bob \\\" eve")];
    let sent = client.send(request(Method::GET, &format!("{PATH}?access_token=s3cret"), &secrets, "")).await;
    assert_eq!(sent.status, 200);
    let user = world.user();
    let stream = connect(another.address, &world.serving_ca, Some(&user), b"http/1.1").await.unwrap();
    let (mut http1, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let post = request(Method::POST, "/clusters/root:org/things", &[("host", "localhost")], "a body");
    assert_eq!(Answer::of(http1.send_request(post).await.unwrap()).await.status, 200);
    // The gateway's own response.
    let unknown = client.get("/clusters/root:nope/api").await;
    assert_eq!(unknown.status, 403);
    // A watch, which is logged when it ends, and a tunnel.
    let watch = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
    let watch = client.open(watch).await.unwrap();
    until(&world.alpha.state.streams, |open| *open == 1).await;
    assert_eq!(lines(&file(&world), 3).await.len(), 3);
    drop(watch);
    let stream = connect(another.address, &world.serving_ca, Some(&user), b"http/1.1").await.unwrap();
    let (mut http1, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let upgrade = http::Request::get("/clusters/root:org/upgrade").header("host", "localhost");
    let upgrade = upgrade.header("connection", "Upgrade").header("upgrade", "websocket");
    let switched = http1.send_request(upgrade.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(switched.status(), 101);
    drop(hyper::upgrade::on(switched).await.unwrap());
    // Bytes that are not a request.
    let mut stream = connect(another.address, &world.serving_ca, None, b"http/1.1").await.unwrap();
    stream.write_all(b"no request \"\n\r\n\r\n").await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;

    let all = lines(&file(&world), 6).await;
    let get = about(&all, PATH);
    for (key, expected) in [
        ("listener", json!("internal")),
        ("client", json!("127.0.0.1")),
        ("protocol", json!("HTTP/2.0")),
        ("method", json!("GET")),
        ("class", json!("read")),
        ("code", json!(200)),
        ("user", json!("alice")),
        ("groups", json!(2)),
        ("impersonated", json!("bob \\\" eve")),
        ("workspace", json!("root:org")),
        ("cluster", json!(ORG)),
        ("shard", json!("alpha")),
        ("reason", Value::Null),
        ("requestBytes", json!(0)),
        ("responseBytes", json!(sent.text.len())),
    ] {
        assert_eq!(get[key], expected, "{key}: {get}");
    }
    let stages: BTreeSet<&str> = get["stages"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(stages, BTreeSet::from(["auth", "first_byte", "route", "total", "upstream_connect"]), "{get}");
    let time: jiff::Timestamp = get["time"].as_str().unwrap().parse().unwrap();
    assert!(time <= jiff::Timestamp::now());
    let text = fs::read_to_string(file(&world)).unwrap();
    assert!(!text.contains("s3cret"), "{text}");

    let post = about(&all, "/clusters/root:org/things");
    let logged = (&post["protocol"], &post["class"], &post["requestBytes"]);
    assert_eq!(logged, (&json!("HTTP/1.1"), &json!("write"), &json!(6)));
    let own = about(&all, "/clusters/root:nope/api");
    let logged = (&own["code"], &own["reason"], &own["shard"], &own["cluster"], &own["workspace"]);
    let expected =
        (&json!(403), &json!("unknown_workspace"), &Value::Null, &Value::Null, &json!("root:nope"));
    assert_eq!(logged, expected, "{own}");
    assert_eq!(own["auditID"], unknown.headers["audit-id"].to_str().unwrap());
    assert_eq!(own["responseBytes"], unknown.text.len());
    assert_eq!(about(&all, "/clusters/root:org/api/v1/stream")["class"], "watch");
    let tunnel = about(&all, "/clusters/root:org/upgrade");
    assert_eq!((&tunnel["class"], &tunnel["shard"]), (&json!("upgrade"), &json!("alpha")));
    let odd = all.iter().find(|line| line["path"].is_null()).unwrap();
    assert_eq!((&odd["code"], &odd["reason"]), (&json!(400), &json!("bad_request")), "{odd}");
    another.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_omits_fast_successful_requests() {
    let world = World::new().await;
    let another = logging(&world, json!({"sample": 0, "slowThreshold": "1h"})).await;
    let client = world.client_of(&another).await;
    for _ in 0..50 {
        assert_eq!(client.get(PATH).await.status, 200);
    }
    assert_eq!(client.get("/clusters/root:nope/api").await.status, 403);
    another.end().await;
    let all = lines(&file(&world), 1).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["code"], 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_lost_while_files_are_rotated() {
    const REQUESTS: usize = 2000;
    let world = World::new().await;
    let another = logging(&world, json!({"maxSize": "64KiB", "maxFiles": 100})).await;
    let clients = [world.client_of(&another).await, world.client_of(&another).await];
    let asked = (0..4).map(|part: usize| {
        let client = clients[part % 2].clone();
        tokio::spawn(async move {
            for number in (part..REQUESTS).step_by(4) {
                assert_eq!(client.get(&format!("/clusters/root:org/{number}")).await.status, 200);
            }
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    another.end().await;
    let (mut paths, mut files) = (BTreeSet::new(), 0);
    for entry in fs::read_dir(world.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("access.log") {
            continue;
        }
        files += 1;
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() <= 64 << 10, "{} has {} bytes", path.display(), text.len());
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(paths.insert(line["path"].as_str().unwrap().to_owned()), "twice: {line}");
        }
    }
    assert!(files > 5, "{files}");
    assert_eq!(paths.len(), REQUESTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_full_disk_nor_a_slow_reader_delays_requests() {
    // More lines than a pipe, the buffer and a batch hold together.
    const REQUESTS: usize = 1000;
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let pipe = world.directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    world.config.access_log = settings(&world, json!({"file": pipe, "buffer": "64KiB"}));
    world.start().await;
    let client = world.http2(Some(&world.user())).await;
    for _ in 0..REQUESTS {
        assert_eq!(client.get(PATH).await.status, 200);
    }
    let name = "fairlead_gateway_access_log_lines_total";
    let text = metrics_with(&world, &[]).await;
    let dropped = format!("{name}{{result=\"dropped\"}} ");
    let dropped = text.lines().find_map(|line| line.strip_prefix(&dropped)).unwrap();
    assert!(dropped.parse::<u64>().unwrap() > 0, "{text}");

    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    world.config.access_log = settings(&world, json!({"file": "/dev/full", "sample": 0}));
    world.start().await;
    let client = world.http2(Some(&world.user())).await;
    assert_eq!(client.get("/clusters/root:nope/api").await.status, 403);
    assert_eq!(client.get(PATH).await.status, 200);
    metrics_with(&world, &[&format!("{name}{{result=\"failed\"}} 1\n")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_reopens_its_log_and_applies_new_settings() {
    let world = World::new().await;
    let yaml = world.directory.path().join("gateway.yaml");
    // JSON is YAML.
    let write = |config: &GatewayConfig| fs::write(&yaml, serde_json::to_string(config).unwrap()).unwrap();
    let mut config = world.config.clone();
    config.access_log = settings(&world, json!({}));
    write(&config);
    let mut gateway = Gateway::start(&yaml);
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let user = world.user();
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    let get =
        async |path: &str| assert_eq!(client.get(&format!("/clusters/root:org/{path}")).await.status, 200);
    get("first").await;
    lines(&file(&world), 1).await;

    // Renames the file as logrotate does.
    let moved = world.directory.path().join("moved.log");
    fs::rename(file(&world), &moved).unwrap();
    gateway.signal(Signal::USR1);
    gateway.says("reopened").await;
    get("second").await;
    let paths = |all: &[Value]| all.iter().map(|line| line["path"].clone()).collect::<Vec<_>>();
    assert_eq!(paths(&lines(&file(&world), 1).await), ["/clusters/root:org/second"]);
    assert_eq!(paths(&lines(&moved, 1).await), ["/clusters/root:org/first"]);

    // New settings apply from the next request on. If the new file cannot be opened, none of the new settings apply.
    let nowhere = world.directory.path().join("none/access.log");
    config.access_log = settings(&world, json!({"file": nowhere}));
    write(&config);
    gateway.signal(Signal::HUP);
    gateway.says("the last good value stays in effect").await;
    get("third").await;
    lines(&file(&world), 2).await;
    let other = world.directory.path().join("other.log");
    config.access_log = settings(&world, json!({"file": other}));
    write(&config);
    gateway.signal(Signal::HUP);
    // Waits for the message, because the file exists before the new settings apply.
    gateway.says("reloaded").await;
    get("fourth").await;
    assert_eq!(paths(&lines(&other, 1).await), ["/clusters/root:org/fourth"]);
    gateway.signal(Signal::TERM);
    assert!(gateway.child.wait().await.unwrap().success());
}
