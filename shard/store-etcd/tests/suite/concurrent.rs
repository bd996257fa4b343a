//! Commits at the same time: each succeeds or fails for itself, and has a revision of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlead_store::{CommitError, Expect, Mutation, Revision, Store};
use fairlead_store_etcd::EtcdStore;

use crate::backend::runtime;
use crate::etcd::{Cluster, is_left_out};

/// Commits at the same time.
async fn together(store: &Arc<EtcdStore>, commits: Vec<Vec<Mutation>>) -> Vec<Result<Revision, CommitError>> {
    let tasks: Vec<_> = commits
        .into_iter()
        .map(|mutations| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(mutations).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

#[test]
fn commits_at_the_same_time_have_revisions_and_batches_of_their_own() {
    const COMMITS: usize = 200;
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        let mut follower = store.follow(store.revision()).unwrap();
        let create = |number| vec![Mutation::create(format!("key-{number}"), format!("{number}"))];
        let outcomes = together(&store, (0..COMMITS).map(create).collect()).await;
        let mut revisions = BTreeSet::new();
        for (number, outcome) in outcomes.into_iter().enumerate() {
            let revision = outcome.unwrap();
            let record = store.get(format!("key-{number}").as_bytes()).unwrap().expect("it is committed");
            assert_eq!((record.created, record.modified), (revision, revision));
            assert!(revisions.insert(revision), "two commits have the revision {revision}");
        }
        for revision in revisions {
            let batch = follower.next().await.unwrap();
            assert_eq!((batch.revision, batch.events.len()), (revision, 1));
        }
    });
}

#[test]
fn a_conflict_concerns_no_commit_beside_it() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        store.commit(vec![Mutation::put("taken", "by others")]).await.unwrap();
        let taken = store.get(b"taken").unwrap().unwrap();
        let mut commits = Vec::new();
        for number in 0..60 {
            let key = format!("key-{number}");
            commits.push(match number % 5 {
                0 => vec![Mutation::create(key, "new")],
                1 => vec![Mutation::create(key, "new"), Mutation::fence("taken", Expect::Absent)],
                2 => vec![Mutation::create(key, "new"), Mutation::fence("taken", Expect::At(taken.modified))],
                3 => vec![Mutation::delete(key, Expect::Any)],
                _ => vec![Mutation::update(key, taken.modified, "new")],
            });
        }
        for (number, outcome) in together(&store, commits).await.into_iter().enumerate() {
            let record = store.get(format!("key-{number}").as_bytes()).unwrap();
            match (number % 5, outcome) {
                (0 | 2, Ok(revision)) => {
                    assert_eq!(record.expect("it is committed").modified, revision);
                }
                (1, Err(CommitError::Conflict { index: 1, current })) => {
                    assert_eq!((current.as_ref(), record), (Some(&taken), None));
                }
                (3, Ok(_)) | (4, Err(CommitError::Conflict { index: 0, current: None })) => {
                    assert_eq!(record, None);
                }
                (_, outcome) => panic!("commit {number}: {outcome:?}"),
            }
        }
    });
}

#[test]
fn a_commit_never_misses_what_another_one_beside_it_writes() {
    const ROUNDS: usize = 40;
    const WRITERS: usize = 8;
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        for round in 0..ROUNDS {
            // Each writer takes its own key if its neighbours have not taken theirs: no two neighbours may both succeed.
            let key = |writer: usize| format!("round-{round}/seat-{}", writer % WRITERS);
            let take = |writer: usize| {
                vec![
                    Mutation::create(key(writer), "taken"),
                    Mutation::fence(key(writer + 1), Expect::Absent),
                    Mutation::fence(key(writer + WRITERS - 1), Expect::Absent),
                ]
            };
            let outcomes = together(&store, (0..WRITERS).map(take).collect()).await;
            let is_taken: Vec<bool> = outcomes
                .iter()
                .map(|outcome| match outcome {
                    Ok(_) => true,
                    Err(CommitError::Conflict { .. }) => false,
                    Err(error) => panic!("{error}"),
                })
                .collect();
            let both = (0..WRITERS).find(|writer| is_taken[*writer] && is_taken[(writer + 1) % WRITERS]);
            assert_eq!(both, None, "two neighbours in round {round}: {is_taken:?}");
            assert!(is_taken.contains(&true), "nobody in round {round}");
        }
    });
}
