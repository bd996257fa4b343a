//! Compaction: discarded and retained versions, and its effect on followers, readers and writers.

use std::sync::Arc;

use fairlead_store::{FollowError, Mutation, Range, ReadError, RedbOptions, RedbStore, Revision, Store};
use futures_util::future::join_all;

use crate::backend::{delete, list_all, on_every_backend, put, runtime, take};

#[test]
fn revisions_from_the_compacted_one_on_stay_readable() {
    on_every_backend(|store| async move {
        put(&*store, "a", "1").await;
        put(&*store, "gone", "1").await;
        put(&*store, "a", "2").await;
        delete(&*store, "gone").await;
        put(&*store, "a", "3").await;
        put(&*store, "gone", "2").await;
        let revisions: Vec<_> = (0..=6).map(|at| list_all(&*store, Some(Revision(at)))).collect();
        let log = take(&mut store.follow(Revision(0)).unwrap(), 6).await;

        for (below, compacted) in [(0, 0), (1, 1), (4, 4), (2, 4), (5, 5), (99, 6), (6, 6)] {
            store.compact(Revision(below)).await.unwrap();
            assert_eq!(store.compacted(), Revision(compacted), "compacted below {below}");
            for at in 0..=6_u64 {
                let page = store.list(&Range::all(), None, Some(Revision(at)));
                let follower = store.follow(Revision(at));
                if at < compacted {
                    let oldest = Revision(compacted);
                    assert!(
                        matches!(page, Err(ReadError::Compacted { oldest: o }) if o == oldest),
                        "{page:?}"
                    );
                    assert!(
                        matches!(follower, Err(ReadError::Compacted { oldest: o }) if o == oldest),
                        "{follower:?}"
                    );
                } else {
                    assert_eq!(list_all(&*store, Some(Revision(at))), revisions[at as usize]);
                    let rest = take(&mut follower.unwrap(), (6 - at) as usize).await;
                    assert_eq!(rest, log[at as usize..]);
                }
            }
            assert_eq!(list_all(&*store, None), revisions[6]);
            assert_eq!(store.revision(), Revision(6));
        }
    });
}

#[test]
fn compaction_frees_exactly_the_unreadable_versions() {
    on_every_backend(|store| async move {
        for value in 0..600 {
            put(&*store, "hot", &value.to_string()).await;
        }
        put(&*store, "still", "-").await;
        put(&*store, "gone", "-").await;
        delete(&*store, "gone").await;
        let stats = store.stats();
        assert_eq!((stats.keys, stats.history, stats.log), (2, 600, 603));

        store.compact(Revision(590)).await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.history, stats.log), (2, 11, 13));

        store.compact(store.revision()).await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.history, stats.log), (2, 0, 0));
        assert_eq!((stats.revision, stats.compacted), (Revision(603), Revision(603)));
        assert_eq!(list_all(&*store, None), ["hot=599@1/600", "still=-@601/601"]);
    });
}

#[test]
fn a_follower_behind_the_compaction_gets_an_error() {
    on_every_backend(|store| async move {
        let mut behind = store.follow(Revision(0)).unwrap();
        let mut ahead = store.follow(Revision(0)).unwrap();
        for value in 0..5 {
            put(&*store, "a", &value.to_string()).await;
        }
        take(&mut ahead, 5).await;
        store.compact(Revision(3)).await.unwrap();
        let error = behind.next().await;
        assert!(matches!(error, Err(FollowError::Compacted { oldest: Revision(3) })), "{error:?}");
        put(&*store, "a", "5").await;
        assert_eq!(ahead.next().await.unwrap().revision, Revision(6));
    });
}

#[test]
fn readers_and_writers_go_on_while_history_is_compacted() {
    on_every_backend(|store| async move {
        let writer = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..400_u64 {
                    put(&*store, &format!("key-{}", round % 7), &round.to_string()).await;
                    if round % 50 == 49 {
                        store.compact(Revision(round - 20)).await.unwrap();
                    }
                }
            })
        };
        let mut follower = store.follow(Revision(0)).unwrap();
        let mut expected = 1;
        while expected <= 400 {
            match follower.next().await {
                Ok(batch) => {
                    assert_eq!(batch.revision, Revision(expected));
                    let at = store.scan(&Range::all(), Some(batch.revision), &mut |record| {
                        assert!(record.modified <= batch.revision);
                        std::ops::ControlFlow::Continue(())
                    });
                    match at {
                        Ok(at) => assert_eq!(at, batch.revision),
                        Err(ReadError::Compacted { oldest }) => assert!(oldest > batch.revision),
                        Err(other) => panic!("{other}"),
                    }
                    expected += 1;
                }
                Err(FollowError::Compacted { oldest }) => {
                    assert!(oldest.0 >= expected);
                    expected = oldest.0 + 1;
                    follower = match store.follow(oldest) {
                        Ok(follower) => follower,
                        Err(ReadError::Compacted { oldest }) => {
                            expected = oldest.0 + 1;
                            store.follow(store.compacted()).unwrap()
                        }
                        Err(other) => panic!("{other}"),
                    };
                    expected = expected.max(follower.position().0 + 1);
                }
                Err(other) => panic!("{other}"),
            }
        }
        writer.await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.compacted), (7, Revision(379)));
        assert_eq!((stats.history, stats.log), (21, 21));
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
