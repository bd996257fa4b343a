//! Recent placement decisions. The table shows a placement only after the shard's watch has reported the workspace.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Lifetime of a reservation: it counts although the table does not show the workspace, and another request for the same
/// workspace gets the same shard.
pub(super) const RESERVATION_TTL: Duration = Duration::from_secs(30);
/// Maximum number of reservations. Beyond it the oldest are dropped, which costs balance, not correctness.
const MAX_RESERVATIONS: usize = 100_000;

/// Reservations by workspace; `S` identifies a shard.
#[derive(Debug)]
pub(super) struct Reservations<S> {
    by_workspace: FxHashMap<Arc<str>, Reservation<S>>,
    /// In the order of expiry, which is the order in which they were made.
    expiry: VecDeque<(Instant, Arc<str>)>,
    by_shard: FxHashMap<S, Tally>,
}

#[derive(Debug)]
struct Reservation<S> {
    shard: S,
    /// Time of expiry. A workspace that was placed again has an older entry in the queue as well.
    until: Instant,
    settled: bool,
}

/// Number of reservations on one shard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Tally {
    /// Reservations for workspaces that the table does not show yet.
    pub(super) open: u32,
    /// Reservations for workspaces that the table shows.
    pub(super) settled: u32,
}

impl<S> Default for Reservations<S> {
    fn default() -> Self {
        Self { by_workspace: FxHashMap::default(), expiry: VecDeque::new(), by_shard: FxHashMap::default() }
    }
}

impl<S: Copy + Eq + Hash> Reservations<S> {
    /// The shard that was reserved for a workspace.
    pub(super) fn shard_of(&self, workspace: &str) -> Option<S> {
        self.by_workspace.get(workspace).map(|reservation| reservation.shard)
    }

    /// The number of reservations on a shard.
    pub(super) fn tally(&self, shard: S) -> Tally {
        self.by_shard.get(&shard).copied().unwrap_or_default()
    }

    /// Adds a reservation. It replaces an earlier one for the same workspace.
    pub(super) fn add(&mut self, workspace: &str, shard: S, now: Instant) {
        if self.expiry.len() >= MAX_RESERVATIONS {
            self.drop_oldest();
        }
        self.remove(workspace);
        let workspace: Arc<str> = workspace.into();
        self.by_shard.entry(shard).or_default().open += 1;
        let until = now + RESERVATION_TTL;
        self.expiry.push_back((until, Arc::clone(&workspace)));
        self.by_workspace.insert(workspace, Reservation { shard, until, settled: false });
    }

    /// Marks a reservation as settled, because the table shows the workspace now.
    pub(super) fn settle(&mut self, workspace: &str) {
        let Some(reservation) = self.by_workspace.get_mut(workspace) else { return };
        if !std::mem::replace(&mut reservation.settled, true)
            && let Some(tally) = self.by_shard.get_mut(&reservation.shard)
        {
            tally.open = tally.open.saturating_sub(1);
            tally.settled += 1;
        }
    }

    /// Drops expired reservations.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.expiry.front().is_some_and(|(until, _)| *until <= now) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((until, workspace)) = self.expiry.pop_front()
            && self.by_workspace.get(&workspace).is_some_and(|reservation| reservation.until == until)
        {
            self.remove(&workspace);
        }
    }

    fn remove(&mut self, workspace: &str) {
        let Some(Reservation { shard, settled, .. }) = self.by_workspace.remove(workspace) else { return };
        let Some(tally) = self.by_shard.get_mut(&shard) else { return };
        let count = if settled { &mut tally.settled } else { &mut tally.open };
        *count = count.saturating_sub(1);
        if *tally == Tally::default() {
            self.by_shard.remove(&shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(open: u32, settled: u32) -> Tally {
        Tally { open, settled }
    }

    #[test]
    fn a_reservation_is_open_then_settled_then_expired() {
        let (mut all, now) = (Reservations::default(), Instant::now());
        all.add("w", 1, now);
        all.add("v", 1, now + Duration::from_secs(1));
        assert_eq!(all.tally(1), tally(2, 0));
        all.settle("w");
        all.settle("w");
        all.settle("nobody");
        assert_eq!((all.tally(1), all.shard_of("w")), (tally(1, 1), Some(1)));
        all.expire(now + RESERVATION_TTL);
        assert_eq!((all.tally(1), all.shard_of("w"), all.shard_of("v")), (tally(1, 0), None, Some(1)));
        all.expire(now + RESERVATION_TTL * 2);
        assert!(all.by_shard.is_empty() && all.by_workspace.is_empty() && all.expiry.is_empty());
    }

    #[test]
    fn a_repeated_reservation_has_the_full_lifetime() {
        let (mut all, now) = (Reservations::default(), Instant::now());
        all.add("w", 1, now);
        all.settle("w");
        all.add("w", 2, now + Duration::from_secs(10));
        assert_eq!((all.tally(1), all.tally(2)), (tally(0, 0), tally(1, 0)));
        all.expire(now + RESERVATION_TTL);
        assert_eq!(all.shard_of("w"), Some(2), "the end of the first is not the end of the second");
        all.expire(now + RESERVATION_TTL + Duration::from_secs(10));
        assert_eq!((all.tally(2), all.shard_of("w")), (tally(0, 0), None));
    }

    #[test]
    fn beyond_the_limit_the_oldest_reservations_are_dropped() {
        let (mut all, now) = (Reservations::default(), Instant::now());
        (0..=MAX_RESERVATIONS).for_each(|number| all.add(&number.to_string(), 1, now));
        assert_eq!(
            (all.tally(1).open, all.shard_of("0"), all.shard_of("1")),
            (MAX_RESERVATIONS as u32, None, Some(1))
        );
    }
}
