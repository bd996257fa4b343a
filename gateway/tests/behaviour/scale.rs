//! Many at once: watches that a drain ends, and workspaces that a gateway remembers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::program::Gateway;
use crate::world::{Http2, World, connect, request, until};

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watches_drain_one_by_one_between_events() {
    const CLIENTS: usize = 40;
    const WATCHES: usize = 10_000;
    let world = World::new().await;
    let user = world.user();
    let mut clients = Vec::new();
    let mut watches = Vec::new();
    for _ in 0..CLIENTS {
        let client = world.http2(Some(&user)).await;
        for _ in 0..WATCHES / CLIENTS {
            let get = request(Method::GET, "/clusters/root:org/api/v1/stream?watch=true", &[], "");
            watches.push(client.open(get).await.unwrap());
        }
        clients.push(client);
    }
    until(&world.alpha.state.streams, |open| *open == WATCHES).await;

    let ended = Arc::new(AtomicUsize::new(0));
    let open_at_the_first_end = Arc::new(AtomicUsize::new(0));
    let ends: Vec<_> = watches
        .into_iter()
        .map(|watch| {
            let (ended, first) = (Arc::clone(&ended), Arc::clone(&open_at_the_first_end));
            let shard = Arc::clone(&world.alpha.state);
            tokio::spawn(async move {
                let rest = watch.into_body().collect().await;
                if ended.fetch_add(1, Ordering::SeqCst) == 0 {
                    first.store(*shard.streams.borrow(), Ordering::SeqCst);
                }
                // An end that is not one would be an error here.
                rest.map(|rest| rest.to_bytes())
            })
        })
        .collect();
    world.environment.shutdown.begin();
    let tasks = world.environment.tasks.clone();
    let supervised = tokio::spawn(async move { tasks.supervise().await });
    for end in ends {
        let rest = timeout(LIMIT, end).await.expect("a watch does not end").unwrap();
        assert_eq!(rest.expect("a watch was cut off"), "");
    }
    // Not all at once, or their clients would all come back at once.
    let open = open_at_the_first_end.load(Ordering::SeqCst);
    assert!(open > WATCHES / 2, "{open} of {WATCHES} were open when the first one had ended");
    timeout(LIMIT, supervised).await.expect("the process does not end").unwrap().unwrap();
    until(&world.alpha.state.streams, |open| *open == 0).await;
    drop(clients);
}

fn resident_bytes(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    resident.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The table takes less than 200 bytes per workspace (`table::figures`). The allocator of a process that has read them keeps up to
/// as much again: 290 to 410 bytes were measured, more when the machine is busy. A proxy that stores the objects has thousands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_workspaces_need_little_more_memory_than_the_table() {
    const WORKSPACES: u64 = 100_000;
    const MAX_BYTES_EACH: u64 = 600;
    let world = World::new().await;
    let file = world.directory.path().join("gateway.yaml");
    std::fs::write(&file, serde_json::to_string(&world.config).unwrap()).unwrap();
    let mut empty = Gateway::start(&file);
    empty.says("the index is synced").await;
    let before = resident_bytes(&empty);
    drop(empty);
    world.environment.shutdown.begin();
    for number in 0..WORKSPACES {
        let shard = if number % 2 == 0 { "root" } else { "alpha" };
        world.create_workspace("root", &format!("workspace-{number}"), shard, &format!("w{number:015}"));
    }
    world.root.state.compact();
    world.alpha.state.compact();
    let mut full = Gateway::start(&file);
    let address = full.address().await;
    full.says("the index is synced").await;
    let user = world.user();
    let client = Http2::over(connect(address, &world.serving_ca, Some(&user), b"h2").await.unwrap()).await;
    for number in [0, 1, WORKSPACES - 2, WORKSPACES - 1] {
        assert_eq!(client.get(&format!("/clusters/root:workspace-{number}/api")).await.status, 200);
    }
    let each = resident_bytes(&full).saturating_sub(before) / WORKSPACES;
    println!("{each} bytes for each workspace");
    assert!(each < MAX_BYTES_EACH, "{each} bytes for each workspace");
}
