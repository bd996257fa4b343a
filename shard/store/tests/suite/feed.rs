//! The feed: every batch once, in order, with the previous records.

use std::sync::Arc;

use fairlead_store::{
    Batch, Expect, FollowError, MemoryStore, Mutation, ReadError, RedbOptions, RedbStore, Revision, Store,
};
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::backend::{delete, on_every_backend, put, runtime, show_event, take};

fn show(batches: &[Arc<Batch>]) -> Vec<String> {
    let show = |batch: &Arc<Batch>| {
        let events: Vec<_> = batch.events.iter().map(show_event).collect();
        format!("{}: {}", batch.revision, events.join(", "))
    };
    batches.iter().map(show).collect()
}

#[test]
fn a_follower_gets_the_events_of_each_revision_together_with_what_they_replaced() {
    on_every_backend(|store| async move {
        let mut live = store.follow(Revision(0)).unwrap();
        put(&*store, "a", "1").await;
        let mixed = vec![
            Mutation::put("c", "2"),
            Mutation::fence("d", Expect::Absent),
            Mutation::put("a", "2"),
            Mutation::delete("nothing", Expect::Any),
            Mutation::create("b", "2"),
        ];
        store.commit(mixed).await.unwrap();
        delete(&*store, "a").await;
        store.commit(vec![Mutation::delete("a", Expect::Absent)]).await.unwrap();
        put(&*store, "a", "4").await;
        let expected = ["1: a: - -> 1", "2: c: - -> 2, a: 1 -> 2, b: - -> 2", "3: a: 2 -> -", "4: a: - -> 4"];
        let batches = take(&mut live, 4).await;
        assert_eq!(show(&batches), expected);
        assert_eq!(live.position(), Revision(4));

        let previous = batches[2].events[0].previous.as_ref().unwrap();
        assert_eq!((previous.created, previous.modified), (Revision(1), Revision(2)));
        let written = batches[1].events[1].record(Revision(2)).unwrap();
        assert_eq!((written.created, written.modified), (Revision(1), Revision(2)));
        assert_eq!(written.value, "2");

        for after in 0..=4 {
            let mut late = store.follow(Revision(after as u64)).unwrap();
            assert_eq!(take(&mut late, 4 - after).await, batches[after..], "after {after}");
            assert_eq!(late.next().now_or_never().map(drop), None, "nothing more after {after}");
        }
        let future = store.follow(Revision(5));
        assert!(matches!(future, Err(ReadError::Future { current: Revision(4) })), "{future:?}");
    });
}

#[test]
fn followers_that_start_anywhere_while_writers_write_see_the_same_log() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 40;
    on_every_backend(|store| async move {
        let writers = (0..WRITERS).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let own = Mutation::put(format!("own-{writer}"), round.to_string());
                    let shared = Mutation::put("shared", format!("{writer}/{round}"));
                    store.commit(vec![own, shared]).await.unwrap();
                }
            })
        });
        let followers = (0..4).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let after = store.revision();
                let mut follower = store.follow(after).unwrap();
                let batches = take(&mut follower, WRITERS * ROUNDS - after.0 as usize).await;
                (after, batches)
            })
        });
        let writers: Vec<_> = writers.collect();
        // Each follower is spawned when the one before has seen something.
        let mut results = Vec::new();
        for follower in followers {
            tokio::task::yield_now().await;
            results.push(follower);
        }
        join_all(writers).await.into_iter().for_each(Result::unwrap);
        let all = take(&mut store.follow(Revision(0)).unwrap(), WRITERS * ROUNDS).await;
        for (index, batch) in all.iter().enumerate() {
            assert_eq!(batch.revision.0, index as u64 + 1, "no gap, no duplicate");
            assert_eq!(batch.events.len(), 2);
            let previous = batch.events[1].previous.as_ref().map(|record| record.modified);
            assert_eq!(
                previous,
                (index > 0).then_some(Revision(index as u64)),
                "the batch before wrote it last"
            );
        }
        for result in results {
            let (after, batches) = result.await.unwrap();
            assert_eq!(batches, all[after.0 as usize..], "after {after}");
        }
    });
}

#[test]
fn a_dropped_wait_loses_nothing() {
    on_every_backend(|store| async move {
        let mut follower = store.follow(Revision(0)).unwrap();
        let mut seen = Vec::new();
        for value in 0..50 {
            put(&*store, "a", &value.to_string()).await;
            // Polled once and dropped in any state of the wait.
            if let Some(batch) = follower.next().now_or_never() {
                seen.push(batch.unwrap().revision.0);
            }
        }
        let rest = take(&mut follower, 50 - seen.len()).await;
        seen.extend(rest.iter().map(|batch| batch.revision.0));
        assert_eq!(seen, (1..=50).collect::<Vec<_>>());
    });
}

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
