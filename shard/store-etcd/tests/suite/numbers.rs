//! The numbers that the store counts for metrics.

use std::cell::Cell;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType};
use fairlead_store::{CommitError, Mutation, ServerStats, Store};
use fairlead_store_etcd::{EtcdOptions, EtcdStore, Timing};

use crate::backend::runtime;
use crate::contract::subject::put;
use crate::etcd::{Cluster, commit_when_available, is_left_out};
use crate::faults::eventually;

fn server(store: &EtcdStore) -> ServerStats {
    store.stats().server.expect("a store on etcd has a server")
}

#[test]
fn commits_are_counted_by_phase() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        for number in 0..5 {
            put(&store, "a", &format!("{number}")).await;
        }
        let conflict = store.commit(vec![Mutation::create("a", "6")]).await;
        assert!(matches!(conflict, Err(CommitError::Conflict { .. })), "{conflict:?}");
        let stats = store.stats();
        let durations = &stats.commit_durations;
        let counts =
            [&durations.queue, &durations.apply, &durations.durable, &durations.visible, &durations.total];
        assert_eq!(counts.map(fairlead_store::Durations::count), [6, 0, 6, 5, 5]);
        assert!(durations.durable.sum > Duration::ZERO && durations.total.sum > durations.visible.sum);
        assert_eq!((stats.backend, stats.commits, stats.conflicts), ("etcd", 5, 1));
        assert_eq!(server(&store).revisions_behind, 0, "a commit returns when it can be read");
    });
}

#[test]
fn the_loss_of_etcd_and_its_return_are_seen() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(1).await;
        let store = EtcdStore::open(cluster.options()).await.unwrap();
        put(&store, "a", "1").await;
        let endpoint = cluster.client_url(0);
        let connected = server(&store);
        assert_eq!(connected.endpoints, std::slice::from_ref(&endpoint));
        assert_eq!(connected.connected, Some(endpoint.clone()));
        assert_eq!(
            (connected.connections, connected.reloads, connected.disconnected),
            (1, 1, Duration::ZERO)
        );
        eventually(|| server(&store).database.is_some_and(|database| database.bytes > 0)).await;

        cluster.kill(0);
        eventually(|| server(&store).connected.is_none()).await;
        // Longer than any age while etcd is there: the heartbeat of tests is half a second.
        eventually(|| server(&store).view_age > Duration::from_secs(5)).await;
        assert!(server(&store).disconnected > Duration::ZERO);
        let refused = store.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
        assert_eq!(store.stats().unavailable, 1);

        cluster.start_member(0);
        commit_when_available(&store, vec![Mutation::put("a", "3")]).await;
        eventually(|| server(&store).view_age < Duration::from_secs(2)).await;
        let back = server(&store);
        assert_eq!((&back.connected, back.disconnected), (&Some(endpoint), Duration::ZERO));
        assert!(back.connections >= 2, "{back:?}");
        assert_eq!(back.reloads, 1, "the copy was good");
    });
}

#[test]
fn commits_of_other_users_of_etcd_make_the_view_look_older_only_until_the_next_barrier() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let barrier = Duration::from_millis(200);
        let timing = Timing { barrier, heartbeat: Duration::from_secs(60), ..cluster.options().timing };
        let store = EtcdStore::open(EtcdOptions { timing, ..cluster.options() }).await.unwrap();
        let mut other = cluster.client(0).await;
        for _ in 0..20 {
            other.put("/others/a", "1", None).await.unwrap();
        }
        assert_eq!(server(&store).revisions_behind, 0, "they are not of this store");
        // Only barriers prove it here: there is no heartbeat for a minute. Without a new proof the view only gets older.
        let last = Cell::new(Duration::ZERO);
        eventually(|| server(&store).view_age < last.replace(server(&store).view_age)).await;
    });
}

#[test]
fn a_used_up_quota_is_seen() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let timing = Timing { barrier: Duration::from_millis(200), ..cluster.options().timing };
        let store = EtcdStore::open(EtcdOptions { timing, ..cluster.options() }).await.unwrap();
        let is_exhausted = || server(&store).database.map(|database| database.is_exhausted);
        eventually(|| is_exhausted() == Some(false)).await;
        let mut client = cluster.client(0).await;
        client.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await.unwrap();
        eventually(|| is_exhausted() == Some(true)).await;
    });
}
