//! Counters of the gateway, and their differences between two snapshots.

use std::collections::BTreeMap;

use serde::Deserialize;

/// All series at one time.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Counters {
    /// Time of the snapshot in seconds.
    pub(super) time: f64,
    families: BTreeMap<String, Vec<Series>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Series {
    labels: BTreeMap<String, String>,
    value: f64,
    count: f64,
    buckets: Vec<(f64, f64)>,
}

/// Labels that select series of a family.
pub(super) type Labels<'l> = &'l [(&'static str, &'l str)];

/// A histogram of the durations between two snapshots.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Histogram {
    pub(super) count: f64,
    /// Upper bounds and cumulative counts.
    buckets: Vec<(f64, f64)>,
}

impl Counters {
    /// The sum of counters, gauges, or counts of histograms.
    pub(super) fn total(&self, family: &str, labels: Labels<'_>) -> f64 {
        self.total_where(family, labels, |_| true)
    }

    /// Like [`total`](Self::total), of series whose code matches.
    pub(super) fn total_where(&self, family: &str, labels: Labels<'_>, code: impl Fn(u16) -> bool) -> f64 {
        let has_code = |series: &&Series| {
            let known = series.labels.get("code").and_then(|code| code.parse().ok());
            known.is_none_or(&code)
        };
        self.series(family, labels).filter(has_code).map(|series| series.value + series.count).sum()
    }

    /// The histogram since `before`.
    pub(super) fn histogram_since(&self, before: &Self, family: &str, labels: Labels<'_>) -> Histogram {
        let mut histogram = Histogram::default();
        for (counters, sign) in [(self, 1.0), (before, -1.0)] {
            for series in counters.series(family, labels) {
                histogram.count += sign * series.count;
                histogram.buckets.resize(histogram.buckets.len().max(series.buckets.len()), (0.0, 0.0));
                for (index, (bound, count)) in series.buckets.iter().enumerate() {
                    histogram.buckets[index].0 = *bound;
                    histogram.buckets[index].1 += sign * count;
                }
            }
        }
        histogram
    }

    fn series(&self, family: &str, labels: Labels<'_>) -> impl Iterator<Item = &Series> {
        let has_labels = move |series: &&Series| {
            labels.iter().all(|(name, value)| series.labels.get(*name).is_some_and(|found| found == value))
        };
        self.families.get(family).into_iter().flatten().filter(has_labels)
    }
}

impl Histogram {
    /// A quantile in seconds, interpolated within its bucket; `None` without values.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        if self.count <= 0.0 {
            return None;
        }
        let rank = share * self.count;
        let mut below = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= rank {
                let part = (rank - below.1) / (count - below.1).max(1.0);
                return Some(below.0 + (bound - below.0) * part);
            }
            below = (*bound, *count);
        }
        Some(below.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn counters(time: f64, fast: u64, slow: u64) -> Counters {
        serde_json::from_value(json!({"time": time, "families": {
            "h": [
                {"labels": {"shard": "a"}, "count": fast + slow, "sum": 0, "buckets": [[0.1, fast], [1.0, fast + slow]]},
                {"labels": {"shard": "b"}, "count": 7, "sum": 0, "buckets": [[0.1, 0], [1.0, 0]]},
            ],
            "c": [{"labels": {"code": "200"}, "value": 5}, {"labels": {"code": "503"}, "value": 2}],
        }}))
        .unwrap()
    }

    #[test]
    fn an_interval_is_the_difference_of_two_snapshots() {
        let (before, now) = (counters(1.0, 100, 100), counters(3.0, 190, 110));
        let of_a = now.histogram_since(&before, "h", &[("shard", "a")]);
        assert_eq!(of_a.count, 100.0);
        for (share, expected) in [(0.45, 0.05), (0.9, 0.1), (0.95, 0.55), (1.0, 1.0)] {
            let found = of_a.quantile(share).unwrap();
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
        assert_eq!(now.histogram_since(&before, "h", &[("shard", "b")]).quantile(0.5), None, "no values");
        assert_eq!(
            now.histogram_since(&Counters::default(), "h", &[("shard", "b")]).quantile(0.5),
            Some(1.0)
        );
        assert_eq!(now.total("c", &[]), 7.0);
        assert_eq!(now.total_where("c", &[], |code| code >= 500), 2.0);
        assert_eq!(now.total("none", &[]), 0.0);
    }
}
