//! Follower of one shard: reads its logical clusters and its workspaces into the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_client::{Client, ListWatch, Piece, Reflector, ReflectorOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::routing::index::objects::{LogicalClusterObject, WorkspaceObject};
use crate::routing::index::report::{ReflectorState, ShardReflectors};
use crate::routing::table::{Change, Page, ShardIndex};

/// Maximum number of objects queued between all followers and the table; beyond it the watches wait. About 150 bytes each.
/// This also bounds the memory for the first lists of all shards, however long they are.
const QUEUE_CAPACITY: usize = 32_768;

/// A change from a shard, queued for the table.
#[derive(Debug)]
pub(super) struct ShardEvent {
    pub(super) shard: ShardIndex,
    /// The follower that sent it. Events of a replaced follower are dropped.
    pub(super) follower: u64,
    pub(super) change: Change,
    /// UIDs of workspaces that have been placed now.
    pub(super) placed: Vec<Box<str>>,
    pub(super) ack: Ack,
}

/// Acknowledged when the event has been applied to the table.
#[derive(Debug)]
pub(super) struct Ack {
    /// Counter of the reflector whose list this event completes.
    completes: Option<Arc<AtomicU64>>,
    read_at: Instant,
    /// Space in the queue.
    _permit: OwnedSemaphorePermit,
}

impl Ack {
    /// Returns the time from reading the event until now.
    pub(super) fn applied(self) -> Duration {
        if let Some(lists) = self.completes {
            lists.fetch_add(1, Ordering::Release);
        }
        self.read_at.elapsed()
    }
}

/// The queue from the followers to the table.
#[derive(Clone)]
pub(super) struct EventQueue {
    events: mpsc::Sender<ShardEvent>,
    capacity: Arc<Semaphore>,
}

impl EventQueue {
    pub(super) fn new() -> (Self, mpsc::Receiver<ShardEvent>) {
        let (events, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self { events, capacity: Arc::new(Semaphore::new(QUEUE_CAPACITY)) }, receiver)
    }

    /// Waits for space for this many objects; `None` when the receiver has been dropped.
    async fn reserve(&self, objects: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(objects.clamp(1, QUEUE_CAPACITY)).ok()?;
        Arc::clone(&self.capacity).acquire_many_owned(permits).await.ok()
    }
}

/// A piece of a list or watch, converted for the table.
struct Reported {
    change: Change,
    placed: Vec<Box<str>>,
    objects: usize,
    completes: Option<Arc<AtomicU64>>,
}

/// Follower of one shard; runs until it is dropped or the receiver of its events is.
pub(super) struct Follower {
    shard: ShardIndex,
    number: u64,
    client: Client,
    options: ReflectorOptions,
    clusters: Reflector<LogicalClusterObject>,
    reflectors: ShardReflectors,
    identity: watch::Receiver<Option<Arc<str>>>,
    event_queue: EventQueue,
}

impl Follower {
    /// `client` addresses the shard itself, without a logical cluster.
    pub(super) fn new(
        shard: ShardIndex,
        number: u64,
        client: &Client,
        options: ReflectorOptions,
        identity: watch::Receiver<Option<Arc<str>>>,
        event_queue: EventQueue,
    ) -> Self {
        let client = client.with_prefix("/clusters/*");
        let source = ListWatch::new("/apis/core.kcp.io/v1alpha1/logicalclusters");
        let clusters = Reflector::new(client.clone(), source, options.clone());
        let reflectors =
            ShardReflectors { clusters: ReflectorState::new(clusters.status()), workspaces: Arc::default() };
        Self { shard, number, client, options, clusters, reflectors, identity, event_queue }
    }

    pub(super) fn reflectors(&self) -> ShardReflectors {
        self.reflectors.clone()
    }

    pub(super) async fn run(mut self) {
        let mut workspaces: Option<(Reflector<WorkspaceObject>, Arc<AtomicU64>)> = None;
        self.identity.mark_changed();
        loop {
            let reported = tokio::select! {
                piece = self.clusters.next_piece() => cluster_change(piece, &self.reflectors.clusters.applied),
                (piece, applied) = next(&mut workspaces) => workspace_change(piece, &applied),
                changed = self.identity.changed() => match changed {
                    Ok(()) => {
                        let identity = self.identity.borrow_and_update().clone();
                        workspaces = identity.map(|identity| self.follow_workspaces(&identity));
                        None
                    }
                    Err(_) => return,
                },
            };
            let Some(Reported { change, placed, objects, completes }) = reported else {
                continue;
            };
            let read_at = Instant::now();
            let Some(permit) = self.event_queue.reserve(objects).await else {
                return;
            };
            let (shard, follower) = (self.shard, self.number);
            let event = ShardEvent {
                shard,
                follower,
                change,
                placed,
                ack: Ack { completes, read_at, _permit: permit },
            };
            if self.event_queue.events.send(event).await.is_err() {
                return;
            }
        }
    }

    /// Across logical clusters, the path of workspaces contains the identity hash of the export that serves them.
    fn follow_workspaces(&self, identity: &str) -> (Reflector<WorkspaceObject>, Arc<AtomicU64>) {
        let source = ListWatch::new(format!("/apis/tenancy.kcp.io/v1alpha1/workspaces:{identity}"));
        let reflector = Reflector::new(self.client.clone(), source, self.options.clone());
        let state = ReflectorState::new(reflector.status());
        let applied = Arc::clone(&state.applied);
        *self.reflectors.workspaces.lock() = Some(state);
        (reflector, applied)
    }
}

async fn next(
    reflector: &mut Option<(Reflector<WorkspaceObject>, Arc<AtomicU64>)>,
) -> (Piece<WorkspaceObject>, Arc<AtomicU64>) {
    match reflector {
        Some((reflector, applied)) => (reflector.next_piece().await, Arc::clone(applied)),
        None => std::future::pending().await,
    }
}

fn workspace_change(piece: Piece<WorkspaceObject>, applied: &Arc<AtomicU64>) -> Option<Reported> {
    let one = |change| Reported { change, placed: Vec::new(), objects: 1, completes: None };
    match piece {
        Piece::Page { items, is_first, complete_at } => {
            let objects = items.len();
            let records = items.into_iter().filter_map(WorkspaceObject::into_record).collect();
            let is_last = complete_at.is_some();
            let change = Change::ListWorkspaces(Page { records, is_first, is_last });
            Some(Reported {
                change,
                placed: Vec::new(),
                objects,
                completes: is_last.then(|| Arc::clone(applied)),
            })
        }
        Piece::Applied(object) => object.into_change().map(one),
        Piece::Deleted(object) => object.into_removal().map(one),
        Piece::Progress(_) => None,
    }
}

fn cluster_change(piece: Piece<LogicalClusterObject>, applied: &Arc<AtomicU64>) -> Option<Reported> {
    let uid = |object: &LogicalClusterObject| object.workspace_uid().map(Box::from);
    match piece {
        Piece::Page { items, is_first, complete_at } => {
            let objects = items.len();
            let placed = items.iter().filter_map(uid).collect();
            let records = items.into_iter().filter_map(LogicalClusterObject::into_record).collect();
            let is_last = complete_at.is_some();
            let change = Change::ListClusters(Page { records, is_first, is_last });
            Some(Reported { change, placed, objects, completes: is_last.then(|| Arc::clone(applied)) })
        }
        Piece::Applied(object) => {
            let placed = uid(&object).into_iter().collect();
            object.into_change().map(|change| Reported { change, placed, objects: 1, completes: None })
        }
        Piece::Deleted(object) => {
            let reported = |change| Reported { change, placed: Vec::new(), objects: 1, completes: None };
            object.into_removal().map(reported)
        }
        Piece::Progress(_) => None,
    }
}
