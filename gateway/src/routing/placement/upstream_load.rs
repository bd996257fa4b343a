//! Load and health of shards, as the connections to them show it.

use super::load::{ShardWork, UpstreamSignals};
use crate::upstream::Upstreams;

/// With fewer shards the share of failing ones says nothing.
const FEW: usize = 3;

/// Costs requests nothing: the load is in metrics that are kept anyway, and a failure is recorded where a dial fails.
impl UpstreamSignals for Upstreams {
    fn work(&self, shard: &str) -> ShardWork {
        let (answered, waited) = self.answered(shard);
        ShardWork { answered, waited }
    }

    fn is_failing(&self, shard: &str) -> bool {
        Self::is_failing(self, shard).unwrap_or_default()
    }

    /// A shard that is gone fails for ever, so only those count that exist; and of these, those that were ever used.
    fn panics(&self, shards: &mut dyn Iterator<Item = &str>) -> bool {
        let (mut asked, mut failing) = (0, 0);
        for is_failing in shards.filter_map(|shard| Self::is_failing(self, shard)) {
            asked += 1;
            failing += usize::from(is_failing);
        }
        asked >= FEW && self.exceeds_panic_threshold(failing, asked)
    }
}
