//! The feed: one connection at a time, its watch, and the local copy that it keeps current.
//!
//! A session goes: connect → read the owner's record → compare the copy with the cluster, or fill it, if it is empty → watch
//! from the revision after the last one seen → write the barrier key → wait until the watch delivers it → publish the
//! connection. The barrier is written again from time to time. The session ends when the watch ends or does not deliver the
//! barrier, or when the member does not answer a linearizable read in time: then it has crashed, hangs, or is cut off from the
//! others. The next session uses the next endpoint.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, EventType, WatchOptions, WatchResponse};
use fairlead_store::{DatabaseStats, ReplicatedCommit, Revision};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::barrier::{lost, replaced, replacement, verify, write_barrier};
use crate::client::Connection;
use crate::election::LeaderKeyState;
use crate::error::{EtcdError, Failure};
use crate::history::{History, compare_history};
use crate::keys::KeyLayout;
use crate::link::{Link, Loss};
use crate::load::{LoadError, load};
use crate::offset::Offset;
use crate::options::EtcdOptions;
use crate::owner::Claim;
use crate::progress::{Progress, Read};
use crate::view::{Command, ViewFailure};

/// The pauses after every endpoint has failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The task that keeps the local copy current.
pub(crate) struct Feed {
    pub(crate) options: Arc<EtcdOptions>,
    pub(crate) layout: Arc<KeyLayout>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) view: mpsc::Sender<Command>,
    pub(crate) view_failure: ViewFailure,
    pub(crate) link: watch::Sender<Link>,
    pub(crate) leader: LeaderKeyState,
    pub(crate) progress: Arc<Progress>,
    /// The watch has delivered everything up to this revision.
    pub(crate) position: Revision,
    /// Whether the copy has to be read again: it is empty, or what follows `position` cannot be watched.
    pub(crate) must_load: bool,
    /// The owner's record was that of this store at this revision.
    pub(crate) verified: Revision,
    /// Index of the endpoint.
    pub(crate) endpoint: usize,
    /// The number of the next connection.
    pub(crate) next_number: u64,
}

/// The end of a session.
enum SessionEnd {
    Etcd(EtcdError),
    /// The local copy has failed.
    View,
}

impl From<EtcdError> for SessionEnd {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl From<LoadError> for SessionEnd {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Etcd(error) => Self::Etcd(error),
            LoadError::View => Self::View,
        }
    }
}

/// The end of a watch.
enum WatchEnd {
    /// The revision to continue from has been compacted, or is not what etcd continues with, or the prefix was replaced and put back.
    Expired,
    Session(SessionEnd),
}

impl<E: Into<SessionEnd>> From<E> for WatchEnd {
    fn from(end: E) -> Self {
        Self::Session(end.into())
    }
}

impl Feed {
    /// Runs until the task is aborted or the local copy fails.
    pub(crate) async fn run(mut self) {
        let mut pause = SHORTEST_PAUSE;
        let mut failures = 0;
        loop {
            let failure = self.view_failure.clone();
            let end = tokio::select! {
                end = self.session() => end,
                _ = failure.wait() => SessionEnd::View,
            };
            let SessionEnd::Etcd(error) = end else {
                // A session can find that the thread has ended before the failure is known.
                failure.wait().await;
                self.link.send_modify(|link| *link = Link::Failed { connection: link.connection() });
                return;
            };
            let endpoints = self.options.endpoints.len().max(1);
            if matches!(&*self.link.borrow(), Link::Connected { .. }) {
                (pause, failures) = (SHORTEST_PAUSE, 0);
                tracing::warn!(%error, "the connection to etcd is lost");
            }
            self.publish_loss(error);
            self.endpoint = (self.endpoint + 1) % endpoints;
            failures += 1;
            if failures % endpoints == 0 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Keeps the time of the loss while only its cause changes.
    fn publish_loss(&self, error: EtcdError) {
        let is_foreign = matches!(error, EtcdError::Foreign { .. });
        let is_denied = matches!(error, EtcdError::Denied { .. });
        let loss = Loss { is_foreign, is_denied, ..Loss::new(error.into_cause()) };
        self.link.send_modify(|link| match link {
            Link::Lost(known) => {
                let since = known.since;
                if loss.is_foreign && !known.is_foreign {
                    tracing::error!(cause = %loss.cause, "commits are refused");
                }
                *known = Loss { since, ..loss };
            }
            link => *link = Link::Lost(loss),
        });
    }

    async fn session(&mut self) -> SessionEnd {
        let Some(endpoint) = self.options.endpoints.get(self.endpoint) else {
            return EtcdError::Options { reason: "no endpoint is given".to_owned() }.into();
        };
        let connection = match Connection::new(&self.options, endpoint).await {
            Ok(connection) => connection,
            Err(error) => return error.into(),
        };
        let verified = verify(&connection, &self.claim).await;
        match verified.and_then(|at| connection.check_revision(at, self.position).map(|()| at)) {
            Ok(at) => self.verified = at,
            Err(error) => return error.into(),
        }
        if let Err(end) = self.compare(&connection).await {
            return end;
        }
        loop {
            // A copy that was read in this session is current; an older one is current when the watch has delivered the barrier.
            let mut barrier = BarrierState::Unwritten;
            if self.must_load {
                if let Err(error) = self.load(&connection).await {
                    return error.into();
                }
                barrier = BarrierState::Written(self.position);
            }
            match self.watch(&connection, barrier).await {
                WatchEnd::Expired => {
                    tracing::warn!(
                        position = %self.position,
                        "the local copy cannot go on with what etcd has: it is read again"
                    );
                    self.must_load = true;
                }
                WatchEnd::Session(end) => return end,
            }
        }
    }

    /// Compares the copy with the cluster, unless it is read again anyway.
    async fn compare(&mut self, connection: &Connection) -> Result<(), SessionEnd> {
        if self.must_load {
            return Ok(());
        }
        // The copy must have everything that was delivered before.
        self.flush().await?;
        let (replica, position) = (self.progress.replica(), self.position);
        let history = compare_history(connection, &self.claim, &self.layout, replica, position).await?;
        self.must_load = history == History::Compacted;
        Ok(())
    }

    async fn load(&mut self, connection: &Connection) -> Result<(), LoadError> {
        let started = Instant::now();
        self.position = load(connection, &self.claim, &self.layout, self.position, &self.view).await?;
        self.must_load = false;
        self.progress.reload(self.position);
        self.progress.prove(started);
        let took = started.elapsed().as_millis();
        tracing::info!(revision = %self.position, milliseconds = took, "read the whole prefix of etcd");
        Ok(())
    }

    async fn watch(&mut self, connection: &Connection, barrier: BarrierState) -> WatchEnd {
        let Err(end) = self.follow(connection, barrier).await;
        end
    }

    async fn follow(
        &mut self,
        connection: &Connection,
        mut barrier: BarrierState,
    ) -> Result<Infallible, WatchEnd> {
        let first = self.claim.offset.to_etcd(self.position).saturating_add(1);
        let options = WatchOptions::new().with_prefix().with_start_revision(first).with_progress_notify();
        let mut client = connection.watch();
        let watching = client.watch(self.layout.prefix(), Some(options));
        let mut stream = connection.request(watching).await?;

        // Dropped, and so aborted, with the session.
        let (mut tasks, mut writes) = (JoinSet::new(), JoinSet::new());
        let timing = self.options.timing;
        let progress = || self.progress.clone();
        tasks.spawn(keep_alive(connection.clone(), self.claim.clone(), progress(), timing.heartbeat));
        tasks.spawn(observe_database(connection.clone(), progress(), timing.barrier));
        let (claim, key) = (self.claim.clone(), self.layout.barrier());
        let write = || write_barrier(connection.clone(), claim.clone(), key.clone());
        if barrier == BarrierState::Unwritten {
            writes.spawn(write());
        }
        let mut checkpoints = interval_at(Instant::now() + timing.checkpoint, timing.checkpoint);
        checkpoints.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut barriers = interval_at(Instant::now() + timing.barrier, timing.barrier);
        barriers.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let longest_silence = 2 * timing.request;
        let mut silent_since = Instant::now();
        let mut barrier_begun = Instant::now();
        let mut is_published = false;
        loop {
            if let BarrierState::Written(revision) = barrier
                && self.position >= revision
            {
                barrier = BarrierState::Passed;
                self.pass(connection, is_published).await?;
                self.progress.prove_read(Read { at: barrier_begun, revision });
                is_published = true;
            }
            tokio::select! {
                message = stream.message() => {
                    let Some(response) = message.map_err(|error| lost(connection, &Failure::from(error).into_cause()))?
                    else {
                        return Err(lost(connection, &"the watch has ended").into());
                    };
                    self.accept(connection, &response, &mut barrier).await?;
                    silent_since = Instant::now();
                }
                Some(written) = writes.join_next() => {
                    barrier = match written.map_err(|error| lost(connection, &error))?? {
                        Some(revision) => BarrierState::Written(revision),
                        None => {
                            // The watch is established long before; a request that is lost with it ends the session.
                            let requested = stream.request_progress().await;
                            requested.map_err(|error| lost(connection, &Failure::from(error).into_cause()))?;
                            BarrierState::Requested
                        }
                    };
                    silent_since = Instant::now();
                }
                ended = tasks.join_next() => {
                    let error = match ended {
                        Some(Ok(error)) => error,
                        _ => lost(connection, &"the task of the connection has ended"),
                    };
                    return Err(error.into());
                }
                _ = checkpoints.tick() => {
                    // A full queue is no reason to wait here: a later checkpoint does the same.
                    if let Err(TrySendError::Closed(_)) = self.view.try_send(Command::Checkpoint) {
                        return Err(SessionEnd::View.into());
                    }
                }
                _ = barriers.tick(), if barrier == BarrierState::Passed => {
                    barrier = BarrierState::Unwritten;
                    writes.spawn(write());
                    silent_since = Instant::now();
                    barrier_begun = silent_since;
                }
                () = sleep_until(silent_since + longest_silence), if barrier != BarrierState::Passed => {
                    return Err(lost(connection, &"the watch does not deliver what was written").into());
                }
            }
        }
    }

    /// The watch has delivered everything that was committed before the barrier. The first time in a session, publishes the
    /// connection.
    async fn pass(&mut self, connection: &Connection, is_published: bool) -> Result<(), SessionEnd> {
        let position = Command::Position(self.position);
        self.view.send(position).await.map_err(|_| SessionEnd::View)?;
        if is_published { Ok(()) } else { self.publish(connection).await }
    }

    /// Publishes the connection when the copy has applied everything that was delivered.
    async fn publish(&mut self, connection: &Connection) -> Result<(), SessionEnd> {
        self.flush().await?;
        let number = self.next_number;
        self.next_number += 1;
        self.progress.connect();
        tracing::info!(endpoint = %connection.endpoint(), position = %self.position, "connected to etcd");
        self.link.send_replace(Link::Connected { connection: Arc::new(connection.clone()), number });
        Ok(())
    }

    /// Waits until the copy has applied everything that was delivered.
    async fn flush(&self) -> Result<(), SessionEnd> {
        let (reply, flushed) = oneshot::channel();
        self.view.send(Command::Flush { reply }).await.map_err(|_| SessionEnd::View)?;
        flushed.await.map_err(|_| SessionEnd::View)
    }

    async fn accept(
        &mut self,
        connection: &Connection,
        response: &WatchResponse,
        barrier: &mut BarrierState,
    ) -> Result<(), WatchEnd> {
        connection.check_cluster(self.claim.cluster, response.header())?;
        if response.compact_revision() > 0 {
            return Err(WatchEnd::Expired);
        }
        if response.canceled() {
            return Err(lost(connection, &response.cancel_reason()).into());
        }
        let announced = response.header().map(|header| self.claim.offset.to_store(header.revision()));
        if response.events().is_empty() {
            // The answer to a request for progress has the watch id -1. Before 3.4.25 and 3.5.8 it may overtake events, so it
            // does not count as progress.
            if response.watch_id() < 0 && *barrier == BarrierState::Requested {
                *barrier = BarrierState::Written(self.position);
            } else if response.watch_id() >= 0 && !response.created() {
                self.position = self.position.max(announced.unwrap_or_default());
                self.progress.deliver(self.position);
            }
            return Ok(());
        }
        match replacement(&self.claim, response.events()) {
            // The record was put back before this session.
            Some(at) if at <= self.verified => return Err(WatchEnd::Expired),
            Some(_) => return Err(replaced(connection).into()),
            None => {}
        }
        let (commits, last) = commits(&self.layout, self.claim.offset, response.events(), self.position)?;
        let applied = commits.last().map(|commit| commit.revision);
        if let Some(applied) = applied {
            self.progress.know(applied);
            self.view.send(Command::Apply(commits)).await.map_err(|_| SessionEnd::View)?;
        }
        // The barrier of another replica, whose readers may have seen this revision there.
        if applied != Some(last) {
            self.view.send(Command::Position(last)).await.map_err(|_| SessionEnd::View)?;
        }
        self.deliver_leader(response.events());
        self.position = last;
        self.progress.deliver(last);
        Ok(())
    }

    /// Tells the election how the leader's key has changed.
    fn deliver_leader(&self, events: &[Event]) {
        let key = self.layout.leader();
        for (event, kv) in events.iter().filter_map(|event| Some((event, event.kv()?))) {
            if kv.key() == key {
                let value = (event.event_type() == EventType::Put).then(|| kv.value());
                self.leader.update(self.claim.offset.to_store(kv.mod_revision()), value);
            }
        }
    }
}

/// The barrier of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BarrierState {
    /// It is being written.
    Unwritten,
    /// It has this revision.
    Written(Revision),
    /// It could not be written, because etcd has no space, and etcd was asked for its progress instead.
    Requested,
    /// The watch has delivered it.
    Passed,
}

/// Divides events into commits. A response has all events of a revision; one that does not continue after `position` would
/// be lost in the copy, so it ends the watch.
fn commits(
    layout: &KeyLayout,
    offset: Offset,
    events: &[Event],
    position: Revision,
) -> Result<(Vec<ReplicatedCommit>, Revision), WatchEnd> {
    let mut commits: Vec<ReplicatedCommit> = Vec::new();
    let mut last = position;
    for event in events {
        let Some(kv) = event.kv() else { return Err(WatchEnd::Expired) };
        let revision = offset.to_store(kv.mod_revision());
        if revision <= position || revision < last {
            return Err(WatchEnd::Expired);
        }
        last = revision;
        let Some(key) = layout.decode(kv.key()) else { continue };
        let value = match event.event_type() {
            EventType::Put => Some(bytes::Bytes::copy_from_slice(kv.value())),
            EventType::Delete => None,
        };
        match commits.last_mut() {
            Some(commit) if commit.revision == revision => commit.changes.push((key, value)),
            _ => commits.push(ReplicatedCommit { revision, changes: vec![(key, value)] }),
        }
    }
    Ok((commits, last))
}

/// Reads the owner's record again and again, which shows how current the copy is. Ends with the error of the first read that
/// fails.
async fn keep_alive(
    connection: Connection,
    claim: Arc<Claim>,
    progress: Arc<Progress>,
    every: Duration,
) -> EtcdError {
    // A read that was ahead of the copy becomes a proof when the copy has passed it.
    let mut last_read = None;
    loop {
        tokio::time::sleep(every).await;
        let at = Instant::now();
        let revision = match tokio::time::timeout(every, verify(&connection, &claim)).await {
            Ok(Ok(revision)) => revision,
            Ok(Err(error)) => return error,
            Err(_) => return lost(&connection, &"a read takes too long"),
        };
        let read = Read { at, revision };
        if let Some(last_read) = last_read.replace(read) {
            progress.prove_read(last_read);
        }
        progress.prove_read(read);
    }
}

/// Reads the size of the database now and then, apart from the heartbeat, which it must not delay. Does not end.
async fn observe_database(connection: Connection, progress: Arc<Progress>, every: Duration) -> EtcdError {
    loop {
        if let Some(database) = read_database(&connection).await {
            progress.set_database(database);
        }
        tokio::time::sleep(every).await;
    }
}

/// The size of the member's database. `None` if etcd does not say, such as to users without the permission.
async fn read_database(connection: &Connection) -> Option<DatabaseStats> {
    let mut maintenance = connection.maintenance();
    let status = connection.request(maintenance.status()).await;
    let status = status.inspect_err(|error| tracing::debug!(%error, "etcd does not tell its size")).ok()?;
    let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
    let is_exhausted = status.errors().iter().any(|error| error.contains("NOSPACE"));
    let (size, used) = (bytes(status.db_size()), bytes(status.raft_used_db_size()));
    // Versions before 3.6 do not tell the quota.
    Some(DatabaseStats::new(size, used, bytes(status.db_size_quota()), is_exhausted))
}
