//! The hub: follows the store, distributes events, and ends subscriptions at their deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_names::{KeyCodec, ResourceName};
use fairlead_store::{Advance, Batch, FollowError, Range, Revision, Store};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::backlog::{Backlog, BacklogError, BacklogRequest, Backlogs};
use super::event::ObjectEvent;
use super::queue::{Delivery, Interest, ProgressNotifications, Queue, SubscriptionEnd};
use super::registrations::{HubOptions, HubProgress, Observer, Registrations, WatchInvalidator};
use super::subscription::Subscription;

/// The hub of one store. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    registrations: Arc<Registrations>,
    store: Arc<dyn Store>,
    codec: KeyCodec,
}

impl Hub {
    /// A hub at the store's current revision. It delivers while [`run`](Self::run) is awaited.
    pub fn new(store: Arc<dyn Store>, codec: KeyCodec, options: HubOptions) -> Self {
        let (progress, _) = watch::channel(HubProgress { revision: store.revision(), is_closed: false });
        let registrations = Registrations {
            index: RwLock::default(),
            deadlines: Mutex::default(),
            next_id: AtomicU64::new(0),
            progress,
            options,
            observers: RwLock::default(),
            invalidators: RwLock::default(),
            general_observers: RwLock::default(),
            backlogs: Backlogs::new(store.revision()),
        };
        Self { registrations: Arc::new(registrations), store, codec }
    }

    /// Registers an observer of a resource, which maintains an index. After [`wait`](Self::wait) the index
    /// contains that revision. Must be called before [`run`](Self::run).
    pub fn observe(&self, resource: ResourceName, observer: Observer) {
        self.registrations.observers.write().entry(resource).or_default().push(observer);
    }

    /// Registers an observer of all resources, as [`observe`](Self::observe) does for one. It must cost little, because it sees every
    /// event of the store. Writers do not wait for it.
    pub fn observe_all(&self, observer: Observer) {
        self.registrations.general_observers.write().push(observer);
    }

    /// The number of observers of all resources.
    pub fn general_observers(&self) -> usize {
        self.registrations.general_observers.read().len()
    }

    /// Removes the observers of all resources that were registered after they were counted. The hub calls them no more when this
    /// returns.
    pub fn remove_general_observers_after(&self, count: usize) {
        self.registrations.general_observers.write().truncate(count);
    }

    /// Registers a function that ends watches when an event of a resource changes the definition of other resources. The watches end
    /// before any later event is queued for them: their clients watch again, by the new definition, from the last revision that they
    /// saw. To be called before [`run`](Self::run).
    pub fn end_watches_on(&self, resource: ResourceName, invalidator: WatchInvalidator) {
        self.registrations.invalidators.write().entry(resource).or_default().push(invalidator);
    }

    /// Whether a resource has an observer. A writer that needs the index to contain its write must wait then.
    pub fn is_observed(&self, resource: &ResourceName) -> bool {
        self.registrations.observers.read().contains_key(resource)
    }

    /// Follows the store until it closes. Exactly one task must await this.
    ///
    /// # Errors
    /// [`FollowError`] when the feed fails; the process cannot serve watches after that.
    pub async fn run(&self) -> Result<(), FollowError> {
        let _closing = CloseOnDrop(self);
        self.follow().await
    }

    async fn follow(&self) -> Result<(), FollowError> {
        let mut follower = match self.store.follow(self.revision()) {
            Ok(follower) => follower,
            Err(error) => {
                tracing::error!(%error, "the watch hub cannot follow the store");
                return Err(FollowError::Closed);
            }
        };
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_progress = Instant::now() + self.registrations.options.progress_interval;
        loop {
            tokio::select! {
                // The tick first: it is rare, and a flood of batches must not keep watches from ending.
                biased;
                now = tick.tick() => {
                    self.registrations.expire(now);
                    if now >= next_progress {
                        next_progress = now + self.registrations.options.progress_interval;
                        self.registrations.send_progress();
                    }
                }
                advance = follower.advance() => match advance {
                    Ok(Advance::Batch(batch)) => self.distribute(&batch),
                    Ok(Advance::Position(revision)) => self.pass(revision),
                    Err(FollowError::Closed) => return Ok(()),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// The revision up to which every event has been queued for its subscriptions.
    pub fn revision(&self) -> Revision {
        self.registrations.progress.borrow().revision
    }

    /// Waits until the hub has passed a revision. The only way to read your own write
    /// in the order of a subscription.
    ///
    /// # Errors
    /// [`HubClosed`] when the hub closes before.
    pub async fn wait(&self, revision: Revision) -> Result<(), HubClosed> {
        let mut progress = self.registrations.progress.subscribe();
        let passed = progress.wait_for(|passed| passed.revision >= revision || passed.is_closed).await;
        match passed {
            Ok(passed) if passed.revision >= revision => Ok(()),
            Ok(_) | Err(_) => Err(HubClosed),
        }
    }

    /// Registers a subscription to every event after [`Subscription::registered_at`].
    ///
    /// The hub ends it at `until`; `None`: no deadline.
    pub fn subscribe(
        &self,
        interest: Interest,
        progress: ProgressNotifications,
        until: Option<Instant>,
    ) -> Subscription {
        let id = self.registrations.next_id.fetch_add(1, Ordering::Relaxed);
        let mut index = self.registrations.index.write();
        // Under the lock, so that no event falls between the revision and the registration.
        let registered_at = self.revision();
        let queue = Arc::new(Queue::new(
            id,
            interest,
            registered_at,
            progress,
            self.registrations.options.queue_capacity,
        ));
        index.insert(queue.clone());
        drop(index);
        self.registrations.deadlines.lock().insert(until, queue.clone());
        Subscription { queue, registrations: Arc::downgrade(&self.registrations) }
    }

    /// The events of an interest after `after` and up to `up_to`, for a watch that resumes at an older revision. `range` has all
    /// keys of the interest.
    ///
    /// # Errors
    /// [`BacklogError`] when that history is compacted, or too large.
    pub async fn backlog(
        &self,
        interest: Interest,
        range: Range,
        after: Revision,
        up_to: Revision,
    ) -> Result<Backlog, BacklogError> {
        let request = BacklogRequest { interest, range, after, up_to };
        self.registrations.backlogs.read(&self.store, self.codec, request).await
    }

    /// Ends the subscriptions that `selects` returns true for, for example those of a deleted logical cluster.
    pub fn end(&self, selects: impl Fn(&Interest) -> bool) {
        let wakers: Vec<_> = {
            let index = self.registrations.index.read();
            let selected = index.iter().filter(|queue| selects(&queue.interest));
            selected.filter_map(|queue| queue.end(SubscriptionEnd::Cancelled)).collect()
        };
        wakers.into_iter().for_each(core::task::Waker::wake);
    }

    /// Ends the watches of clients that `selects` returns true for. Subscriptions without a deadline, those of this process, stay.
    pub fn end_watches(&self, selects: impl Fn(&Interest) -> bool) {
        let wakers: Vec<_> = {
            let deadlines = self.registrations.deadlines.lock();
            let selected = deadlines.queues().filter(|queue| selects(&queue.interest));
            selected.filter_map(|queue| queue.end(SubscriptionEnd::Cancelled)).collect()
        };
        wakers.into_iter().for_each(core::task::Waker::wake);
    }

    /// Ends all subscriptions: the server drains.
    pub fn end_all(&self, end: SubscriptionEnd) {
        let wakers: Vec<_> =
            self.registrations.index.read().iter().filter_map(|queue| queue.end(end)).collect();
        wakers.into_iter().for_each(core::task::Waker::wake);
    }

    /// Ends all subscriptions evenly over a window, so that their clients do not all reconnect at once.
    /// Later subscriptions end at the end of the window. [`run`](Self::run) must be awaited meanwhile.
    pub fn end_evenly(&self, window: Duration) {
        let queues: Vec<_> = self.registrations.index.read().iter().cloned().collect();
        let now = Instant::now();
        let step = window / u32::try_from(queues.len()).unwrap_or(u32::MAX).max(1);
        let mut deadlines = self.registrations.deadlines.lock();
        deadlines.latest = Some(now + window);
        for (queue, position) in queues.into_iter().zip(0_u32..) {
            deadlines.bring_forward(now + step * position, queue);
        }
    }

    /// The number of subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.registrations.index.read().len()
    }

    fn distribute(&self, batch: &Batch) {
        let mut wakers = Vec::new();
        {
            let index = self.registrations.index.read();
            let observers = self.registrations.observers.read();
            let general_observers = self.registrations.general_observers.read();
            let invalidators = self.registrations.invalidators.read();
            for event in self.decode(batch) {
                for observer in
                    observers.get(&event.resource).into_iter().flatten().chain(&*general_observers)
                {
                    observer(&event);
                }
                for invalidator in invalidators.get(&event.resource).into_iter().flatten() {
                    let ended = invalidator(&event);
                    if ended.is_empty() {
                        continue;
                    }
                    let is_ended =
                        |queue: &&Arc<Queue>| ended.iter().any(|one| one.contains(&queue.interest));
                    let queues = index.iter().filter(is_ended);
                    wakers.extend(queues.filter_map(|queue| queue.end(SubscriptionEnd::Cancelled)));
                }
                let event = Arc::new(event);
                index.visit_interested(&event, |queue| {
                    wakers.extend(queue.push(Delivery::Event(event.clone())))
                });
                self.registrations.backlogs.push(event);
            }
            self.pass(batch.revision);
        }
        wakers.into_iter().for_each(core::task::Waker::wake);
    }

    /// Records that every event up to this revision is queued, and wakes the callers that wait for it.
    fn pass(&self, revision: Revision) {
        self.registrations.progress.send_modify(|passed| passed.revision = revision);
    }

    fn decode<'b>(&'b self, batch: &'b Batch) -> impl Iterator<Item = ObjectEvent> + 'b {
        batch.events.iter().filter(|event| self.codec.covers(&event.key)).filter_map(|event| {
            ObjectEvent::decode(batch.revision, event, &self.codec)
                .inspect_err(|error| {
                    let (key, revision) = (event.key.escape_ascii(), batch.revision.0);
                    tracing::warn!(%error, %key, revision, "the watch hub skipped a malformed event");
                })
                .ok()
        })
    }
}

/// Closes the hub when its task ends or is aborted, so that waiting callers get an error instead of waiting
/// forever.
struct CloseOnDrop<'h>(&'h Hub);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.registrations.progress.send_modify(|passed| passed.is_closed = true);
        self.0.end_all(SubscriptionEnd::Shutdown);
    }
}

/// The hub delivers no more events, because the process is shutting down.
#[derive(Debug, thiserror::Error)]
#[error("the watch hub is closed")]
pub struct HubClosed;
