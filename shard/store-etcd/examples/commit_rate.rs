//! Commits per second of the store beside plain puts of the same client on the same etcd:
//! `cargo run --release -p fairlead-store-etcd --example commit_rate -- http://127.0.0.1:2379`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_client::Client;
use fairlead_store::{Mutation, Store};
use fairlead_store_etcd::{EtcdOptions, EtcdStore};

const SECONDS: u64 = 10;
const VALUE_BYTES: usize = 2048;
const KEYS: u64 = 10_000;

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:2379".to_owned());
    let prefix = format!("/commit-rate-{}", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let view = Some(folder.path().join("view.redb"));
    let options = EtcdOptions { endpoints: vec![url.clone()], prefix, view, ..EtcdOptions::default() };
    let store = Arc::new(EtcdStore::open(options).await.unwrap());
    let client = Client::connect([&url], None).await.unwrap();
    println!("| writers | etcd put/s | p99 ms | store commit/s | p99 ms | ratio |");
    println!("|---|---|---|---|---|---|");
    for writers in [1, 32, 256] {
        let kv = client.kv_client();
        let plain = measure(writers, move |key| {
            let mut kv = kv.clone();
            async move {
                kv.put(format!("/plain/{key}"), vec![b'v'; VALUE_BYTES], None).await.unwrap();
            }
        })
        .await;
        let shared = store.clone();
        let ours = measure(writers, move |key| {
            let store = shared.clone();
            async move {
                let put = Mutation::put(format!("/registry/{key}"), vec![b'v'; VALUE_BYTES]);
                store.commit(vec![put]).await.unwrap();
            }
        })
        .await;
        println!(
            "| {writers} | {:.0} | {:.1} | {:.0} | {:.1} | {:.2} |",
            plain.0,
            plain.1,
            ours.0,
            ours.1,
            ours.0 / plain.0
        );
    }
    store.close().await;
}

/// Writes per second, and the 99th percentile of their duration in milliseconds.
async fn measure<Done>(writers: u64, write: impl Fn(u64) -> Done + Clone + Send + 'static) -> (f64, f64)
where
    Done: Future<Output = ()> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let (started, end) = (Instant::now(), Instant::now() + Duration::from_secs(SECONDS));
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (write, next) = (write.clone(), next.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while Instant::now() < end {
                    let began = Instant::now();
                    write(next.fetch_add(1, Ordering::Relaxed) % KEYS).await;
                    times.push(began.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times[times.len() * 99 / 100].as_secs_f64() * 1000.0)
}
