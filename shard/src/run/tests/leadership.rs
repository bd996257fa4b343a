//! Terms of leadership: controllers run in them, one term after the other, and leave nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_store::{CommitError, Election, LEADER_KEY, MemoryStore, Mutation, Store, Term, TermEnd};
use tokio::sync::watch;

use super::isolation::Installation;

/// An election that the test decides.
struct TestElection {
    /// The terms that were granted; the last one is the current one.
    terms: watch::Sender<Vec<Term>>,
    campaigns: watch::Sender<usize>,
}

impl TestElection {
    /// Writes the leader's key and begins a term.
    async fn grant(&self, store: &dyn Store) -> Term {
        let revision = store.commit(vec![Mutation::put(LEADER_KEY, "test")]).await.unwrap();
        let term = Term::new(revision);
        self.terms.send_modify(|terms| terms.push(term.clone()));
        term
    }

    /// Waits until the replica has campaigned a number of times: everything of earlier terms has ended then.
    async fn campaigned(&self, times: usize) {
        self.campaigns.subscribe().wait_for(|campaigns| *campaigns == times).await.unwrap();
    }
}

#[async_trait]
impl Election for TestElection {
    async fn campaign(&self) -> Term {
        self.campaigns.send_modify(|campaigns| *campaigns += 1);
        let mut terms = self.terms.subscribe();
        let is_granted = |terms: &Vec<Term>| terms.last().is_some_and(|term| !term.is_over());
        let granted = terms.wait_for(is_granted).await.unwrap().last().cloned();
        granted.unwrap()
    }

    async fn resign(&self, term: &Term) {
        term.end(TermEnd::Resigned);
    }

    fn leader(&self) -> Option<Arc<str>> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_run_in_each_term_and_leave_no_observers_behind() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let election =
        Arc::new(TestElection { terms: watch::Sender::default(), campaigns: watch::Sender::default() });
    let mut replica = Installation::replica(store.clone(), election.clone()).await;
    election.campaigned(1).await;
    replica.catch_up().await;
    let observers = replica.global().observers();
    for (round, workspace) in ["one", "two", "three"].into_iter().enumerate() {
        let term = election.grant(&*store).await;
        replica.workspaces(&[workspace]).await;
        assert_ne!(replica.global().observers(), observers, "the controllers observe other shards");
        assert!(!term.is_over(), "every commit was of the term");
        term.end(TermEnd::Lost(Arc::new(CommitError::NotLeader)));
        election.campaigned(round + 2).await;
        assert_eq!(replica.global().observers(), observers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_replaced_ends_its_term_with_its_next_commit() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let election =
        Arc::new(TestElection { terms: watch::Sender::default(), campaigns: watch::Sender::default() });
    let mut replica = Installation::replica(store.clone(), election.clone()).await;
    election.campaigned(1).await;
    replica.catch_up().await;
    let term = election.grant(&*store).await;
    replica.workspaces(&["one"]).await;
    // Another replica leads from now on, and this one was not told.
    let other = store.commit(vec![Mutation::put(LEADER_KEY, "other")]).await.unwrap();
    assert!(other > term.revision());
    replica.create_workspace("two").await;
    assert!(matches!(term.ended().await, TermEnd::Lost(_)));
    election.campaigned(2).await;
    election.grant(&*store).await;
    replica.workspaces(&["three"]).await;
}
