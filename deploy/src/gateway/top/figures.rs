//! What the gateway counts since its start, and what two looks at it say of the time between them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// All series at one moment.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Figures {
    /// In seconds.
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

/// Which series of a family count.
pub(super) type Labels<'l> = &'l [(&'static str, &'l str)];

/// How long things took between two moments.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) count: f64,
    /// Upper bounds, and how many took at most so long.
    buckets: Vec<(f64, f64)>,
}

impl Figures {
    /// The sum of counters, gauges or counts.
    pub(super) fn total(&self, family: &str, labels: Labels<'_>) -> f64 {
        self.total_where(family, labels, |_| true)
    }

    /// The same of those with a code that passes.
    pub(super) fn total_where(&self, family: &str, labels: Labels<'_>, code: impl Fn(u16) -> bool) -> f64 {
        let has_code = |series: &&Series| {
            let known = series.labels.get("code").and_then(|code| code.parse().ok());
            known.is_none_or(&code)
        };
        self.series(family, labels).filter(has_code).map(|series| series.value + series.count).sum()
    }

    /// How long things took since `before`.
    pub(super) fn times_since(&self, before: &Self, family: &str, labels: Labels<'_>) -> Times {
        let mut times = Times::default();
        for (figures, sign) in [(self, 1.0), (before, -1.0)] {
            for series in figures.series(family, labels) {
                times.count += sign * series.count;
                times.buckets.resize(times.buckets.len().max(series.buckets.len()), (0.0, 0.0));
                for (place, (bound, count)) in series.buckets.iter().enumerate() {
                    times.buckets[place].0 = *bound;
                    times.buckets[place].1 += sign * count;
                }
            }
        }
        times
    }

    fn series(&self, family: &str, labels: Labels<'_>) -> impl Iterator<Item = &Series> {
        let fits = move |series: &&Series| {
            labels.iter().all(|(name, value)| series.labels.get(*name).is_some_and(|found| found == value))
        };
        self.families.get(family).into_iter().flatten().filter(fits)
    }
}

impl Times {
    /// In seconds, as far as the buckets tell; nothing if there was nothing.
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

    fn figures(time: f64, fast: u64, slow: u64) -> Figures {
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
    fn what_happened_is_what_was_counted_in_between() {
        let (before, now) = (figures(1.0, 100, 100), figures(3.0, 190, 110));
        let of_a = now.times_since(&before, "h", &[("shard", "a")]);
        assert_eq!(of_a.count, 100.0);
        for (share, expected) in [(0.45, 0.05), (0.9, 0.1), (0.95, 0.55), (1.0, 1.0)] {
            let found = of_a.quantile(share).unwrap();
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
        assert_eq!(now.times_since(&before, "h", &[("shard", "b")]).quantile(0.5), None, "nothing happened");
        assert_eq!(now.times_since(&Figures::default(), "h", &[("shard", "b")]).quantile(0.5), Some(1.0));
        assert_eq!(now.total("c", &[]), 7.0);
        assert_eq!(now.total_where("c", &[], |code| code >= 500), 2.0);
        assert_eq!(now.total("none", &[]), 0.0);
    }
}
