//! Commits that wait at the same time share a transaction of etcd.
//!
//! Each transaction costs etcd an entry in its log, a response, and a message to every watch, whatever its size; so 32 writers
//! get several times the commits per second that they would get one by one. A commit that nobody else waits beside is sent at
//! once and alone.
//!
//! The transaction has the expectations and changes of all. When one does not hold, its commit is a conflict, and the others are
//! sent again. They are no inner transactions, whose writes etcd (3.5) does not count against its quota of space.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fairlead_store::{Cause, Change, Mutation};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::Connection;
use crate::counters::Counters;
use crate::error::{Failure, cause};
use crate::keys::KeyLayout;
use crate::options::EtcdOptions;
use crate::owner::Claim;
use crate::transaction::{Outcome, outcomes, request_bytes, transaction};

/// Transactions in flight. The commits that arrive meanwhile form the next group.
const IN_FLIGHT: usize = 4;

/// What became of a commit that was sent.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Outcome(Outcome),
    NotExecuted(Cause),
    Refused(Cause),
    Unknown(Cause),
}

/// Sends commits in groups.
pub(crate) struct GroupSender {
    options: Arc<EtcdOptions>,
    layout: Arc<KeyLayout>,
    claim: Arc<Claim>,
    counters: Arc<Counters>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<WaitingCommit>,
    in_flight: usize,
}

/// A commit that is not sent yet.
struct WaitingCommit {
    mutations: Arc<[Mutation]>,
    bytes: usize,
    /// The connection that it is to be sent by, and its number.
    connection: Arc<Connection>,
    number: u64,
    reply: oneshot::Sender<Response>,
}

impl GroupSender {
    pub(crate) fn new(
        options: Arc<EtcdOptions>,
        layout: Arc<KeyLayout>,
        claim: Arc<Claim>,
        counters: Arc<Counters>,
    ) -> Self {
        Self { options, layout, claim, counters, queue: Mutex::default() }
    }

    /// Sends mutations whose size has been checked, by a connection with this number.
    pub(crate) async fn send(
        self: &Arc<Self>,
        connection: Arc<Connection>,
        number: u64,
        mutations: Arc<[Mutation]>,
    ) -> Response {
        let (reply, response) = oneshot::channel();
        let bytes = request_bytes(&mutations, &self.layout, &self.claim);
        let is_sent_at_once = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(WaitingCommit { mutations, bytes, connection, number, reply });
            let is_free = queue.in_flight < IN_FLIGHT;
            queue.in_flight += usize::from(is_free);
            is_free
        };
        if is_sent_at_once {
            tokio::spawn(self.clone().send_waiting());
        }
        response.await.unwrap_or_else(|_| Response::Unknown(cause("the process ends")))
    }

    /// Sends groups until no commit waits.
    async fn send_waiting(self: Arc<Self>) {
        loop {
            let group = {
                let mut queue = self.queue.lock();
                let group = take_group(&mut queue.waiting, &self.options);
                if group.is_empty() {
                    queue.in_flight -= 1;
                    return;
                }
                group
            };
            self.send_group(group).await;
        }
    }

    async fn send_group(&self, mut group: Vec<WaitingCommit>) {
        while let Some(first) = group.first() {
            let connection = first.connection.clone();
            let responses = self.execute(&connection, &group).await;
            // One commit may be the reason for all, such as a write while etcd has only room for deletions.
            if group.len() > 1 && matches!(responses.first(), Some(Some(Response::Refused(_)))) {
                for commit in group {
                    let alone = [commit];
                    let responses = self.execute(&connection, &alone).await;
                    answer(alone, responses);
                }
                return;
            }
            // At least one commit gets a response.
            group = answer(group, responses);
        }
    }

    /// One response for each commit; `None`: it is to be sent again.
    async fn execute(&self, connection: &Connection, group: &[WaitingCommit]) -> Vec<Option<Response>> {
        let started = Instant::now();
        let commits: Vec<&[Mutation]> = group.iter().map(|commit| &*commit.mutations).collect();
        let txn = transaction(&commits, &self.layout, &self.claim);
        let mut kv = connection.kv();
        let failed = |response: Response| vec![Some(response); commits.len()];
        match tokio::time::timeout(self.options.timing.request, kv.txn(txn)).await {
            Ok(Ok(response)) => {
                let took = started.elapsed();
                let outcomes = outcomes(&commits, &self.claim, &response);
                let done = outcomes.iter().flatten().count() as u64;
                self.counters.timer.durable.observe(took, done);
                let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                self.counters.transactions.fetch_add(1, Ordering::Relaxed);
                self.counters.transaction_nanoseconds.fetch_add(took, Ordering::Relaxed);
                outcomes.into_iter().map(|outcome| outcome.map(Response::Outcome)).collect()
            }
            Ok(Err(error)) => failed(match Failure::from(error) {
                Failure::NotExecuted(cause) => Response::NotExecuted(cause),
                Failure::Refused(cause) => Response::Refused(cause),
                Failure::Unknown(cause) => Response::Unknown(cause),
            }),
            Err(_) => failed(Response::Unknown(cause("etcd does not answer in time"))),
        }
    }
}

/// Tells the callers of commits their responses, and returns the commits that have none.
fn answer(
    group: impl IntoIterator<Item = WaitingCommit>,
    responses: Vec<Option<Response>>,
) -> Vec<WaitingCommit> {
    let mut others = Vec::new();
    for (commit, response) in group.into_iter().zip(responses) {
        match response {
            // The task of a commit waits for it, unless the process ends.
            Some(response) => drop(commit.reply.send(response)),
            None => others.push(commit),
        }
    }
    others
}

/// Takes the first commit that waits, and those behind it that fit into its transaction. The others keep their order.
fn take_group(waiting: &mut VecDeque<WaitingCommit>, options: &EtcdOptions) -> Vec<WaitingCommit> {
    let Some(first) = waiting.pop_front() else { return Vec::new() };
    if waiting.is_empty() {
        return vec![first];
    }
    let mut size = GroupSize::of(&first);
    let mut keys = KeySet::default();
    keys.add(&first.mutations);
    let number = first.number;
    let mut group = vec![first];
    let mut others = VecDeque::new();
    while let Some(commit) = waiting.pop_front() {
        let grown = size.with(&commit);
        if !grown.fits(options) {
            others.push_back(commit);
            break;
        }
        if commit.number != number || keys.conflict_with(&commit.mutations) {
            others.push_back(commit);
            continue;
        }
        size = grown;
        keys.add(&commit.mutations);
        group.push(commit);
    }
    others.append(waiting);
    *waiting = others;
    group
}

/// The size of a transaction.
#[derive(Clone, Copy)]
struct GroupSize {
    mutations: usize,
    bytes: usize,
}

impl GroupSize {
    fn of(commit: &WaitingCommit) -> Self {
        Self { mutations: commit.mutations.len(), bytes: commit.bytes }
    }

    fn with(self, commit: &WaitingCommit) -> Self {
        let Self { mutations, bytes } = Self::of(commit);
        Self { mutations: self.mutations.saturating_add(mutations), bytes: self.bytes.saturating_add(bytes) }
    }

    fn fits(self, options: &EtcdOptions) -> bool {
        // One operation is that of the owner's record.
        self.mutations < options.max_operations && self.bytes <= options.max_request_bytes
    }
}

/// The keys of a group. Its commits are compared with the state before the group, and etcd refuses to write a key twice; so a
/// commit must neither read nor write what another one writes.
#[derive(Default)]
struct KeySet {
    written: HashSet<Bytes>,
    read: HashSet<Bytes>,
}

impl KeySet {
    fn add(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            let keys = if mutation.change == Change::Keep { &mut self.read } else { &mut self.written };
            keys.insert(mutation.key.clone());
        }
    }

    fn conflict_with(&self, mutations: &[Mutation]) -> bool {
        mutations.iter().any(|mutation| {
            self.written.contains(&mutation.key)
                || (mutation.change != Change::Keep && self.read.contains(&mutation.key))
        })
    }
}
