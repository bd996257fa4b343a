//! Logical clusters that have recently changed their shard. A watch that resumes from a revision of the old shard has to
//! start over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// Lifetime of a relocation, as in kcp: longer than any client pauses before it resumes a watch.
pub(super) const RELOCATION_TTL: Duration = Duration::from_secs(90);
/// Maximum number of relocations kept; beyond it the oldest are dropped early.
const MAX_RELOCATIONS: usize = 16_384;

/// The relocations in a view: the key hashes of logical clusters, and the expiry of each relocation.
pub(super) type RecentRelocations = Arc<FxHashMap<u64, Instant>>;

/// A logical cluster got another owner shard, or lost it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OwnerChange {
    /// The hash of the cluster's key.
    pub(super) cluster: u64,
    pub(super) before: Option<u16>,
    pub(super) after: Option<u16>,
}

/// The writer's record of relocations. At most 16,384 relocations and as many departures, 24 bytes each.
#[derive(Debug, Default)]
pub(super) struct Relocations {
    /// In the order of expiry.
    by_expiry: VecDeque<(Instant, u64)>,
    /// Clusters that left a shard and have not appeared on another one yet: events of different shards are not ordered.
    departed: FxHashMap<u64, (u16, Instant)>,
    departures: VecDeque<(Instant, u64)>,
}

impl Relocations {
    /// Records the owner changes of one batch.
    pub(super) fn record(&mut self, recent: &mut RecentRelocations, changes: &[OwnerChange], now: Instant) {
        let until = now + RELOCATION_TTL;
        for OwnerChange { cluster, before, after } in changes.iter().copied() {
            match (before, after) {
                (Some(_), Some(_)) => self.add(recent, cluster, until),
                (Some(shard), None) => self.departed(cluster, shard, until),
                (None, Some(shard)) => {
                    let departure = self.departed.remove(&cluster);
                    if departure.is_some_and(|(from, expires)| from != shard && now < expires) {
                        self.add(recent, cluster, until);
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// The time when the next relocation expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.by_expiry.front().map(|(until, _)| *until)
    }

    /// Removes expired relocations.
    pub(super) fn expire(&mut self, recent: &mut RecentRelocations, now: Instant) {
        while self.by_expiry.front().is_some_and(|(until, _)| *until <= now) {
            self.drop_oldest(recent);
        }
    }

    fn add(&mut self, recent: &mut RecentRelocations, cluster: u64, until: Instant) {
        if self.by_expiry.len() >= MAX_RELOCATIONS {
            self.drop_oldest(recent);
        }
        self.by_expiry.push_back((until, cluster));
        Arc::make_mut(recent).insert(cluster, until);
    }

    fn drop_oldest(&mut self, recent: &mut RecentRelocations) {
        let Some((until, cluster)) = self.by_expiry.pop_front() else {
            return;
        };
        // The cluster may have been relocated again since.
        if recent.get(&cluster) == Some(&until) {
            Arc::make_mut(recent).remove(&cluster);
        }
    }

    fn departed(&mut self, cluster: u64, shard: u16, until: Instant) {
        let now = until - RELOCATION_TTL;
        while self.departures.len() >= MAX_RELOCATIONS
            || self.departures.front().is_some_and(|(expires, _)| *expires <= now)
        {
            if let Some((expires, oldest)) = self.departures.pop_front()
                && self.departed.get(&oldest).is_some_and(|(_, current)| *current == expires)
            {
                self.departed.remove(&oldest);
            }
        }
        self.departures.push_back((until, cluster));
        self.departed.insert(cluster, (shard, until));
    }
}
