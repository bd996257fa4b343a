//! Leadership among the replicas of a server: the election, its terms, and the fence of a leader's commits.
//!
//! Replicas of a server share a store. One of them leads, and only it may do some of the work. A [`Term`] is the time in
//! which one replica leads; [`LEADER_KEY`] names the leader and is written anew for each term. A [`FencedStore`] adds to
//! each commit the expectation that this key is still that of its term. So a replica that does not know yet that another
//! one has replaced it commits nothing, however late its commit arrives.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::error::{Cause, CommitError, CompactError, ReadError};
use crate::follow::{Changes, Follower};
use crate::mutation::{Expect, Limits, Mutation};
use crate::record::{Range, Record, RecordRef, Revision};
use crate::store::{Stats, Store};

/// The key of the leader. It exists while a replica leads, and its last modification is the revision of the term.
///
/// A store with an election keeps it outside its view: it is in no read, no feed and no backup, and a commit can only
/// expect something of it.
pub const LEADER_KEY: &[u8] = b".fairlead/leader";

/// The election of the replica that leads. Only stores that several processes can open have one.
#[async_trait]
pub trait Election: Send + Sync + 'static {
    /// Waits until this replica leads; returns its term. By then the view of the store has every commit of earlier terms.
    ///
    /// Repeats what fails, until it succeeds. Dropping the future withdraws the candidacy: a term that was won meanwhile
    /// expires.
    async fn campaign(&self) -> Term;

    /// Ends a term, so that another replica can lead at once. Without a connection to the store it only ends here, and the
    /// next leader has to wait until the term has expired.
    async fn resign(&self, term: &Term);

    /// The name of the replica that leads; `None` if there is none, or it is not known. A cheap call.
    fn leader(&self) -> Option<Arc<str>>;
}

/// The time in which one replica leads. It ends once, for all clones.
#[derive(Clone)]
pub struct Term {
    revision: Revision,
    end: Arc<watch::Sender<Option<TermEnd>>>,
}

/// The end of a term.
#[derive(Clone, Debug)]
pub enum TermEnd {
    /// The replica has resigned.
    Resigned,
    /// Another replica leads, or may do so from now on.
    Lost(Cause),
}

impl fmt::Display for TermEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resigned => formatter.write_str("resigned"),
            Self::Lost(cause) => write!(formatter, "{cause}"),
        }
    }
}

impl Term {
    /// A term that has begun with the write of [`LEADER_KEY`] at a revision.
    pub fn new(revision: Revision) -> Self {
        Self { revision, end: Arc::new(watch::Sender::new(None)) }
    }

    /// The revision of [`LEADER_KEY`]. A later term has a greater one.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Ends the term here. Only the first end counts.
    pub fn end(&self, end: TermEnd) {
        self.end.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(end);
            is_first
        });
    }

    /// Whether the term has ended.
    pub fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Returns when the term has ended.
    pub async fn ended(&self) -> TermEnd {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await.map(|end| end.clone()) {
            Ok(Some(end)) => end,
            // The sender lives as long as `self`.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.borrow();
        formatter.debug_struct("Term").field("revision", &self.revision.0).field("end", &*end).finish()
    }
}

/// A store whose commits succeed only in a term. Reads are those of the store below.
///
/// A commit costs one mutation more, of which a store on a server has a limited number: [`Store::limits`] says one less.
pub struct FencedStore {
    store: Arc<dyn Store>,
    term: Term,
}

impl FencedStore {
    /// Fences the commits to `store`.
    pub fn new(store: Arc<dyn Store>, term: Term) -> Self {
        Self { store, term }
    }
}

#[async_trait]
impl Store for FencedStore {
    /// As that of the store below, and [`CommitError::NotLeader`] after the term. That error also ends the term.
    async fn commit(&self, mut mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        self.limits().check(&mutations)?;
        if self.term.is_over() {
            return Err(CommitError::NotLeader);
        }
        let fence = mutations.len();
        mutations.push(Mutation::fence(LEADER_KEY, Expect::At(self.term.revision)));
        match self.store.commit(mutations).await {
            Err(CommitError::Conflict { index, .. }) if index == fence => {
                self.term.end(TermEnd::Lost(Arc::new(CommitError::NotLeader)));
                Err(CommitError::NotLeader)
            }
            outcome => outcome,
        }
    }

    fn limits(&self) -> Limits {
        let Limits { mutations, bytes } = self.store.limits();
        Limits { mutations: mutations.saturating_sub(1), bytes: bytes.saturating_sub(LEADER_KEY.len()) }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.store.get(key)
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.store.scan(range, at, visit)
    }

    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn compacted(&self) -> Revision {
        self.store.compacted()
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.store.follow(after)
    }

    fn changes(&self, range: &Range, after: Revision, max_rows: usize) -> Result<Option<Changes>, ReadError> {
        self.store.changes(range, after, max_rows)
    }

    async fn compact(&self, below: Revision) -> Result<(), CompactError> {
        self.store.compact(below).await
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }
}
