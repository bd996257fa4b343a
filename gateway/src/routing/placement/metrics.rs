//! Metrics of placement.

use fairlead_config::PlacementPolicy;
use fairlead_process::{Metrics, MetricsError};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};

use crate::routing::placement::policy::Exclusion;

/// Outcome of a placement request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// A shard was chosen.
    Picked,
    /// The shard was chosen by an earlier request for the same workspace.
    Repeated,
    /// No shard fits until an administrator acts.
    NoShardFits,
    /// No shard fits now.
    NotNow,
    /// The list of shards has not been read yet.
    NotListed,
    /// The request is invalid.
    Invalid,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Picked => "picked",
            Self::Repeated => "repeated",
            Self::NoShardFits => "no_shard_fits",
            Self::NotNow => "not_now",
            Self::NotListed => "not_listed",
            Self::Invalid => "invalid",
        }
    }
}

/// Metrics of placement.
pub(crate) struct PlacementMetrics {
    placements: IntCounterVec,
    excluded: IntGaugeVec,
    reserved: IntGaugeVec,
    busy: GaugeVec,
}

impl PlacementMetrics {
    /// Registers the metrics. Once per process.
    ///
    /// # Errors
    /// When called twice with the same registry.
    pub(crate) fn new(registry: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            placements: registry.counters(
                "fairlead_gateway_shard_picks_total",
                "Placement requests of shards, by policy and outcome: picked, repeated, no_shard_fits, \
                 not_now, not_listed, invalid.",
                &["policy", "outcome"],
            )?,
            excluded: registry.int_gauges(
                "fairlead_gateway_shard_excluded",
                "1 for the reason why a shard gets no new workspaces: cordoned, draining, not_read, out_of_reach, full, filling.",
                &["shard", "reason"],
            )?,
            reserved: registry.int_gauges(
                "fairlead_gateway_shard_reserved",
                "Workspaces that this gateway has placed on a shard and that the index does not show yet.",
                &["shard"],
            )?,
            busy: registry.gauges(
                "fairlead_gateway_shard_busy",
                "Average number of reads and writes of this gateway in progress at a shard, over about ten seconds; updated \
                 where placements are requested.",
                &["shard"],
            )?,
        })
    }

    /// Creates every possible series for these shards.
    #[cfg(test)]
    pub(crate) fn create_all_series(&self, shards: impl Iterator<Item = String>) {
        use Outcome::{Invalid, NoShardFits, NotListed, NotNow, Picked, Repeated};
        for policy in [PlacementPolicy::Random, PlacementPolicy::LeastWorkspaces, PlacementPolicy::PowerOfTwo]
        {
            for outcome in [Picked, Repeated, NoShardFits, NotNow, NotListed, Invalid] {
                self.record_outcome(policy, outcome);
            }
        }
        shards.for_each(|shard| self.shard(&shard, Some(Exclusion::Full), 1, 1.0));
    }

    pub(super) fn record_outcome(&self, policy: PlacementPolicy, outcome: Outcome) {
        self.placements.with_label_values(&[policy.as_str(), outcome.as_str()]).inc();
    }

    /// Removes the series of all shards, so that removed shards leave none.
    pub(super) fn reset_shards(&self) {
        self.excluded.reset();
        self.reserved.reset();
        self.busy.reset();
    }

    pub(super) fn shard(&self, name: &str, exclusion: Option<Exclusion>, reserved: u32, busy: f64) {
        if let Some(exclusion) = exclusion {
            self.excluded.with_label_values(&[name, exclusion.as_str()]).set(1);
        }
        self.reserved.with_label_values(&[name]).set(reserved.into());
        self.busy.with_label_values(&[name]).set(busy);
    }
}
