//! Prefixes that are filled from another store, and copied back.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, PutOptions};
use fairlead_store::{
    BackupContent, BackupHeader, BackupRange, BackupReader, CommitError, ContentDigest, ExistingStore,
    Expect, MemoryStore, Mutation, Ownership, Range, ReadError, RedbOptions, RedbStore, Revision, Store,
    write_backup,
};
use fairlead_store_etcd::{CopyError, EtcdError, EtcdOptions, EtcdStore, Timing};
use futures_util::FutureExt as _;

use crate::backend::runtime;
use crate::contract::subject::{put, take};
use crate::etcd::{Cluster, is_left_out};

/// A store with keys below the root and others, superseded values, a deletion, and a commit that exceeds one transaction.
async fn source() -> Arc<dyn Store> {
    let store = MemoryStore::starting_at(Revision(5_000));
    for (key, value) in
        [("/registry/b", "1"), ("/cache/x", "2"), ("/registry/a", "3"), ("/registry/gone", "4")]
    {
        put(&store, key, value).await;
    }
    let many = (0..300).map(|key| Mutation::put(format!("/registry/many/{key:03}"), "value"));
    store.commit(many.collect()).await.unwrap();
    store.commit(vec![Mutation::delete("/registry/gone", Expect::Present)]).await.unwrap();
    put(&store, "/registry/b", &"5".repeat(700_000)).await;
    put(&store, "/registry/c", &"6".repeat(700_000)).await;
    Arc::new(store)
}

fn digest(store: &dyn Store) -> ContentDigest {
    ContentDigest::of(store, store.revision()).unwrap()
}

fn modified(store: &dyn Store, key: &str) -> Revision {
    store.get(key.as_bytes()).unwrap().unwrap().modified
}

/// The keys and values below a prefix of etcd.
async fn keys(client: &mut etcd_client::Client, prefix: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = GetOptions::new().with_prefix();
    let found = client.get(prefix, Some(all)).await.unwrap();
    found.kvs().iter().map(|kv| (kv.key().to_vec(), kv.value().to_vec())).collect()
}

#[test]
fn a_filled_prefix_has_the_records_in_their_order_and_continues_above_every_revision_of_the_source() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let source = source().await;
        let folder = tempfile::tempdir().unwrap();
        let view = folder.path().join("view.redb");
        let options = EtcdOptions { prefix: "/shards/one".to_owned(), ..cluster.options() };
        let summary = EtcdStore::copy_from(options.clone(), source.clone()).await.unwrap();
        assert_eq!(summary.digest, digest(&*source));
        assert_eq!(summary.digest.records, 304);

        let options = EtcdOptions { view: Some(view), ..options };
        let store = EtcdStore::open(options.clone()).await.unwrap();
        assert_eq!(digest(&store), digest(&*source));
        // Opening the store writes a barrier.
        assert!(store.revision() > summary.revision);
        let order = ["/cache/x", "/registry/a", "/registry/many/000", "/registry/many/299", "/registry/b"];
        let revisions = order.map(|key| modified(&store, key));
        assert!(revisions.is_sorted() && revisions[0] > Revision(1_000_005_000), "{revisions:?}");
        assert!(revisions[0] < revisions[1] && revisions[1] < revisions[2] && revisions[3] < revisions[4]);
        for old in [1, 5_000, 5_008, summary.revision.0 - 1] {
            let followed = store.follow(Revision(old));
            assert!(matches!(followed, Err(ReadError::Compacted { .. })), "{old}: {followed:?}");
        }

        // Expectations, conflicts, the feed and compaction speak of the revisions of the store.
        let start = store.revision();
        let seen = modified(&store, "/registry/a");
        let updated = store.commit(vec![Mutation::update("/registry/a", seen, "new")]).await.unwrap();
        assert!(updated > start && updated.0 < start.0 + 100, "{updated}");
        for stale in [seen, Revision(5_003), Revision(updated.0 - start.0)] {
            let refused = store.commit(vec![Mutation::update("/registry/a", stale, "newer")]).await;
            let Err(CommitError::Conflict { current: Some(current), .. }) = refused else {
                panic!("{stale}: {refused:?}")
            };
            assert_eq!((current.modified, &current.value[..]), (updated, &b"new"[..]));
        }
        assert_eq!(take(&mut store.follow(start).unwrap(), 1).await[0].revision, updated);
        store.compact(updated).await.unwrap();
        assert_eq!(store.compacted(), updated);
        let mut client = cluster.client(0).await;
        let too_old = GetOptions::new().with_revision(1);
        assert!(client.get("a", Some(too_old)).await.is_err(), "etcd is compacted, too");
        store.close().await;
        drop(store);

        // The local copy is good.
        let store = EtcdStore::open(options).await.unwrap();
        assert_eq!(store.compacted(), updated);
        assert!(store.revision() > updated, "the barrier");
        assert!(put(&store, "/registry/a", "last").await > updated);
    });
}

#[test]
fn a_prefix_that_is_not_empty_is_refused_and_unchanged_and_a_failed_copy_leaves_it_empty() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let mut client = cluster.client(0).await;
        let with = |prefix: &str| EtcdOptions { prefix: prefix.to_owned(), ..cluster.options() };
        client.put("/kcp/a", "1", None).await.unwrap();
        client
            .put("/broken/.fairlead/owner", "fairlead-store 2 incomplete\ndefault\n00\n7\n", None)
            .await
            .unwrap();
        let store = EtcdStore::open(with("/used")).await.unwrap();
        let before = keys(&mut client, "/").await;
        for (prefix, message) in [
            ("/kcp", "the prefix /kcp in etcd has keys already"),
            ("/used", "the prefix /used in etcd has keys already"),
            (
                "/broken",
                "the prefix /broken in etcd is the target of another copy, which runs or was broken off",
            ),
        ] {
            let refused = EtcdStore::copy_from(with(prefix), source().await).await.unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
        assert_eq!(keys(&mut client, "/").await, before);
        drop(store);
        for refused in [
            EtcdStore::open(with("/broken")).await.unwrap_err(),
            EtcdStore::open_source(with("/broken")).await.unwrap_err(),
        ] {
            assert!(matches!(refused, EtcdError::Incomplete { .. }), "{refused}");
        }

        let small = EtcdOptions { max_request_bytes: 300_000, ..with("/small") };
        let refused = EtcdStore::copy_from(small, source().await).await.unwrap_err();
        assert!(matches!(&refused, CopyError::TooLarge { key, .. } if key == "/registry/b"), "{refused}");
        // The limit of etcd is less than the options say, so it fails midway.
        let large: Arc<dyn Store> = Arc::new(MemoryStore::new());
        put(&*large, "a", "1").await;
        put(&*large, "b", &"2".repeat(2 << 20)).await;
        let wrong = EtcdOptions { max_request_bytes: 8 << 20, ..with("/small") };
        let failed = EtcdStore::copy_from(wrong, large).await.unwrap_err();
        assert!(matches!(failed, CopyError::Etcd(_)), "{failed}");
        assert_eq!(keys(&mut client, "/small").await, []);
        EtcdStore::copy_from(with("/small"), source().await).await.unwrap();
    });
}

#[test]
fn a_prefix_is_copied_back_into_a_file_and_into_etcd_again() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let source = source().await;
        let first =
            EtcdOptions { prefix: "/first".to_owned(), owner: "shard a".to_owned(), ..cluster.options() };
        EtcdStore::copy_from(first.clone(), source.clone()).await.unwrap();
        let (store, owner) =
            EtcdStore::open_source(EtcdOptions { owner: String::new(), ..first }).await.unwrap();
        assert_eq!(owner, "shard a");
        let header = BackupHeader {
            content: BackupContent::Whole,
            source: owner,
            anchor: None,
            revision: store.revision(),
            created: 1_800_000_000,
        };
        let all = BackupRange { range: Range::all(), ownership: Ownership::Own };
        let mut backup = Vec::new();
        write_backup(&store, &header, &[all], &mut backup).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let reader = BackupReader::open(&backup[..]).unwrap();
        RedbStore::restore(&path, reader, ExistingStore::Refuse, None).unwrap();
        let file: Arc<dyn Store> = Arc::new(RedbStore::open(&path, RedbOptions::default()).unwrap());
        assert_eq!(digest(&*file), digest(&*source));
        assert!(file.revision() > store.revision());

        let second = EtcdOptions { prefix: "/second".to_owned(), ..cluster.options() };
        let summary = EtcdStore::copy_from(second, file.clone()).await.unwrap();
        assert_eq!(summary.digest, digest(&*source));
        assert!(summary.revision > file.revision());
    });
}

#[test]
fn a_source_must_exist_and_must_not_have_a_leader() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let mut client = cluster.client(0).await;
        let options = || EtcdOptions { owner: String::new(), ..cluster.options() };
        let refused = EtcdStore::open_source(options()).await.unwrap_err();
        assert!(matches!(refused, EtcdError::Empty { .. }), "{refused}");
        assert_eq!(
            client.get("/registry/.fairlead/owner", None).await.unwrap().count(),
            0,
            "it is not claimed"
        );

        drop(EtcdStore::open(cluster.options()).await.unwrap());
        let lease = client.lease_grant(60, None).await.unwrap().id();
        let leased = PutOptions::new().with_lease(lease);
        client.put("/registry/.fairlead/leader", "replica", Some(leased)).await.unwrap();
        let refused = EtcdStore::open_source(options()).await.unwrap_err();
        assert!(matches!(refused, EtcdError::InUse { .. }), "{refused}");
        client.lease_revoke(lease).await.unwrap();
        EtcdStore::open_source(options()).await.unwrap();
    });
}

#[test]
fn a_source_that_changes_meanwhile_is_no_source() {
    /// A store that is written to when it is read.
    struct Running(MemoryStore);

    #[async_trait::async_trait]
    impl Store for Running {
        async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
            self.0.commit(mutations).await
        }
        fn get(&self, key: &[u8]) -> Result<Option<fairlead_store::Record>, ReadError> {
            let found = self.0.get(key);
            // In memory it is done when it is begun.
            drop(self.0.commit(vec![Mutation::put("b", "1")]).now_or_never());
            found
        }
        fn scan(
            &self,
            range: &Range,
            at: Option<Revision>,
            visit: &mut dyn FnMut(fairlead_store::RecordRef<'_>) -> std::ops::ControlFlow<()>,
        ) -> Result<Revision, ReadError> {
            self.0.scan(range, at, visit)
        }
        fn revision(&self) -> Revision {
            self.0.revision()
        }
        fn compacted(&self) -> Revision {
            self.0.compacted()
        }
        fn follow(&self, after: Revision) -> Result<fairlead_store::Follower, ReadError> {
            self.0.follow(after)
        }
        async fn compact(&self, below: Revision) -> Result<(), fairlead_store::CompactError> {
            self.0.compact(below).await
        }
        fn stats(&self) -> fairlead_store::Stats {
            self.0.stats()
        }
    }

    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let store = MemoryStore::new();
        put(&store, "a", "1").await;
        let running = Arc::new(Running(store));
        let refused = EtcdStore::copy_from(cluster.options(), running).await.unwrap_err();
        assert!(matches!(refused, CopyError::Changed), "{refused}");
        // The prefix is free again.
        EtcdStore::copy_from(cluster.options(), Arc::new(MemoryStore::new())).await.unwrap();
    });
}

#[test]
fn a_source_on_etcd_may_go_on_with_its_barriers() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let first = EtcdOptions { prefix: "/first".to_owned(), ..cluster.options() };
        EtcdStore::copy_from(first.clone(), source().await).await.unwrap();
        let timing = Timing { barrier: Duration::from_millis(5), ..first.timing };
        let (store, _) = EtcdStore::open_source(EtcdOptions { timing, ..first }).await.unwrap();
        for key in 0..200 {
            put(&store, &format!("/registry/single/{key}"), "1").await;
        }
        let store: Arc<dyn Store> = Arc::new(store);
        let (begin, expected) = (store.revision(), digest(&*store));
        let second = EtcdOptions { prefix: "/second".to_owned(), ..cluster.options() };
        let summary = EtcdStore::copy_from(second, store.clone()).await.unwrap();
        assert_eq!(summary.digest, expected);
        assert!(store.revision() > begin, "no barrier was written meanwhile");
    });
}
