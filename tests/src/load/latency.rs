//! Latencies, stored one by one: a run has some hundred thousand of them.

use std::time::Duration;

/// Durations in microseconds, and their percentiles.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    micros: Vec<u32>,
}

impl Latencies {
    /// Adds a latency. More than 71 minutes count as 71 minutes.
    pub fn add(&mut self, latency: Duration) {
        self.micros.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    /// Adds the latencies of another worker.
    pub fn merge(&mut self, other: Self) {
        self.micros.extend(other.micros);
    }

    /// The number of latencies.
    pub fn count(&self) -> usize {
        self.micros.len()
    }

    /// The smallest latency that this many percent do not exceed (nearest rank); zero if there are none.
    pub fn percentile(&mut self, percent: f64) -> Duration {
        self.micros.sort_unstable();
        let rank = (percent / 100.0 * self.micros.len() as f64).ceil() as usize;
        let micros = self.micros.get(rank.saturating_sub(1)).copied().unwrap_or_default();
        Duration::from_micros(u64::from(micros))
    }

    /// `p50 / p90 / p99 / max` in milliseconds.
    pub fn summary(&mut self) -> String {
        let [p50, p90, p99, max] = [50.0, 90.0, 99.0, 100.0].map(|p| self.percentile(p).as_secs_f64() * 1e3);
        format!("{p50:.2} / {p90:.2} / {p99:.2} / {max:.2} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut latencies = Latencies::default();
        for micros in (1..=100).rev() {
            latencies.add(Duration::from_micros(micros));
        }
        for (percent, expected) in [(1.0, 1), (50.0, 50), (99.0, 99), (100.0, 100)] {
            assert_eq!(latencies.percentile(percent), Duration::from_micros(expected));
        }
        assert_eq!(Latencies::default().percentile(99.0), Duration::ZERO);
    }
}
