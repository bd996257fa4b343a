//! The order of waiting requests: start-time fair queueing (Goyal, Vin and Cheng, 1996), applied twice: between flows, and
//! between the priorities of one flow. Pure code.
//!
//! Each flow gets the same share of the capacity, however many of its requests wait and whatever their priority: priorities
//! apply within one flow, so that one flow's leases do not overtake another flow's requests. A list costs its flow as
//! much as several other requests. An idle flow collects no credit. A new flow starts half a request's cost behind the
//! others: it precedes flows that have just been served, and any number of new flows cannot starve the old ones. An operation
//! costs O(log n).

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::request::Priority;
use crate::upstream::admission::FlowKey;

/// Cost of a request for its flow. A list is more work than most other requests.
const fn flow_cost(priority: Priority) -> u64 {
    match priority {
        Priority::Urgent | Priority::Normal => 2,
        Priority::List => 8,
    }
}

/// Initial delay of a new flow: half the cost of a request.
const NEW_FLOW_DELAY: u64 = 1;

/// Cost of a request for its priority within the flow: if all priorities have waiting requests, they are served 16 : 4 : 1.
const fn priority_cost(priority: Priority) -> u64 {
    match priority {
        Priority::Urgent => 1,
        Priority::Normal => 4,
        Priority::List => 16,
    }
}

/// The position of a request in the queue, by which it can be removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct QueueSlot {
    flow_key: FlowKey,
    number: u64,
}

/// The virtual start time of a flow's next request; equal ones in the order of arrival.
type VirtualTime = (u64, u64);

/// The result of adding a request.
#[derive(Debug)]
pub(super) enum Pushed<T> {
    /// The request waits.
    Waits(QueueSlot),
    /// The request waits; another one, of the flow with the most requests, was removed for it.
    Displaced(QueueSlot, T),
    /// The queue is full, and the request's flow has the most requests.
    Refused,
}

/// The waiting requests.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    flows: FxHashMap<u64, Flow<T>>,
    /// Flows by the virtual start time of their next request.
    by_start_time: BTreeMap<VirtualTime, u64>,
    /// Virtual start times of flows without waiting requests, so that a flow that sends its next request right after the
    /// previous one was served does not count as new each time.
    idle_flows: FxHashMap<u64, u64>,
    /// The virtual time: the start time of the request that was served last.
    time: u64,
    len: usize,
    next: u64,
    /// Number of entries in `idle_flows` at which expired ones are removed.
    sweep_at: usize,
}

const MIN_SWEEP_SIZE: usize = 64;

/// The waiting requests of one flow; at least one.
#[derive(Debug)]
struct Flow<T> {
    turn: VirtualTime,
    levels: [Level<T>; 3],
    /// The flow's virtual time: that of the priority that was served last.
    time: u64,
    len: usize,
}

#[derive(Debug)]
struct Level<T> {
    waiting: VecDeque<(u64, T)>,
    /// Virtual start time of this priority's next request within its flow.
    start: u64,
}

impl<T> Default for Level<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), start: 0 }
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            flows: FxHashMap::default(),
            by_start_time: BTreeMap::new(),
            idle_flows: FxHashMap::default(),
            time: 0,
            len: 0,
            next: 0,
            sweep_at: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request. If `most` already wait, the last one of the lowest priority of the longest flow is removed; that
    /// may be the new request.
    pub(super) fn push(&mut self, flow_key: FlowKey, item: T, most: usize) -> Pushed<T> {
        let mut displaced = None;
        if self.len >= most {
            match self.last_of_the_longest(flow_key) {
                Some(place) => displaced = self.remove(place),
                None => return Pushed::Refused,
            }
        }
        let number = self.next;
        self.next += 1;
        self.len += 1;
        let (by_start_time, idle_flows, time) = (&mut self.by_start_time, &mut self.idle_flows, self.time);
        let flow = self.flows.entry(flow_key.flow).or_insert_with(|| {
            let anew = time + NEW_FLOW_DELAY;
            let turn = (idle_flows.remove(&flow_key.flow).map_or(anew, |next| next.max(anew)), number);
            by_start_time.insert(turn, flow_key.flow);
            Flow { turn, levels: Default::default(), time: 0, len: 0 }
        });
        flow.len += 1;
        let level = &mut flow.levels[flow_key.priority as usize];
        if level.waiting.is_empty() {
            level.start = level.start.max(flow.time);
        }
        level.waiting.push_back((number, item));
        let place = QueueSlot { flow_key, number };
        match displaced {
            Some(last) => Pushed::Displaced(place, last),
            None => Pushed::Waits(place),
        }
    }

    /// Removes the next request among the flows that `may` allows, if `take` gets capacity for it. Also iterates over the flows
    /// that are not allowed.
    pub(super) fn pop(&mut self, may: impl Fn(u64) -> bool, take: impl FnOnce() -> bool) -> Option<(u64, T)> {
        let (turn, id) =
            self.by_start_time.iter().find(|(_, flow)| may(**flow)).map(|(turn, id)| (*turn, *id))?;
        if !take() {
            return None;
        }
        self.time = self.time.max(turn.0);
        let flow = self.flows.get_mut(&id)?;
        let is_waiting = |priority: &Priority| !flow.levels[*priority as usize].waiting.is_empty();
        let next = Priority::ALL.into_iter().filter(is_waiting);
        let priority = next.min_by_key(|priority| flow.levels[*priority as usize].start)?;
        let level = &mut flow.levels[priority as usize];
        flow.time = level.start;
        level.start += priority_cost(priority);
        let (_, item) = level.waiting.pop_front()?;
        self.by_start_time.remove(&turn);
        flow.turn.0 += flow_cost(priority);
        self.by_start_time.insert(flow.turn, id);
        self.after_removal(id);
        Some((id, item))
    }

    /// Removes a request, if it still waits.
    pub(super) fn remove(&mut self, place: QueueSlot) -> Option<T> {
        let flow = self.flows.get_mut(&place.flow_key.flow)?;
        let waiting = &mut flow.levels[place.flow_key.priority as usize].waiting;
        let at = waiting.binary_search_by_key(&place.number, |(number, _)| *number).ok()?;
        let (_, item) = waiting.remove(at)?;
        self.after_removal(place.flow_key.flow);
        Some(item)
    }

    /// Updates a flow after a request was removed. An empty flow keeps no credit, but may keep a debt.
    fn after_removal(&mut self, id: u64) {
        self.len -= 1;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.len -= 1;
        if flow.len == 0 {
            let next = flow.turn.0;
            self.by_start_time.remove(&flow.turn);
            self.flows.remove(&id);
            if self.flows.is_empty() {
                self.idle_flows.clear();
                return;
            }
            if self.idle_flows.len() >= self.sweep_at.max(MIN_SWEEP_SIZE) {
                let time = self.time;
                self.idle_flows.retain(|_, next| *next > time);
                self.sweep_at = 2 * self.idle_flows.len();
            }
            if next > self.time {
                self.idle_flows.insert(id, next);
            }
        }
    }

    /// The last request of the lowest priority in the longest flow. If that is the new request's flow, only a request with a
    /// lower priority is chosen. Iterates over all flows, at most as many as may wait; happens only if the queue is full.
    fn last_of_the_longest(&self, new: FlowKey) -> Option<QueueSlot> {
        let (longest, flow) = self.flows.iter().max_by_key(|(_, flow)| flow.len)?;
        let own = self.flows.get(&new.flow).is_some_and(|own| own.len >= flow.len);
        let (id, flow) = if own { (new.flow, self.flows.get(&new.flow)?) } else { (*longest, flow) };
        let removed = Priority::ALL
            .into_iter()
            .rev()
            .find(|priority| !flow.levels[*priority as usize].waiting.is_empty())?;
        if own && removed as usize <= new.priority as usize {
            return None;
        }
        let (number, _) = flow.levels[removed as usize].waiting.back()?;
        Some(QueueSlot { flow_key: FlowKey { flow: id, priority: removed, writes: false }, number: *number })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;

    const NORMAL: Priority = Priority::Normal;

    fn flow_key(flow: u64, priority: Priority) -> FlowKey {
        FlowKey { flow, priority, writes: false }
    }

    fn filled(flows: &[(u64, Priority, usize)]) -> FairQueue<usize> {
        let mut queue = FairQueue::default();
        for (flow, priority, count) in flows {
            for one in 0..*count {
                assert!(matches!(queue.push(flow_key(*flow, *priority), one, usize::MAX), Pushed::Waits(_)));
            }
        }
        queue
    }

    fn served(queue: &mut FairQueue<usize>, turns: usize) -> BTreeMap<u64, usize> {
        let mut served = BTreeMap::new();
        for _ in 0..turns {
            let (flow, _) = queue.pop(|_| true, || true).unwrap();
            *served.entry(flow).or_default() += 1;
        }
        served
    }

    #[test]
    fn every_flow_gets_the_same_share_however_many_requests_wait() {
        let mut queue = filled(&[(1, NORMAL, 1000), (2, NORMAL, 50), (3, NORMAL, 10)]);
        assert_eq!(served(&mut queue, 30), BTreeMap::from([(1, 10), (2, 10), (3, 10)]));
        assert_eq!(served(&mut queue, 80), BTreeMap::from([(1, 40), (2, 40)]));
        assert_eq!(queue.len(), 950);
    }

    #[test]
    fn a_new_flow_waits_for_one_request_of_each_other_flow() {
        let mut queue = filled(&[(1, NORMAL, 1000), (2, NORMAL, 1000)]);
        served(&mut queue, 500);
        let _ = queue.push(flow_key(3, NORMAL), 0, usize::MAX);
        assert_eq!(served(&mut queue, 3).get(&3), Some(&1));
    }

    #[test]
    fn a_flow_without_a_backlog_gets_no_larger_share() {
        let mut queue = filled(&[(1, NORMAL, 1000)]);
        let mut turns = BTreeMap::new();
        for _ in 0..100 {
            // Both send their next request as soon as the previous one is served.
            for flow in [2, 3] {
                if !queue.flows.contains_key(&flow) {
                    let _ = queue.push(flow_key(flow, NORMAL), 0, usize::MAX);
                }
            }
            for (flow, count) in served(&mut queue, 1) {
                *turns.entry(flow).or_insert(0) += count;
            }
        }
        assert!(turns.values().all(|count| (33..=34).contains(count)), "{turns:?}");
        for flow in 10..10_000 {
            let _ = queue.push(flow_key(flow, NORMAL), 0, usize::MAX);
            *turns.entry(1).or_insert(0) += served(&mut queue, 1).remove(&1).unwrap_or_default();
        }
        // Served once whenever all earlier new flows were served; each time there is one more of them.
        assert!(turns[&1] > 100, "new ones keep it from its turns: {turns:?}");
        assert!(queue.idle_flows.len() < 1_000, "{} of ten thousand are remembered", queue.idle_flows.len());
    }

    #[test]
    fn within_a_flow_the_first_is_served_first() {
        let mut queue = filled(&[(1, NORMAL, 100)]);
        let order: Vec<usize> =
            std::iter::from_fn(|| queue.pop(|_| true, || true)).map(|(_, one)| one).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn priorities_apply_within_a_flow_without_starvation() {
        let mut queue = FairQueue::default();
        for priority in Priority::ALL {
            for _ in 0..100 {
                let _ = queue.push(flow_key(1, priority), priority, usize::MAX);
            }
        }
        let mut served = [0; 3];
        for _ in 0..42 {
            served[queue.pop(|_| true, || true).unwrap().1 as usize] += 1;
        }
        assert_eq!(served, [32, 8, 2]);
        // Lists that were served alone for a long time leave no debt.
        let mut queue = FairQueue::default();
        for _ in 0..1000 {
            let _ = queue.push(flow_key(1, Priority::List), Priority::List, usize::MAX);
        }
        let pop = |queue: &mut FairQueue<_>| queue.pop(|_| true, || true).unwrap().1;
        for _ in 0..900 {
            pop(&mut queue);
        }
        let _ = queue.push(flow_key(1, NORMAL), NORMAL, usize::MAX);
        let _ = queue.push(flow_key(1, Priority::Urgent), Priority::Urgent, usize::MAX);
        let next = [pop(&mut queue), pop(&mut queue), pop(&mut queue)];
        assert!(next.contains(&NORMAL) && next.contains(&Priority::Urgent), "{next:?}");
    }

    #[test]
    fn leases_do_not_overtake_other_flows_and_lists_cost_more() {
        let mut queue = filled(&[(1, Priority::Urgent, 1000), (2, NORMAL, 50), (3, NORMAL, 50)]);
        assert_eq!(served(&mut queue, 60), BTreeMap::from([(1, 20), (2, 20), (3, 20)]));
        let mut queue = filled(&[(1, Priority::List, 100), (2, NORMAL, 100)]);
        assert_eq!(served(&mut queue, 50), BTreeMap::from([(1, 10), (2, 40)]));
        let mut queue = filled(&[(1, Priority::List, 3), (2, NORMAL, 1)]);
        served(&mut queue, 1);
        assert_eq!(served(&mut queue, 1).len(), 1);
        assert_eq!(served(&mut queue, 2), BTreeMap::from([(1, 2)]));
        // A flow that was served alone for a long time has no debt.
        let mut queue = filled(&[(1, Priority::List, 1000)]);
        served(&mut queue, 900);
        let _ = queue.push(flow_key(2, NORMAL), 0, usize::MAX);
        assert!(served(&mut queue, 2).contains_key(&2));
    }

    #[test]
    fn a_flow_at_its_limit_keeps_its_position() {
        let mut queue = filled(&[(1, NORMAL, 3), (2, NORMAL, 2), (1, Priority::Urgent, 1)]);
        let not_the_first = |flow| flow != 1;
        assert_eq!(queue.pop(not_the_first, || true).unwrap().0, 2);
        assert_eq!(queue.pop(not_the_first, || true).unwrap().0, 2);
        assert!(queue.pop(not_the_first, || true).is_none());
        assert!(queue.pop(|_| true, || false).is_none());
        assert_eq!(served(&mut queue, 4), BTreeMap::from([(1, 4)]));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_full_queue_drops_the_last_request_of_the_longest_flow() {
        let mut queue = filled(&[(1, NORMAL, 6), (2, NORMAL, 3)]);
        assert!(matches!(queue.push(flow_key(1, NORMAL), 99, 9), Pushed::Refused));
        assert!(
            matches!(queue.push(flow_key(3, NORMAL), 0, 9), Pushed::Displaced(_, 5)),
            "the last of flow 1"
        );
        assert!(matches!(queue.push(flow_key(2, NORMAL), 3, 9), Pushed::Displaced(_, 4)));
        assert_eq!(queue.len(), 9);
        assert!(matches!(FairQueue::default().push(flow_key(1, NORMAL), 0, 0), Pushed::Refused));
        // Within its own flow the request with the lowest priority is removed.
        let mut queue = filled(&[(1, Priority::List, 2), (1, NORMAL, 2)]);
        assert!(matches!(queue.push(flow_key(1, Priority::List), 9, 4), Pushed::Refused));
        assert!(matches!(queue.push(flow_key(1, NORMAL), 9, 4), Pushed::Displaced(_, 1)), "the last list");
    }

    #[test]
    fn a_removed_request_costs_its_flow_nothing() {
        let mut queue = FairQueue::default();
        let places: Vec<_> = (0..10)
            .map(|one| match queue.push(flow_key(one % 2, NORMAL), 7, usize::MAX) {
                Pushed::Waits(place) => place,
                _ => unreachable!(),
            })
            .collect();
        for place in &places[..8] {
            assert!(queue.remove(*place).is_some());
        }
        assert_eq!(queue.remove(places[0]), None, "once");
        assert_eq!(queue.len(), 2);
        assert_eq!(served(&mut queue, 2), BTreeMap::from([(0, 1), (1, 1)]));
        assert!(
            queue.pop(|_| true, || true).is_none()
                && queue.flows.is_empty()
                && queue.by_start_time.is_empty()
        );
    }
}
