//! Who is next: start-time fair queueing (Goyal, Vin and Cheng, 1996) twice, between flows and between the priorities of one
//! flow. Pure.
//!
//! Each flow gets the same share of the turns however many of its requests wait, and however urgent it says they are: urgency
//! is between requests of one flow, so that nobody's leases outrun somebody else's requests. A list costs its flow as
//! much as several others. A flow that has not asked for a while is not owed anything, and one that comes anew waits for
//! half a turn of the others: it goes before those who have just had theirs, and however many come anew, nobody starves. A turn
//! costs O(log n).

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::request::Priority;
use crate::upstream::admission::FlowKey;

/// What one turn costs its flow. A list is more work than most others.
const fn work(priority: Priority) -> u64 {
    match priority {
        Priority::Urgent | Priority::Normal => 2,
        Priority::List => 8,
    }
}

/// How long who comes anew waits: half a turn.
const ANEW: u64 = 1;

/// What one turn costs its priority within its flow: the turns of those who all have somebody waiting are as 16 to 4 to 1.
const fn cost(priority: Priority) -> u64 {
    match priority {
        Priority::Urgent => 1,
        Priority::Normal => 4,
        Priority::List => 16,
    }
}

/// A place in the queue, by which it can be given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct QueueSlot {
    share: FlowKey,
    number: u64,
}

/// When it is a flow's turn; equals in the order in which they came.
type VirtualTime = (u64, u64);

/// What became of somebody who came.
#[derive(Debug)]
pub(super) enum Pushed<T> {
    /// He waits.
    Waits(QueueSlot),
    /// He waits, and this one, of the flow with the most, does not any more.
    InPlaceOf(QueueSlot, T),
    /// There is no room, and his flow has the most.
    Refused,
}

/// Those who wait.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    flows: FxHashMap<u64, Flow<T>>,
    /// Whose turn it is when.
    turns: BTreeMap<VirtualTime, u64>,
    /// When the next turn would be of flows of which nobody waits any more: who always comes when the one before has just had
    /// his turn is not new each time.
    owed: FxHashMap<u64, u64>,
    /// The turn that was served last.
    time: u64,
    len: usize,
    next: u64,
    /// What is owed that is looked through when one more owes.
    sweep_at: usize,
}

const FEW: usize = 64;

/// Those of one flow; there is at least one.
#[derive(Debug)]
struct Flow<T> {
    turn: VirtualTime,
    levels: [Level<T>; 3],
    /// The turn of a priority that was served last.
    time: u64,
    len: usize,
}

#[derive(Debug)]
struct Level<T> {
    waiting: VecDeque<(u64, T)>,
    /// When the next turn of this priority is, within its flow.
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
            turns: BTreeMap::new(),
            owed: FxHashMap::default(),
            time: 0,
            len: 0,
            next: 0,
            sweep_at: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Somebody comes. With `most` waiting already, one of the flow with the most has to go, the last of the least urgent; that
    /// may be whoever comes.
    pub(super) fn push(&mut self, share: FlowKey, who: T, most: usize) -> Pushed<T> {
        let mut displaced = None;
        if self.len >= most {
            match self.last_of_the_longest(share) {
                Some(place) => displaced = self.remove(place),
                None => return Pushed::Refused,
            }
        }
        let number = self.next;
        self.next += 1;
        self.len += 1;
        let (turns, owed, time) = (&mut self.turns, &mut self.owed, self.time);
        let flow = self.flows.entry(share.flow).or_insert_with(|| {
            let anew = time + ANEW;
            let turn = (owed.remove(&share.flow).map_or(anew, |next| next.max(anew)), number);
            turns.insert(turn, share.flow);
            Flow { turn, levels: Default::default(), time: 0, len: 0 }
        });
        flow.len += 1;
        let level = &mut flow.levels[share.priority as usize];
        if level.waiting.is_empty() {
            level.start = level.start.max(flow.time);
        }
        level.waiting.push_back((number, who));
        let place = QueueSlot { share, number };
        match displaced {
            Some(last) => Pushed::InPlaceOf(place, last),
            None => Pushed::Waits(place),
        }
    }

    /// Whose turn it is, of those flows that may have one, if there is room for it. Looks at those that may not, too, one by
    /// one.
    pub(super) fn pop(&mut self, may: impl Fn(u64) -> bool, take: impl FnOnce() -> bool) -> Option<(u64, T)> {
        let (turn, id) = self.turns.iter().find(|(_, flow)| may(**flow)).map(|(turn, id)| (*turn, *id))?;
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
        level.start += cost(priority);
        let (_, who) = level.waiting.pop_front()?;
        self.turns.remove(&turn);
        flow.turn.0 += work(priority);
        self.turns.insert(flow.turn, id);
        self.left(id);
        Some((id, who))
    }

    /// Somebody gives up his place, if he still has it.
    pub(super) fn remove(&mut self, place: QueueSlot) -> Option<T> {
        let flow = self.flows.get_mut(&place.share.flow)?;
        let waiting = &mut flow.levels[place.share.priority as usize].waiting;
        let at = waiting.binary_search_by_key(&place.number, |(number, _)| *number).ok()?;
        let (_, who) = waiting.remove(at)?;
        self.left(place.share.flow);
        Some(who)
    }

    /// One of a flow waits no more. Nothing is owed to a flow of which nobody waits; it may owe a turn.
    fn left(&mut self, id: u64) {
        self.len -= 1;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.len -= 1;
        if flow.len == 0 {
            let next = flow.turn.0;
            self.turns.remove(&flow.turn);
            self.flows.remove(&id);
            if self.flows.is_empty() {
                self.owed.clear();
                return;
            }
            if self.owed.len() >= self.sweep_at.max(FEW) {
                let time = self.time;
                self.owed.retain(|_, next| *next > time);
                self.sweep_at = 2 * self.owed.len();
            }
            if next > self.time {
                self.owed.insert(id, next);
            }
        }
    }

    /// The last place of the least urgent in the flow with the most. If that is the flow of whoever comes, only somebody goes
    /// who is less urgent. Looks at all flows, which is as much as there may wait; happens only when the queue is full.
    fn last_of_the_longest(&self, comes: FlowKey) -> Option<QueueSlot> {
        let (longest, flow) = self.flows.iter().max_by_key(|(_, flow)| flow.len)?;
        let own = self.flows.get(&comes.flow).is_some_and(|own| own.len >= flow.len);
        let (id, flow) = if own { (comes.flow, self.flows.get(&comes.flow)?) } else { (*longest, flow) };
        let goes = Priority::ALL
            .into_iter()
            .rev()
            .find(|priority| !flow.levels[*priority as usize].waiting.is_empty())?;
        if own && goes as usize <= comes.priority as usize {
            return None;
        }
        let (number, _) = flow.levels[goes as usize].waiting.back()?;
        Some(QueueSlot { share: FlowKey { flow: id, priority: goes, writes: false }, number: *number })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;

    const NORMAL: Priority = Priority::Normal;

    fn share(flow: u64, priority: Priority) -> FlowKey {
        FlowKey { flow, priority, writes: false }
    }

    fn filled(flows: &[(u64, Priority, usize)]) -> FairQueue<usize> {
        let mut queue = FairQueue::default();
        for (flow, priority, count) in flows {
            for one in 0..*count {
                assert!(matches!(queue.push(share(*flow, *priority), one, usize::MAX), Pushed::Waits(_)));
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
    fn every_flow_gets_as_many_turns_however_many_of_it_wait() {
        let mut queue = filled(&[(1, NORMAL, 1000), (2, NORMAL, 50), (3, NORMAL, 10)]);
        assert_eq!(served(&mut queue, 30), BTreeMap::from([(1, 10), (2, 10), (3, 10)]));
        assert_eq!(served(&mut queue, 80), BTreeMap::from([(1, 40), (2, 40)]));
        assert_eq!(queue.len(), 950);
    }

    #[test]
    fn who_comes_late_waits_for_one_turn_of_each_other() {
        let mut queue = filled(&[(1, NORMAL, 1000), (2, NORMAL, 1000)]);
        served(&mut queue, 500);
        let _ = queue.push(share(3, NORMAL), 0, usize::MAX);
        assert_eq!(served(&mut queue, 3).get(&3), Some(&1));
    }

    #[test]
    fn who_comes_again_each_time_he_was_served_gets_no_more_turns_than_who_waits() {
        let mut queue = filled(&[(1, NORMAL, 1000)]);
        let mut turns = BTreeMap::new();
        for _ in 0..100 {
            // Both come again whenever they are not waiting.
            for flow in [2, 3] {
                if !queue.flows.contains_key(&flow) {
                    let _ = queue.push(share(flow, NORMAL), 0, usize::MAX);
                }
            }
            for (flow, count) in served(&mut queue, 1) {
                *turns.entry(flow).or_insert(0) += count;
            }
        }
        assert!(turns.values().all(|count| (33..=34).contains(count)), "{turns:?}");
        for flow in 10..10_000 {
            let _ = queue.push(share(flow, NORMAL), 0, usize::MAX);
            *turns.entry(1).or_insert(0) += served(&mut queue, 1).remove(&1).unwrap_or_default();
        }
        // One turn whenever all who were new before have had theirs, of whom there is one more each time.
        assert!(turns[&1] > 100, "new ones keep it from its turns: {turns:?}");
        assert!(queue.owed.len() < 1_000, "{} of ten thousand are remembered", queue.owed.len());
    }

    #[test]
    fn within_a_flow_the_first_is_served_first() {
        let mut queue = filled(&[(1, NORMAL, 100)]);
        let order: Vec<usize> =
            std::iter::from_fn(|| queue.pop(|_| true, || true)).map(|(_, one)| one).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn within_a_flow_urgent_ones_go_first_and_lists_last_but_nobody_starves() {
        let mut queue = FairQueue::default();
        for priority in Priority::ALL {
            for _ in 0..100 {
                let _ = queue.push(share(1, priority), priority, usize::MAX);
            }
        }
        let mut served = [0; 3];
        for _ in 0..42 {
            served[queue.pop(|_| true, || true).unwrap().1 as usize] += 1;
        }
        assert_eq!(served, [32, 8, 2]);
        // Lists that were served alone for a long time owe nobody anything.
        let mut queue = FairQueue::default();
        for _ in 0..1000 {
            let _ = queue.push(share(1, Priority::List), Priority::List, usize::MAX);
        }
        let pop = |queue: &mut FairQueue<_>| queue.pop(|_| true, || true).unwrap().1;
        for _ in 0..900 {
            pop(&mut queue);
        }
        let _ = queue.push(share(1, NORMAL), NORMAL, usize::MAX);
        let _ = queue.push(share(1, Priority::Urgent), Priority::Urgent, usize::MAX);
        let next = [pop(&mut queue), pop(&mut queue), pop(&mut queue)];
        assert!(next.contains(&NORMAL) && next.contains(&Priority::Urgent), "{next:?}");
    }

    #[test]
    fn nobodys_leases_outrun_somebody_elses_requests_and_lists_count_more() {
        let mut queue = filled(&[(1, Priority::Urgent, 1000), (2, NORMAL, 50), (3, NORMAL, 50)]);
        assert_eq!(served(&mut queue, 60), BTreeMap::from([(1, 20), (2, 20), (3, 20)]));
        let mut queue = filled(&[(1, Priority::List, 100), (2, NORMAL, 100)]);
        assert_eq!(served(&mut queue, 50), BTreeMap::from([(1, 10), (2, 40)]));
        let mut queue = filled(&[(1, Priority::List, 3), (2, NORMAL, 1)]);
        served(&mut queue, 1);
        assert_eq!(served(&mut queue, 1).len(), 1);
        assert_eq!(served(&mut queue, 2), BTreeMap::from([(1, 2)]));
        // Who was served alone for a long time owes nobody anything.
        let mut queue = filled(&[(1, Priority::List, 1000)]);
        served(&mut queue, 900);
        let _ = queue.push(share(2, NORMAL), 0, usize::MAX);
        assert!(served(&mut queue, 2).contains_key(&2));
    }

    #[test]
    fn a_flow_that_may_not_have_a_turn_keeps_its_place() {
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
    fn when_there_is_no_room_the_longest_flow_loses_its_last() {
        let mut queue = filled(&[(1, NORMAL, 6), (2, NORMAL, 3)]);
        assert!(matches!(queue.push(share(1, NORMAL), 99, 9), Pushed::Refused));
        assert!(matches!(queue.push(share(3, NORMAL), 0, 9), Pushed::InPlaceOf(_, 5)), "the last of flow 1");
        assert!(matches!(queue.push(share(2, NORMAL), 3, 9), Pushed::InPlaceOf(_, 4)));
        assert_eq!(queue.len(), 9);
        assert!(matches!(FairQueue::default().push(share(1, NORMAL), 0, 0), Pushed::Refused));
        // In a flow of its own it is the least urgent who goes.
        let mut queue = filled(&[(1, Priority::List, 2), (1, NORMAL, 2)]);
        assert!(matches!(queue.push(share(1, Priority::List), 9, 4), Pushed::Refused));
        assert!(matches!(queue.push(share(1, NORMAL), 9, 4), Pushed::InPlaceOf(_, 1)), "the last list");
    }

    #[test]
    fn who_leaves_costs_nobody_a_turn() {
        let mut queue = FairQueue::default();
        let places: Vec<_> = (0..10)
            .map(|one| match queue.push(share(one % 2, NORMAL), 7, usize::MAX) {
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
        assert!(queue.pop(|_| true, || true).is_none() && queue.flows.is_empty() && queue.turns.is_empty());
    }
}
