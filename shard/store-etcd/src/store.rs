//! [`EtcdStore`]: opening, reads from the local copy, commits, compaction, closing.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use fairlead_store::{
    Cause, Changes, CommitError, CompactError, Election, Follower, Limits, Mutation, OpenError, Origin,
    Range, ReadError, Record, RecordRef, Replica, ReplicaWriter, Revision, Stats, Store,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Connection;
use crate::commit::{Committer, Counters};
use crate::election::{EtcdElection, LeaderKeyState, candidate};
use crate::error::{EtcdError, cause, cause_of, is_compacted};
use crate::feed::Feed;
use crate::installation::check_installation;
use crate::keys::KeyLayout;
use crate::link::{Link, Loss};
use crate::options::EtcdOptions;
use crate::owner::{Claim, IncompleteCopy, claim};
use crate::progress::Progress;
use crate::view::{self, Command, ViewFailure};

/// The pause after every endpoint has failed while a store is opened.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// A store on etcd. See the crate's documentation. Dropping it ends its tasks; [`close`](Self::close) also waits for them.
pub struct EtcdStore {
    committer: Arc<Committer>,
    view: mpsc::Sender<Command>,
    feed: JoinHandle<()>,
    election: Arc<EtcdElection>,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EtcdStore").field("revision", &self.revision().0).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Opens the store: returns when the local copy has everything that was committed before.
    ///
    /// Takes some milliseconds with a good local copy, and the time to read the whole prefix without one: some 20 µs for each
    /// key of 1 KiB. Needs a Tokio runtime with time and I/O, which the store uses until it is closed.
    ///
    /// # Errors
    /// [`EtcdError`]. Nothing was changed in etcd.
    pub async fn open(options: EtcdOptions) -> Result<Self, EtcdError> {
        Self::open_with(options, IncompleteCopy::Refuse).await
    }

    pub(crate) async fn open_with(
        options: EtcdOptions,
        incomplete: IncompleteCopy,
    ) -> Result<Self, EtcdError> {
        options.check()?;
        let deadline = Instant::now() + options.timing.open;
        let layout = Arc::new(KeyLayout::new(&options.prefix, &options.root));
        let options = Arc::new(options);
        let (claim, endpoint) = find_cluster(&options, &layout, incomplete, deadline).await?;
        let claim = Arc::new(claim);
        let (replica, writer) = open_view(&options, &claim).await?;
        let position = writer.position();
        if position > claim.revision {
            let reason = format!(
                "it is at revision {}, but the local copy at {position}: data is lost, or a backup was restored",
                claim.revision
            );
            return Err(EtcdError::Foreign { endpoint: options.endpoints[endpoint].clone(), reason });
        }
        let view_failure = ViewFailure::default();
        let view = view::start(writer, view_failure.clone())
            .map_err(|error| EtcdError::Options { reason: format!("no thread can be started: {error}") })?;
        let (link, connection) = watch::channel(Link::Lost(Loss::new(cause("not connected yet"))));
        let leader = LeaderKeyState::default();
        let election = Arc::new(EtcdElection {
            options: options.clone(),
            layout: layout.clone(),
            claim: claim.clone(),
            link: connection.clone(),
            leader: leader.clone(),
            copied: replica.latest_revision(),
            value: candidate(&options.replica)?,
        });
        let progress = Arc::new(Progress::new(replica.clone(), position));
        let feed = Feed {
            options: options.clone(),
            layout: layout.clone(),
            claim: claim.clone(),
            view: view.clone(),
            view_failure: view_failure.clone(),
            link,
            leader,
            progress: progress.clone(),
            position,
            must_load: position == Revision(0),
            verified: Revision(0),
            endpoint,
            next_number: 0,
        };
        let feed = tokio::spawn(feed.run());
        let counters = Counters::default();
        let committer =
            Committer { options, layout, claim, replica, link: connection, view_failure, progress, counters };
        let store = Self { committer: Arc::new(committer), view, feed, election };
        store.first_connection(deadline).await?;
        Ok(store)
    }

    /// Returns when the local copy has failed, as on a full disk. Reads and commits are refused from then on, and followers end;
    /// only a resignation is still sent to etcd. The store must be closed and opened again.
    pub async fn failed(&self) -> EtcdError {
        self.view_error(self.committer.view_failure.wait().await)
    }

    /// The error with which the local copy has failed, if it has.
    pub fn failure(&self) -> Option<EtcdError> {
        self.committer.view_failure.get().map(|cause| self.view_error(cause))
    }

    fn view_error(&self, cause: &Cause) -> EtcdError {
        let path = self.committer.options.view.clone().unwrap_or_else(|| "memory".into());
        EtcdError::ViewFailed { path, cause: cause.clone() }
    }

    /// The election of the replica that leads, among all stores that are open on this prefix.
    pub fn election(&self) -> Arc<dyn Election> {
        self.election.clone()
    }

    /// Waits for the first connection, before which the copy is filled, however long that takes. Gives up with the first failure
    /// after `deadline`.
    async fn first_connection(&self, deadline: Instant) -> Result<(), EtcdError> {
        let mut link = self.committer.link.clone();
        loop {
            let failure = match &*link.borrow_and_update() {
                Link::Connected { .. } => return Ok(()),
                Link::Lost(loss) => Some(loss.cause.clone()),
                Link::Failed { .. } => None,
            };
            let Some(failure) = failure else { return Err(self.failed().await) };
            if Instant::now() >= deadline {
                // The error of the session says what the operator can do.
                let error = failure.downcast_ref::<EtcdError>().cloned();
                return Err(error.unwrap_or(EtcdError::Unreachable { cause: failure }));
            }
            if link.changed().await.is_err() {
                return Err(EtcdError::Unreachable { cause: cause("the store is closed") });
            }
        }
    }

    /// Makes the local copy durable and ends the tasks of the store, although others may still hold it. Reads go on; commits
    /// are refused from now on.
    pub async fn close(&self) {
        self.feed.abort();
        // Closed when the task is gone: nothing is sent any more.
        let mut link = self.committer.link.clone();
        while link.changed().await.is_ok() {}
        let (reply, closed) = oneshot::channel();
        if self.view.send(Command::Close { reply }).await.is_ok() {
            // No reply: the copy has failed.
            let _ = closed.await;
        }
    }

    /// Compacts etcd as well, whose history would grow without bound. A failure is left to the next call.
    async fn compact_etcd(&self, below: Revision) {
        let Link::Connected { connection, .. } = self.committer.link.borrow().clone() else { return };
        let mut kv = connection.kv();
        let compaction = kv.compact(self.committer.claim.offset.to_etcd(below), None);
        match tokio::time::timeout(self.committer.options.timing.request, compaction).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if is_compacted(&error) => {}
            Ok(Err(error)) => tracing::warn!(error = %cause_of(&error), "etcd was not compacted"),
            Err(_) => tracing::warn!("etcd was not compacted: it does not answer in time"),
        }
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        // The thread makes the copy durable and ends when the last sender is dropped, which this one and the task's are.
        self.feed.abort();
    }
}

/// The claim of the first member that answers, and the index of its endpoint.
async fn find_cluster(
    options: &EtcdOptions,
    layout: &KeyLayout,
    incomplete: IncompleteCopy,
    deadline: Instant,
) -> Result<(Claim, usize), EtcdError> {
    let endpoints = options.endpoints.len();
    let mut index = fastrand::usize(..endpoints);
    let mut failures = 0;
    loop {
        let endpoint = &options.endpoints[index];
        let attempt = async {
            let connection = Connection::new(options, endpoint).await?;
            let claim =
                claim(&connection, layout, &options.owner, options.view.as_deref(), incomplete).await?;
            check_installation(&connection, &claim, layout, &options.installation).await?;
            Ok::<_, EtcdError>(claim)
        };
        let error = match attempt.await {
            Ok(claim) => return Ok((claim, index)),
            Err(error) => error,
        };
        if !error.may_pass() || Instant::now() >= deadline {
            return Err(error);
        }
        tracing::warn!(%error, "waiting for etcd");
        index = (index + 1) % endpoints;
        failures += 1;
        if failures % endpoints == 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn open_view(options: &Arc<EtcdOptions>, claim: &Claim) -> Result<(Replica, ReplicaWriter), EtcdError> {
    let origin = Origin { cluster: claim.cluster, part: claim.number };
    let view = options.clone();
    let opened = tokio::task::spawn_blocking(move || {
        ReplicaWriter::open(view.view.as_deref(), origin, view.view_options)
    });
    match opened.await {
        Ok(Err(OpenError::Foreign { path, cluster })) => Err(EtcdError::Foreign {
            endpoint: options.endpoints.join(","),
            reason: format!(
                "it is the cluster {:x}, but {} is a copy of the cluster {:x} or of another prefix; remove the file if \
                 the cluster was restored or the prefix was changed on purpose",
                claim.cluster,
                path.display(),
                cluster
            ),
        }),
        Ok(opened) => Ok(opened?),
        Err(error) => Err(EtcdError::Options { reason: format!("the local copy cannot be opened: {error}") }),
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<Revision, CommitError> {
        self.committer.check(&mutations)?;
        // A task of its own, because a commit cannot be cancelled.
        let committer = self.committer.clone();
        match tokio::spawn(async move { committer.commit(mutations).await }).await {
            Ok(outcome) => outcome,
            Err(error) => Err(CommitError::Unknown { cause: Arc::new(error) }),
        }
    }

    fn limits(&self) -> Limits {
        self.committer.limits()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Record>, ReadError> {
        self.committer.replica.get(key)
    }

    fn scan(
        &self,
        range: &Range,
        at: Option<Revision>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.committer.replica.scan(range, at, visit)
    }

    fn revision(&self) -> Revision {
        self.committer.replica.revision()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn compacted(&self) -> Revision {
        self.committer.replica.compacted()
    }

    fn follow(&self, after: Revision) -> Result<Follower, ReadError> {
        self.committer.replica.follow(after)
    }

    fn changes(&self, range: &Range, after: Revision, max_rows: usize) -> Result<Option<Changes>, ReadError> {
        self.committer.replica.changes(range, after, max_rows)
    }

    /// Also compacts etcd, unless another replica leads, which does so. That is for all prefixes: the revisions of etcd count the commits of all of them, so `below` is as old
    /// for the others.
    async fn compact(&self, below: Revision) -> Result<(), CompactError> {
        let below = below.min(self.revision());
        if below <= self.compacted() {
            return Ok(());
        }
        let started = Instant::now();
        if !self.election.is_led_elsewhere() {
            self.compact_etcd(below).await;
        }
        let failed = || {
            let known = self.committer.view_failure.get().cloned();
            CompactError::Unavailable { cause: known.unwrap_or_else(|| cause("the store is closed")) }
        };
        let (reply, done) = oneshot::channel();
        self.view.send(Command::Compact { below, reply }).await.map_err(|_| failed())?;
        done.await.map_err(|_| failed())?;
        self.committer.counters.compactions.observe(started.elapsed(), 1);
        Ok(())
    }

    /// `file_bytes` is the size of the local copy. A durable write is a transaction of etcd. `failure` is also set while the
    /// address leads to another cluster; it is not while there is no connection, because reads go on.
    fn stats(&self) -> Stats {
        let counters = &self.committer.counters;
        let mut stats = self.committer.replica.stats();
        stats.backend = "etcd";
        stats.unavailable = counters.unavailable.load(Ordering::Relaxed);
        stats.unknown_outcomes = counters.unknown.load(Ordering::Relaxed);
        stats.commit_durations = counters.timer.snapshot();
        stats.compaction_durations = counters.compactions.snapshot();
        stats.server = Some(self.committer.server_stats());
        stats.commits = counters.commits.load(Ordering::Relaxed);
        stats.conflicts = counters.conflicts.load(Ordering::Relaxed);
        stats.durable_writes = counters.transactions.load(Ordering::Relaxed);
        stats.durable_write_nanoseconds = counters.transaction_nanoseconds.load(Ordering::Relaxed);
        let foreign = match &*self.committer.link.borrow() {
            Link::Lost(loss) if loss.is_foreign => Some(loss.cause.clone()),
            _ => None,
        };
        let failure = self.committer.view_failure.get().cloned().or(foreign);
        stats.failure = failure.map(|cause| cause.to_string());
        stats
    }
}
