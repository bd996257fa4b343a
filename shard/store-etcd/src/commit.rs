//! The course of a commit: send it, wait for the local copy, and find out what became of it when the connection is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_store::{
    Batch, Cause, Change, CommitError, CommitTimer, DurationHistogram, Expect, Follower, LEADER_KEY, Limits,
    Mutation, Replica, Revision, ServerStats,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{Failure, cause};
use crate::keys::KeyLayout;
use crate::link::{FOREIGN, Link, connected};
use crate::options::EtcdOptions;
use crate::owner::Claim;
use crate::progress::Progress;
use crate::transaction::{KeyState, Outcome, can_change, creates, outcome, request_bytes, transaction};
use crate::view::ViewFailure;

/// The pause before a commit that was not executed is sent again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Commits the mutations of callers.
pub(crate) struct Committer {
    pub(crate) options: Arc<EtcdOptions>,
    pub(crate) layout: Arc<KeyLayout>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) replica: Replica,
    pub(crate) link: watch::Receiver<Link>,
    pub(crate) view_failure: ViewFailure,
    pub(crate) progress: Arc<Progress>,
    pub(crate) counters: Counters,
}

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Transactions that etcd has executed, and the time until their responses.
    pub(crate) transactions: AtomicU64,
    pub(crate) transaction_nanoseconds: AtomicU64,
    pub(crate) unavailable: AtomicU64,
    /// Commits with [`CommitError::Unknown`].
    pub(crate) unknown: AtomicU64,
    pub(crate) timer: CommitTimer,
    pub(crate) compactions: DurationHistogram,
}

/// What came back from etcd.
enum Response {
    Outcome(Outcome),
    NotExecuted(Cause),
    Refused(Cause),
    Unknown(Cause),
}

impl Committer {
    pub(crate) fn limits(&self) -> Limits {
        self.options.limits()
    }

    /// Rejects mutations that are invalid in every state.
    pub(crate) fn check(&self, mutations: &[Mutation]) -> Result<(), CommitError> {
        self.limits().check(mutations)?;
        let (bytes, limit) =
            (request_bytes(mutations, &self.layout, &self.claim), self.options.max_request_bytes);
        if bytes > limit {
            return Err(CommitError::TooLarge { bytes, limit });
        }
        Ok(())
    }

    /// Commits mutations that have passed [`check`](Self::check).
    pub(crate) async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        let started = Instant::now();
        let outcome = self.attempts(&mutations).await;
        let counters = &self.counters;
        let counter = match &outcome {
            Ok((_, true)) => Some(&counters.commits),
            Ok(_) => None,
            Err(CommitError::Conflict { .. }) => Some(&counters.conflicts),
            Err(CommitError::Unavailable { .. }) => Some(&counters.unavailable),
            Err(CommitError::Unknown { .. }) => Some(&counters.unknown),
            Err(_) => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if outcome.is_ok() {
            counters.timer.total.observe(started.elapsed(), 1);
        }
        outcome.map(|(revision, _)| revision)
    }

    /// The revision, and whether the commit has an effect.
    async fn attempts(&self, mutations: &[Mutation]) -> Result<(Revision, bool), CommitError> {
        let patience = self.options.timing.patience;
        let mut link = self.link.clone();
        let begun = Instant::now();
        let deadline = begun + patience;
        let (mut used, mut last, mut pause) = (None, None, FIRST_PAUSE);
        loop {
            if let Some(cause) = self.view_failure.get() {
                return Err(CommitError::Unavailable { cause: cause.clone() });
            }
            let (connection, number) = connected(&mut link, used, patience, deadline)
                .await
                .map_err(|cause| CommitError::Unavailable { cause: last.take().unwrap_or(cause) })?;
            // Every later revision of the prefix is delivered by a follower from here.
            let before = self.replica.revision();
            let sent = Instant::now();
            match self.send(&connection, mutations).await {
                Response::Outcome(outcome) => {
                    self.counters.timer.queue.observe(sent - begun, 1);
                    return self.finish(mutations, outcome.after(before)).await;
                }
                Response::Refused(cause) => return Err(CommitError::Unavailable { cause }),
                // The same member has a leader again soon, or the session ends and there is another connection.
                Response::NotExecuted(cause) if Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    (used, last) = (None, Some(cause));
                    pause *= 2;
                }
                Response::NotExecuted(cause) => return Err(CommitError::Unavailable { cause }),
                // A commit that changes nothing may be repeated.
                Response::Unknown(cause) if !can_change(mutations) => {
                    (used, last) = (Some(number), Some(cause));
                }
                Response::Unknown(cause) => return self.resolve(mutations, before, cause).await,
            }
        }
    }

    /// The state of etcd and of the copy, as far as they are known.
    pub(crate) fn server_stats(&self) -> ServerStats {
        let mut stats = ServerStats::default();
        stats.endpoints.clone_from(&self.options.endpoints);
        match &*self.link.borrow() {
            Link::Connected { connection, .. } => stats.connected = Some(connection.endpoint().to_string()),
            Link::Lost(loss) => stats.disconnected = loss.since.elapsed(),
            Link::Failed { .. } => {}
        }
        stats.connections = self.progress.connections();
        stats.reloads = self.progress.reloads();
        stats.revisions_behind = self.progress.revisions_behind();
        stats.view_age = self.progress.view_age();
        stats.database = self.progress.database();
        stats
    }

    async fn send(&self, connection: &crate::client::Connection, mutations: &[Mutation]) -> Response {
        let started = Instant::now();
        let mut kv = connection.kv();
        let sent = kv.txn(transaction(mutations, &self.layout, &self.claim));
        match tokio::time::timeout(self.options.timing.request, sent).await {
            Ok(Ok(response)) => {
                let took = started.elapsed();
                self.counters.timer.durable.observe(took, 1);
                let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                self.counters.transactions.fetch_add(1, Ordering::Relaxed);
                self.counters.transaction_nanoseconds.fetch_add(took, Ordering::Relaxed);
                Response::Outcome(outcome(mutations, &self.claim, &response))
            }
            Ok(Err(error)) => match Failure::from(error) {
                Failure::NotExecuted(cause) => Response::NotExecuted(cause),
                Failure::Refused(cause) => Response::Refused(cause),
                Failure::Unknown(cause) => Response::Unknown(cause),
            },
            Err(_) => Response::Unknown(cause("etcd does not answer in time")),
        }
    }

    async fn finish(
        &self,
        mutations: &[Mutation],
        outcome: Outcome,
    ) -> Result<(Revision, bool), CommitError> {
        match outcome {
            Outcome::Committed(revision) => {
                self.progress.know(revision);
                let committed = Instant::now();
                self.wait_for(|replica| replica.revision() >= revision).await?;
                self.counters.timer.visible.observe(committed.elapsed(), 1);
                Ok((revision, true))
            }
            Outcome::Unchanged { revision, found } => {
                self.wait_for(|replica| found.iter().all(|state| has_passed(replica, state, revision)))
                    .await?;
                Ok((self.replica.revision(), false))
            }
            Outcome::Conflict { index, current, revision } => {
                let modified = current.as_ref().map(|record| record.modified);
                let key = mutations.get(index).map(|mutation| mutation.key.clone()).unwrap_or_default();
                let state = KeyState { key, modified };
                self.wait_for(|replica| has_passed(replica, &state, revision)).await?;
                Err(CommitError::Conflict { index, current })
            }
            Outcome::Foreign => Err(CommitError::Unavailable { cause: cause(FOREIGN) }),
            Outcome::Elsewhere => Err(CommitError::Unknown {
                cause: cause(
                    "another cluster at the address of etcd, a copy of the one before, has executed it",
                ),
            }),
            Outcome::Malformed => {
                Err(CommitError::Unknown { cause: cause("etcd sent a malformed response") })
            }
        }
    }

    /// Waits until the local copy is as required, so that the caller reads what etcd has told it.
    async fn wait_for(&self, is_reached: impl Fn(&Replica) -> bool) -> Result<(), CommitError> {
        let mut latest = self.replica.latest_revision();
        let limit = self.options.timing.request + self.options.timing.resolution;
        let reached = tokio::time::timeout(limit, latest.wait_for(|_| is_reached(&self.replica))).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => {
                let closed = || cause("the store is closed");
                let cause = self.view_failure.get().cloned().unwrap_or_else(closed);
                Err(CommitError::Unknown { cause })
            }
            Err(_) => Err(CommitError::Unknown { cause: cause("the local copy of etcd does not keep up") }),
        }
    }

    /// Looks for the commit in the feed after `before`, which it cannot precede.
    async fn resolve(
        &self,
        mutations: &[Mutation],
        before: Revision,
        lost: Cause,
    ) -> Result<(Revision, bool), CommitError> {
        let unknown = || CommitError::Unknown { cause: lost.clone() };
        let follower = self.replica.follow(before).map_err(|_| unknown())?;
        let found = tokio::time::timeout(self.options.timing.resolution, search(follower, mutations)).await;
        match found {
            Ok(Some(Found::Commit(revision))) => Ok((revision, true)),
            Ok(Some(Found::Conflict(index))) => {
                let key = mutations.get(index).map(|mutation| mutation.key.clone()).unwrap_or_default();
                let current = self.replica.get(&key).map_err(|_| unknown())?;
                Err(CommitError::Conflict { index, current })
            }
            Ok(Some(Found::Ambiguous) | None) | Err(_) => Err(unknown()),
        }
    }
}

/// Whether the copy shows a key as etcd reported it at `revision`, or as it was later. It never shows the leader's key.
fn has_passed(replica: &Replica, state: &KeyState, revision: Revision) -> bool {
    state.key == LEADER_KEY
        || replica.revision() >= revision
        || replica.get(&state.key).is_ok_and(|record| record.map(|record| record.modified) == state.modified)
}

/// What the feed shows of a commit.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It has this revision.
    Commit(Revision),
    /// It has not happened, and cannot any more: another commit came first.
    Conflict(usize),
    /// It or an equal one of another writer has happened.
    Ambiguous,
}

async fn search(mut follower: Follower, mutations: &[Mutation]) -> Option<Found> {
    loop {
        let batch = follower.next().await.ok()?;
        if let Some(found) = found(&batch, mutations) {
            return Some(found);
        }
    }
}

/// What a batch shows of a commit; `None` if it does not decide it.
fn found(batch: &Batch, mutations: &[Mutation]) -> Option<Found> {
    if is_commit(batch, mutations) {
        // An update and a deletion have nothing of their writer: of two clients that increment the same number, or delete the
        // same object, only one may be told that it did.
        return Some(if creates(mutations) { Found::Commit(batch.revision) } else { Found::Ambiguous });
    }
    mutations.iter().position(|mutation| prevents(batch, mutation)).map(Found::Conflict)
}

/// Whether a batch is exactly what the mutations do. A deletion of a key that did not exist makes no event. Another writer may
/// have committed the same.
fn is_commit(batch: &Batch, mutations: &[Mutation]) -> bool {
    let mut events = batch.events.iter().peekable();
    for mutation in mutations {
        let value = match &mutation.change {
            Change::Keep => continue,
            Change::Put(value) => Some(value),
            Change::Delete => None,
        };
        match events.peek() {
            Some(event) if event.key == mutation.key && event.value.as_ref() == value => {
                events.next();
            }
            _ if value.is_none() && matches!(mutation.expect, Expect::Any | Expect::Absent) => {}
            _ => return false,
        }
    }
    events.next().is_none()
}

/// Whether the expectation of a mutation can never hold again after a batch of another writer. The batch may be the one that
/// wrote what the mutation expects, when the caller has read it in another replica.
fn prevents(batch: &Batch, mutation: &Mutation) -> bool {
    matches!(mutation.expect, Expect::At(at) if at < batch.revision)
        && batch.events.iter().any(|event| event.key == mutation.key)
}

#[cfg(test)]
mod tests {
    use fairlead_store::{Event, Record};

    use super::*;

    fn batch(events: &[(&'static str, Option<&'static str>)]) -> Batch {
        let event = |(key, value): &(&'static str, Option<&'static str>)| Event {
            key: (*key).into(),
            value: value.map(Into::into),
            previous: None::<Record>,
        };
        Batch { revision: Revision(9), events: events.iter().map(event).collect() }
    }

    #[test]
    fn a_commit_is_recognised_by_all_of_its_events() {
        let mutations = [
            Mutation::create("a", "1"),
            Mutation::fence("lease", Expect::At(Revision(3))),
            Mutation::delete("b", Expect::Any),
            Mutation::update("c", Revision(4), "2"),
        ];
        let cases = [
            (batch(&[("a", Some("1")), ("b", None), ("c", Some("2"))]), true),
            (batch(&[("a", Some("1")), ("c", Some("2"))]), true),
            (batch(&[("a", Some("1")), ("b", None)]), false),
            (batch(&[("a", Some("1")), ("b", None), ("c", Some("3"))]), false),
            (batch(&[("a", Some("1")), ("b", None), ("c", Some("2")), ("d", Some("1"))]), false),
            (batch(&[("c", Some("2")), ("a", Some("1"))]), false),
        ];
        for (batch, expected) in cases {
            assert_eq!(is_commit(&batch, &mutations), expected, "{batch:?}");
        }
    }

    #[test]
    fn what_another_writer_may_have_done_is_not_claimed() {
        let (gone, one) = (batch(&[("a", None)]), batch(&[("a", Some("1"))]));
        let at = Expect::At(Revision(3));
        let cases = [
            (&gone, vec![Mutation::delete("a", at)], Some(Found::Ambiguous)),
            (&gone, vec![Mutation::delete("a", Expect::Present)], Some(Found::Ambiguous)),
            (&gone, vec![Mutation::update("a", Revision(3), "1")], Some(Found::Conflict(0))),
            (&gone, vec![Mutation::delete("b", Expect::Present)], None),
            (&one, vec![Mutation::update("a", Revision(3), "1")], Some(Found::Ambiguous)),
            (&one, vec![Mutation::update("a", Revision(3), "2")], Some(Found::Conflict(0))),
            (&one, vec![Mutation::put("a", "1")], Some(Found::Ambiguous)),
            (&one, vec![Mutation::create("a", "1")], Some(Found::Commit(Revision(9)))),
        ];
        for (batch, mutations, expected) in cases {
            assert_eq!(found(batch, &mutations), expected, "{mutations:?}");
        }
        let replaced = batch(&[("a", None), ("b", Some("1"))]);
        let move_to_b = [Mutation::delete("a", Expect::Present), Mutation::create("b", "1")];
        assert_eq!(found(&replaced, &move_to_b), Some(Found::Commit(Revision(9))));
    }

    #[test]
    fn only_a_change_of_an_expected_revision_is_final() {
        let other = batch(&[("a", Some("x"))]);
        // The creator of the key may delete it again, and then this commit could still be executed.
        assert!(!prevents(&other, &Mutation::create("a", "1")));
        assert!(!prevents(&other, &Mutation::put("a", "1")));
        assert!(!prevents(&other, &Mutation::update("b", Revision(3), "1")));
        assert!(!prevents(&other, &Mutation::update("a", Revision(9), "1")));
        assert!(prevents(&other, &Mutation::update("a", Revision(3), "1")));
        assert!(prevents(&other, &Mutation::fence("a", Expect::At(Revision(3)))));
    }
}
