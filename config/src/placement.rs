//! The settings of placement: the choice of shards for new workspaces.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::selector::ShardSelector;
use crate::setting::{plain_settings, settings};

/// Largest weight of a shard.
const MAX_WEIGHT: u32 = 10_000;

settings! {
    /// Placement of new workspaces, for shards that request it at a listener with placementEndpoint. The annotations
    /// fairlead.dev/weight and fairlead.dev/capacity of a Shard take precedence over these settings.
    pub struct PlacementConfig {
        /// power-of-two (the emptier one of two random shards, or the less busy one of two equally full ones),
        /// least-workspaces (the emptiest), or random (as kcp).
        policy ("policy"): PlacementPolicy = PlacementPolicy::PowerOfTwo;
        /// Number of gateways that place workspaces. Each uses its share of the free capacity of a shard, so that together they
        /// do not exceed it.
        gateways ("gateways"): u32 = 1;
        /// Weights and capacities of shards. For each value the first matching entry that sets it applies.
        shards ("shards"): Vec<ShardPlacementConfig> = Vec::new();
    }

    /// Weight and capacity of shards.
    pub struct ShardPlacementConfig {
        /// The name of the shard; null for any.
        name ("name"): Option<String> = None;
        /// Label selector of the shards, such as "region in (eu,us)"; empty for any.
        selector ("selector"): ShardSelector = ShardSelector::default();
        /// Share of workspaces relative to other shards. Default: 1.
        weight ("weight"): Option<u32> = None;
        /// Maximum number of workspaces. Default: no limit.
        capacity ("capacity"): Option<u32> = None;
    }
}

/// Policy of the choice among suitable shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementPolicy {
    /// Random, weighted.
    Random,
    /// The emptiest relative to its weight.
    LeastWorkspaces,
    /// The emptier one of two random shards; the less busy one of two equally full ones.
    #[default]
    PowerOfTwo,
}

plain_settings!(PlacementPolicy);

impl PlacementPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Random, Self::LeastWorkspaces, Self::PowerOfTwo];

    /// The name in configurations, responses and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::LeastWorkspaces => "least-workspaces",
            Self::PowerOfTwo => "power-of-two",
        }
    }
}

impl fmt::Display for PlacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PlacementConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("gateways", self.gateways, 1);
        for (index, shard) in self.shards.iter().enumerate() {
            checker.within(&format!("shards[{index}]"), |checker| shard.check(checker));
        }
    }
}

impl ShardPlacementConfig {
    /// Whether a shard may have this weight.
    pub fn is_weight(weight: u32) -> bool {
        (1..=MAX_WEIGHT).contains(&weight)
    }

    fn check(&self, checker: &mut Checker) {
        if let Some(weight) = self.weight
            && !Self::is_weight(weight)
        {
            let message = format!("{weight} is not a valid weight");
            let hint = format!("1 to {MAX_WEIGHT}; cordon or drain a shard that is to get no workspaces");
            checker.fault("weight", &message, &hint);
        }
        if self.weight.is_none() && self.capacity.is_none() {
            checker.fault("weight", "the entry sets nothing", "set weight, capacity or both");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_policy_has_one_name() {
        for policy in PlacementPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
    }

    #[test]
    fn invalid_values_are_found_by_key() {
        let config: PlacementConfig = serde_json::from_value(serde_json::json!({
            "gateways": 0,
            "shards": [{"weight": 0}, {"name": "a"}, {"weight": 10_001, "capacity": 0}, {"weight": 10_000}],
        }))
        .unwrap();
        let mut checker = Checker::default();
        config.check(&mut checker);
        let keys: Vec<String> = checker.into_faults().into_iter().map(|fault| fault.key).collect();
        assert_eq!(keys, ["gateways", "shards[0].weight", "shards[1].weight", "shards[2].weight"]);
    }
}
