//! Selection of the shards that a gateway follows: all, or those with given names or labels.

use std::collections::BTreeSet;
use std::fmt;

use fairlead_config::ShardSelector;

use crate::routing::table::ShardSpec;

/// A selection of shards. Workspaces on other shards do not exist for this gateway.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShardSelection {
    /// Names of shards; empty selects all.
    names: BTreeSet<String>,
    labels: ShardSelector,
}

impl ShardSelection {
    /// Selects the shards with one of these names (all if there is none) whose labels match the selector.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, labels: ShardSelector) -> Self {
        Self { names: names.into_iter().collect(), labels }
    }

    /// Whether the selection has this shard.
    pub(crate) fn includes(&self, shard: &ShardSpec) -> bool {
        (self.names.is_empty() || self.names.contains(&*shard.name)) && self.labels.matches(&shard.labels)
    }
}

/// Equal selections have equal texts; empty for all shards.
impl fmt::Display for ShardSelection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() && self.labels.is_everything() {
            return Ok(());
        }
        write!(formatter, "{:?} {}", self.names, self.labels)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;

    #[test]
    fn shards_are_chosen_by_name_and_by_labels() {
        let shard = ShardSpec {
            name: "alpha".into(),
            url: "https://alpha".into(),
            labels: Arc::new([("region".to_owned(), "eu".to_owned())].into()),
            cordoned: false,
            constraints: crate::routing::table::PlacementConstraints::default(),
        };
        for (names, labels, expected) in [
            ("", "", true),
            ("alpha beta", "", true),
            ("beta", "", false),
            ("", "region=eu", true),
            ("alpha", "region=eu", true),
            ("beta", "region=eu", false),
            ("alpha", "region=us", false),
        ] {
            let names = names.split_whitespace().map(str::to_owned);
            let selection = ShardSelection::new(names, labels.parse().unwrap());
            assert_eq!(selection.includes(&shard), expected, "{selection}");
            assert_eq!(selection.to_string().is_empty(), selection == ShardSelection::default());
        }
    }
}
