//! Measures the server without sockets: the time of a GET, of a LIST of 500 objects and of a watch event by the number of
//! watches, and the memory of an idle watch.
//!
//! `cargo run --release -p fairlead-apiserver --example read_path`
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark")]

#[path = "../tests/behaviours/host.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod host;
#[path = "../tests/behaviours/stores.rs"]
#[allow(dead_code, reason = "part of the tests' store")]
mod stores;

use std::time::Instant;

use bytes::Bytes;
use fairlead_apiserver::hub::HubOptions;
use fairlead_apiserver::{Response, ResponseBody};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use host::{TestServerParts, assemble};

const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/clusters/root/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=";
const IDLE: &str = "/clusters/idle/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = assemble(HubOptions::default(), &|_| Vec::new());
        fill(&server).await;
        let one = format!("{CONFIG_MAPS}/n250");
        let list = format!("{CONFIG_MAPS}?limit=500");
        let report = |name: &str, micros: f64| println!("{name:<44} {micros:>10.2} µs");
        report("GET of 1 KiB", repeated(&server, &one, 200_000).await);
        report("GET of nothing (404)", repeated(&server, &format!("{one}x"), 200_000).await);
        report("LIST of 500 of 1 KiB", repeated(&server, &list, 500).await);
        report("LIST of 500, compressed", repeated(&server, &format!("{list}&packed"), 500).await);
        report(
            "LIST by label, 5 of 500",
            repeated(&server, &format!("{CONFIG_MAPS}?labelSelector=tens%3D7"), 500).await,
        );
        report("GET /apis", repeated(&server, "/clusters/root/apis", 100_000).await);
        report("GET /openapi/v3", repeated(&server, "/clusters/root/openapi/v3", 100_000).await);
        for watchers in [1, 100, 1_000] {
            let micros = events(&server, watchers).await;
            report(&format!("event to {watchers} watchers, each"), micros / watchers as f64);
        }
        println!("{:<44} {:>10} bytes", "an idle watch", idle_watch(&server).await);
    });
}

async fn fill(server: &TestServerParts) {
    let namespace = json!({"metadata": {"name": "default"}});
    assert_eq!(
        send(server, "POST", "/clusters/root/api/v1/namespaces", namespace.to_string()).await.status(),
        201
    );
    for number in 0..500 {
        let body = json!({
            "metadata": {"name": format!("n{number}"), "labels": {"tens": (number / 5).to_string(), "app": "web"}},
            "data": {"text": "x".repeat(700)},
        });
        assert_eq!(send(server, "POST", CONFIG_MAPS, body.to_string()).await.status(), 201);
    }
}

async fn send(server: &TestServerParts, method: &str, uri: &str, body: String) -> Response {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("accept", "application/json")
        .header("user-agent", "kubectl/v1.32.4 (linux/amd64) kubernetes/4cb5f07")
        .header("accept-encoding", if uri.contains("packed") { "gzip" } else { "identity" });
    server.api.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await
}

/// Mean microseconds per request, including the cost of the client.
async fn repeated(server: &TestServerParts, uri: &str, times: u32) -> f64 {
    for _ in 0..times / 10 + 1 {
        send(server, "GET", uri, String::new()).await;
    }
    let started = Instant::now();
    for _ in 0..times {
        send(server, "GET", uri, String::new()).await;
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(times)
}

/// Microseconds from the hub to the bodies of all watchers for one event.
async fn events(server: &TestServerParts, watchers: usize) -> f64 {
    const EVENTS: usize = 200;
    let from = server.store.revision();
    let mut bodies = Vec::new();
    for _ in 0..watchers {
        bodies.push(send(server, "GET", &format!("{WATCH}{from}"), String::new()).await.into_body());
    }
    for number in 0..EVENTS {
        let body = json!({"data": {"text": "x".repeat(700), "at": number.to_string()}}).to_string();
        let request = Request::builder().method("PATCH").uri(format!("{CONFIG_MAPS}/n1"));
        let request = request.header("content-type", "application/merge-patch+json");
        server.api.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await;
    }
    server.hub.wait(server.store.revision()).await.unwrap();
    let started = Instant::now();
    for body in &mut bodies {
        let mut seen = 0;
        while seen < EVENTS {
            let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
            seen += chunk.iter().filter(|byte| **byte == b'\n').count();
        }
    }
    started.elapsed().as_secs_f64() * 1e6 / EVENTS as f64
}

/// Bytes of resident memory per idle watch.
async fn idle_watch(server: &TestServerParts) -> usize {
    const WATCHES: usize = 20_000;
    let from = server.store.revision();
    let mut bodies: Vec<ResponseBody> = Vec::with_capacity(WATCHES);
    let before = resident();
    for _ in 0..WATCHES {
        bodies.push(send(server, "GET", &format!("{IDLE}{from}"), String::new()).await.into_body());
    }
    // No event has arrived yet, but a body that was polled holds a waker.
    for body in &mut bodies {
        assert!(futures_util::FutureExt::now_or_never(body.frame()).is_none());
    }
    resident().saturating_sub(before) / WATCHES
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4096
}
