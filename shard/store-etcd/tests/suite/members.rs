//! An etcd with three members: members and leaders that are killed, a lost quorum.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlead_store::{Advance, CommitError, Mutation, Store};
use fairlead_store_etcd::EtcdStore;

use crate::backend::runtime;
use crate::contract::subject::put;
use crate::etcd::{Cluster, commit_when_available, is_left_out};
use crate::faults::{assert_in_order, count_up};

#[test]
fn acknowledged_commits_survive_the_kill_of_any_member() {
    const WRITERS: usize = 8;
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(3).await;
        let store = Arc::new(EtcdStore::open(cluster.options()).await.unwrap());
        let start = store.revision();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(count_up(store.clone(), format!("writer-{writer}"), stopped.clone())))
            .collect();
        for round in 0..4 {
            wait_for_commits(&store, 20).await;
            // The leader, then each member: among them is the one that the store uses.
            let killed = if round == 0 { cluster.leader().await } else { round - 1 };
            cluster.kill(killed);
            wait_for_commits(&store, 20).await;
            cluster.start_member(killed);
            cluster.wait_until_healthy().await;
        }
        stop.send_replace(true);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.push(writer.await.unwrap());
        }
        assert_in_order(&*store, start).await;
        let reopened = EtcdStore::open(cluster.options()).await.unwrap();
        for (writer, count) in acknowledged.into_iter().enumerate() {
            let record = reopened.get(format!("writer-{writer}").as_bytes()).unwrap().unwrap();
            let found: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
            assert!(found >= count, "writer {writer}: {found} < {count}");
        }
    });
}

async fn wait_for_commits(store: &EtcdStore, count: u64) {
    let before = store.stats().commits;
    let reached = async {
        while store.stats().commits < before + count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), reached).await.expect("no commits for a minute");
}

#[test]
fn members_that_hang_are_left_for_another() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(3).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        let mut follower = store.follow(store.revision()).unwrap();
        // Among them is the one that the store uses, and the leader.
        for member in 0..3 {
            cluster.freeze(member, true);
            // A key of its own, because a member may execute what it has received when it goes on.
            let key = format!("key-{member}");
            commit_when_available(&store, vec![Mutation::put(key.clone(), "1")]).await;
            assert_eq!(store.get(key.as_bytes()).unwrap().unwrap().value, "1");
            cluster.freeze(member, false);
            cluster.wait_until_healthy().await;
        }
        let mut batches = Vec::new();
        while follower.position() < store.revision() {
            if let Advance::Batch(batch) = follower.advance().await.unwrap() {
                batches.push(batch);
            }
        }
        assert!(batches.is_sorted_by(|one, next| one.revision < next.revision));
        let keys: BTreeSet<_> = batches.iter().map(|batch| batch.events[0].key.clone()).collect();
        assert!(keys.iter().eq(["key-0", "key-1", "key-2"]), "{keys:?}");
    });
}

#[test]
fn without_a_quorum_reads_go_on_and_commits_wait_for_its_return() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(3).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        put(&store, "a", "1").await;
        cluster.kill(0);
        cluster.kill(1);
        loop {
            match store.commit(vec![Mutation::put("a", "2")]).await {
                Err(CommitError::Unavailable { .. }) => break,
                // Sent before the loss was noticed.
                Err(CommitError::Unknown { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(store.get(b"a").unwrap().unwrap().value, "1");
        assert_eq!(store.stats().failure, None);
        cluster.start_member(0);
        let revision = commit_when_available(&store, vec![Mutation::put("b", "1")]).await;
        assert_eq!(store.get(b"b").unwrap().unwrap().modified, revision);
    });
}
