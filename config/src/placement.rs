//! The settings by which a gateway picks shards for new workspaces.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::selector::ShardSelector;
use crate::setting::{plain_settings, settings};

/// The largest weight of a shard.
const MOST_WEIGHT: u32 = 10_000;

settings! {
    /// On which shard a new workspace lives, for shards that ask at a door with shardPick. What the annotations
    /// fairlead.dev/weight and fairlead.dev/capacity of a Shard say comes before what stands here.
    pub struct PlacementConfig {
        /// power-of-two (of two shards drawn by lot the emptier one, or the less busy one of two that are as full as each
        /// other), least-workspaces (the emptiest), or random (as kcp).
        policy ("policy"): PlacementPolicy = PlacementPolicy::PowerOfTwo;
        /// How many gateways pick beside each other. Each takes its part of what room it sees on a shard with a capacity, so
        /// that together they take no more than there is.
        gateways ("gateways"): u32 = 1;
        /// Weights and capacities of shards. Of the entries that a shard matches, the first one that sets something counts.
        shards ("shards"): Vec<ShardPlacementConfig> = Vec::new();
    }

    /// What some shards are worth when shards are picked.
    pub struct ShardPlacementConfig {
        /// The name of the shard; null for any.
        name ("name"): Option<String> = None;
        /// Which shards, by their labels, such as "region in (eu,us)"; empty for any.
        selector ("selector"): ShardSelector = ShardSelector::default();
        /// Its share of workspaces beside that of others; 1 where nothing sets it.
        weight ("weight"): Option<u32> = None;
        /// The most workspaces that it gets; no limit where nothing sets it.
        capacity ("capacity"): Option<u32> = None;
    }
}

/// How a shard is picked among those that fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementPolicy {
    /// By lot, each as likely as its weight.
    Random,
    /// The emptiest, by weight.
    LeastWorkspaces,
    /// Of two drawn by lot the emptier one; of two that are as full as each other the less busy one.
    #[default]
    PowerOfTwo,
}

plain_settings!(PlacementPolicy);

impl PlacementPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Random, Self::LeastWorkspaces, Self::PowerOfTwo];

    /// Its name in configurations, answers and metrics.
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
        (1..=MOST_WEIGHT).contains(&weight)
    }

    fn check(&self, checker: &mut Checker) {
        if let Some(weight) = self.weight
            && !Self::is_weight(weight)
        {
            let message = format!("{weight} is no weight");
            let hint =
                format!("1 to {MOST_WEIGHT}; a shard that is to get no workspaces is cordoned or drained");
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
    fn a_policy_is_named_alike_everywhere() {
        for policy in PlacementPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
        }
    }

    #[test]
    fn what_cannot_work_is_told_by_its_key() {
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
