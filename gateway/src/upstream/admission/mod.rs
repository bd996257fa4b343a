//! Admission to one server: the limit of concurrent requests, and a fair queue.
//!
//! Without a limit nothing here is used. Below the limit, a request costs a few atomic operations when it is sent and
//! again when its response begins (its time is measured). At the limit it waits: fairly by logical cluster, leases first
//! and lists last ([`queue`]). The limit follows from the response times ([`adaptive`]).
//!
//! A request counts until its response begins, because afterwards the client determines the duration. It also counts for at most
//! a second or the configured time: a longer request mostly waits for something else. A quarter of the limit is reserved
//! for logical clusters other than the one with the most requests, so that requests that hang or never end do not block others.

mod adaptive;
#[cfg(test)]
mod fairness;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fairlead_config::{ConcurrencyConfig, ConcurrencyPolicy, Timespan};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use adaptive::{Adaptive, Bounds};
use queue::{FairQueue, Pushed, QueueSlot};

use crate::request::Priority;

/// The flow and the priority of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FlowKey {
    /// The logical cluster, or another unit of fair queueing, as a number.
    pub(crate) flow: u64,
    /// The priority.
    pub(crate) priority: Priority,
    /// True for a write, which takes longer than a read.
    pub(crate) writes: bool,
}

/// The request would wait too long. A retry helps after a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Overloaded {
    /// The queue is full, and the request's workspace has the most requests in it.
    #[error("the shard is overloaded, and too many requests of this workspace wait for it")]
    Full,
    /// The request has reached its maximum waiting time.
    #[error("the shard is overloaded: the request has waited for too long")]
    Late,
}

/// The limits of admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdmissionOptions {
    policy: ConcurrencyPolicy,
    bounds: Bounds,
    waiting: u32,
    /// Maximum waiting time in milliseconds; a small type, because each request keeps it.
    queue_timeout: u32,
    /// Maximum time in milliseconds for which a request counts.
    max_counted_time: u32,
}

impl AdmissionOptions {
    /// The options of a configuration.
    pub(crate) fn new(config: &ConcurrencyConfig) -> Self {
        Self {
            policy: config.policy,
            bounds: Bounds { min: config.min_limit, max: config.max_limit },
            waiting: config.max_queued,
            queue_timeout: millis(config.queue_timeout),
            max_counted_time: millis(config.max_counted_time),
        }
    }
}

/// Number of counters for flows; flows with the same counter share their part of the limit as well.
const COUNTERS: usize = 256;

fn millis(time: Timespan) -> u32 {
    u32::try_from(time.get().as_millis()).unwrap_or(u32::MAX)
}

impl AdmissionOptions {
    /// True if requests may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.policy != ConcurrencyPolicy::None
    }
}

/// The admission to one server; 3 KiB.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Number of open requests.
    open: AtomicU32,
    /// Number of open requests by flow.
    open_of: Box<[AtomicU32; COUNTERS]>,
    /// Number of waiting requests.
    waiting: AtomicU32,
    adaptive: Adaptive,
    queue: Mutex<FairQueue<(FlowKey, oneshot::Sender<Option<ConcurrencyPermit>>)>>,
    /// The latest options, which apply to waiting requests as well.
    latest: Mutex<Option<AdmissionOptions>>,
}

/// The current load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Occupancy {
    /// Open requests.
    pub(crate) open: u32,
    /// Waiting requests.
    pub(crate) waiting: u32,
    /// The concurrency limit.
    pub(crate) limit: u32,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            open: AtomicU32::new(0),
            open_of: Box::new([const { AtomicU32::new(0) }; COUNTERS]),
            waiting: AtomicU32::new(0),
            adaptive: Adaptive::new(),
            queue: Mutex::default(),
            latest: Mutex::new(None),
        }
    }
}

/// A permit for one request, which counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    admission: Arc<Admission>,
    options: AdmissionOptions,
    began: Instant,
    /// Time at which the server had received the whole request.
    sent_at: Option<Instant>,
    flow_key: FlowKey,
}

impl Admission {
    /// Admits a request if the limit allows it and no request waits.
    pub(crate) fn try_admit(
        self: &Arc<Self>,
        flow_key: FlowKey,
        options: AdmissionOptions,
    ) -> Option<ConcurrencyPermit> {
        if self.waiting.load(Ordering::SeqCst) > 0 || !self.is_below_flow_share(flow_key.flow, options) {
            return None;
        }
        self.take(options).then(|| self.permit(flow_key, options))
    }

    /// The current load.
    pub(crate) fn occupancy(&self, options: AdmissionOptions) -> Occupancy {
        Occupancy {
            open: self.open.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            limit: self.limit(options),
        }
    }

    fn limit(&self, options: AdmissionOptions) -> u32 {
        match options.policy {
            ConcurrencyPolicy::Adaptive => self.adaptive.limit(options.bounds),
            ConcurrencyPolicy::Fixed => options.bounds.max,
            ConcurrencyPolicy::None => u32::MAX,
        }
    }

    fn take(&self, options: AdmissionOptions) -> bool {
        let limit = self.limit(options);
        let more = |open: u32| (open < limit).then_some(open + 1);
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// True if a flow is below its maximum share of the limit.
    fn is_below_flow_share(&self, flow: u64, options: AdmissionOptions) -> bool {
        let limit = self.limit(options);
        self.open_of(flow).load(Ordering::SeqCst) < limit - limit / 4
    }

    fn open_of(&self, flow: u64) -> &AtomicU32 {
        &self.open_of[(flow ^ (flow >> 32)) as usize % COUNTERS]
    }

    fn permit(self: &Arc<Self>, flow_key: FlowKey, options: AdmissionOptions) -> ConcurrencyPermit {
        self.open_of(flow_key.flow).fetch_add(1, Ordering::SeqCst);
        ConcurrencyPermit {
            admission: Arc::clone(self),
            options,
            began: Instant::now(),
            sent_at: None,
            flow_key,
        }
    }

    /// Replaces the options, also for waiting requests.
    pub(crate) fn set_options(self: &Arc<Self>, options: AdmissionOptions) {
        *self.latest.lock() = Some(options);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.admit_waiting(options);
        }
    }

    /// Waits until the server may get one more request.
    ///
    /// # Errors
    /// [`Overloaded`]; the server has received nothing then.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        flow_key: FlowKey,
        options: AdmissionOptions,
    ) -> Result<ConcurrencyPermit, Overloaded> {
        let (sender, mut admitted) = oneshot::channel();
        let place = {
            let mut queue = self.queue.lock();
            let pushed = queue.push(flow_key, (flow_key, sender), options.waiting as usize);
            self.update_waiting(&queue);
            match pushed {
                Pushed::Waits(place) => place,
                Pushed::Displaced(place, (_, last)) => {
                    let _ = last.send(None);
                    place
                }
                Pushed::Refused => return Err(Overloaded::Full),
            }
        };
        // A request that completed meanwhile may not have noticed that this one waits.
        self.admit_waiting(self.latest.lock().unwrap_or(options));
        let waiting = Waiting { admission: self, place };
        let outcome =
            tokio::time::timeout(Duration::from_millis(options.queue_timeout.into()), &mut admitted).await;
        drop(waiting);
        match outcome {
            Ok(Ok(Some(permit))) => Ok(permit),
            Ok(_) => Err(Overloaded::Full),
            // The request may have been admitted just now.
            Err(_) => admitted.try_recv().ok().flatten().ok_or(Overloaded::Late),
        }
    }

    /// Admits waiting requests up to the limit.
    fn admit_waiting(self: &Arc<Self>, options: AdmissionOptions) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                // In this order, so that no permit is taken that is not needed: a concurrent check would count it as used.
                let next = queue.pop(|flow| self.is_below_flow_share(flow, options), || self.take(options));
                self.update_waiting(&queue);
                next
            };
            let Some((_, (flow_key, sender))) = next else { return };
            // A request that stops waiting leaves the queue. If it stops at this moment, its permit is returned.
            let _ = sender.send(Some(self.permit(flow_key, options)));
        }
    }

    fn update_waiting<T>(&self, queue: &FairQueue<T>) {
        self.waiting.store(u32::try_from(queue.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}

impl ConcurrencyPermit {
    /// Remaining time for which the request counts.
    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_millis(self.options.max_counted_time.into()).saturating_sub(self.began.elapsed())
    }

    /// The server has received the whole request: the response time is measured from now on.
    pub(crate) fn request_sent(&mut self) {
        self.sent_at = Some(Instant::now());
    }

    /// The response has begun. If it began before the end of the request, its time says nothing about the server.
    pub(crate) fn response_started(self) {
        if self.options.policy == ConcurrencyPolicy::Adaptive
            && let Some(sent_at) = self.sent_at
        {
            let open = self.admission.open.load(Ordering::Relaxed);
            let kind = adaptive::kind(self.flow_key);
            self.admission.adaptive.record_response(kind, sent_at.elapsed(), open, self.options.bounds);
        }
    }

    /// The request has counted for the maximum time.
    pub(crate) fn expired(self) {
        // Before that the client causes the delay.
        if self.sent_at.is_some() && self.options.policy == ConcurrencyPolicy::Adaptive {
            let open = self.admission.open.load(Ordering::Relaxed);
            self.admission.adaptive.expired(open, self.options.bounds);
        }
    }

    /// The server did not respond in time, or reported an overload.
    pub(crate) fn overloaded(self) {
        if self.options.policy == ConcurrencyPolicy::Adaptive {
            let open = self.admission.open.load(Ordering::Relaxed);
            self.admission.adaptive.overloaded(open, self.options.bounds);
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.admission.open_of(self.flow_key.flow).fetch_sub(1, Ordering::SeqCst);
        self.admission.open.fetch_sub(1, Ordering::SeqCst);
        if self.admission.waiting.load(Ordering::SeqCst) > 0 {
            let latest = *self.admission.latest.lock();
            self.admission.admit_waiting(latest.unwrap_or(self.options));
        }
    }
}

/// A waiting request; dropping it removes it from the queue.
struct Waiting<'a> {
    admission: &'a Arc<Admission>,
    place: QueueSlot,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        queue.remove(self.place);
        self.admission.update_waiting(&queue);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures_util::FutureExt as _;

    use super::*;

    fn options(most: u32, waiting: u32) -> AdmissionOptions {
        AdmissionOptions::new(&ConcurrencyConfig {
            policy: ConcurrencyPolicy::Fixed,
            max_limit: most,
            max_queued: waiting,
            queue_timeout: Timespan::from_secs(5),
            ..ConcurrencyConfig::default()
        })
    }

    fn flow_key(flow: u64) -> FlowKey {
        FlowKey { flow, priority: Priority::Normal, writes: false }
    }

    fn state(admission: &Admission) -> (u32, u32) {
        let Occupancy { open, waiting, .. } = admission.occupancy(options(1, 1));
        (open, waiting)
    }

    #[tokio::test]
    async fn a_request_above_the_limit_waits_in_order() {
        let (admission, options) = (Arc::<Admission>::default(), options(2, 100));
        let mut open: Vec<_> = (0..2).map(|_| admission.try_admit(flow_key(1), options).unwrap()).collect();
        assert!(admission.try_admit(flow_key(2), options).is_none());
        let mut waiting: Vec<_> =
            [1, 1, 1, 2].map(|flow| Box::pin(admission.admit(flow_key(flow), options))).into();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(state(&admission), (2, 4));
        drop(open.pop());
        let first = waiting.remove(0).now_or_never().unwrap().unwrap();
        assert!(admission.try_admit(flow_key(3), options).is_none(), "no request overtakes waiting ones");
        drop(first);
        let other = waiting.pop().unwrap().now_or_never().unwrap().unwrap();
        assert_eq!(state(&admission), (2, 2));
        // One waiter leaves before it is admitted.
        drop(waiting.remove(0));
        assert_eq!(state(&admission), (2, 1));
        drop((other, open));
        drop(waiting.pop().unwrap().await.unwrap());
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_waiting_time_and_the_queue_are_bounded() {
        let (admission, options) = (Arc::<Admission>::default(), options(1, 2));
        let open = admission.try_admit(flow_key(1), options).unwrap();
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(admission.admit(flow_key(1), options))).collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(admission.admit(flow_key(1), options).await.unwrap_err(), Overloaded::Full);
        let mut other = Box::pin(admission.admit(flow_key(2), options));
        assert!((&mut other).now_or_never().is_none(), "of another flow there are fewer");
        let last = waiting.pop().unwrap();
        assert_eq!(last.await.unwrap_err(), Overloaded::Full);
        let began = tokio::time::Instant::now();
        assert_eq!(other.await.unwrap_err(), Overloaded::Late);
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        drop(waiting);
        assert_eq!(state(&admission), (1, 0));
        drop(open);
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test]
    async fn the_permit_of_a_cancelled_request_goes_to_the_next() {
        let (admission, options) = (Arc::<Admission>::default(), options(1, 10));
        let open = admission.try_admit(flow_key(1), options).unwrap();
        let mut first = Box::pin(admission.admit(flow_key(1), options));
        let mut second = Box::pin(admission.admit(flow_key(1), options));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(open);
        // The first waiter has been admitted but was not polled again.
        drop(first);
        drop(second.now_or_never().unwrap().unwrap());
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test]
    async fn changed_options_apply_to_waiting_requests() {
        type Waiting<'w> = futures_util::future::BoxFuture<'w, Result<ConcurrencyPermit, Overloaded>>;
        fn admitted(waiting: &mut Vec<Waiting<'_>>) -> Vec<ConcurrencyPermit> {
            let mut slots = Vec::new();
            waiting.retain_mut(|one| match one.now_or_never() {
                Some(permit) => {
                    slots.push(permit.unwrap());
                    false
                }
                None => true,
            });
            slots
        }
        let (admission, one) = (Arc::<Admission>::default(), options(1, 100));
        let open = admission.try_admit(flow_key(1), one).unwrap();
        let mut waiting: Vec<Waiting<'_>> =
            (0..5).map(|flow| admission.admit(flow_key(flow), one).boxed()).collect();
        assert_eq!(admitted(&mut waiting).len(), 0);
        admission.set_options(options(3, 100));
        let held = admitted(&mut waiting);
        assert_eq!(held.len(), 2, "the limit has grown");
        admission.set_options(options(2, 100));
        drop(open);
        assert_eq!(admitted(&mut waiting).len(), 0, "the new limit applies when a permit is released");
        admission.set_options(AdmissionOptions { policy: ConcurrencyPolicy::None, ..one });
        assert_eq!(admitted(&mut waiting).len(), 3, "no request has to wait any more");
        drop(held);
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test]
    async fn one_flow_never_uses_the_whole_limit() {
        let (admission, options) = (Arc::<Admission>::default(), options(8, 100));
        let hanging: Vec<_> = std::iter::from_fn(|| admission.try_admit(flow_key(1), options)).collect();
        assert_eq!(hanging.len(), 6);
        let mut more = Box::pin(admission.admit(flow_key(1), options));
        assert!((&mut more).now_or_never().is_none());
        let other = Box::pin(admission.admit(flow_key(2), options)).now_or_never();
        assert!(other.unwrap().is_ok(), "although others wait");
        drop(hanging);
        assert!(more.await.is_ok());
        assert_eq!(state(&admission), (0, 0));
    }

    #[test]
    fn concurrent_requests_never_exceed_the_limit_and_all_are_served() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
        let (admission, options) = (Arc::<Admission>::default(), options(7, u32::MAX));
        let (most, total) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        runtime.unwrap().block_on(async {
            let tasks: Vec<_> = (0..400_u64)
                .map(|task| {
                    let (admission, most, total) =
                        (Arc::clone(&admission), Arc::clone(&most), Arc::clone(&total));
                    tokio::spawn(async move {
                        for sender in 0..50 {
                            let flow_key = flow_key(task % 13);
                            let permit = match admission.try_admit(flow_key, options) {
                                Some(permit) => permit,
                                None => admission.admit(flow_key, options).await.unwrap(),
                            };
                            most.fetch_max(admission.occupancy(options).open, Ordering::Relaxed);
                            if sender % 3 == 0 {
                                tokio::task::yield_now().await;
                            }
                            total.fetch_add(1, Ordering::Relaxed);
                            drop(permit);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 400 * 50);
        assert!(most.load(Ordering::Relaxed) <= 7, "{most:?}");
        assert_eq!(state(&admission), (0, 0));
    }
}
