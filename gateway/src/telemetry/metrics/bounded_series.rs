//! Metrics with labels that clients or shards choose, with a bounded number of series.

use std::hash::Hash;

use parking_lot::RwLock;
use prometheus::core::{Metric, MetricVec, MetricVecBuilder};
use rustc_hash::FxHashMap;

/// A metric vector with at most `max` series, and one more for the rest, whose labels are all `other`.
pub(super) struct BoundedSeries<K, V: MetricVector> {
    all: V,
    known: RwLock<FxHashMap<K, V::Series>>,
    max: usize,
}

/// A metric vector that [`BoundedSeries`] can bound.
pub(super) trait MetricVector {
    type Series: Clone;

    fn with(&self, labels: &[&str]) -> Self::Series;
}

impl<B: MetricVecBuilder> MetricVector for MetricVec<B>
where
    B::M: Metric + Clone,
{
    type Series = B::M;

    fn with(&self, labels: &[&str]) -> B::M {
        self.with_label_values(labels)
    }
}

/// The label value of the series for the rest.
const OTHER: &str = "other";

impl<K: Copy + Eq + Hash, V: MetricVector> BoundedSeries<K, V> {
    pub(super) fn new(all: V, max: usize) -> Self {
        Self { all, known: RwLock::default(), max }
    }

    /// The metric of a key with these labels. Costs a shared lock and a look-up.
    pub(super) fn get(&self, key: K, labels: &[&str]) -> V::Series {
        if let Some(one) = self.known.read().get(&key) {
            return one.clone();
        }
        let mut known = self.known.write();
        if !known.contains_key(&key) && known.len() >= self.max {
            return self.all.with(&vec![OTHER; labels.len()]);
        }
        known.entry(key).or_insert_with(|| self.all.with(labels)).clone()
    }
}
