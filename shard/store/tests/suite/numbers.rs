//! The numbers that a file counts for metrics.

use std::time::Duration;

use fairlead_store::{CommitError, Durations, Mutation, RedbOptions, RedbStore, Revision, Stats, Store};

use crate::contract::subject::put;

fn counts(stats: &Stats) -> [(&'static str, &Durations); 5] {
    let durations = &stats.commit_durations;
    [
        ("queue", &durations.queue),
        ("apply", &durations.apply),
        ("durable", &durations.durable),
        ("visible", &durations.visible),
        ("total", &durations.total),
    ]
}

#[tokio::test]
async fn every_commit_is_counted_in_every_phase() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(directory.path().join("store"), RedbOptions::default()).unwrap();
    for (phase, durations) in counts(&store.stats()) {
        assert_eq!(durations.count(), 0, "{phase}");
    }
    for number in 0..7 {
        put(&store, "a", &format!("{number}")).await;
    }
    let before = store.stats();
    let conflict = store.commit(vec![Mutation::create("a", "8")]).await;
    assert!(matches!(conflict, Err(CommitError::Conflict { .. })), "{conflict:?}");
    let stats = store.stats();
    for (phase, durations) in counts(&before) {
        assert_eq!(durations.count(), 7, "{phase}");
        assert!(durations.sum > Duration::ZERO, "{phase}");
    }
    // The conflict waited, and no more.
    assert_eq!(counts(&stats).map(|(_, durations)| durations.count()), [8, 7, 7, 7, 7]);
    let durations = &stats.commit_durations;
    let phases = [&durations.apply, &durations.durable, &durations.visible].map(|phase| phase.sum);
    assert!(phases.iter().sum::<Duration>() <= durations.total.sum, "phases do not overlap: {durations:?}");
    assert_eq!((stats.backend, stats.conflicts, stats.unavailable), ("file", 1, 0));
    let disk = stats.disk.unwrap();
    assert!(0 < disk.available && disk.available <= disk.total, "{disk:?}");
    assert_eq!(stats.server, None);
}

#[tokio::test]
async fn compactions_are_counted_with_the_rows_that_they_delete() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(directory.path().join("store"), RedbOptions::default()).unwrap();
    for number in 0..10 {
        put(&store, "a", &format!("{number}")).await;
    }
    store.compact(Revision(6)).await.unwrap();
    let stats = store.stats();
    assert_eq!((stats.compaction_durations.count(), stats.compacted_rows), (1, 6));
    assert_eq!((stats.compacted, stats.history), (Revision(6), 4));
}

#[tokio::test]
async fn commits_that_are_refused_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(directory.path().join("store"), RedbOptions::default()).unwrap();
    put(&store, "a", "1").await;
    store.close().await;
    let refused = store.commit(vec![Mutation::put("a", "2")]).await;
    assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
    assert_eq!(store.stats().unavailable, 1);
}
