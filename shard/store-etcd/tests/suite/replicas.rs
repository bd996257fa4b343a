//! Several stores on one etcd: replicas of one server, and servers with other prefixes.

use std::sync::Arc;
use std::time::Duration;

use fairlead_store::{Advance, CommitError, Expect, Mutation, Range, Revision, Store};
use fairlead_store_etcd::{EtcdOptions, EtcdStore, Timing};
use futures_util::future::join_all;

use crate::backend::runtime;
use crate::contract::subject::{put, take};
use crate::etcd::{Cluster, is_left_out};

#[test]
fn replicas_see_each_others_commits_in_the_same_order() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let one = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        let two = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        let start = one.revision().max(two.revision());
        let writers = [&one, &two].into_iter().enumerate().flat_map(|(replica, store)| {
            (0..4).map(move |writer| {
                let store = Arc::clone(store);
                tokio::spawn(async move {
                    for round in 0..25 {
                        put(&*store, &format!("key-{replica}-{writer}"), &round.to_string()).await;
                    }
                })
            })
        });
        join_all(writers.collect::<Vec<_>>()).await.into_iter().for_each(Result::unwrap);
        let seen_by_one = take(&mut one.follow(start).unwrap(), 200).await;
        let seen_by_two = take(&mut two.follow(start).unwrap(), 200).await;
        assert_eq!(seen_by_one, seen_by_two);

        // A conflict leaves the replica with the state that caused it, so a repetition is planned on that.
        let at = one.get(b"key-0-0").unwrap().unwrap().modified;
        put(&*two, "key-0-0", "two").await;
        let refused = one.commit(vec![Mutation::update("key-0-0", at, "one")]).await;
        assert!(matches!(refused, Err(CommitError::Conflict { index: 0, .. })), "{refused:?}");
        assert_eq!(one.get(b"key-0-0").unwrap().unwrap().value, "two");
        two.commit(vec![Mutation::delete("key-0-0", Expect::Present)]).await.unwrap();
        one.commit(vec![Mutation::fence("key-0-0", Expect::Absent)]).await.unwrap();
        assert_eq!(one.get(b"key-0-0").unwrap(), None, "a fence has shown the deletion");
    });
}

#[test]
fn servers_with_other_prefixes_share_the_revisions_but_no_keys() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let with_prefix = |prefix: &str| EtcdOptions {
            prefix: prefix.to_owned(),
            owner: prefix.to_owned(),
            ..cluster.options()
        };
        // One prefix is the beginning of the other.
        let one = EtcdStore::open(with_prefix("/shard")).await.unwrap();
        let two = EtcdStore::open(with_prefix("/shard-2")).await.unwrap();
        let mut follower = one.follow(one.revision()).unwrap();
        let first = put(&one, "/registry/a", "1").await;
        for round in 0..10 {
            put(&two, "/registry/a", &round.to_string()).await;
        }
        let second = put(&one, "/registry/a", "2").await;
        assert_eq!(second.0, first.0 + 11);
        assert_eq!(one.list(&Range::all(), None, None).unwrap().records.len(), 1);
        let batches = take(&mut follower, 2).await;
        assert_eq!([batches[0].revision, batches[1].revision], [first, second]);
        // Between the two revisions nothing has changed.
        let between = Revision(first.0 + 5);
        assert_eq!(one.list(&Range::all(), None, Some(between)).unwrap().records[0].value, "1");
        assert_eq!(take(&mut one.follow(between).unwrap(), 1).await[0].revision, second);

        one.compact(first).await.unwrap();
        put(&two, "/registry/b", "1").await;
        let kept = two.list(&Range::all(), None, None).unwrap();
        assert_eq!(kept.records.len(), 2);
    });
}

#[test]
fn a_replica_passes_every_revision_that_another_one_shows() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let one = EtcdStore::open(cluster.options()).await.unwrap();
        put(&one, "a", "1").await;
        let mut follower = one.follow(one.revision()).unwrap();
        let other =
            EtcdOptions { prefix: "/other".to_owned(), owner: "other".to_owned(), ..cluster.options() };
        let other = EtcdStore::open(other).await.unwrap();
        // A copy that is read now begins at a revision of the other prefix.
        let later = put(&other, "b", "1").await;
        let two = EtcdStore::open(cluster.options()).await.unwrap();
        let shown = two.revision();
        assert!(shown >= later);
        let passed = async {
            while follower.position() < shown {
                assert!(matches!(follower.advance().await, Ok(Advance::Position(_))));
            }
        };
        tokio::time::timeout(Duration::from_secs(60), passed).await.expect("not passed for a minute");
        assert!(one.revision() >= shown);
        let listed = |store: &EtcdStore| store.list(&Range::all(), None, Some(shown)).unwrap();
        assert_eq!(listed(&one), listed(&two));
    });
}

#[test]
fn a_quiet_store_keeps_up_with_the_compaction_of_others() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let timing = Timing { barrier: Duration::from_millis(50), ..cluster.options().timing };
        let quiet = EtcdOptions {
            prefix: "/quiet".to_owned(),
            owner: "quiet".to_owned(),
            view: Some(folder.path().join("view.redb")),
            timing,
            ..cluster.options()
        };
        let store = EtcdStore::open(quiet.clone()).await.unwrap();
        let start = store.revision();
        put(&store, "a", "1").await;
        let busy = EtcdOptions { prefix: "/busy".to_owned(), owner: "busy".to_owned(), ..cluster.options() };
        let busy = EtcdStore::open(busy).await.unwrap();
        for round in 0..20 {
            put(&busy, "b", &round.to_string()).await;
        }
        // The second barrier is written after the watch has delivered the first.
        let mut seen = busy.revision();
        for _ in 0..2 {
            seen = barrier_after(&cluster, "/quiet/.fairlead/barrier", seen).await;
        }
        store.close().await;
        drop(store);
        busy.compact(busy.revision()).await.unwrap();

        let store = EtcdStore::open(quiet).await.unwrap();
        assert_eq!(store.get(b"a").unwrap().unwrap().value, "1");
        assert_eq!(store.compacted(), start, "the copy was not read again");
        put(&store, "a", "2").await;
        assert_eq!(take(&mut store.follow(start).unwrap(), 2).await.len(), 2);
    });
}

/// The revision of the next barrier after `seen`.
async fn barrier_after(cluster: &Cluster, key: &str, seen: Revision) -> Revision {
    let mut client = cluster.client(0).await;
    let written = async {
        loop {
            let found = client.get(key, None).await.unwrap();
            let revision = found.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
            let revision = Revision(u64::try_from(revision).unwrap());
            if revision > seen {
                return revision;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("no barrier for a minute")
}

#[test]
fn a_dropped_caller_does_not_cancel_its_commit() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        let mut follower = store.follow(store.revision()).unwrap();
        // Polled once, then dropped.
        tokio::select! {
            biased;
            outcome = store.commit(vec![Mutation::put("a", "1")]) => panic!("nothing was sent: {outcome:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(take(&mut follower, 1).await[0].events[0].key, "a");
    });
}
