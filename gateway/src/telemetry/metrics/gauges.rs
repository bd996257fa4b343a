//! Gauges that are set at each scrape, from values that the owners of the state pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlead_process::MetricsError;

use super::listeners::remove_series;
use super::{GatewayMetrics, TOP};
use crate::telemetry::top::{Measure, TopWorkspaces};

/// The state of the gateway at a scrape.
#[derive(Debug, Default)]
pub(crate) struct GatewayState {
    /// Time from reading the latest changes to routing by them.
    pub(crate) index_lag: Duration,
    /// True once the index has been read completely.
    pub(crate) is_synced: bool,
    /// Heap memory of the routing table.
    pub(crate) table_bytes: usize,
    /// Bytes that wait on stalled streams.
    pub(crate) stalled_bytes: usize,
    /// Every shard of the index.
    pub(crate) indexed_shards: Vec<IndexedShard>,
    /// Every shard that requests were forwarded to.
    pub(crate) upstreams: Vec<UpstreamState>,
}

/// A shard in the index.
#[derive(Debug)]
pub(crate) struct IndexedShard {
    pub(crate) name: Arc<str>,
    /// Workspaces whose parent is on this shard.
    pub(crate) child_workspaces: u32,
    /// Logical clusters of workspaces on this shard.
    pub(crate) workspaces: u32,
    /// Age of the index's data of the shard; `None` if it was never read.
    pub(crate) age: Option<Duration>,
    /// Watches opened.
    pub(crate) restarts: u64,
    /// Complete lists read.
    pub(crate) relists: u64,
}

/// A shard as an upstream server.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    pub(crate) name: Arc<str>,
    /// Open requests.
    pub(crate) open: u32,
    /// Waiting requests.
    pub(crate) waiting: u32,
    /// The concurrency limit.
    pub(crate) limit: u32,
    /// True if requests fail immediately after failed connections.
    pub(crate) is_circuit_open: bool,
    pub(crate) is_healthy: bool,
    /// Numbers of addresses: all, ejected ones, and those that get no requests.
    pub(crate) addresses: usize,
    pub(crate) ejected: usize,
    pub(crate) excluded: usize,
}

impl GatewayMetrics {
    /// All metrics as Prometheus text, with the gauges set to this state and to the busiest workspaces.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub(crate) fn text(
        &self,
        state: &GatewayState,
        top: &TopWorkspaces,
    ) -> Result<bytes::Bytes, MetricsError> {
        self.index_lag.set(state.index_lag.as_secs_f64());
        self.synced.set(f64::from(u8::from(state.is_synced)));
        self.table_bytes.set(i64::try_from(state.table_bytes).unwrap_or(i64::MAX));
        self.stalled_bytes.set(i64::try_from(state.stalled_bytes).unwrap_or(i64::MAX));
        self.set_top(top);
        self.remove_closed_listeners();
        self.set_indexed_shards(&state.indexed_shards);
        self.set_upstreams(&state.upstreams);
        self.registry.text()
    }

    fn set_top(&self, top: &TopWorkspaces) {
        let now = Instant::now();
        for (measure, gauges) in Measure::ALL.into_iter().zip(&self.top) {
            gauges.reset();
            for busy in top.by(measure, TOP, now) {
                gauges.with_label_values(&[&*busy.cluster]).set(busy.per_second);
            }
        }
        self.top_watches.reset();
        for (cluster, open) in top.by_watches(TOP) {
            self.top_watches.with_label_values(&[&*cluster]).set(i64::from(open));
        }
    }

    /// Removes the series of listeners that were closed.
    fn remove_closed_listeners(&self) {
        for listener in self.listeners.removed() {
            for histograms in [&self.stages, &self.first_byte, &self.total] {
                remove_series(histograms, &listener);
            }
            for counters in [&self.handshakes, &self.peers_refused, &self.limited] {
                remove_series(counters, &listener);
            }
            remove_series(&self.connections, &listener);
        }
    }

    fn set_indexed_shards(&self, shards: &[IndexedShard]) {
        let counts = [&self.indexed, &self.workspaces, &self.index_restarts, &self.index_relists];
        counts.into_iter().for_each(|gauges| gauges.reset());
        self.index_age.reset();
        for shard in shards {
            let label = &[&*shard.name];
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            self.indexed.with_label_values(label).set(shard.child_workspaces.into());
            self.workspaces.with_label_values(label).set(shard.workspaces.into());
            let age = shard.age.map_or(f64::INFINITY, |age| age.as_secs_f64());
            self.index_age.with_label_values(label).set(age);
            self.index_restarts.with_label_values(label).set(count(shard.restarts));
            self.index_relists.with_label_values(label).set(count(shard.relists));
        }
    }

    fn set_upstreams(&self, upstreams: &[UpstreamState]) {
        let all = [&self.concurrency, &self.circuit_open, &self.healthy, &self.addresses];
        all.into_iter().for_each(|gauges| gauges.reset());
        for upstream in upstreams {
            let name = &*upstream.name;
            let requests =
                [("open", upstream.open), ("waiting", upstream.waiting), ("limit", upstream.limit)];
            for (object, count) in requests {
                self.concurrency.with_label_values(&[name, object]).set(count.into());
            }
            self.circuit_open.with_label_values(&[name]).set(upstream.is_circuit_open.into());
            self.healthy.with_label_values(&[name]).set(upstream.is_healthy.into());
            let addresses = [
                ("known", upstream.addresses),
                ("ejected", upstream.ejected),
                ("excluded", upstream.excluded),
            ];
            for (state, count) in addresses {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.addresses.with_label_values(&[name, state]).set(count);
            }
        }
    }
}
