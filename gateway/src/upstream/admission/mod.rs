//! How many requests a server works on at a time, and who is next.
//!
//! Nothing here is touched where there is no limit. While there is room, a request costs a few atomic operations here when it is sent and again when its answer begins
//! (its time is counted). Only when there is none it waits: in turn by logical cluster, leases first and lists last
//! ([`queue`]). How much room there is follows from how long answers take ([`adaptive`]).
//!
//! A request counts until its answer begins: after that it is the client who decides how long it takes. Nor does it count
//! for longer than a second or what is set: what takes so long mostly waits for something else. And a quarter of the room is for
//! others than the logical cluster that has most, so that requests which hang, or never end, take nobody else's.

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

/// Whose turn it is, and how urgent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FlowKey {
    /// The logical cluster, or whatever else is served in turn, as a number.
    pub(crate) flow: u64,
    /// How urgent it is.
    pub(crate) priority: Priority,
    /// It changes something, which takes longer than to read it.
    pub(crate) writes: bool,
}

/// It would take too long. A retry helps after a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Overloaded {
    /// Too many wait, and its workspace has the most of them.
    #[error("the shard is overloaded, and too many requests of this workspace wait for it")]
    Full,
    /// It has waited for long enough.
    #[error("the shard is overloaded: the request has waited for too long")]
    Late,
}

/// How many are let in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdmissionOptions {
    policy: ConcurrencyPolicy,
    bounds: Bounds,
    waiting: u32,
    /// Milliseconds: what a request keeps is little.
    patience: u32,
    /// Milliseconds.
    counts: u32,
}

impl AdmissionOptions {
    /// As settings have it.
    pub(crate) fn new(config: &ConcurrencyConfig) -> Self {
        Self {
            policy: config.policy,
            bounds: Bounds { least: config.min_limit, most: config.max_limit },
            waiting: config.max_queued,
            patience: millis(config.queue_timeout),
            counts: millis(config.max_counted_time),
        }
    }
}

/// Flows are told apart by so many counters; those that share one share their part of the room, too.
const COUNTERS: usize = 256;

fn millis(time: Timespan) -> u32 {
    u32::try_from(time.get().as_millis()).unwrap_or(u32::MAX)
}

impl AdmissionOptions {
    /// Whether anybody may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.policy != ConcurrencyPolicy::None
    }
}

/// The way into one server. 3 KiB.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Those that it works on.
    open: AtomicU32,
    /// Those by flow.
    open_of: Box<[AtomicU32; COUNTERS]>,
    /// Those that wait.
    waiting: AtomicU32,
    adaptive: Adaptive,
    queue: Mutex<FairQueue<(FlowKey, oneshot::Sender<Option<ConcurrencyPermit>>)>>,
    /// By which those are let in who wait.
    latest: Mutex<Option<AdmissionOptions>>,
}

/// How it is just now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Occupancy {
    /// Requests that the server works on.
    pub(crate) open: u32,
    /// Requests that wait.
    pub(crate) waiting: u32,
    /// How many it may work on.
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

/// A request that the server works on, until this is dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    admission: Arc<Admission>,
    options: AdmissionOptions,
    began: Instant,
    /// When the server had all of the request.
    asked: Option<Instant>,
    share: FlowKey,
}

impl Admission {
    /// Lets a request in if there is room and nobody waits.
    pub(crate) fn enter_at_once(
        self: &Arc<Self>,
        share: FlowKey,
        options: AdmissionOptions,
    ) -> Option<ConcurrencyPermit> {
        if self.waiting.load(Ordering::SeqCst) > 0 || !self.may_have_more(share.flow, options) {
            return None;
        }
        self.take(options).then(|| self.slot(share, options))
    }

    /// How it is just now.
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
            ConcurrencyPolicy::Fixed => options.bounds.most,
            ConcurrencyPolicy::None => u32::MAX,
        }
    }

    fn take(&self, options: AdmissionOptions) -> bool {
        let limit = self.limit(options);
        let more = |open: u32| (open < limit).then_some(open + 1);
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Whether a flow has less of the room than one may have.
    fn may_have_more(&self, flow: u64, options: AdmissionOptions) -> bool {
        let limit = self.limit(options);
        self.open_of(flow).load(Ordering::SeqCst) < limit - limit / 4
    }

    fn open_of(&self, flow: u64) -> &AtomicU32 {
        &self.open_of[(flow ^ (flow >> 32)) as usize % COUNTERS]
    }

    fn slot(self: &Arc<Self>, share: FlowKey, options: AdmissionOptions) -> ConcurrencyPermit {
        self.open_of(share.flow).fetch_add(1, Ordering::SeqCst);
        ConcurrencyPermit { admission: Arc::clone(self), options, began: Instant::now(), asked: None, share }
    }

    /// Other options from now on, also for those who wait already.
    pub(crate) fn set_options(self: &Arc<Self>, options: AdmissionOptions) {
        *self.latest.lock() = Some(options);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.let_in(options);
        }
    }

    /// Waits until the server may have one more request.
    ///
    /// # Errors
    /// [`Overloaded`]; the server has seen nothing then.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        share: FlowKey,
        options: AdmissionOptions,
    ) -> Result<ConcurrencyPermit, Overloaded> {
        let (turn, mut admitted) = oneshot::channel();
        let place = {
            let mut queue = self.queue.lock();
            let pushed = queue.push(share, (share, turn), options.waiting as usize);
            self.note(&queue);
            match pushed {
                Pushed::Waits(place) => place,
                Pushed::InPlaceOf(place, (_, last)) => {
                    let _ = last.send(None);
                    place
                }
                Pushed::Refused => return Err(Overloaded::Full),
            }
        };
        // Whoever has left meanwhile may not have seen that somebody waits.
        self.let_in(self.latest.lock().unwrap_or(options));
        let waiting = Waiting { admission: self, place };
        let outcome =
            tokio::time::timeout(Duration::from_millis(options.patience.into()), &mut admitted).await;
        drop(waiting);
        match outcome {
            Ok(Ok(Some(slot))) => Ok(slot),
            Ok(_) => Err(Overloaded::Full),
            // It may have been let in just now.
            Err(_) => admitted.try_recv().ok().flatten().ok_or(Overloaded::Late),
        }
    }

    /// Lets in whom there is room for.
    fn let_in(self: &Arc<Self>, options: AdmissionOptions) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                // In this order, so that no room is taken that nobody needs: who looks meanwhile would think it used.
                let next = queue.pop(|flow| self.may_have_more(flow, options), || self.take(options));
                self.note(&queue);
                next
            };
            let Some((_, (share, turn))) = next else { return };
            // Who does not wait any more has given up his place, unless he left just now: then his slot comes back.
            let _ = turn.send(Some(self.slot(share, options)));
        }
    }

    fn note<T>(&self, queue: &FairQueue<T>) {
        self.waiting.store(u32::try_from(queue.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}

impl ConcurrencyPermit {
    /// For how long it may still count.
    pub(crate) fn rest(&self) -> Duration {
        Duration::from_millis(self.options.counts.into()).saturating_sub(self.began.elapsed())
    }

    /// The server has all of the request: from now on it is the server that takes its time.
    pub(crate) fn asked(&mut self) {
        self.asked = Some(Instant::now());
    }

    /// The answer has begun. One that did not wait for the whole request says nothing about the server.
    pub(crate) fn answered(self) {
        if self.options.policy == ConcurrencyPolicy::Adaptive
            && let Some(asked) = self.asked
        {
            let open = self.admission.open.load(Ordering::Relaxed);
            let kind = adaptive::kind(self.share);
            self.admission.adaptive.answered(kind, asked.elapsed(), open, self.options.bounds);
        }
    }

    /// It has counted for as long as it may.
    pub(crate) fn expired(self) {
        // Before that it is the client who takes his time.
        if self.asked.is_some() && self.options.policy == ConcurrencyPolicy::Adaptive {
            let open = self.admission.open.load(Ordering::Relaxed);
            self.admission.adaptive.expired(open, self.options.bounds);
        }
    }

    /// The server did not answer in time, or says that it has too much to do.
    pub(crate) fn overloaded(self) {
        if self.options.policy == ConcurrencyPolicy::Adaptive {
            let open = self.admission.open.load(Ordering::Relaxed);
            self.admission.adaptive.overloaded(open, self.options.bounds);
        }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.admission.open_of(self.share.flow).fetch_sub(1, Ordering::SeqCst);
        self.admission.open.fetch_sub(1, Ordering::SeqCst);
        if self.admission.waiting.load(Ordering::SeqCst) > 0 {
            let latest = *self.admission.latest.lock();
            self.admission.let_in(latest.unwrap_or(self.options));
        }
    }
}

/// Somebody waiting: who goes away leaves his place.
struct Waiting<'a> {
    admission: &'a Arc<Admission>,
    place: QueueSlot,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        queue.remove(self.place);
        self.admission.note(&queue);
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

    fn share(flow: u64) -> FlowKey {
        FlowKey { flow, priority: Priority::Normal, writes: false }
    }

    fn state(admission: &Admission) -> (u32, u32) {
        let Occupancy { open, waiting, .. } = admission.occupancy(options(1, 1));
        (open, waiting)
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_for_his_turn() {
        let (admission, options) = (Arc::<Admission>::default(), options(2, 100));
        let mut open: Vec<_> = (0..2).map(|_| admission.enter_at_once(share(1), options).unwrap()).collect();
        assert!(admission.enter_at_once(share(2), options).is_none());
        let mut waiting: Vec<_> =
            [1, 1, 1, 2].map(|flow| Box::pin(admission.enter(share(flow), options))).into();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(state(&admission), (2, 4));
        drop(open.pop());
        let first = waiting.remove(0).now_or_never().unwrap().unwrap();
        assert!(admission.enter_at_once(share(3), options).is_none(), "nobody goes ahead of those who wait");
        drop(first);
        let other = waiting.pop().unwrap().now_or_never().unwrap().unwrap();
        assert_eq!(state(&admission), (2, 2));
        // One leaves before it is his turn.
        drop(waiting.remove(0));
        assert_eq!(state(&admission), (2, 1));
        drop((other, open));
        drop(waiting.pop().unwrap().await.unwrap());
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_and_room_to_wait_have_an_end() {
        let (admission, options) = (Arc::<Admission>::default(), options(1, 2));
        let open = admission.enter_at_once(share(1), options).unwrap();
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(admission.enter(share(1), options))).collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(admission.enter(share(1), options).await.unwrap_err(), Overloaded::Full);
        let mut other = Box::pin(admission.enter(share(2), options));
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
    async fn a_turn_of_somebody_who_has_just_left_goes_to_the_next() {
        let (admission, options) = (Arc::<Admission>::default(), options(1, 10));
        let open = admission.enter_at_once(share(1), options).unwrap();
        let mut first = Box::pin(admission.enter(share(1), options));
        let mut second = Box::pin(admission.enter(share(1), options));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(open);
        // It is the first one's turn, and he has not seen it.
        drop(first);
        drop(second.now_or_never().unwrap().unwrap());
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test]
    async fn other_options_hold_for_those_who_wait_already() {
        type Waiting<'w> = futures_util::future::BoxFuture<'w, Result<ConcurrencyPermit, Overloaded>>;
        fn admitted(waiting: &mut Vec<Waiting<'_>>) -> Vec<ConcurrencyPermit> {
            let mut slots = Vec::new();
            waiting.retain_mut(|one| match one.now_or_never() {
                Some(slot) => {
                    slots.push(slot.unwrap());
                    false
                }
                None => true,
            });
            slots
        }
        let (admission, one) = (Arc::<Admission>::default(), options(1, 100));
        let open = admission.enter_at_once(share(1), one).unwrap();
        let mut waiting: Vec<Waiting<'_>> =
            (0..5).map(|flow| admission.enter(share(flow), one).boxed()).collect();
        assert_eq!(admitted(&mut waiting).len(), 0);
        admission.set_options(options(3, 100));
        let held = admitted(&mut waiting);
        assert_eq!(held.len(), 2, "there is more room");
        admission.set_options(options(2, 100));
        drop(open);
        assert_eq!(admitted(&mut waiting).len(), 0, "there is less, whatever held when he came who leaves");
        admission.set_options(AdmissionOptions { policy: ConcurrencyPolicy::None, ..one });
        assert_eq!(admitted(&mut waiting).len(), 3, "nobody need wait any more");
        drop(held);
        assert_eq!(state(&admission), (0, 0));
    }

    #[tokio::test]
    async fn one_flow_never_has_all_the_room() {
        let (admission, options) = (Arc::<Admission>::default(), options(8, 100));
        let hanging: Vec<_> = std::iter::from_fn(|| admission.enter_at_once(share(1), options)).collect();
        assert_eq!(hanging.len(), 6);
        let mut more = Box::pin(admission.enter(share(1), options));
        assert!((&mut more).now_or_never().is_none());
        let other = Box::pin(admission.enter(share(2), options)).now_or_never();
        assert!(other.unwrap().is_ok(), "although others wait");
        drop(hanging);
        assert!(more.await.is_ok());
        assert_eq!(state(&admission), (0, 0));
    }

    #[test]
    fn many_at_once_are_never_more_than_the_limit_and_all_get_their_turn() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
        let (admission, options) = (Arc::<Admission>::default(), options(7, u32::MAX));
        let (most, total) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        runtime.unwrap().block_on(async {
            let tasks: Vec<_> = (0..400_u64)
                .map(|task| {
                    let (admission, most, total) =
                        (Arc::clone(&admission), Arc::clone(&most), Arc::clone(&total));
                    tokio::spawn(async move {
                        for turn in 0..50 {
                            let share = share(task % 13);
                            let slot = match admission.enter_at_once(share, options) {
                                Some(slot) => slot,
                                None => admission.enter(share, options).await.unwrap(),
                            };
                            most.fetch_max(admission.occupancy(options).open, Ordering::Relaxed);
                            if turn % 3 == 0 {
                                tokio::task::yield_now().await;
                            }
                            total.fetch_add(1, Ordering::Relaxed);
                            drop(slot);
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
