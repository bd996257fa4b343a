//! Commits per second of 32 writers with 2 KiB each: redb, etcd, etcd's own puts, and its own transactions under a watch.
//!
//! The last one is the least that a commit on etcd needs: a comparison, a put, and the watch that delivers it.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, KvClient, Txn, TxnOp, WatchOptions};
use fairlead_store::{Mutation, Store};
use fairlead_tests::load::Figure;

use crate::load::{self, Outcome, WRITERS};
use crate::{Failure, Site};

const VALUE_BYTES: usize = 2048;
/// Keys that are overwritten.
const KEYS: u64 = 10_000;

pub(crate) async fn measure(site: &Site) -> Result<Vec<Figure>, Failure> {
    let folder = site.folder("writes")?;
    let etcd = site.etcd(&folder).await?;
    let endpoint = load::endpoint(&etcd)?;
    let store = load::etcd(&endpoint, &folder.join("view.redb")).await?;
    let redb = load::redb(&folder)?;
    let kv = Client::connect([&endpoint], None).await?.kv_client();
    let phase = Duration::from_millis(site.amount(200, 5_000, 10_000));
    let [mut ours, mut plain, mut watched, mut embedded] = std::array::from_fn(|_| Outcome::default());
    for _ in 0..site.amount(1, 4, 6) {
        plain.add(puts(kv.clone(), phase).await?);
        watched.add(watched_transactions(&endpoint, phase).await?);
        ours.add(commits(store.clone(), phase).await?);
        embedded.add(commits(redb.clone(), phase).await?);
    }
    store.close().await;
    redb.close().await;
    let load = format!("{WRITERS} writers, {VALUE_BYTES} B, {KEYS} keys");
    let figure = |name: &str, outcome: &mut Outcome| {
        let latencies = outcome.latencies.summary();
        Figure::new(name, outcome.rate(), "/s")
            .conditions(format!("{load}; p50 / p90 / p99 / max {latencies}"))
    };
    let ratio = ours.rate() / plain.rate().max(1e-9);
    let of_watched = ours.rate() / watched.rate().max(1e-9);
    Ok(vec![
        Figure::new("commits on etcd / etcd's own puts", ratio, "×")
            .at_least(0.8)
            .conditions(format!("{load}, alternating phases of {} s", phase.as_secs_f64())),
        Figure::new("commits on etcd / etcd's own watched transactions", of_watched, "×")
            .conditions(load.clone()),
        figure("etcd's own puts", &mut plain),
        figure("etcd's own watched transactions", &mut watched),
        figure("commits on etcd", &mut ours),
        figure("commits on redb", &mut embedded),
    ])
}

async fn commits(store: Arc<dyn Store>, phase: Duration) -> Result<Outcome, Failure> {
    let commit = move |number: u64| {
        let store = store.clone();
        async move {
            let put = Mutation::put(load::key(number % KEYS), load::value(number, VALUE_BYTES));
            store.commit(vec![put]).await?;
            Ok(())
        }
    };
    load::write(None, move |elapsed| elapsed >= phase, commit).await
}

/// The load of etcd's program `benchmark put`, which Debian does not package: one connection, each client waits for its response.
async fn puts(kv: KvClient, phase: Duration) -> Result<Outcome, Failure> {
    let put = move |number: u64| {
        let mut kv = kv.clone();
        async move {
            let key = format!("/plain{}", load::key(number % KEYS));
            kv.put(key, load::value(number, VALUE_BYTES), None).await?;
            Ok(())
        }
    };
    load::write(None, move |elapsed| elapsed >= phase, put).await
}

/// Transactions with one comparison and one put, while another connection watches the keys.
async fn watched_transactions(endpoint: &str, phase: Duration) -> Result<Outcome, Failure> {
    let mut kv = Client::connect([endpoint], None).await?.kv_client();
    kv.put("/watched-owner", "owner", None).await?;
    let mut client = Client::connect([endpoint], None).await?;
    let mut watch = client.watch("/watched/", Some(WatchOptions::new().with_prefix())).await?;
    let watching = tokio::spawn(async move { while let Ok(Some(_)) = watch.message().await {} });
    let put = move |number: u64| {
        let mut kv = kv.clone();
        async move {
            let key = format!("/watched{}", load::key(number % KEYS));
            let owned = Compare::value("/watched-owner", CompareOp::Equal, "owner");
            let put = TxnOp::put(key, load::value(number, VALUE_BYTES), None);
            kv.txn(Txn::new().when([owned]).and_then([put])).await?;
            Ok(())
        }
    };
    let outcome = load::write(None, move |elapsed| elapsed >= phase, put).await;
    watching.abort();
    outcome
}
