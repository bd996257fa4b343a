//! The registered subscriptions of a hub.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fairlead_names::{Origin, ResourceName};
use fairlead_store::Revision;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::Instant;

use super::backlog::Backlogs;
use super::event::ObjectEvent;
use super::index::SubscriptionIndex;
use super::queue::{Delivery, Interest, Queue, SubscriptionEnd};
use crate::scope::Scope;

/// Settings of a hub.
#[derive(Clone, Copy, Debug)]
pub struct HubOptions {
    /// Number of undelivered events at which a subscription ends as lagged.
    pub queue_capacity: usize,
    /// Interval of the bookmarks of subscriptions that request them.
    pub progress_interval: Duration,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self { queue_capacity: 4096, progress_interval: Duration::from_secs(60) }
    }
}

/// A callback that maintains an index: called with every event of a resource before the hub's revision passes the event.
/// Must be short and must not write.
pub type Observer = Box<dyn Fn(&ObjectEvent) + Send + Sync>;

/// Gets every event of a resource that defines other resources. Returns the watches that the change ends, because they would deliver
/// objects by the earlier definition.
pub type WatchInvalidator = Box<dyn Fn(&ObjectEvent) -> Vec<InvalidatedWatches> + Send + Sync>;

/// The watches of one resource in one scope, or those over all scopes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidatedWatches {
    /// The scope; `None` for watches over all scopes.
    pub scope: Option<Scope>,
    /// The resource.
    pub resource: ResourceName,
    /// The origin of its definition.
    pub origin: Origin,
}

impl InvalidatedWatches {
    pub(super) fn contains(&self, interest: &Interest) -> bool {
        interest.resource == self.resource
            && interest.origin.as_ref() == Some(&self.origin)
            && interest.scopes.one() == self.scope.as_ref()
    }
}

/// The last delivered revision of the hub, and whether the hub has closed.
#[derive(Clone, Copy)]
pub(super) struct HubProgress {
    pub(super) revision: Revision,
    pub(super) is_closed: bool,
}

/// The subscriptions of a hub, their deadlines and the hub's progress: shared by the hub and its subscriptions.
pub(super) struct Registrations {
    pub(super) index: RwLock<SubscriptionIndex>,
    pub(super) deadlines: Mutex<Deadlines>,
    pub(super) next_id: AtomicU64,
    pub(super) progress: watch::Sender<HubProgress>,
    pub(super) options: HubOptions,
    pub(super) observers: RwLock<FxHashMap<ResourceName, Vec<Observer>>>,
    pub(super) general_observers: RwLock<Vec<Observer>>,
    pub(super) invalidators: RwLock<FxHashMap<ResourceName, Vec<WatchInvalidator>>>,
    pub(super) backlogs: Backlogs,
}

impl Registrations {
    pub(super) fn remove(&self, queue: &Arc<Queue>) {
        self.index.write().remove(queue);
        self.deadlines.lock().remove(queue.id);
    }

    pub(super) fn expire(&self, now: Instant) {
        let due = self.deadlines.lock().take_due(now);
        let revision = self.progress.borrow().revision;
        for queue in due {
            // A last bookmark, so that the client resumes from here and not from its last event.
            let progress_waker =
                queue.wants_progress.then(|| queue.push(Delivery::Progress(revision))).flatten();
            for waker in [progress_waker, queue.end(SubscriptionEnd::Expired)].into_iter().flatten() {
                waker.wake();
            }
        }
    }

    pub(super) fn send_progress(&self) {
        let wakers: Vec<_> = {
            let index = self.index.read();
            let revision = self.progress.borrow().revision;
            let wanting = index.iter().filter(|queue| queue.wants_progress);
            wanting.filter_map(|queue| queue.push(Delivery::Progress(revision))).collect()
        };
        wakers.into_iter().for_each(core::task::Waker::wake);
    }
}

/// Deadlines of subscriptions in order: one shared tick instead of a timer each.
#[derive(Default)]
pub(super) struct Deadlines {
    order: BTreeSet<(Instant, u64)>,
    queues: FxHashMap<u64, (Instant, Arc<Queue>)>,
    /// The time at which the hub ends all of them.
    pub(super) latest: Option<Instant>,
}

impl Deadlines {
    pub(super) fn insert(&mut self, until: Option<Instant>, queue: Arc<Queue>) {
        let Some(until) = until.into_iter().chain(self.latest).min() else { return };
        self.order.insert((until, queue.id));
        self.queues.insert(queue.id, (until, queue));
    }

    /// The queues with a deadline.
    pub(super) fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values().map(|(_, queue)| queue)
    }

    pub(super) fn bring_forward(&mut self, until: Instant, queue: Arc<Queue>) {
        if self.queues.get(&queue.id).is_none_or(|(present, _)| until < *present) {
            self.remove(queue.id);
            self.insert(Some(until), queue);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some((until, _)) = self.queues.remove(&id) {
            self.order.remove(&(until, id));
        }
    }

    fn take_due(&mut self, now: Instant) -> Vec<Arc<Queue>> {
        let mut due = Vec::new();
        while let Some((until, id)) = self.order.first().copied()
            && until <= now
        {
            self.order.pop_first();
            due.extend(self.queues.remove(&id).map(|(_, queue)| queue));
        }
        due
    }
}
