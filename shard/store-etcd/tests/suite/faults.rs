//! Failures of an etcd with one member: crashes, compaction beneath the watch, no space, another cluster at the address.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, DeleteOptions, GetOptions};
use fairlead_store::{Advance, CommitError, Expect, FollowError, MemoryStore, Mutation, Revision, Store};
use fairlead_store_etcd::{CopyError, EtcdError, EtcdOptions, EtcdStore, Timing};
use futures_util::FutureExt as _;

use crate::backend::runtime;
use crate::contract::subject::{put, take};
use crate::etcd::{Cluster, commit_when_available, is_left_out, options};
use crate::proxy::Proxy;

/// Waits until the store has a state that only its own tasks bring about.
pub(crate) async fn eventually(is_reached: impl Fn() -> bool) {
    let reached = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("not reached for a minute");
}

fn value(store: &dyn Store, key: &str) -> Option<String> {
    let record = store.get(key.as_bytes()).unwrap()?;
    Some(String::from_utf8(record.value.to_vec()).unwrap())
}

#[test]
fn reads_go_on_and_commits_get_a_retryable_error_while_etcd_is_killed() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(1).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        let start = store.revision();
        let mut follower = store.follow(start).unwrap();
        put(&store, "a", "1").await;
        put(&store, "b", "1").await;

        cluster.kill(0);
        eventually(|| store.follow(start).is_ok()).await;
        let refused = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(
            matches!(refused, Err(CommitError::Unavailable { .. } | CommitError::Unknown { .. })),
            "{refused:?}"
        );
        // The connection counts as lost now, so nothing is sent any more.
        let refused = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
        assert_eq!(value(&store, "a").as_deref(), Some("1"));
        assert_eq!(store.stats().failure, None, "reads go on, so the server stays ready");

        cluster.start_member(0);
        commit_when_available(&store, vec![Mutation::put("a", "3")]).await;
        assert_eq!(value(&store, "a").as_deref(), Some("3"));
        let batches = take(&mut follower, 3).await;
        assert_eq!(batches[2].revision, store.revision(), "no gap, no duplicate");
    });
}

#[test]
fn acknowledged_commits_survive_kills_under_load() {
    const WRITERS: usize = 8;
    const KILLS: usize = 4;
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let mut options = cluster.options();
        options.view = Some(folder.path().join("view.redb"));
        let store = std::sync::Arc::new(EtcdStore::open(options.clone()).await.unwrap());
        let start = store.revision();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, stopped) = (store.clone(), stopped.clone());
                tokio::spawn(count_up(store, format!("writer-{writer}"), stopped))
            })
            .collect();
        for _ in 0..KILLS {
            let before = store.stats().commits;
            eventually(|| store.stats().commits > before + 20).await;
            cluster.kill(0);
            cluster.start_member(0);
        }
        let before = store.stats().commits;
        eventually(|| store.stats().commits > before + 20).await;
        stop.send_replace(true);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.push(writer.await.unwrap());
        }
        assert_in_order(&*store, start).await;
        store.close().await;
        drop(store);

        let store = EtcdStore::open(options).await.unwrap();
        for (writer, count) in acknowledged.into_iter().enumerate() {
            let found: u64 = value(&store, &format!("writer-{writer}")).unwrap().parse().unwrap();
            assert!(found >= count, "writer {writer}: {found} < {count}");
        }
    });
}

/// Counts a key up until told to stop; returns the last number that was acknowledged. The number is compared before each
/// write, so a commit that happens twice or against its expectation ends in a panic.
pub(crate) async fn count_up(
    store: std::sync::Arc<EtcdStore>,
    key: String,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> u64 {
    let mut count = 0;
    let mut may_be_ahead = false;
    while !*stopped.borrow() {
        let found = store.get(key.as_bytes()).unwrap();
        let number: u64 =
            found.as_ref().map_or(0, |record| std::str::from_utf8(&record.value).unwrap().parse().unwrap());
        assert!(number == count || may_be_ahead && number == count + 1, "{key}: {number} after {count}");
        let mutation = match &found {
            Some(record) => Mutation::update(key.clone(), record.modified, (number + 1).to_string()),
            None => Mutation::create(key.clone(), (number + 1).to_string()),
        };
        match store.commit(vec![mutation]).await {
            Ok(_) => (count, may_be_ahead) = (number + 1, false),
            Err(CommitError::Unavailable { .. }) => {}
            // Executed without an answer: it is visible now, or may still come.
            Err(CommitError::Unknown { .. }) => (count, may_be_ahead) = (number, true),
            Err(CommitError::Conflict { .. }) if may_be_ahead => {}
            Err(other) => panic!("{key}: {other}"),
        }
    }
    count
}

/// The feed from `start` counts each key up by one.
pub(crate) async fn assert_in_order(store: &dyn Store, start: Revision) {
    let end = store.revision();
    let mut follower = store.follow(start).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    while follower.position() < end {
        // The last revision may be that of a barrier.
        let Advance::Batch(batch) = follower.advance().await.unwrap() else { continue };
        for event in &batch.events {
            let number: u64 = std::str::from_utf8(event.value.as_ref().unwrap()).unwrap().parse().unwrap();
            let before = counts.insert(event.key.clone(), number).unwrap_or(0);
            assert_eq!(number, before + 1, "{:?} at {}", event.key, batch.revision);
        }
    }
}

#[test]
fn a_copy_that_was_overtaken_by_compaction_is_read_again_and_followers_are_told() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let proxy = Proxy::start(cluster.client_port(0)).await;
        let behind = EtcdStore::open(options(vec![proxy.url()])).await.unwrap();
        put(&behind, "a", "1").await;
        put(&behind, "gone", "1").await;
        let seen = behind.revision();
        let mut follower = behind.follow(seen).unwrap();

        proxy.lead_to(None);
        let other = EtcdStore::open(cluster.options()).await.unwrap();
        put(&other, "a", "2").await;
        other.commit(vec![Mutation::delete("gone", Expect::Present)]).await.unwrap();
        let last = put(&other, "b", "1").await;
        other.compact(last).await.unwrap();

        proxy.lead_to(Some(cluster.client_port(0)));
        let end = tokio::time::timeout(Duration::from_secs(60), follower.next()).await.unwrap();
        assert!(matches!(end, Err(FollowError::Compacted { oldest }) if oldest >= last), "{end:?}");
        assert_eq!(value(&behind, "a").as_deref(), Some("2"));
        assert_eq!(value(&behind, "b").as_deref(), Some("1"));
        assert_eq!(value(&behind, "gone"), None);
        commit_when_available(&behind, vec![Mutation::put("a", "3")]).await;
        assert_eq!(value(&behind, "a").as_deref(), Some("3"));
    });
}

#[test]
fn a_copy_that_was_cut_off_continues_where_it_was() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let proxy = Proxy::start(cluster.client_port(0)).await;
        let cut_off = EtcdStore::open(options(vec![proxy.url()])).await.unwrap();
        let mut follower = cut_off.follow(cut_off.revision()).unwrap();
        proxy.lead_to(None);
        let other = EtcdStore::open(cluster.options()).await.unwrap();
        let mut last = Revision(0);
        for value in ["1", "2", "3"] {
            last = put(&other, "a", value).await;
        }
        assert_eq!(value(&cut_off, "a"), None);
        proxy.lead_to(Some(cluster.client_port(0)));
        let batches = take(&mut follower, 3).await;
        assert!(batches.is_sorted_by_key(|batch| batch.revision));
        assert_eq!(batches[2].revision, last);
    });
}

#[test]
fn without_space_in_etcd_commits_are_refused_and_reads_and_deletions_go_on() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start_with(1, &["--quota-backend-bytes", "2097152"]).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        put(&store, "small", "1").await;
        let mut written = 0;
        let refused = loop {
            let large = Mutation::put(format!("large-{written}"), vec![b'v'; 256 << 10]);
            match store.commit(vec![large]).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 100, "the quota has no effect");
        };
        assert!(
            matches!(&refused, CommitError::Unavailable { cause } if cause.to_string().contains("space exceeded")),
            "{refused:?}"
        );
        assert_eq!(value(&store, "small").as_deref(), Some("1"));
        // A server that starts now can read.
        let late = EtcdStore::open(cluster.options()).await.unwrap();
        assert_eq!(value(&late, "small").as_deref(), Some("1"));
        drop(late);
        // A prefix cannot be claimed or filled.
        let new = || EtcdOptions { prefix: "/new".to_owned(), ..cluster.options() };
        let refused = EtcdStore::open(new()).await.unwrap_err();
        assert_eq!(refused.to_string(), "etcd has no space: etcdserver: mvcc: database space exceeded");
        let refused = EtcdStore::copy_from(new(), Arc::new(MemoryStore::new())).await.unwrap_err();
        assert!(matches!(refused, CopyError::Etcd(EtcdError::NoSpace { .. })), "{refused}");

        for large in 0..written {
            let delete = Mutation::delete(format!("large-{large}"), Expect::Present);
            store.commit(vec![delete]).await.unwrap();
        }
        store.compact(store.revision()).await.unwrap();
        let mut client = cluster.client(0).await;
        client.defragment().await.unwrap();
        let member = client.status().await.unwrap().header().unwrap().member_id();
        let mut of_member = AlarmOptions::new();
        of_member.with_member(member);
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of_member)).await.unwrap();
        commit_when_available(&store, vec![Mutation::put("small", "2")]).await;
    });
}

#[test]
fn the_copy_stays_when_the_prefix_is_emptied() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let options = EtcdOptions { view: Some(folder.path().join("view.redb")), ..cluster.options() };
        let store = EtcdStore::open(options.clone()).await.unwrap();
        let revision = put(&store, "a", "1").await;
        let mut follower = store.follow(revision).unwrap();
        let prefix = DeleteOptions::new().with_prefix();
        cluster.client(0).await.delete("/registry/", Some(prefix)).await.unwrap();
        eventually(|| store.stats().failure.is_some()).await;
        let failure = store.stats().failure.unwrap();
        assert!(failure.contains("its content was replaced"), "{failure}");
        let refused = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
        assert_eq!(value(&store, "a").as_deref(), Some("1"));
        assert!(follower.advance().now_or_never().is_none(), "a follower is told of the deletion");
        store.close().await;
        drop(store);
        let short = Timing { open: Duration::from_millis(300), ..options.timing };
        let error = EtcdStore::open(EtcdOptions { timing: short, ..options }).await.unwrap_err();
        assert!(
            matches!(&error, EtcdError::Foreign { reason, .. } if reason.contains("has no keys")),
            "{error}"
        );
    });
}

#[test]
fn the_copy_is_read_again_when_the_owners_record_was_put_back() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        put(&store, "a", "1").await;
        let mut client = cluster.client(0).await;
        let key = "/registry/.fairlead/owner";
        let record = client.get(key, None).await.unwrap().kvs()[0].value().to_vec();
        client.delete(key, None).await.unwrap();
        eventually(|| store.stats().failure.is_some()).await;
        client.put(key, record, None).await.unwrap();
        commit_when_available(&store, vec![Mutation::put("a", "2")]).await;
        assert_eq!(value(&store, "a").as_deref(), Some("2"));
        assert_eq!(
            store.stats().server.unwrap().reloads,
            2,
            "at the start, and after the record was put back"
        );
    });
}

#[test]
fn another_cluster_at_the_address_gets_no_commit_and_serves_nothing() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let (ours, foreign) = (Cluster::start(1).await, Cluster::start(1).await);
        let proxy = Proxy::start(ours.client_port(0)).await;
        let store = EtcdStore::open(options(vec![proxy.url()])).await.unwrap();
        put(&store, "a", "ours").await;
        // The other cluster has the same prefix and the same owner's name.
        let elsewhere = EtcdStore::open(foreign.options()).await.unwrap();
        put(&elsewhere, "a", "theirs").await;
        let before = elsewhere.revision();

        proxy.lead_to(Some(foreign.client_port(0)));
        eventually(|| store.stats().failure.is_some()).await;
        let failure = store.stats().failure.unwrap();
        assert!(failure.contains("is not the etcd of this store: it is the cluster"), "{failure}");
        let refused = store.commit(vec![Mutation::put("a", "new")]).await;
        let Err(CommitError::Unavailable { cause }) = refused else { panic!("{refused:?}") };
        assert!(cause.to_string().starts_with("another cluster answers"), "{cause}");
        assert_eq!(value(&store, "a").as_deref(), Some("ours"));
        assert_eq!(elsewhere.revision(), before);
        let all = GetOptions::new().with_prefix().with_keys_only();
        let keys = foreign.client(0).await.get("/", Some(all)).await.unwrap();
        assert_eq!(keys.kvs().len(), 3, "the owner's record, the barrier and one key");

        proxy.lead_to(Some(ours.client_port(0)));
        commit_when_available(&store, vec![Mutation::put("a", "new")]).await;
        assert_eq!(store.stats().failure, None);
    });
}
