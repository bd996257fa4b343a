//! Settings of placement from the configuration.

use fairlead_config::{PlacementConfig, PlacementPolicy};

use crate::routing::table::ShardSpec;

/// The settings in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacementSettings(PlacementConfig);

/// Weight and capacity of a shard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ShardSettings {
    pub(super) weight: u32,
    pub(super) capacity: Option<u32>,
}

impl PlacementSettings {
    /// The settings of a configuration.
    pub(crate) fn new(config: PlacementConfig) -> Self {
        Self(config)
    }

    pub(super) fn policy(&self) -> PlacementPolicy {
        self.0.policy
    }

    pub(super) fn gateways(&self) -> u32 {
        self.0.gateways
    }

    /// The values of the shard's own annotations; where they are missing, those of the first matching entry that has them.
    pub(super) fn shard_settings(&self, shard: &ShardSpec) -> ShardSettings {
        let entries = || {
            self.0.shards.iter().filter(|entry| {
                entry.name.as_deref().is_none_or(|name| name == &*shard.name)
                    && entry.selector.matches(&shard.labels)
            })
        };
        ShardSettings {
            weight: shard
                .constraints
                .weight
                .or_else(|| entries().find_map(|entry| entry.weight))
                .unwrap_or(1),
            capacity: shard.constraints.capacity.or_else(|| entries().find_map(|entry| entry.capacity)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::routing::table::PlacementConstraints;

    #[test]
    fn annotations_of_the_shard_take_precedence_over_configured_entries() {
        let settings = PlacementSettings(
            serde_json::from_value(json!({"shards": [
                {"name": "a", "weight": 5},
                {"selector": "size=large", "weight": 3, "capacity": 300},
                {"capacity": 100},
            ]}))
            .unwrap(),
        );
        for (name, size, weight, capacity, expected) in [
            ("a", "large", None, None, (5, Some(300))),
            ("a", "small", None, None, (5, Some(100))),
            ("b", "large", None, None, (3, Some(300))),
            ("b", "small", None, None, (1, Some(100))),
            ("b", "large", Some(7), Some(0), (7, Some(0))),
        ] {
            let shard = ShardSpec {
                name: name.into(),
                url: "".into(),
                labels: Arc::new([("size".to_owned(), size.to_owned())].into()),
                cordoned: false,
                constraints: PlacementConstraints { draining: false, weight, capacity },
            };
            let ShardSettings { weight, capacity } = settings.shard_settings(&shard);
            assert_eq!((weight, capacity), expected, "{name} {size}");
        }
    }
}
