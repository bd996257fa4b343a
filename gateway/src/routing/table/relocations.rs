//! Logical clusters that have recently changed their shard. A watch that resumes from a revision of the old shard has to
//! start over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// How long a relocation is kept, as in kcp: longer than any client pauses before it resumes a watch.
pub(super) const MEMORY: Duration = Duration::from_secs(90);
/// Maximum number of relocations kept; beyond it the oldest are dropped early.
const MOST: usize = 16_384;

/// The relocations that a view knows: key numbers of clusters, and when each expires.
pub(super) type RecentRelocations = Arc<FxHashMap<u64, Instant>>;

/// A logical cluster got another owner shard, or lost it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OwnerChange {
    /// The number of the cluster's key.
    pub(super) cluster: u64,
    pub(super) before: Option<u16>,
    pub(super) after: Option<u16>,
}

/// The writer's record of relocations. At most 16,384 relocations and as many departures, 24 bytes each.
#[derive(Debug, Default)]
pub(super) struct Relocations {
    /// In the order of expiry.
    remembered: VecDeque<(Instant, u64)>,
    /// Clusters that left a shard and have not appeared on another one yet: events of different shards are not ordered.
    departed: FxHashMap<u64, (u16, Instant)>,
    departures: VecDeque<(Instant, u64)>,
}

impl Relocations {
    /// Records the owner changes of one batch.
    pub(super) fn note(&mut self, moved: &mut RecentRelocations, changes: &[OwnerChange], now: Instant) {
        let until = now + MEMORY;
        for OwnerChange { cluster, before, after } in changes.iter().copied() {
            match (before, after) {
                (Some(_), Some(_)) => self.remember(moved, cluster, until),
                (Some(shard), None) => self.departed(cluster, shard, until),
                (None, Some(shard)) => {
                    let left = self.departed.remove(&cluster);
                    if left.is_some_and(|(from, forgotten)| from != shard && now < forgotten) {
                        self.remember(moved, cluster, until);
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// When the next relocation expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.remembered.front().map(|(until, _)| *until)
    }

    /// Removes expired relocations.
    pub(super) fn forget(&mut self, moved: &mut RecentRelocations, now: Instant) {
        while self.remembered.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest(moved);
        }
    }

    fn remember(&mut self, moved: &mut RecentRelocations, cluster: u64, until: Instant) {
        if self.remembered.len() >= MOST {
            self.forget_oldest(moved);
        }
        self.remembered.push_back((until, cluster));
        Arc::make_mut(moved).insert(cluster, until);
    }

    fn forget_oldest(&mut self, moved: &mut RecentRelocations) {
        let Some((until, cluster)) = self.remembered.pop_front() else {
            return;
        };
        // The cluster may have been relocated again since.
        if moved.get(&cluster) == Some(&until) {
            Arc::make_mut(moved).remove(&cluster);
        }
    }

    fn departed(&mut self, cluster: u64, shard: u16, until: Instant) {
        let now = until - MEMORY;
        while self.departures.len() >= MOST
            || self.departures.front().is_some_and(|(forgotten, _)| *forgotten <= now)
        {
            if let Some((forgotten, oldest)) = self.departures.pop_front()
                && self.departed.get(&oldest).is_some_and(|(_, current)| *current == forgotten)
            {
                self.departed.remove(&oldest);
            }
        }
        self.departures.push_back((until, cluster));
        self.departed.insert(cluster, (shard, until));
    }
}
