//! The state of the gateway at a scrape of its metrics.

use tokio::time::Instant;

use crate::admin::AdminApi;
use crate::telemetry::metrics::gauges::{GatewayState, IndexedShard, UpstreamState};
use crate::upstream::ShardReport;

impl AdminApi {
    /// Reads the state of the index and of the upstreams.
    pub(super) fn gateway_state(&self) -> GatewayState {
        let now = Instant::now();
        let view = self.pipeline.routing.table.load();
        let indexed_shards = view.shards().map(|shard| {
            let (report, counts) = (self.index.of(shard.index, now), view.counts(shard.index));
            IndexedShard {
                name: shard.spec.name.clone(),
                child_workspaces: counts.workspaces,
                workspaces: counts.clusters,
                age: report.age,
                restarts: report.restarts,
                relists: report.relists,
            }
        });
        let upstreams = self.pipeline.forwarder.upstreams.shards();
        GatewayState {
            index_lag: self.index.lag(),
            is_synced: view.is_synced(),
            table_bytes: view.heap_bytes(),
            stalled_bytes: self.backlog_budget.waiting(),
            indexed_shards: indexed_shards.collect(),
            upstreams: upstreams.into_iter().map(upstream_state).collect(),
        }
    }
}

fn upstream_state(shard: ShardReport) -> UpstreamState {
    let ShardReport { name, occupancy, circuit_open, is_healthy, addresses } = shard;
    let ejected = addresses.ejected.len();
    UpstreamState {
        name,
        open: occupancy.open,
        waiting: occupancy.waiting,
        limit: occupancy.limit,
        is_circuit_open: circuit_open,
        is_healthy,
        addresses: addresses.known,
        ejected,
        excluded: if addresses.excludes_ejected { ejected } else { 0 },
    }
}
