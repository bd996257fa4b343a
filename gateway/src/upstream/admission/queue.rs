//! Who is next: start-time fair queueing (Goyal, Vin and Cheng, 1996) twice, between priorities and between the flows of
//! one priority. Pure.
//!
//! Each flow gets the same share of the turns however many of its requests wait; a flow that has not asked for a while is
//! not owed anything, and one that comes anew waits for at most one turn of every other. A turn costs O(log n).

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::Share;
use crate::request::Priority;

/// What one turn costs its priority: the turns of those who all have somebody waiting are as 16 to 4 to 1.
const fn cost(priority: Priority) -> u64 {
    match priority {
        Priority::Urgent => 1,
        Priority::Normal => 4,
        Priority::List => 16,
    }
}

/// A place in the queue, by which it can be given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    share: Share,
    key: Key,
}

/// When it is somebody's turn in his priority; equals in the order in which they came.
type Key = (u64, u64);

/// What became of somebody who came.
#[derive(Debug)]
pub(super) enum Pushed<T> {
    /// He waits.
    Waits(Place),
    /// He waits, and this one, of the flow with the most, does not any more.
    InPlaceOf(Place, T),
    /// There is no room, and his flow has the most.
    Refused,
}

/// Those who wait.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    levels: [Level<T>; 3],
    /// The turn of a priority that was served last.
    time: u64,
    len: usize,
    next: u64,
}

#[derive(Debug)]
struct Level<T> {
    flows: FxHashMap<u64, VecDeque<(Key, T)>>,
    /// Of each flow, whose turn it is in it.
    heads: BTreeMap<Key, u64>,
    /// When the next turn of this priority is.
    start: u64,
    /// The turn of a flow that was served last.
    time: u64,
}

impl<T> Default for Level<T> {
    fn default() -> Self {
        Self { flows: FxHashMap::default(), heads: BTreeMap::new(), start: 0, time: 0 }
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { levels: Default::default(), time: 0, len: 0, next: 0 }
    }
}

impl<T> FairQueue<T> {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Somebody comes. With `most` waiting already, one of the flow with the most has to go, its last one; that may be
    /// whoever comes.
    pub(super) fn push(&mut self, share: Share, who: T, most: usize) -> Pushed<T> {
        let mut displaced = None;
        if self.len >= most {
            match self.last_of_the_longest(share) {
                Some(place) => displaced = self.remove(place),
                None => return Pushed::Refused,
            }
        }
        let time = self.time;
        let level = &mut self.levels[share.priority as usize];
        if level.heads.is_empty() {
            level.start = level.start.max(time);
        }
        let flow = level.flows.entry(share.flow).or_default();
        let key = (flow.back().map_or(level.time, |(last, _)| last.0.max(level.time)) + 1, self.next);
        if flow.is_empty() {
            level.heads.insert(key, share.flow);
        }
        flow.push_back((key, who));
        self.next += 1;
        self.len += 1;
        let place = Place { share, key };
        match displaced {
            Some(last) => Pushed::InPlaceOf(place, last),
            None => Pushed::Waits(place),
        }
    }

    /// Whose turn it is, of those flows that may have one, if there is room for it. Looks at those that may not, too, one by
    /// one.
    pub(super) fn pop(
        &mut self,
        may: impl Fn(u64) -> bool,
        take: impl FnOnce() -> bool,
    ) -> Option<(Share, T)> {
        let next = |priority: Priority| {
            let level = &self.levels[priority as usize];
            let (key, flow) = level.heads.iter().find(|(_, flow)| may(**flow))?;
            Some((level.start, Place { share: Share { flow: *flow, priority }, key: *key }))
        };
        let (start, place) = Priority::ALL.into_iter().filter_map(next).min_by_key(|(start, _)| *start)?;
        if !take() {
            return None;
        }
        self.time = start;
        let level = &mut self.levels[place.share.priority as usize];
        level.start += cost(place.share.priority);
        level.time = level.time.max(place.key.0);
        Some((place.share, self.remove(place)?))
    }

    /// Somebody gives up his place, if he still has it.
    pub(super) fn remove(&mut self, place: Place) -> Option<T> {
        let level = &mut self.levels[place.share.priority as usize];
        let flow = level.flows.get_mut(&place.share.flow)?;
        let at = flow.binary_search_by_key(&place.key, |(key, _)| *key).ok()?;
        let (key, who) = flow.remove(at)?;
        if at == 0 {
            level.heads.remove(&key);
            match flow.front() {
                Some((next, _)) => {
                    level.heads.insert(*next, place.share.flow);
                }
                // Nothing is owed to who waits no more, nor does he owe more than a turn.
                None => {
                    level.flows.remove(&place.share.flow);
                }
            }
        }
        self.len -= 1;
        Some(who)
    }

    /// The last place of the flow with the most of them, unless that is the flow of whoever comes. Looks at all flows, which
    /// is as much as there may wait; happens only when the queue is full.
    fn last_of_the_longest(&self, comes: Share) -> Option<Place> {
        let of = |priority: Priority| {
            let flows = &self.levels[priority as usize].flows;
            flows.iter().map(move |(id, flow)| (flow.len(), priority, *id))
        };
        let (longest, priority, flow) =
            Priority::ALL.into_iter().flat_map(of).max_by_key(|(len, ..)| *len)?;
        let own = self.levels[comes.priority as usize].flows.get(&comes.flow);
        if own.is_some_and(|own| own.len() >= longest) {
            return None;
        }
        let (key, _) = self.levels[priority as usize].flows.get(&flow)?.back()?;
        Some(Place { share: Share { flow, priority }, key: *key })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;

    const NORMAL: Priority = Priority::Normal;

    fn share(flow: u64, priority: Priority) -> Share {
        Share { flow, priority }
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
            let (share, _) = queue.pop(|_| true, || true).unwrap();
            *served.entry(share.flow).or_default() += 1;
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
    fn within_a_flow_the_first_is_served_first() {
        let mut queue = filled(&[(1, NORMAL, 100)]);
        let order: Vec<usize> =
            std::iter::from_fn(|| queue.pop(|_| true, || true)).map(|(_, one)| one).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn urgent_ones_go_first_and_lists_last_but_nobody_starves() {
        let mut queue = filled(&[(1, Priority::List, 100), (2, NORMAL, 100), (3, Priority::Urgent, 100)]);
        let turns = served(&mut queue, 42);
        assert_eq!(turns, BTreeMap::from([(1, 2), (2, 8), (3, 32)]));
        let mut queue = filled(&[(1, Priority::List, 3), (2, NORMAL, 1)]);
        assert_eq!(queue.pop(|_| true, || true).unwrap().0.flow, 2);
        assert_eq!(served(&mut queue, 3), BTreeMap::from([(1, 3)]));
        // Lists that were served alone for a long time owe nobody anything.
        let mut queue = filled(&[(1, Priority::List, 1000)]);
        served(&mut queue, 900);
        let _ = queue.push(share(2, NORMAL), 0, usize::MAX);
        assert!(served(&mut queue, 2).contains_key(&2));
        let mut queue = filled(&[(1, Priority::Urgent, 1000)]);
        served(&mut queue, 900);
        let _ = queue.push(share(2, Priority::List), 0, usize::MAX);
        assert!(served(&mut queue, 2).contains_key(&2));
    }

    #[test]
    fn a_flow_that_may_not_have_a_turn_keeps_its_place() {
        let mut queue = filled(&[(1, NORMAL, 3), (2, NORMAL, 2), (1, Priority::Urgent, 1)]);
        let not_the_first = |flow| flow != 1;
        assert_eq!(queue.pop(not_the_first, || true).unwrap().0, share(2, NORMAL));
        assert_eq!(queue.pop(not_the_first, || true).unwrap().0, share(2, NORMAL));
        assert!(queue.pop(not_the_first, || true).is_none());
        assert!(queue.pop(|_| true, || false).is_none());
        assert_eq!(queue.pop(|_| true, || true).unwrap().0, share(1, Priority::Urgent));
        assert_eq!(served(&mut queue, 3), BTreeMap::from([(1, 3)]));
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
        assert!(
            queue.pop(|_| true, || true).is_none()
                && queue.levels.iter().all(|level| level.flows.is_empty() && level.heads.is_empty())
        );
    }
}
