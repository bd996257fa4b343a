//! The feed: every batch once, in order, with the previous records.

use std::sync::Arc;

use fairlead_store::{Batch, Expect, Mutation, ReadError};
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::subject::{Subject, delete, put, show_event, take};
use crate::backend::on_every_backend;

fn show(store: &Subject, batches: &[Arc<Batch>]) -> Vec<String> {
    let show = |batch: &Arc<Batch>| {
        let events: Vec<_> = batch.events.iter().map(show_event).collect();
        format!("{}: {}", store.nth(batch.revision), events.join(", "))
    };
    batches.iter().map(show).collect()
}

#[test]
fn a_follower_gets_the_events_of_each_revision_together_with_what_they_replaced() {
    on_every_backend(|store| async move {
        let mut live = store.follow(store.at(0)).unwrap();
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
        assert_eq!(show(&store, &batches), expected);
        assert_eq!(live.position(), store.at(4));

        let previous = batches[2].events[0].previous.as_ref().unwrap();
        assert_eq!((previous.created, previous.modified), (store.at(1), store.at(2)));
        let written = batches[1].events[1].record(store.at(2)).unwrap();
        assert_eq!((written.created, written.modified), (store.at(1), store.at(2)));
        assert_eq!(written.value, "2");

        for after in 0..=4 {
            let mut late = store.follow(store.at(after as u64)).unwrap();
            assert_eq!(take(&mut late, 4 - after).await, batches[after..], "after {after}");
            assert_eq!(late.next().now_or_never().map(drop), None, "nothing more after {after}");
        }
        let future = store.follow(store.at(5));
        assert!(matches!(future, Err(ReadError::Future { current }) if current == store.at(4)), "{future:?}");
    });
}

#[test]
fn followers_that_start_anywhere_while_writers_write_see_the_same_log() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 40;
    on_every_backend(|store| async move {
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let own = Mutation::put(format!("own-{writer}"), round.to_string());
                    let shared = Mutation::put("shared", format!("{writer}/{round}"));
                    store.commit(vec![own, shared]).await.unwrap();
                }
            })
        });
        let followers = (0..4).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let after = store.revision();
                let mut follower = store.follow(after).unwrap();
                let batches = take(&mut follower, WRITERS * ROUNDS - store.nth(after) as usize).await;
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
        let all = take(&mut store.follow(store.at(0)).unwrap(), WRITERS * ROUNDS).await;
        for (index, batch) in all.iter().enumerate() {
            assert_eq!(store.nth(batch.revision), index as u64 + 1, "no gap, no duplicate");
            assert_eq!(batch.events.len(), 2);
            let previous = batch.events[1].previous.as_ref().map(|record| record.modified);
            assert_eq!(
                previous,
                (index > 0).then_some(store.at(index as u64)),
                "the batch before wrote it last"
            );
        }
        for result in results {
            let (after, batches) = result.await.unwrap();
            assert_eq!(batches, all[store.nth(after) as usize..], "after {after}");
        }
    });
}

#[test]
fn a_dropped_wait_loses_nothing() {
    on_every_backend(|store| async move {
        let mut follower = store.follow(store.at(0)).unwrap();
        let mut seen = Vec::new();
        for value in 0..50 {
            put(&*store, "a", &value.to_string()).await;
            // Polled once and dropped in any state of the wait.
            if let Some(batch) = follower.next().now_or_never() {
                seen.push(store.nth(batch.unwrap().revision));
            }
        }
        let rest = take(&mut follower, 50 - seen.len()).await;
        seen.extend(rest.iter().map(|batch| store.nth(batch.revision)));
        assert_eq!(seen, (1..=50).collect::<Vec<_>>());
    });
}
