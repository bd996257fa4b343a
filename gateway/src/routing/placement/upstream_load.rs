//! Load and health of shards, from the connections to them.

use super::load::{ShardWork, UpstreamSignals};
use crate::upstream::Upstreams;

/// With fewer shards, the share of failing ones is not meaningful.
const MIN_SHARDS: usize = 3;

/// Requests pay nothing for this: the load comes from existing metrics, and a failure is recorded where a dial fails.
impl UpstreamSignals for Upstreams {
    fn work(&self, shard: &str) -> ShardWork {
        let (responses, waited) = self.response_times(shard);
        ShardWork { responses, waited }
    }

    fn is_failing(&self, shard: &str) -> bool {
        Self::is_failing(self, shard).unwrap_or_default()
    }

    /// Only existing shards count, because a removed shard fails permanently; and of these only shards that have been used.
    fn is_panic_threshold_exceeded(&self, shards: &mut dyn Iterator<Item = &str>) -> bool {
        let (mut used, mut failing) = (0, 0);
        for is_failing in shards.filter_map(|shard| Self::is_failing(self, shard)) {
            used += 1;
            failing += usize::from(is_failing);
        }
        used >= MIN_SHARDS && self.exceeds_panic_threshold(failing, used)
    }
}
