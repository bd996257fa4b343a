//! Compaction: discarded and retained versions, and its effect on followers, readers and writers.

use fairlead_store::{FollowError, Range, ReadError};

use super::subject::{delete, put, take};
use crate::backend::on_every_backend;

#[test]
fn revisions_from_the_compacted_one_on_stay_readable() {
    on_every_backend(|store| async move {
        put(&*store, "a", "1").await;
        put(&*store, "gone", "1").await;
        put(&*store, "a", "2").await;
        delete(&*store, "gone").await;
        put(&*store, "a", "3").await;
        put(&*store, "gone", "2").await;
        let revisions: Vec<_> = (0..=6).map(|at| store.listed(Some(at))).collect();
        let log = take(&mut store.follow(store.at(0)).unwrap(), 6).await;

        for (below, compacted) in [(0, 0), (1, 1), (4, 4), (2, 4), (5, 5), (99, 6), (6, 6)] {
            store.compact(store.at(below)).await.unwrap();
            assert_eq!(store.compacted(), store.at(compacted), "compacted below {below}");
            for at in 0..=6_u64 {
                let page = store.list(&Range::all(), None, Some(store.at(at)));
                let follower = store.follow(store.at(at));
                if at < compacted {
                    let oldest = store.at(compacted);
                    assert!(
                        matches!(page, Err(ReadError::Compacted { oldest: o }) if o == oldest),
                        "{page:?}"
                    );
                    assert!(
                        matches!(follower, Err(ReadError::Compacted { oldest: o }) if o == oldest),
                        "{follower:?}"
                    );
                } else {
                    assert_eq!(store.listed(Some(at)), revisions[at as usize]);
                    let rest = take(&mut follower.unwrap(), (6 - at) as usize).await;
                    assert_eq!(rest, log[at as usize..]);
                }
            }
            assert_eq!(store.listed(None), revisions[6]);
            assert_eq!(store.revision(), store.at(6));
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

        store.compact(store.at(590)).await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.history, stats.log), (2, 11, 13));

        store.compact(store.revision()).await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.history, stats.log), (2, 0, 0));
        assert_eq!((stats.revision, stats.compacted), (store.at(603), store.at(603)));
        assert_eq!(store.listed(None), ["hot=599@1/600", "still=-@601/601"]);
    });
}

#[test]
fn a_follower_behind_the_compaction_gets_an_error() {
    on_every_backend(|store| async move {
        let mut behind = store.follow(store.at(0)).unwrap();
        let mut ahead = store.follow(store.at(0)).unwrap();
        for value in 0..5 {
            put(&*store, "a", &value.to_string()).await;
        }
        take(&mut ahead, 5).await;
        store.compact(store.at(3)).await.unwrap();
        let error = behind.next().await;
        assert!(
            matches!(error, Err(FollowError::Compacted { oldest }) if oldest == store.at(3)),
            "{error:?}"
        );
        put(&*store, "a", "5").await;
        assert_eq!(ahead.next().await.unwrap().revision, store.at(6));
    });
}

#[test]
fn readers_and_writers_go_on_while_history_is_compacted() {
    on_every_backend(|store| async move {
        let writer = {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..400_u64 {
                    put(&*store, &format!("key-{}", round % 7), &round.to_string()).await;
                    if round % 50 == 49 {
                        store.compact(store.at(round - 20)).await.unwrap();
                    }
                }
            })
        };
        let mut follower = store.follow(store.at(0)).unwrap();
        let mut expected = 1;
        while expected <= 400 {
            match follower.next().await {
                Ok(batch) => {
                    assert_eq!(batch.revision, store.at(expected));
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
                    let oldest_nth = store.nth(oldest);
                    assert!(oldest_nth >= expected);
                    expected = oldest_nth + 1;
                    follower = match store.follow(oldest) {
                        Ok(follower) => follower,
                        Err(ReadError::Compacted { oldest }) => {
                            expected = store.nth(oldest) + 1;
                            store.follow(store.compacted()).unwrap()
                        }
                        Err(other) => panic!("{other}"),
                    };
                    expected = expected.max(store.nth(follower.position()) + 1);
                }
                Err(other) => panic!("{other}"),
            }
        }
        writer.await.unwrap();
        let stats = store.stats();
        assert_eq!((stats.keys, stats.compacted), (7, store.at(379)));
        assert_eq!((stats.history, stats.log), (21, 21));
    });
}
