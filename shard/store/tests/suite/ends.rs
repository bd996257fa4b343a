//! Behaviours of single backends: the end of their feed, delays of the memory backend, and the size of the redb file.

use fairlead_store::{FollowError, MemoryStore, Mutation, RedbOptions, RedbStore, Revision, Store};
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::backend::runtime;
use crate::contract::subject::{put, take};

#[test]
fn closing_the_store_ends_followers_after_the_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let stores: [Box<dyn Store>; 2] =
        [Box::new(MemoryStore::new()), Box::new(RedbStore::open(&path, RedbOptions::default()).unwrap())];
    for store in stores {
        runtime().block_on(async {
            let mut follower = store.follow(Revision(0)).unwrap();
            put(&*store, "a", "1").await;
            put(&*store, "a", "2").await;
            drop(store);
            assert_eq!(take(&mut follower, 2).await.len(), 2);
            for _ in 0..2 {
                let end = follower.next().await;
                assert!(matches!(end, Err(FollowError::Closed)), "{end:?}");
            }
        });
    }
}

#[test]
fn the_memory_backend_is_late_but_not_forever() {
    runtime().block_on(async {
        let mut late = 0;
        for seed in 0..64 {
            let store = MemoryStore::with_seed(seed);
            let mut follower = store.follow(Revision(0)).unwrap();
            let revision = put(&store, "a", "1").await;
            match follower.next().now_or_never() {
                Some(batch) => assert_eq!(batch.unwrap().revision, revision),
                None => {
                    late += 1;
                    assert_eq!(follower.next().await.unwrap().revision, revision);
                }
            }
        }
        assert!((8..=56).contains(&late), "late for {late} of 64 seeds");
    });
}

#[test]
fn the_file_stops_growing_when_history_is_compacted() {
    const CLIENTS: u64 = 64;
    let directory = tempfile::tempdir().unwrap();
    // Pages are reused from one checkpoint to the next.
    let options = RedbOptions { journal_bytes: 1 << 20, ..RedbOptions::default() };
    let store = RedbStore::open(directory.path().join("store.redb"), options).unwrap();
    let overwrite_everything = async |times: u64| {
        for round in 0..times {
            let value = vec![round as u8; 4096];
            let writes = (0..CLIENTS)
                .map(|client| store.commit(vec![Mutation::put(format!("key-{client}"), value.clone())]));
            join_all(writes).await.into_iter().for_each(|written| assert!(written.is_ok()));
            let kept = Revision(store.revision().0.saturating_sub(CLIENTS * 4));
            store.compact(kept).await.unwrap();
        }
    };
    runtime().block_on(async {
        overwrite_everything(20).await;
        let settled = store.stats().file_bytes;
        overwrite_everything(100).await;
        // 25 MiB were written in between.
        assert!(store.stats().file_bytes <= settled + (1 << 20), "{settled} -> {}", store.stats().file_bytes);
        assert_eq!(store.stats().history, CLIENTS * 4);
    });
}
