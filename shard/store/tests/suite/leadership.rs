//! Terms of leadership, and the fence of a leader's commits.

use std::sync::Arc;

use fairlead_store::{
    CommitError, Expect, FencedStore, LEADER_KEY, Limits, MAX_COMMIT_BYTES, MemoryStore, Mutation,
    RedbOptions, RedbStore, Revision, Store, Term, TermEnd,
};
use futures_util::FutureExt;

use crate::backend::runtime;

/// Writes the leader's key, as an election does, and returns the term.
async fn elect(store: &Arc<dyn Store>) -> Term {
    Term::new(store.commit(vec![Mutation::put(LEADER_KEY, "replica")]).await.unwrap())
}

/// Runs one behaviour on a store of each backend.
fn on_stores<Done: Future<Output = ()>>(behaviour: impl Fn(Arc<dyn Store>) -> Done) {
    let folder = tempfile::tempdir().unwrap();
    let redb = RedbStore::open(folder.path().join("store.redb"), RedbOptions::default()).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(redb)];
    for store in stores {
        runtime().block_on(behaviour(store));
    }
}

#[test]
fn a_deposed_leader_commits_nothing() {
    on_stores(|store| async move {
        let first_term = elect(&store).await;
        let first = FencedStore::new(store.clone(), first_term.clone());
        first.commit(vec![Mutation::create("a", "1")]).await.unwrap();

        let second_term = elect(&store).await;
        let before = store.revision();
        let changes = [
            vec![Mutation::put("a", "2")],
            vec![Mutation::delete("a", Expect::Any)],
            vec![Mutation::fence("a", Expect::Present)],
        ];
        for mutations in changes {
            // The term has not ended here yet, as in a process that was stopped while another took over.
            let first = FencedStore::new(store.clone(), Term::new(first_term.revision()));
            let refused = first.commit(mutations).await;
            assert!(matches!(refused, Err(CommitError::NotLeader)), "{refused:?}");
        }
        assert_eq!(store.revision(), before);

        let refused = first.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::NotLeader)), "{refused:?}");
        assert!(
            matches!(first_term.ended().await, TermEnd::Lost(_)),
            "the refused commit has ended the term"
        );
        let second = FencedStore::new(store.clone(), second_term);
        second.commit(vec![Mutation::put("a", "2")]).await.unwrap();
        assert_eq!(first.get(b"a").unwrap().unwrap().value, "2", "reads go on");
    });
}

#[test]
fn a_conflict_of_the_leader_is_its_own() {
    on_stores(|store| async move {
        let term = elect(&store).await;
        let leader = FencedStore::new(store.clone(), term.clone());
        leader.commit(vec![Mutation::create("a", "1")]).await.unwrap();
        let refused = leader.commit(vec![Mutation::put("b", "1"), Mutation::create("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::Conflict { index: 1, .. })), "{refused:?}");
        assert!(!term.is_over());
    });
}

#[test]
fn a_term_ends_once_for_all_of_its_holders() {
    runtime().block_on(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let term = elect(&store).await;
        let leader = FencedStore::new(store.clone(), term.clone());
        assert!(term.ended().now_or_never().is_none());
        term.end(TermEnd::Resigned);
        term.clone().end(TermEnd::Lost(Arc::new(CommitError::NotLeader)));
        assert!(matches!(term.clone().ended().await, TermEnd::Resigned));
        let before = store.revision();
        let refused = leader.commit(vec![Mutation::put("a", "1")]).await;
        assert!(matches!(refused, Err(CommitError::NotLeader)), "{refused:?}");
        assert_eq!(store.revision(), before);
    });
}

#[test]
fn one_mutation_of_the_limits_is_the_fence() {
    /// A store with the limits of an etcd.
    struct Limited(MemoryStore);

    #[async_trait::async_trait]
    impl Store for Limited {
        async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
            self.limits().check(&mutations)?;
            self.0.commit(mutations).await
        }
        fn limits(&self) -> Limits {
            Limits { mutations: 3, bytes: MAX_COMMIT_BYTES }
        }
        fn get(&self, key: &[u8]) -> Result<Option<fairlead_store::Record>, fairlead_store::ReadError> {
            self.0.get(key)
        }
        fn scan(
            &self,
            range: &fairlead_store::Range,
            at: Option<Revision>,
            visit: &mut dyn FnMut(fairlead_store::RecordRef<'_>) -> std::ops::ControlFlow<()>,
        ) -> Result<Revision, fairlead_store::ReadError> {
            self.0.scan(range, at, visit)
        }
        fn revision(&self) -> Revision {
            self.0.revision()
        }
        fn compacted(&self) -> Revision {
            self.0.compacted()
        }
        fn follow(&self, after: Revision) -> Result<fairlead_store::Follower, fairlead_store::ReadError> {
            self.0.follow(after)
        }
        async fn compact(&self, below: Revision) -> Result<(), fairlead_store::CompactError> {
            self.0.compact(below).await
        }
        fn stats(&self) -> fairlead_store::Stats {
            self.0.stats()
        }
    }

    runtime().block_on(async {
        let store: Arc<dyn Store> = Arc::new(Limited(MemoryStore::new()));
        let leader = FencedStore::new(store.clone(), elect(&store).await);
        let puts =
            |count: usize| (0..count).map(|key| Mutation::put(format!("{key}"), "1")).collect::<Vec<_>>();
        assert_eq!(leader.limits().mutations, 2);
        leader.commit(puts(2)).await.unwrap();
        let refused = leader.commit(puts(3)).await;
        assert!(matches!(refused, Err(CommitError::TooManyMutations { count: 3, limit: 2 })), "{refused:?}");
        assert!(matches!(leader.commit(Vec::new()).await, Err(CommitError::Empty)));
    });
}
