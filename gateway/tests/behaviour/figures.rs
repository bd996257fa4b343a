//! Measurements for `make figures`, which are printed and not checked.

use std::sync::Arc;
use std::time::Instant;

use http::Method;

use crate::process::Gateway;
use crate::world::{Http2, World, connect, eventually, request, until};

const WATCH: &str = "/clusters/root:org/api/v1/stream?watch=true";

/// utime + stime in seconds and resident memory in KiB.
fn usage(pid: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    (ticks / 100.0, resident.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make figures"]
async fn cpu_per_request_and_memory_per_watch() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    std::fs::write(&file, serde_json::to_string(&world.config).unwrap()).unwrap();
    let mut gateway = Gateway::start(&file);
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let pid = gateway.pid();
    println!("empty: {} KiB", usage(pid).1);

    let user = Arc::new(world.user());
    let mut clients = Vec::new();
    for _ in 0..16 {
        let stream = connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap();
        clients.push(Http2::over(stream).await);
    }
    let rounds = 4000_usize;
    for (name, path) in
        [("warm up", "/clusters/root:org/kib"), ("GET 1 KiB by path", "/clusters/root:org/kib")]
    {
        let (before, _) = usage(pid);
        let began = Instant::now();
        let tasks = clients.iter().flat_map(|client| (0..8).map(move |_| client.clone())).map(|client| {
            tokio::spawn(async move {
                for _ in 0..rounds / 8 {
                    assert_eq!(client.get(path).await.status, 200);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let requests = (rounds / 8 * 8 * 16) as f64;
        let (after, _) = usage(pid);
        let rate = requests / began.elapsed().as_secs_f64();
        println!("{name}: {:.1} µs CPU per request, {rate:.0} requests/s", (after - before) * 1e6 / requests);
    }

    let (_, before) = usage(pid);
    let mut watches = Vec::new();
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let client =
            Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
        for _ in 0..100 {
            let watch = request(Method::GET, WATCH, &[], "");
            watches.push(client.open(watch).await.unwrap());
        }
        watchers.push(client);
    }
    until(&world.alpha.state.streams, |open| *open == 2000).await;
    let (_, after) = usage(pid);
    println!("idle watch, 100 per connection: {:.1} KiB", (after - before) as f64 / 2000.0);

    // One watch per connection, as with kubectl.
    let (_, before) = usage(pid);
    for number in 1..=500 {
        let stream = connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap();
        let client = Http2::over(stream).await;
        watches.push(client.open(request(Method::GET, WATCH, &[], "")).await.unwrap());
        watchers.push(client);
        until(&world.alpha.state.streams, |open| *open == 2000 + number).await;
    }
    let (_, after) = usage(pid);
    println!("idle watch, one per connection: {:.1} KiB", (after - before) as f64 / 500.0);

    let (_, before) = usage(pid);
    let mut senders = Vec::new();
    for _ in 0..500 {
        let stream = connect(address, &world.serving_ca, Some(&user), b"http/1.1").await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let get = request(Method::GET, WATCH, &[("host", "localhost")], "");
        watches.push(sender.send_request(get).await.unwrap());
        senders.push(sender);
    }
    let (_, after) = usage(pid);
    println!("idle watch over HTTP/1.1: {:.1} KiB", (after - before) as f64 / 500.0);

    let (before, _) = usage(pid);
    for _ in 0..1000 {
        connect(address, &world.serving_ca, Some(&user), b"http/1.1").await.unwrap();
    }
    let (after, _) = usage(pid);
    println!("handshake with a client certificate: {:.0} µs CPU", (after - before) * 1e6 / 1000.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make figures"]
async fn memory_per_workspace() {
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    std::fs::write(&file, serde_json::to_string(&world.config).unwrap()).unwrap();
    let mut gateway = Gateway::start(&file);
    let address = gateway.address().await;
    gateway.says("the index is synced").await;
    let (_, before) = usage(gateway.pid());
    let user = world.user();
    let count = 100_000;
    for number in 0..count {
        let shard = if number % 2 == 0 { "root" } else { "alpha" };
        world.create_workspace("root", &format!("workspace-{number}"), shard, &format!("w{number:015}"));
    }
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    let last = format!("/clusters/root:workspace-{}/api", count - 1);
    eventually("the last workspace is served", async || client.get(&last).await.status == 200).await;
    let (_, after) = usage(gateway.pid());
    let growth = |after: u64| (after - before) as f64 * 1024.0 / f64::from(count);
    println!("as they are created: {:.0} bytes per workspace", growth(after));

    let mut restarted = Gateway::start(&file);
    restarted.says("the index is synced").await;
    println!("read at start: {:.0} bytes per workspace", growth(usage(restarted.pid()).1));
}
